"""The progress of an exactly-once replay: the messages that are in the target already.

The control records of each write of a replay have, beside what they have for exactly once, a note:
the ranges of the source queues that this write takes, and those that earlier writes took. So the
newest record tells all. A run takes what is wanted and was not taken yet; a write that was begun
and not finished is finished first, with the same ranges.

    {"done":[["broker-a","SHOP_ORDERS",0,[[0,500]]]],"takes":[["broker-a","SHOP_ORDERS",0,[[500,900]]]]}
"""

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, TypeAlias

from mqstore.deliver.once.control import Control, Starts, least
from mqstore.deliver.once.publish import History, is_committed
from mqstore.deliver.replay.rows import SourceQueue
from mqstore.format.arrays import Span
from mqstore.live.remoting.errors import BrokenAnswerError
from mqstore.read.source import QueueSlice

Ranges: TypeAlias = Mapping[SourceQueue, tuple[Span, ...]]
"""Ranges [start, end) of queue offsets by source queue, ascending and apart."""


@dataclass(frozen=True, slots=True)
class SourceNote:
    """What a write of a replay takes of its source, and what earlier ones took."""

    done: Ranges = field(default_factory=dict)
    takes: Ranges = field(default_factory=dict)

    def encode(self) -> str:
        """Return the note as the text of a control record."""
        found = {"done": _listed(self.done), "takes": _listed(self.takes)}
        return json.dumps(found, separators=(",", ":"))


@dataclass(frozen=True, slots=True)
class FinishedWrite:
    """A write that was committed: its version, what it took, where its messages begin."""

    version: int
    note: SourceNote
    starts: Starts


@dataclass(frozen=True, slots=True)
class ReplayState:
    """What the control records say: ``next_version`` is that of the next write.

    ``begun`` is what that write takes if it was begun before.
    """

    done: Ranges = field(default_factory=dict)
    next_version: int = 0
    begun: Ranges | None = None


def state_of(history: History) -> ReplayState:
    """Return how far a replay is. Raises BrokenAnswerError for a record without a note."""
    records = history.all()
    if not records:
        return ReplayState()
    newest = max(record.version for _, record in records)
    note = _note_of([record for _, record in records if record.version == newest])
    if is_committed(records, newest):
        return ReplayState(union(note.done, note.takes), newest + 1)
    return ReplayState(note.done, newest, note.takes)


def finished_of(history: History) -> list[FinishedWrite]:
    """Return the writes that were committed, by version. Raises as ``state_of``."""
    records = history.all()
    of_version: dict[int, list[Control]] = {}
    for _, record in records:
        of_version.setdefault(record.version, []).append(record)
    return [
        FinishedWrite(version, _note_of(own), least(record.starts for record in own))
        for version, own in sorted(of_version.items())
        if is_committed(records, version)
    ]


def ranges_of(slices: Iterable[QueueSlice]) -> Ranges:
    """Return the ranges of slices."""
    found: dict[SourceQueue, list[tuple[int, int]]] = {}
    for piece in slices:
        queue = (piece.broker_name, piece.topic, piece.queue_id)
        found.setdefault(queue, []).append((piece.start, piece.end))
    return {queue: _joined(ranges) for queue, ranges in found.items()}


def union(first: Ranges, second: Ranges) -> Ranges:
    """Return what is in either."""
    return {
        queue: _joined([*first.get(queue, ()), *second.get(queue, ())])
        for queue in sorted({*first, *second})
    }


def without(slices: Sequence[QueueSlice], done: Ranges) -> list[QueueSlice]:
    """Return what is left of slices outside of ``done``, in their order."""
    left = []
    for piece in slices:
        start = piece.start
        for low, high in done.get((piece.broker_name, piece.topic, piece.queue_id), ()):
            if start < min(low, piece.end):
                left.append(_part(piece, start, min(low, piece.end)))
            start = max(start, high)
        if start < piece.end:
            left.append(_part(piece, start, piece.end))
    return left


def _part(piece: QueueSlice, start: int, end: int) -> QueueSlice:
    is_whole = (start, end) == (piece.start, piece.end)
    return piece if is_whole else replace(piece, start=start, end=end, weight=None)


def _joined(ranges: Iterable[Span]) -> tuple[Span, ...]:
    joined: list[Span] = []
    for start, end in sorted(ranges):
        if joined and start <= joined[-1][1]:
            joined[-1] = (joined[-1][0], max(end, joined[-1][1]))
        else:
            joined.append((start, end))
    return tuple(joined)


def _listed(ranges: Ranges) -> list[list[Any]]:
    return [[*queue, [list(one) for one in held]] for queue, held in sorted(ranges.items())]


def _note_of(records: Sequence[Control]) -> SourceNote:
    text = records[0].source
    try:
        found = json.loads(text)
        return SourceNote(*(_ranges(found[name]) for name in ("done", "takes")))
    except (ValueError, KeyError, TypeError, RecursionError) as error:
        where = f"the control records of {records[0].app}"
        raise BrokenAnswerError(where, f"no note of a replay: {error}") from error


def _ranges(listed: Any) -> Ranges:
    found: dict[SourceQueue, tuple[tuple[int, int], ...]] = {}
    for broker, topic, queue_id, held in listed:
        ranges = [(start, end) for start, end in held]
        numbers = [queue_id, *(n for one in ranges for n in one)]
        if not all(isinstance(name, str) for name in (broker, topic)):
            raise TypeError("a name is no text")
        if not all(type(n) is int and 0 <= n < 2**63 for n in numbers):
            raise ValueError("a number is none")
        if any(start > end for start, end in ranges):
            raise ValueError("a range ends in front of its start")
        found[broker, topic, queue_id] = _joined(ranges)
    return found
