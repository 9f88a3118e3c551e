"""The messages in which two places differ, found within the buckets whose digests are unequal.

By offset the queues of those buckets are read again on both sides, 65,536 queue offsets at a time;
by id all queues are: see ``identities``.
"""

import hashlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import groupby
from operator import attrgetter
from typing import Any, Final, TypeAlias

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
from mqstore.audit.rows import AuditRule, digested
from mqstore.audit.sides import AuditSide
from mqstore.codec.message_digest import OF_CONTENT
from mqstore.format.arrays import Int64s, UInt64Pairs
from mqstore.read.scan import scan
from mqstore.read.settings import BATCH_BYTES, ScanSettings
from mqstore.read.source import QueueSlice

_DESCRIBED_AT_A_TIME: Final = 2_000
_OFFSETS_AT_A_TIME: Final = 65_536
_SliceAt: TypeAlias = Callable[[MessagePlace], QueueSlice | None]


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
        parts = np.array([bucket[3] for bucket in unequal], np.int64)
        slices_at = sides[0].of_place, sides[1].of_place
        for found in by_identity(sides, rule, parts):
            yield from _described(found, slices_at, rule)
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
            found.append(Difference(ALTERED, _place(queue, first, row), _place(queue, second, its)))
        found = list(_described(found, (lambda _: pieces[0], lambda _: pieces[1]), rule))
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
        (part.queue_offsets, part.row.stored_ms, part.row.digests)
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


def _described(
    found: Sequence[Difference], slices_at: tuple[_SliceAt, _SliceAt], rule: AuditRule
) -> Iterator[Difference]:
    """Yield differences with the message ids, by id, and the fields that differ.

    ``slices_at`` give for a place on each side the slice that its queue is.
    """
    for first in range(0, len(found), _DESCRIBED_AT_A_TIME):
        some = found[first : first + _DESCRIBED_AT_A_TIME]
        wanted = [one for one in some if rule.by == "id" or one.kind == ALTERED]
        here = _contents([one.first for one in wanted if one.first], slices_at[0], rule)
        there = _contents([one.second for one in wanted if one.second], slices_at[1], rule)
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
    places: Sequence[MessagePlace], slice_at: _SliceAt, rule: AuditRule
) -> dict[MessagePlace | None, _Content]:
    """Return the messages at places; what has expired meanwhile is not among them."""
    columns = ("topic", "queueId", "queueOffset", *OF_CONTENT)
    settings = ScanSettings(
        columns=(*columns, "msgId") if rule.by == "id" else columns,
        batch_bytes=BATCH_BYTES,
        fail_on_data_loss=False,
    )
    found: dict[MessagePlace | None, _Content] = {}
    for _, of_it in groupby(sorted(places, key=attrgetter("broker")), attrgetter("broker")):
        known = {(one.topic, one.queue_id, one.queue_offset): one for one in of_it}
        pieces = [
            clipped
            for (_, _, at), one in sorted(known.items())
            for clipped in _clipped(slice_at(one), (at, at + 1))
        ]
        for batch in scan(pieces, settings):
            for row in batch.to_pylist():
                place = known.get((row["topic"], row["queueId"], row["queueOffset"]))
                found[place] = _Content.of(row, rule)
    return found
