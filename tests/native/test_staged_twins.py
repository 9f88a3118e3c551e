"""Staged frames verified, numbered and entered by the compiled kernels as numpy does it."""

import zlib
from typing import Any

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from mqstore.files.txn.segment import SegmentFrame
from mqstore.format.arrays import Structs
from mqstore.format.staged import MESSAGE
from mqstore.native import staged
from mqstore.write import staged_messages
from mqstore.write.dispatch import AssignedFrame, OffsetAssigner
from mqstore.write.plan import Placement
from support import kernels, oracle, strategies
from support.oracle import Message
from support.stores import Layout, packed, place

pytestmark = kernels.needs_compiled()
SEED = 0x1234567

changes = st.lists(st.tuples(st.integers(0, 1 << 20), st.integers(0, 255)), max_size=3)


def frame_of(batch: list[Message], changed: list[tuple[int, int]]) -> SegmentFrame:
    data, _, sizes = packed(place(batch, Layout(commit_log_bytes=1 << 24)))
    content = bytearray(data)
    for at, value in changed if content else ():
        content[at % len(content)] = value
    queues = tuple(dict.fromkeys((m.topic, m.queue_id) for m in batch))
    table = np.zeros(len(batch), MESSAGE)
    table["size"] = sizes
    table["queue"] = [queues.index((m.topic, m.queue_id)) for m in batch]
    records = np.frombuffer(bytes(content), np.uint8)
    return SegmentFrame(queues, table, np.zeros(0, np.int32), records)


@given(batch=strategies.batches(), changed=changes, other=st.integers(-1, 5), more=st.binary())
def test_what_the_kernel_finds_sound_has_no_problem_and_zlibs_checksum(
    batch: list[Message], changed: list[tuple[int, int]], other: int, more: bytes
) -> None:
    frame = frame_of(batch, changed)
    if other < 5 and len(batch):
        frame.messages["queue"][-1] = other
    content = np.frombuffer(frame.records.tobytes() + more[: max(0, other)], np.uint8)
    frame = SegmentFrame(frame.queues, frame.messages, frame.keys, content)
    seen = staged_messages._Seen()
    with kernels.using("c"):
        total = seen.summed(frame, SEED)
    assert total == zlib.crc32(content, SEED)
    problem = staged_messages._problem(frame, bodies=False)
    assert seen.sound == (problem is None and len(batch) >= staged._FEW)


def test_runs_of_records_are_summed_across_their_edges() -> None:
    """Records below, at and above the bytes that are summed at once."""
    for sizes in ([10] * 500, [40_000] * 5, [1, 32_767, 32_768, 70_000, 3], [32_674] * 4):
        batch = [Message(body=bytes([n % 251]) * size) for n, size in enumerate(sizes)]
        frame = frame_of(batch, [])
        with kernels.using("c"):
            total = staged.verify(frame.messages, frame.records, frame.queues, SEED)
        assert total == zlib.crc32(frame.records, SEED)


def test_a_record_is_of_its_own_queue_alone() -> None:
    batch = [Message(topic=topic, queue_id=n) for topic in ("T", "Ta") for n in (0, 1)]
    frame = frame_of(batch, [])

    def is_sound(*rows: int) -> bool:
        table = frame.messages[: len(rows)].copy()
        table["queue"] = rows
        return staged.verify(table, frame.records, frame.queues, 0) is not None

    with kernels.using("c"):
        assert is_sound(0, 1, 2, 3)
        assert not any(is_sound(row, 1, 2, 3) for row in (-1, 1, 2, 3, 4, 2**31 - 1))
        for flag in (oracle.PREPARED, oracle.ROLLBACK):
            changed = np.frombuffer(bytearray(frame.records.tobytes()), np.uint8)
            changed[39] |= flag
            assert staged.verify(frame.messages, changed, frame.queues, 0) is None


queue_counts = st.integers(1, 4)
rows = st.tuples(
    st.integers(0, 3),
    st.integers(91, 400),
    st.integers(-(2**63), 2**63 - 1),
    st.sampled_from([0, 0, 5, 50, -1]),
)


def table_of(found: list[tuple[int, int, int, int]], queues: int) -> Structs:
    table = np.zeros(len(found), MESSAGE)
    for row, (queue, size, tags_code, moment) in zip(table, found, strict=True):
        row["queue"], row["size"] = queue % queues, size
        row["tags_code"], row["store_timestamp_ms"] = tags_code, moment
        row["starts_batch"] = 1
    return table


@given(found=st.lists(rows, min_size=1), queues=queue_counts, room=st.integers(420, 9_000))
def test_any_messages_get_the_same_places_numbers_and_units(
    found: list[tuple[int, int, int, int]], queues: int, room: int
) -> None:
    names = tuple(("T", number) for number in range(queues))
    frame = SegmentFrame(names, table_of(found, queues), np.zeros(0, np.int32), np.zeros(0, "u1"))

    def assigned() -> list[Any]:
        placement = Placement(room * 7, room, room * 7)
        assigner = OffsetAssigner(placement, {names[0]: 40}, 20, 10)
        return [told(assigner.assign(frame)) for _ in range(2)]

    ours, theirs = kernels.with_both(assigned)
    assert ours == theirs


def told(one: AssignedFrame) -> list[Any]:
    arrays = (one.placed.physical_offsets, one.queue_offsets, one.store_timestamps_ms)
    units = [(queue, first, units.tobytes()) for queue, first, units in one.units()]
    return [*(array.tolist() for array in arrays), one.placed.blanks, units]


def test_what_is_delayed_or_of_no_queue_is_left_to_numpy() -> None:
    table = table_of([(0, 91, 0, 0)] * 4, 1)
    places, firsts = np.arange(4), np.zeros(1, np.int64)
    with kernels.using("c"):
        assert staged.make_units(table, places, firsts) is not None
        assert staged.make_units(table, places, firsts + 1) is None
        table["delay_level"][3] = 1
        assert staged.make_units(table, places, firsts) is None
        table["delay_level"][3], table["queue"][3] = 0, 1
        assert staged.make_units(table, places, firsts) is None
