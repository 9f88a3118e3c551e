"""The parts of a replay: which queue messages go to, and what was taken already."""

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mqstore.deliver.once.control import BEGIN, COMMIT, Control
from mqstore.deliver.once.publish import History
from mqstore.deliver.replay.destinations import queue_for
from mqstore.deliver.replay.progress import (
    Ranges,
    SourceNote,
    finished_of,
    ranges_of,
    state_of,
    union,
    without,
)
from mqstore.live.remoting.errors import BrokenAnswerError
from mqstore.live.send.pace import Pace
from mqstore.live.send.requests import Queue
from mqstore.read.source import QueueSlice

AT = Queue("T", "a", 0)
RANGES = st.lists(st.tuples(st.integers(0, 30), st.integers(1, 9)), max_size=6)


def queues(**counts: int) -> list[Queue]:
    return [Queue("T", broker, n) for broker, count in counts.items() for n in range(count)]


def to(target: list[Queue], broker: str, queue_id: int, rank: int) -> str:
    found = queue_for(target, broker, queue_id, rank)
    return f"{found.broker}{found.queue_id}"


def test_queue_n_goes_to_queue_n_of_the_same_broker_or_of_another_else_round() -> None:
    assert [to(queues(a=4, b=4), "b", n, 1) for n in range(4)] == ["b0", "b1", "b2", "b3"]
    assert [to(queues(x=4), "a", n, 0) for n in range(4)] == ["x0", "x1", "x2", "x3"]
    assert [to(queues(x=2, y=2), broker, 1, rank) for rank, broker in enumerate("abc")] == [
        "x1", "y1", "x1",
    ]  # fmt: skip
    assert [to(queues(x=2, y=1), "a", n, 0) for n in range(5)] == ["x0", "x1", "y0", "x0", "x1"]


def slices(ranges: list[tuple[int, int]]) -> list[QueueSlice]:
    origin: Any = "store"
    return [QueueSlice(origin, "a", "T", 0, start, start + size) for start, size in ranges]


def offsets_of(ranges: Ranges) -> set[int]:
    return {n for held in ranges.values() for start, end in held for n in range(start, end)}


@given(wanted=RANGES, first=RANGES, second=RANGES)
def test_what_is_left_is_what_was_not_taken(
    wanted: list[tuple[int, int]], first: list[tuple[int, int]], second: list[tuple[int, int]]
) -> None:
    done = union(ranges_of(slices(first)), ranges_of(slices(second)))
    taken = {n for start, size in [*first, *second] for n in range(start, start + size)}
    assert offsets_of(done) == taken
    left = [n for piece in without(slices(wanted), done) for n in range(piece.start, piece.end)]
    assert left == [
        n for start, size in wanted for n in range(start, start + size) if n not in taken
    ]


def record(kind: str, version: int, note: SourceNote, owner: str = "o") -> Control:
    return Control(kind, "app", version, owner, {AT: version}, source=note.encode())


def test_the_newest_record_tells_what_is_done_and_what_was_begun() -> None:
    first = {("a", "T", 0): ((0, 5),)}
    second = {("a", "T", 0): ((5, 9),)}
    notes = SourceNote({}, first), SourceNote(first, second)
    records = [record(BEGIN, 0, notes[0]), record(COMMIT, 0, notes[0]), record(BEGIN, 1, notes[1])]
    begun = state_of(History({"a": records}, {}))
    assert (begun.done, begun.next_version, begun.begun) == (first, 1, second)
    finished = finished_of(History({"a": records}, {}))
    assert [(one.version, one.note, one.starts) for one in finished] == [(0, notes[0], {AT: 0})]
    ended = state_of(History({"a": [*records, record(COMMIT, 1, notes[1])]}, {}))
    assert (ended.done, ended.next_version) == ({("a", "T", 0): ((0, 9),)}, 2)
    assert ended.begun is None
    assert state_of(History({}, {})).next_version == 0


@pytest.mark.parametrize(
    "text",
    [
        "",
        "[]",
        "{}",
        '{"done":[],"takes":[["a","T",0,[[0,-1]]]]}',
        '{"done":[],"takes":[[1,2,3,4]]}',
        '{"done":[],"takes":[["a","T",0,[["0",1]]]]}',
        '{"done":[["a","T",0,[[6,5]]]],"takes":[]}',
        "[" * 100_000,
    ],
)
def test_a_record_without_a_note_is_an_error_with_a_name(text: str) -> None:
    broken = replace(record(BEGIN, 0, SourceNote()), source=text)
    with pytest.raises(BrokenAnswerError, match="no note of a replay"):
        state_of(History({"a": [broken]}, {}))


def test_a_pace_lets_the_next_request_wait_for_messages_and_bytes(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("time.monotonic", lambda: 100.0)
    pace = Pace(messages_per_s=10, bytes_per_s=1_000)
    assert pace.ready_at <= 100
    pace.sent(5, 100)
    assert pace.ready_at == pytest.approx(100.5)
    pace.sent(1, 2_000)
    assert pace.ready_at == pytest.approx(102.5)
