"""Encoding: what comes out is, byte for byte, what the oracle writes for the same message."""

from dataclasses import replace

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from mqstore.codec.compression import compress
from mqstore.codec.encode import Hosts, Messages, binary_lengths, encode
from mqstore.codec.hashing import hash_strings, hash_text, key_hashes, tags_codes
from mqstore.codec.patch import patch
from mqstore.codec.properties_encode import entries, has_separator, join_blocks, join_map
from mqstore.codec.walk import BLANK_RECORD, CUT, NO_RECORD, ZERO, follow
from mqstore.format.hashing import java_hash, key_hash, tags_code
from support import oracle, strategies
from support.oracle import BORN_V6, STORE_V6, V1, Host, Message

MAP = pa.map_(pa.string(), pa.string())
TEXTS = st.lists(st.one_of(st.none(), st.text(max_size=12), strategies.tags), max_size=20)
HOST_BITS = BORN_V6 | STORE_V6


def columns(messages: list[Message]) -> Messages:
    names = list(dict.fromkeys(m.topic for m in messages))
    return Messages(
        topic_names=tuple(names),
        topics=np.array([names.index(m.topic) for m in messages], np.int32),
        queue_ids=np.array([m.queue_id for m in messages], np.int32),
        flags=np.array([m.flag for m in messages], np.int32),
        sys_flags=np.array([m.sys_flag & ~HOST_BITS for m in messages], np.int32),
        born_timestamps_ms=np.array([m.born_timestamp_ms for m in messages], np.int64),
        bodies=pa.array([m.body for m in messages], pa.binary()),
        properties=pa.array([m.properties for m in messages], pa.binary()),
    )


@given(
    st.lists(strategies.messages(topics=("T", "Topic_2", "x" * 127)), min_size=1, max_size=12),
    st.builds(Host, ip=st.one_of(strategies.ipv4, strategies.ipv6), port=strategies.ports),
    st.builds(Host, ip=st.one_of(strategies.ipv4, strategies.ipv6), port=strategies.ports),
)
def test_encode_and_patch_agree_with_the_oracle(
    messages: list[Message], born: Host, store: Host
) -> None:
    hosts = Hosts(born.ip, born.port, store.ip, store.port)
    plain = [
        replace(
            m,
            magic=V1,
            body_crc=None,
            born_host=born,
            store_host=store,
            sys_flag=m.sys_flag & ~HOST_BITS | hosts.sys_flag,
            reconsume_times=0,
            prepared_transaction_offset=0,
            queue_offset=n * 7,
            physical_offset=2**41 + n,
        )
        for n, m in enumerate(messages)
    ]
    encoded = encode(columns(plain), hosts)
    records = encoded.records.copy()
    patch(
        records,
        encoded.starts,
        queue_offsets=np.array([m.queue_offset for m in plain], np.int64),
        physical_offsets=np.array([m.physical_offset for m in plain], np.int64),
        store_timestamps_ms=np.array([m.store_timestamp_ms for m in plain], np.int64),
        host_variant=hosts.variant,
    )
    assert records.tobytes() == b"".join(oracle.encode(m) for m in plain)
    assert encoded.sizes.tolist() == [m.size for m in plain]
    walked = follow(records.tobytes())
    assert walked.starts.tolist() == encoded.starts.tolist()
    assert walked.why == CUT


def test_nothing_encodes_to_nothing() -> None:
    empty = encode(columns([Message()]).take(np.array([], np.intp)), Hosts(b"abcd", 0, b"abcd", 0))
    assert len(empty.records) == len(empty.starts) == 0


@given(TEXTS, st.integers(0, 3))
def test_hashes_of_a_column_are_those_of_its_strings(texts: list[str | None], skip: int) -> None:
    column = pa.array(texts, pa.string())[skip:]
    texts = texts[skip:]
    hashes = hash_strings(column)
    assert hashes.values.view(np.int32).tolist() == [java_hash(t or "") for t in texts]
    assert tags_codes(column).tolist() == [tags_code(t) for t in texts]
    prefix = np.full(len(texts), hash_text("topic😀#"), np.uint32)
    after = key_hashes(hashes.after(prefix).values).tolist()
    assert after == [key_hash(f"topic😀#{t or ''}") for t in texts]


def test_long_strings_and_equal_lengths_hash_as_others() -> None:
    texts = ["ab" * 5000, "cd" * 5000]
    assert hash_strings(pa.array(texts)).values.view(np.int32).tolist() == list(
        map(java_hash, texts)
    )


@given(
    st.lists(st.one_of(st.none(), strategies.property_maps()), max_size=12),
    st.integers(0, 2),
)
def test_blocks_split_into_the_maps_they_were_made_of(
    maps: list[dict[str, str] | None], skip: int
) -> None:
    column = pa.array([None if m is None else list(m.items()) for m in maps], MAP)[skip:]
    maps = maps[skip:]
    wanted = np.ones(len(entries(column)[1]), np.bool_)
    tags = pa.array([f"t{n}" if n % 2 else None for n in range(len(maps))], pa.string())
    blocks = join_blocks(len(maps), join_map(column, wanted), [("X", tags), ("Y", "all")])
    told = [oracle.split_properties(block.as_py()) for block in blocks]
    asked = [
        {**(m or {}), **({"X": f"t{n}"} if n % 2 else {}), "Y": "all"} for n, m in enumerate(maps)
    ]
    assert told == asked


def test_unwanted_entries_are_left_out() -> None:
    column = pa.array([[("a", "1"), ("b", None)], [("c", "3")], None], MAP)
    blocks = join_map(column, np.array([True, False, False]))
    assert blocks.to_pylist() == ["a\x011\x02", "", ""]
    assert join_blocks(2, None, []).to_pylist() == [b"", b""]


def test_separators_are_seen_wherever_they_are() -> None:
    column = pa.array(["a", "b\x01", None, "\x02", "\x00", ""])
    assert has_separator(column).tolist() == [False, True, False, True, False, False]
    assert has_separator(column[:1]).tolist() == [False]
    assert has_separator(pa.array([], pa.string())).tolist() == []


@given(st.lists(st.one_of(st.none(), st.binary(max_size=3000)), max_size=6))
@pytest.mark.parametrize("codec", ["zlib", "lz4", "zstd"])
def test_what_is_compressed_is_decompressed_by_the_oracle(
    codec: str, bodies: list[bytes | None]
) -> None:
    bodies = [b if b is None or not b else b * 3 for b in bodies]
    packed, flags = compress(pa.array(bodies, pa.binary()), codec, 64)
    for before, after, flag in zip(bodies, packed.to_pylist(), flags.tolist(), strict=True):
        if before is None:
            assert after is None
        else:
            assert oracle.decompress(after, flag) == before
            assert bool(flag) == (len(after) < len(before) and len(before) >= 64)


def test_an_lz4_frame_is_the_one_that_lz4_java_reads() -> None:
    """Independent blocks of at most 4 MiB, what does not shrink stored as it is."""
    noise = np.random.default_rng(1).bytes(3 << 20)
    body = bytes(5 << 20) + noise
    packed, flags = compress(pa.array([body]), "lz4", 1)
    frame = packed[0].as_py()
    assert frame == oracle.compress(body, oracle.LZ4)
    assert flags[0] == oracle.LZ4 | oracle.COMPRESSED


@pytest.mark.parametrize(
    ("tail", "why"),
    [
        (b"", CUT),
        (bytes(100), ZERO),
        (oracle.blank(50), BLANK_RECORD),
        (b"\xff" * 100, NO_RECORD),
        (oracle.encode(Message())[:60], CUT),
    ],
)
def test_a_walk_says_why_it_ended(tail: bytes, why: str) -> None:
    record = oracle.encode(Message(body=b"x"))
    walked = follow(record * 3 + tail)
    assert walked.starts.tolist() == [0, len(record), 2 * len(record)]
    assert (walked.end, walked.why) == (3 * len(record), why)


@given(
    values=st.lists(st.one_of(st.none(), st.text(max_size=5)), max_size=9),
    cut=st.integers(0, 9),
    kind=st.sampled_from([pa.string(), pa.binary(), pa.large_string(), pa.large_binary()]),
)
def test_lengths_are_those_of_the_bytes(
    values: list[str | None], cut: int, kind: pa.DataType
) -> None:
    column = pa.array([None if v is None else v.encode() for v in values], pa.binary()).cast(kind)
    expected = [len((v or "").encode()) for v in values]
    assert binary_lengths(column).tolist() == expected
    assert binary_lengths(column.slice(cut)).tolist() == expected[cut:]
