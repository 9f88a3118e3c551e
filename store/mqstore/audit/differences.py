"""The messages in which two places differ, found within the buckets whose digests are unequal.

By offset the queues of those buckets are read again on both sides, 65,536 queue offsets at a time;
by id all queues are, as often as half a million messages of unequal buckets take.
"""

from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

import numpy as np
import pyarrow as pa

from mqstore.audit.digests import (
    AuditDigests,
    AuditRule,
    Bucket,
    DigestedBatch,
    digested,
    stored_ms,
)
from mqstore.audit.sides import AuditSide
from mqstore.codec.message_digest import OF_CONTENT
from mqstore.format.arrays import Int64s, UInt64Pairs
from mqstore.read.scan import scan
from mqstore.read.settings import ScanSettings
from mqstore.read.source import QueueSlice, slices_of

NOT_IN_SECOND: Final = "missing"
NOT_IN_FIRST: Final = "extra"
DOUBLED: Final = "doubled"
ALTERED: Final = "altered"
_PLACE_COLUMNS: Final = ("topic", "queueId", "queueOffset")
_OFFSETS_AT_A_TIME: Final = 65_536
_MOST_IN_MEMORY: Final = 500_000


@dataclass(frozen=True, slots=True)
class MessagePlace:
    """Where a message lies, and when it was stored (epoch ms)."""

    broker: str
    topic: str
    queue_id: int
    queue_offset: int
    stored_ms: int


@dataclass(frozen=True, slots=True)
class Difference:
    """One message in which the places differ: in ``kind``, of which ``fields``.

    ``missing`` lies in the first place only, ``extra`` in the second only; ``doubled`` lies more
    often in one than in the other. ``first`` and ``second`` say where, None where not.
    """

    kind: str
    first: MessagePlace | None
    second: MessagePlace | None
    message_id: str | None = None
    fields: tuple[str, ...] = ()


def differences(
    sides: tuple[AuditSide, AuditSide],
    digests: tuple[AuditDigests, AuditDigests],
    rule: AuditRule,
) -> Iterator[Difference]:
    """Yield the messages in which two places differ; nothing if all their buckets are equal.

    Raises as ``scan``.
    """
    unequal = digests[0].unequal(digests[1])
    if rule.identity == "id":
        for some in _groups(unequal, digests):
            yield from _of_ids(sides, rule, some)
        return
    for broker, topic, queue_id in sorted({bucket[:3] for bucket in unequal}):
        bucket = broker, topic, queue_id, 0
        pieces = sides[0].of_queue(bucket), sides[1].of_queue(bucket)
        yield from _of_queue(broker, pieces, rule)


@dataclass(frozen=True, slots=True)
class _Rows:
    """Messages of a queue: offsets ascending, times in ms, digests [n, 2]."""

    queue_offsets: Int64s
    ms: Int64s
    digests: UInt64Pairs


def _of_queue(
    broker: str, pieces: tuple[QueueSlice | None, QueueSlice | None], rule: AuditRule
) -> Iterator[Difference]:
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
            here, there = _place(queue, first, row), _place(queue, second, its)
            bounds_of = here.queue_offset, here.queue_offset + 1
            fields = _fields([next(iter(_clipped(p, bounds_of)), None) for p in pieces], rule)
            found.append(Difference(ALTERED, here, there, fields=fields))
        yield from sorted(found, key=_queue_offset)


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
        (part.batch.column("queueOffset").to_numpy(), stored_ms(part.batch), part.digests)
        for part in digested(_clipped(piece, bounds), rule)
    ]
    if not parts:
        return _Rows(np.zeros(0, np.int64), np.zeros(0, np.int64), np.zeros((0, 2), np.uint64))
    offsets_of, ms, digests = (np.concatenate(column) for column in zip(*parts, strict=True))
    return _Rows(offsets_of, ms, digests)


def _place(queue: tuple[str, str, int], rows: _Rows, row: int) -> MessagePlace:
    return MessagePlace(*queue, int(rows.queue_offsets[row]), int(rows.ms[row]))


def _queue_offset(found: Difference) -> int:
    place = found.first or found.second
    return place.queue_offset if place is not None else 0


def _fields(pieces: Sequence[QueueSlice | None], rule: AuditRule) -> tuple[str, ...]:
    """Return which fields of two messages differ: flag, body, names of properties."""
    settings = ScanSettings(columns=OF_CONTENT)
    rows = [
        row
        for piece in pieces
        for batch in scan([piece] if piece is not None else [], settings)
        for row in batch.to_pylist()
    ]
    if len(rows) != len(pieces):  # It expired meanwhile.
        return ()
    return _differing(rows[0], rows[1], rule)


def _differing(
    first: Mapping[str, Any], second: Mapping[str, Any], rule: AuditRule
) -> tuple[str, ...]:
    fields = [name for name in ("flag", "body") if first[name] != second[name]]
    here, there = (dict(row["properties"]) for row in (first, second))
    names = sorted(here.keys() | there.keys())
    differing = [n for n in names if here.get(n) != there.get(n) and n not in rule.left_out]
    return (*fields, *differing)


def _groups(
    unequal: Sequence[Bucket], digests: tuple[AuditDigests, AuditDigests]
) -> Iterator[Int64s]:
    """Yield parts of ids, so many at a time as hold half a million messages, one at least."""
    some: list[int] = []
    total = 0
    for bucket in unequal:
        count = sum(d.buckets[bucket].count for d in digests if bucket in d.buckets)
        if some and total + count > _MOST_IN_MEMORY:
            yield np.array(some, np.int64)
            some, total = [], 0
        some.append(bucket[3])
        total += count
    if some:
        yield np.array(some, np.int64)


@dataclass(frozen=True, slots=True)
class _Identified:
    """A message that was found by its id: its digest, and where it lies."""

    digest: tuple[int, int]
    place: MessagePlace


def _of_ids(
    sides: tuple[AuditSide, AuditSide], rule: AuditRule, parts: Int64s
) -> Iterator[Difference]:
    first, second = (_by_id(side, rule, parts) for side in sides)
    for message_id in sorted(first.keys() | second.keys()):
        here, there = first.get(message_id, []), second.get(message_id, [])
        for found in _of_one_id(here, there):
            fields: tuple[str, ...] = ()
            if found.first is not None and found.second is not None:
                pieces = (_at(sides[0], found.first), _at(sides[1], found.second))
                fields = _fields(pieces, rule)
            known = message_id if rule.by == "id" else None
            yield replace(found, message_id=known, fields=fields)


def _of_one_id(here: list[_Identified], there: list[_Identified]) -> Iterator[Difference]:
    """Yield how the messages with one id differ: what both sides have is no difference."""
    only_here = _without(here, there)
    only_there = _without(there, here)
    both = min(len(only_here), len(only_there))
    for one, other in zip(only_here[:both], only_there[:both], strict=True):
        yield Difference(ALTERED, one.place, other.place)
    for one in only_here[both:]:
        yield Difference(DOUBLED if there else NOT_IN_SECOND, one.place, None)
    for other in only_there[both:]:
        yield Difference(DOUBLED if here else NOT_IN_FIRST, None, other.place)


def _without(some: list[_Identified], others: list[_Identified]) -> list[_Identified]:
    left = Counter(one.digest for one in others)
    found = []
    for one in some:
        if left[one.digest]:
            left[one.digest] -= 1
        else:
            found.append(one)
    return found


def _by_id(side: AuditSide, rule: AuditRule, parts: Int64s) -> dict[str, list[_Identified]]:
    found: dict[str, list[_Identified]] = defaultdict(list)
    for broker in side.brokers:
        for part in digested(slices_of(broker.snapshot), rule, merged=True, naming=side.naming):
            rows = np.flatnonzero(np.isin(part.parts(), parts))
            ids = part.batch.column("msgId").take(pa.array(rows)).to_pylist()
            for row, message_id in zip(rows.tolist(), ids, strict=True):
                found[message_id].append(_identified(part, row, broker.name))
    return found


def _identified(part: DigestedBatch, row: int, broker: str) -> _Identified:
    topic, queue_id, queue_offset = (
        part.batch.column(name)[row].as_py() for name in _PLACE_COLUMNS
    )
    ms = int(stored_ms(part.batch)[row])
    low, high = part.digests[row].tolist()
    return _Identified((low, high), MessagePlace(broker, topic, queue_id, queue_offset, ms))


def _at(side: AuditSide, place: MessagePlace) -> QueueSlice | None:
    piece = side.of_queue((place.broker, place.topic, place.queue_id, 0))
    bounds = place.queue_offset, place.queue_offset + 1
    return next(iter(_clipped(piece, bounds)), None)
