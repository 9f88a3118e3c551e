"""What there can be: any message, any batch, any property block, any store.

These definitions are the definition of "any": a new field, bit or oddity of the format enters
here first, and every property test meets it.
"""

from dataclasses import replace

from hypothesis import strategies as st

from support import oracle
from support.oracle import BORN_V6, COMPRESSED, LZ4, STORE_V6, V1, V2, ZLIB, ZSTD, Host, Message
from support.stores import Layout

MILLENNIUM_MS = 4_102_444_800_000  # 2100

LONG_RETRY_TOPIC = "%RETRY%" + "g" * 200
ODD_NAMES = (
    "shop.orders",
    "%RETRY%com.shop.app",
    "订单",
    "a b",
    "a,b",
    "x@y#1",
    "..%2f",
    "é\n\x1b[1m",
)
"""Names of folders that a broker serves, and that it lets nobody make today."""

PLAIN_TOPICS = ("T", "Topic_2", "a-b|c", "%RETRY%group", "%DLQ%group", "%RETRY%g+T", "x" * 127)
TOPICS = (*PLAIN_TOPICS, *ODD_NAMES)

# Ends of the encodings: a UTF-8 text of one to four bytes a character, never a separator.
characters = st.characters(codec="utf-8", exclude_characters="\x01\x02")
names = st.text(characters, min_size=1, max_size=8)
values = st.text(characters, min_size=1, max_size=20)
tags = st.one_of(st.sampled_from(["TagA", "标签C", "😀", "a||b", "Aa", "BB"]), values)
key_words = st.text(
    st.characters(codec="utf-8", exclude_characters="\x01\x02 "), min_size=1, max_size=8
)
keys = st.lists(key_words, min_size=1, max_size=3).map(" ".join)

ipv4 = st.binary(min_size=4, max_size=4)
ipv6 = st.binary(min_size=16, max_size=16)
ports = st.integers(0, 65_535)
int32 = st.integers(-(2**31), 2**31 - 1)
timestamps_ms = st.integers(0, MILLENNIUM_MS)


@st.composite
def property_maps(draw: st.DrawFn) -> dict[str, str]:
    """Any map a producer can send, in any order, with RocketMQ's own names among them."""
    known = draw(
        st.fixed_dictionaries(
            {},
            optional={
                "TAGS": tags,
                "KEYS": keys,
                "UNIQ_KEY": st.text("0123456789ABCDEF", min_size=32, max_size=32),
                "WAIT": st.sampled_from(["true", "false"]),
                "__SHARDINGKEY": values,
            },
        )
    )
    others = draw(st.dictionaries(names, values, max_size=4))
    return dict(draw(st.permutations(list({**others, **known}.items()))))


# Pieces that a decoder drops, halves or keeps; see MessageDecoderTest's malformed cases.
_odd_pieces = st.sampled_from(
    [
        "",
        "a",
        "\x01",
        "\x01v",
        "n\x01",
        "ab",
        "n\x01v\x01w",
        "\x01n\x01v",
        "TAGS\x01",
        "KEYS",
        "\x01\x01",
    ]
)
_pieces = st.one_of(st.tuples(names, values).map("\x01".join), _odd_pieces)


@st.composite
def property_blocks(draw: st.DrawFn) -> bytes:
    """Any block of text: well-formed or not, names twice, last separator there or not."""
    if draw(st.booleans()):
        return oracle.join_properties(draw(property_maps()), trailing=draw(st.booleans()))
    pieces = draw(st.lists(_pieces, max_size=6))
    again = draw(st.lists(st.sampled_from(pieces), max_size=2)) if pieces else []
    return ("\x02".join(pieces + again) + draw(st.sampled_from(["", "\x02", "\x02\x02"]))).encode()


@st.composite
def bodies(draw: st.DrawFn) -> tuple[bytes, int]:
    """A stored body and the sysFlag bits that tell how it is packed."""
    body = draw(st.one_of(st.binary(max_size=300), st.builds(bytes, st.integers(0, 600))))
    codec = draw(st.sampled_from([0, LZ4, ZSTD, ZLIB]))
    if draw(st.booleans()):
        return body, codec  # the codec alone says nothing
    return oracle.compress(body, codec), codec | COMPRESSED


@st.composite
def messages(draw: st.DrawFn, topics: tuple[str, ...] = (*TOPICS, LONG_RETRY_TOPIC)) -> Message:
    """Any record a broker of any version can hold; offsets are given by `stores.place`."""
    topic = draw(st.sampled_from(topics))
    body, body_bits = draw(bodies())
    born_v6, store_v6 = draw(st.booleans()), draw(st.booleans())
    other_bits = draw(st.sampled_from([0, 0, 0x2, 0x4, 0x8, 0xC, 0x40, 0xA]))
    message = Message(
        topic=topic,
        body=body,
        properties=draw(property_blocks()),
        queue_id=draw(st.integers(0, 3)),
        flag=draw(int32),
        sys_flag=body_bits | other_bits | BORN_V6 * born_v6 | STORE_V6 * store_v6,
        born_timestamp_ms=draw(timestamps_ms),
        born_host=Host(ip=draw(ipv6 if born_v6 else ipv4), port=draw(ports)),
        store_timestamp_ms=draw(timestamps_ms),
        store_host=Host(ip=draw(ipv6 if store_v6 else ipv4), port=draw(ports)),
        reconsume_times=draw(st.integers(0, 16)),
        prepared_transaction_offset=draw(st.integers(0, 2**40)),
        magic=V2 if len(topic) > 127 else draw(st.sampled_from([V1, V2])),
    )
    return oracle.with_property_crc(message) if draw(st.integers(0, 7)) == 7 else message


def batches(*, max_size: int = 20, **parts: tuple[str, ...]) -> st.SearchStrategy[list[Message]]:
    """Any sequence of messages, as they come to one broker."""
    return st.lists(messages(**parts), max_size=max_size)


@st.composite
def delayed(draw: st.DrawFn) -> Message:
    """A message waiting in SCHEDULE_TOPIC_XXXX: its unit holds a time, not a hash."""
    level = draw(st.integers(1, 20))
    message = draw(messages())
    properties = {"REAL_TOPIC": "T", "REAL_QID": "0", "DELAY": str(level), "TAGS": "late"}
    return replace(
        message,
        topic=oracle.SCHEDULE_TOPIC,
        queue_id=min(level, 18) - 1,
        properties=oracle.join_properties(properties),
        sys_flag=message.sys_flag & ~oracle.ROLLBACK,
        magic=V1,
    )


@st.composite
def layouts(draw: st.DrawFn) -> Layout:
    """Any history of a broker, with files so small that everything rolls."""
    return Layout(
        commit_log_bytes=draw(st.sampled_from([2048, 2500, 4096])),
        queue_units=draw(st.integers(1, 9)),
        index_slots=draw(st.integers(1, 11)),
        index_units=draw(st.integers(4, 30)),
        index=draw(st.booleans()),
        index_tags=draw(st.booleans()),
        start=draw(st.sampled_from([0, 0, 2**30, 2**41])),
        preallocated=draw(st.booleans()),
        checkpoint=draw(st.booleans()),
        lock=draw(st.booleans()),
    )
