"""The messages in which two places differ, found within the buckets whose digests are unequal.

By offset the queues of those buckets are read again on both sides, 65,536 queue offsets at a time.
By id all queues are, and so are those of the buckets where a side is a table, whose rows have no
order and may repeat an offset: see ``identities``.
"""

import hashlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import groupby
from operator import itemgetter
from typing import Any, Final

import numpy as np

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
from mqstore.codec.message_digest import OF_CONTENT
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
    """Yield differences with the message ids, by id, and the fields that differ."""
    step = max(side.described_at_a_time for side in sides)
    for first in range(0, len(found), step):
        some = found[first : first + step]
        wanted = [one for one in some if rule.by == "id" or one.kind == ALTERED]
        here = _contents([one.first for one in wanted if one.first], sides[0], rule)
        there = _contents([one.second for one in wanted if one.second], sides[1], rule)
        for one in some:
            both = here.get(one.first), there.get(one.second)
            message_id = next((its.message_id for its in both if its is not None), None)
            fields: tuple[str, ...] = ()
            if both[0] is not None and both[1] is not None:
                fields = both[0].differing(both[1])
            yield replace(one, message_id=message_id if rule.by == "id" else None, fields=fields)


@dataclass(frozen=True, slots=True)
class _Content:
    """The message id, and the hash of each field of a message that counts, by name."""

    message_id: str | None
    fields: Mapping[str, bytes]
    properties: Mapping[str, bytes]

    @classmethod
    def of(cls, row: Mapping[str, Any], rule: AuditRule) -> "_Content":
        fields = {"flag": str(row["flag"]).encode(), "body": row["body"] or b""}
        named = {name: value.encode() for name, value in row["properties"]}
        kept = {name: value for name, value in named.items() if name not in rule.left_out}
        return cls(row.get("msgId"), _hashed(fields), _hashed(kept))

    def differing(self, other: "_Content") -> tuple[str, ...]:
        """Return the fields that differ: flag, body, then names of properties, sorted."""
        fields = [name for name, known in self.fields.items() if other.fields[name] != known]
        names = sorted(self.properties.keys() | other.properties.keys())
        differ = [n for n in names if self.properties.get(n) != other.properties.get(n)]
        return (*fields, *differ)


def _hashed(fields: Mapping[str, bytes]) -> dict[str, bytes]:
    return {name: hashlib.blake2b(one, digest_size=16).digest() for name, one in fields.items()}


def _contents(
    places: Sequence[MessagePlace], side: Side, rule: AuditRule
) -> dict[MessagePlace | None, _Content]:
    """Return the messages at places; what has expired meanwhile is not among them."""
    if not places:
        return {}
    columns = (*OF_CONTENT, "msgId") if rule.by == "id" else OF_CONTENT
    return {place: _Content.of(row, rule) for place, row in side.rows_at(places, columns)}
