"""Ranges of queues to partitions: large ones split, small ones packed together.

Pure but for ``weigh``, which opens the slices' origins. A partition costs Spark tens of
milliseconds whatever is in it, so their number follows the bytes to read and the cores there
are to read them, never the number of queues. Large queues whose messages lie side by side in
the CommitLog are cut at the same places of it: a task then reads its stretch of the log once.

Reference: Spark's FilePartition#maxSplitBytes (the default size of a partition),
KafkaOffsetRangeCalculator (minPartitions, maxRecordsPerPartition).
"""

from collections.abc import Sequence
from contextlib import closing
from dataclasses import dataclass, replace
from itertools import groupby
from typing import Final

import numpy as np

from mqstore.read.source import QueueSlice, Weighed

MAX_PARTITION_BYTES: Final = 256 * 1024 * 1024
_MIN_TARGET_BYTES: Final = 32 * 1024 * 1024  # Less takes less time than a partition costs.
_SLICE_BYTES: Final = 64 * 1024  # What opening one more queue costs, in bytes read meanwhile.
_HALVINGS: Final = 40
_MOST_CUTS: Final = 1 << 17  # Of one slice: queue offsets may lie as far apart as names of files.
_SHARED_BYTES: Final = 512 * 1024  # Of a queue with as much for each partition, each has some,
_GRAINS: Final = 8  # cut with that precision.


@dataclass(frozen=True, slots=True)
class SplitLimits:
    """What a partition may hold; ``parallelism`` is how many can be read at the same time."""

    max_bytes: int = MAX_PARTITION_BYTES
    max_records: int | None = None
    min_partitions: int | None = None
    parallelism: int = 1


def weigh(slices: Sequence[QueueSlice], *, strict: bool = True) -> list[Weighed]:
    """Return the slices with their bytes, in their order: see ``BoundsSource.weigh``."""
    found: list[Weighed] = []
    for origin, group in groupby(slices, key=lambda piece: piece.origin):
        with closing(origin.bounds()) as source:
            found += source.weigh(list(group), strict=strict)
    return found


def split(weighed: Sequence[Weighed], limits: SplitLimits) -> list[tuple[QueueSlice, ...]]:
    """Return partitions: each a tuple of slices in order; every message is in exactly one.

    A partition holds at most ``max_bytes`` and ``max_records`` (a single message may be larger),
    and there are at least ``min_partitions`` as long as there are as many messages. Where bytes
    need more than ``parallelism`` partitions, there are about a whole multiple of it.
    """
    filled = [w for w in weighed if w.slice.end > w.slice.start]
    total = sum(max(w.total, _SLICE_BYTES) for w in filled)
    # A little more than a fair share: queues that differ slightly must not spill into one task
    # more than there are cores, for the last would run alone.
    share = max(_MIN_TARGET_BYTES, -(-total * 9 // (8 * max(1, limits.parallelism))))
    target = max(1, min(limits.max_bytes, share))
    parts = -(-total // target)
    if parts > limits.parallelism:
        # All cores are busy until the end if the last tasks are as many as the first.
        parts += -parts % max(1, limits.parallelism)
        target = max(1, min(target, -(-total * 9 // (8 * parts))))
    wanted = min(limits.min_partitions or 0, sum(w.slice.end - w.slice.start for w in filled))
    partitions = _pack(_cuts(filled, target, limits.max_records), target, parts, limits.max_records)
    for _ in range(_HALVINGS):
        if len(partitions) >= wanted:
            break
        target = max(1, min(target // 2, -(-total // wanted)))
        cuts = _cuts(filled, target, limits.max_records)
        partitions = _pack(cuts, target, -(-total // target), limits.max_records)
    return partitions


@dataclass(frozen=True, slots=True)
class _Cut:
    """A part of the slice with that number: its CommitLog bytes, and about where they begin."""

    number: int
    slice: QueueSlice
    bytes: int
    place: int


def _pack(
    cuts: Sequence[_Cut], target: int, parts: int, max_records: int | None
) -> list[tuple[QueueSlice, ...]]:
    # The cost of opening fills a partition, but never breaks a byte bound by itself.
    costs = [max(cut.bytes, min(_SLICE_BYTES, target // 16)) for cut in cuts]
    # Each as full as the others: full ones and a rest would leave cores idle at the end.
    even = sum(costs) / max(1, parts, -(-sum(costs) // target))
    done = 0
    partitions: list[tuple[QueueSlice, ...]] = []
    current: list[_Cut] = []
    held_bytes = held_records = 0
    for cut, cost in zip(cuts, costs, strict=True):
        records = cut.slice.end - cut.slice.start
        over_records = max_records is not None and held_records + records > max_records
        over_even = done + held_bytes + cost / 2 > even * (len(partitions) + 1)
        if current and (held_bytes + cost > target or over_records or over_even):
            partitions.append(_joined(current))
            done += held_bytes
            current, held_bytes, held_records = [], 0, 0
        current.append(cut)
        held_bytes += cost
        held_records += records
    if current:
        partitions.append(_joined(current))
    return partitions


def _joined(cuts: Sequence[_Cut]) -> tuple[QueueSlice, ...]:
    """Return what neighbouring cuts are of each slice, in the order of the slices."""
    found: dict[int, QueueSlice] = {}
    for cut in cuts:
        first = found.get(cut.number, cut.slice)
        found[cut.number] = replace(first, end=cut.slice.end)
    return tuple(found[number] for number in sorted(found))


def _cuts(weighed: Sequence[Weighed], target: int, max_records: int | None) -> list[_Cut]:
    """Cut all slices; into small cuts in the order of the log where queues may share a task."""
    parts = -(-sum(w.total for w in weighed) // target)
    shared = [parts > 1 and w.total >= parts * _SHARED_BYTES for w in weighed]
    if sum(shared) < 2:
        return [cut for n, w in enumerate(weighed) for cut in _cut(n, w, target, max_records)]
    cuts = []
    for number, (one, is_shared) in enumerate(zip(weighed, shared, strict=True)):
        most = -(-one.total // (parts * _GRAINS)) if is_shared else target
        cuts += _cut(number, one, most, max_records)
    return sorted(cuts, key=lambda cut: (cut.slice.origin.name, cut.place, cut.number))


def _cut(number: int, weighed: Weighed, target: int, max_records: int | None) -> list[_Cut]:
    """Cut a slice into even parts, each of at most ``target`` bytes or of a single message."""
    piece = weighed.slice
    if weighed.again and (
        weighed.total > target or piece.end - piece.start > (max_records or piece.end)
    ):
        weighed = weighed.again()
    share = weighed.total / max(1, -(-weighed.total // target))
    most = min(max_records or piece.end, piece.end - piece.start)
    most = max(most, -(-(piece.end - piece.start) // _MOST_CUTS))
    cuts, start, before = [], piece.start, 0
    while start < piece.end:
        end = piece.end if share >= weighed.total else _reach(weighed, start, before + share)
        end = min(max(end, start + 1), start + most, piece.end)
        after = weighed.total
        if end < piece.end:
            after = int(np.interp(end, weighed.edges, weighed.bytes))
        place = int(weighed.places[0])
        if start > piece.start:
            place = int(np.interp(start, weighed.edges, weighed.places))
        cuts.append(
            _Cut(number, replace(piece, start=start, end=end, weight=None), after - before, place)
        )
        start, before = end, after
    return cuts


def _reach(weighed: Weighed, start: int, limit: float) -> int:
    """Return the last queue offset with at most ``limit`` bytes before it.

    An edge if there is one after ``start``: there bytes are known, not interpolated.
    """
    edge = int(weighed.edges[np.searchsorted(weighed.bytes, limit + 0.5, side="right") - 1])
    return edge if edge > start else int(np.interp(limit, weighed.bytes, weighed.edges))
