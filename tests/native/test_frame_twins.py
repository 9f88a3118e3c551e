"""Frames checked, followed and made by the compiled kernels as numpy does it."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from mqstore.codec.checksum import broken
from mqstore.codec.encode import Encoded, Hosts, Messages, encode
from mqstore.codec.gather import RecordHeaders
from mqstore.codec.properties_encode import join_blocks
from mqstore.codec.walk import Walked, follow
from mqstore.format.arrays import Recycled
from mqstore.native import frames, records
from mqstore.native.records import BlockPiece, EndToEnd
from support import kernels, oracle, strategies
from support.oracle import Message
from support.stores import packed, place

pytestmark = kernels.needs_compiled()
V4, V6 = bytes([127, 0, 0, 1]), bytes(range(16))
HOSTS = [Hosts(born, 1, store, 2) for born in (V4, V6) for store in (V4, V6)]


def arrays(*values: list[int]) -> list[Any]:
    return [np.array(each, np.int64) for each in values]


def headers_of(batch: list[Message], changes: list[tuple[int, int]]) -> RecordHeaders:
    data, starts, sizes = packed(place(batch))
    content = bytearray(data)
    for at, value in changes if content else ():
        content[at % len(content)] = value
    return RecordHeaders(np.frombuffer(bytes(content), np.uint8), *arrays(starts, sizes))


changes = st.lists(st.tuples(st.integers(0, 1 << 20), st.integers(0, 255)), max_size=3)


@given(batch=strategies.batches(), changed=changes)
def test_any_frames_have_the_same_checksums_and_only_whole_ones_have_any(
    batch: list[Message], changed: list[tuple[int, int]]
) -> None:
    headers = headers_of(batch, changed)
    with kernels.using("c"):
        found = frames.broken(headers.buffer, headers.starts, headers.sizes)
    assert (found is None) == bool(headers.problems())
    if found is not None:
        with kernels.using("numpy"):
            assert found.tolist() == broken(headers).tolist()


def as_list(walked: Walked) -> list[Any]:
    return [walked.starts.tolist(), walked.sizes.tolist(), walked.end, walked.why]


@given(batch=strategies.batches(), changed=changes, cut=st.integers(0, 3_000), tail=st.binary())
def test_any_bytes_are_followed_to_the_same_end(
    batch: list[Message], changed: list[tuple[int, int]], cut: int, tail: bytes
) -> None:
    data = headers_of(batch, changed).buffer.tobytes()
    for content in (data, data[:cut], data + tail, data + bytes(8), data + oracle.blank(64)):
        ours, theirs = kernels.with_both(lambda content=content: as_list(follow(content)))
        assert ours == theirs


@pytest.mark.parametrize("start", [-1, 1, 150, 2**63 - 1, -(2**63)])
def test_a_slice_outside_is_not_the_kernels(start: int) -> None:
    content = np.zeros(150, np.uint8)
    with kernels.using("c"):
        assert frames.broken(content, *arrays([start], [150])) is None


texts = st.one_of(st.text(max_size=6), st.text("abc", max_size=9))
columns = st.lists(st.one_of(st.none(), texts), min_size=1, max_size=12)


@given(values=columns, start=st.integers(0, 3), with_user=st.booleans())
def test_any_blocks_are_joined_alike(values: list[str | None], start: int, with_user: bool) -> None:
    column = pa.array(values, pa.string()).slice(start)
    whole = column.fill_null("none")
    user = pa.array([f"u\x01{n}\x02" for n in range(len(column))], pa.string())
    typed = [("KEYS", column), ("WAIT", "true"), ("标", whole), ("TAGS", column.slice(0))]
    ours, theirs = kernels.with_both(
        lambda: join_blocks(len(column), user if with_user else None, typed)
    )
    ours.validate(full=True)
    assert ours.equals(theirs)


def messages_of(batch: list[Message]) -> Messages:
    names = sorted({m.topic for m in batch})
    return Messages(
        tuple(names),
        np.array([names.index(m.topic) for m in batch], np.int32),
        np.array([m.queue_id for m in batch], np.int32),
        np.array([m.flag for m in batch], np.int32),
        np.array([m.sys_flag & ~0x30 for m in batch], np.int32),
        np.array([m.born_timestamp_ms for m in batch], np.int64),
        pa.array([m.body for m in batch], pa.binary()),
        pa.array([m.properties for m in batch], pa.binary()),
    )


def as_bytes(encoded: Encoded) -> list[Any]:
    return [encoded.records.tobytes(), encoded.starts.tolist(), encoded.sizes.tolist()]


@given(
    batch=strategies.batches(topics=strategies.TOPICS),
    hosts=st.sampled_from(HOSTS),
    data=st.data(),
)
def test_any_messages_are_encoded_alike(
    batch: list[Message], hosts: Hosts, data: st.DataObject
) -> None:
    messages = messages_of(batch)
    rows = st.lists(st.integers(0, len(batch) - 1)) if batch else st.just([])
    order = data.draw(st.one_of(st.none(), rows.map(lambda r: np.array(r, np.intp))))
    ours, theirs = kernels.with_both(lambda: as_bytes(encode(messages, hosts, order)))
    assert ours == theirs


def test_records_are_those_of_the_oracle() -> None:
    batch = [Message(topic="T", body=bytes([n]) * n, properties=b"TAGS\x01A\x02") for n in range(9)]
    with kernels.using("c"):
        made = encode(messages_of(batch), Hosts(V4, 10911, V4, 10911)).records.tobytes()
    zero = {"queue_offset": 0, "physical_offset": 0, "store_timestamp_ms": 0}
    expected = [oracle.encode(Message(**{**vars_of(m), **zero})) for m in batch]
    assert made == b"".join(expected)


def test_records_lie_in_the_memory_that_is_given_and_outlive_the_next_ones() -> None:
    first, second = (messages_of([Message(body=bytes([n]) * 900)] * 5) for n in (1, 2))
    for kind in kernels.KINDS:
        memory = Recycled(most=1)
        with kernels.using(kind):
            kept = encode(first, HOSTS[0], None, memory).records
            before = kept.tobytes()
            assert encode(second, HOSTS[0], None, memory).records.tobytes() != before
        assert kept.tobytes() == before


def vars_of(m: Message) -> dict[str, Any]:
    return {name: getattr(m, name) for name in ("topic", "body", "properties", "queue_id")}


def test_rows_and_topics_that_are_none_are_not_encoded() -> None:
    messages = messages_of([Message(body=b"x")])
    fields = records.Fields(
        messages.topics, messages.queue_ids, messages.flags, messages.sys_flags,
        messages.born_timestamps_ms,
    )  # fmt: skip
    tails = messages.bodies, messages.properties
    (size,) = messages.sizes(HOSTS[0]).tolist()

    def taken(
        order: int, claimed: int, header: int = 88, topics: Sequence[bytes] = (b"\1T",)
    ) -> bool:
        room = np.empty(claimed, np.uint8)
        places = EndToEnd(*arrays([order], [claimed]), room)
        return records.encode(bytes(header), topics, fields, tails, places)

    with kernels.using("c"):
        assert taken(0, size)
        assert not taken(1, size)
        assert not taken(-1, size)
        assert not taken(0, size - 1)
        assert not taken(0, size, topics=[])
        assert not taken(0, size - 8, header=80)
        assert records.join_blocks(2, [BlockPiece(b"a", pa.array(["x"]))]) is None
