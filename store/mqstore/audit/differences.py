"""The messages in which two places differ, found within the buckets whose digests are unequal.

By offset the queues of those buckets are read again on both sides, 65,536 queue offsets at a time.
By id all queues are, and so are those of the buckets where a side is a table, whose rows have no
order and may repeat an offset: see ``identities``.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import groupby
from operator import itemgetter
from typing import Final

import numpy as np

from mqstore.audit.contents import contents_at, described
from mqstore.audit.digests import AuditDigests
from mqstore.audit.found import (
    ALTERED,
    NOT_IN_FIRST,
    NOT_IN_SECOND,
    Difference,
    MessagePlace,
)
from mqstore.audit.identities import by_identity
from mqstore.audit.relation import PlacedQueue
from mqstore.audit.rows import ID_BUCKETS, AuditRule, digested
from mqstore.audit.sides import AuditSide, Side
from mqstore.format.arrays import Int64s, UInt64Pairs
from mqstore.read.source import QueueSlice

_OFFSETS_AT_A_TIME: Final = 65_536


def differences(
    sides: tuple[Side, Side],
    digests: tuple[AuditDigests, AuditDigests],
    rule: AuditRule,
) -> Iterator[Difference]:
    """Yield the messages in which two places differ; nothing if all their buckets are equal.

    Raises as ``scan``.
    """
    unequal = digests[0].unequal(digests[1])
    if rule.identity == "id":
        parts = np.array([bucket[3] for bucket in unequal], np.int64)
        for found in by_identity(sides, rule, parts):
            yield from _described(found, sides, rule)
        return
    queues = sorted({bucket[:3] for bucket in unequal})
    if not (isinstance(sides[0], AuditSide) and isinstance(sides[1], AuditSide)):
        yield from _of_tables(sides, queues, rule)
        return
    for queue in queues:
        pieces = sides[0].of_queue((*queue, 0)), sides[1].of_queue((*queue, 0))
        for found in _of_queue(queue[0], pieces, rule):
            yield from _described(found, sides, rule)


def _of_tables(
    sides: tuple[Side, Side], queues: Sequence[PlacedQueue], rule: AuditRule
) -> Iterator[Difference]:
    """Yield the differences of queues, broker by broker: its name is not in an identity."""
    for _, of_it in groupby(queues, itemgetter(0)):
        names = frozenset(of_it)
        some = sides[0].of_queues(names), sides[1].of_queues(names)
        for found in by_identity(some, rule, np.arange(ID_BUCKETS)):
            yield from _described(sorted(found, key=_queue_place), some, rule)


@dataclass(frozen=True, slots=True)
class _Rows:
    """Messages of a queue: offsets ascending, times in ms, digests [n, 2]."""

    queue_offsets: Int64s
    ms: Int64s
    digests: UInt64Pairs


def _of_queue(
    broker: str, pieces: tuple[QueueSlice | None, QueueSlice | None], rule: AuditRule
) -> Iterator[list[Difference]]:
    held = [piece for piece in pieces if piece is not None]
    queue = (broker, held[0].topic, held[0].queue_id) if held else ("", "", 0)
    for bounds in _windows(held):
        first, second = (_rows(piece, rule, bounds) for piece in pieces)
        found = [
            Difference(NOT_IN_SECOND, _place(queue, first, row), None)
            for row in np.flatnonzero(~np.isin(first.queue_offsets, second.queue_offsets)).tolist()
        ]
        found += [
            Difference(NOT_IN_FIRST, None, _place(queue, second, row))
            for row in np.flatnonzero(~np.isin(second.queue_offsets, first.queue_offsets)).tolist()
        ]
        _, at, other = np.intersect1d(
            first.queue_offsets, second.queue_offsets, assume_unique=True, return_indices=True
        )
        differs = (first.digests[at] != second.digests[other]).any(axis=1)
        for row, its in zip(at[differs].tolist(), other[differs].tolist(), strict=True):
            found.append(Difference(ALTERED, _place(queue, first, row), _place(queue, second, its)))
        yield sorted(found, key=_queue_place)


def _windows(pieces: Sequence[QueueSlice]) -> Iterator[tuple[int, int]]:
    """Yield parts of the queue offsets of pieces; what may lie far between them is in none."""
    low = 0
    while left := [piece for piece in pieces if piece.end > low]:
        low = max(low, min(piece.start for piece in left))
        yield low, low + _OFFSETS_AT_A_TIME
        low += _OFFSETS_AT_A_TIME


def _clipped(piece: QueueSlice | None, bounds: tuple[int, int]) -> list[QueueSlice]:
    if piece is None:
        return []
    start, end = max(piece.start, bounds[0]), min(piece.end, bounds[1])
    return [replace(piece, start=start, end=end, weight=None)] if start < end else []


def _rows(piece: QueueSlice | None, rule: AuditRule, bounds: tuple[int, int]) -> _Rows:
    parts = [
        (part.queue_offsets, part.row.stored_ms, part.row.digests)
        for part in digested(_clipped(piece, bounds), rule)
    ]
    if not parts:
        return _Rows(np.zeros(0, np.int64), np.zeros(0, np.int64), np.zeros((0, 2), np.uint64))
    offsets_of, ms, digests = (np.concatenate(column) for column in zip(*parts, strict=True))
    return _Rows(offsets_of, ms, digests)


def _place(queue: tuple[str, str, int], rows: _Rows, row: int) -> MessagePlace:
    return MessagePlace(*queue, int(rows.queue_offsets[row]), int(rows.ms[row]))


def _queue_place(found: Difference) -> tuple[str, int, int]:
    place = found.first or found.second
    return (place.topic, place.queue_id, place.queue_offset) if place else ("", 0, 0)


def _described(
    found: Sequence[Difference], sides: tuple[Side, Side], rule: AuditRule
) -> Iterator[Difference]:
    step = max(side.described_at_a_time for side in sides)
    lookups = partial(contents_at, sides[0], rule), partial(contents_at, sides[1], rule)
    return described(found, lookups, rule, step)
