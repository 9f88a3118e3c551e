"""Ranges of queues to partitions: large ones split, small ones packed together.

Pure but for ``weigh``, which reads ConsumeQueue sizes. A partition costs Spark tens of
milliseconds whatever is in it, so their number follows the bytes to read and the cores there
are to read them, never the number of queues.

Reference: Spark's FilePartition#maxSplitBytes (the default size of a partition),
KafkaOffsetRangeCalculator (minPartitions, maxRecordsPerPartition).
"""

import itertools
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Final, TypeAlias

import numpy as np
from numpy.typing import NDArray

from mqstore.files.consume_queue import ConsumeQueue
from mqstore.read.snapshot import QueueBounds, Snapshot
from mqstore.read.units import chunks

Ints: TypeAlias = NDArray[np.int64]

MAX_PARTITION_BYTES: Final = 128 * 1024 * 1024
_MIN_TARGET_BYTES: Final = 32 * 1024 * 1024  # Less takes less time than a partition costs.
_SLICE_BYTES: Final = 64 * 1024  # What opening one more queue costs, in bytes read meanwhile.
_EXACT_UNITS: Final = 1 << 20
_EDGES: Final = 4096
_SAMPLES: Final = 256
_SAMPLE_UNITS: Final = 1024
_HALVINGS: Final = 40


@dataclass(frozen=True, slots=True)
class QueueSlice:
    """Queue offsets [start, end) of one queue of one store. Plain values: it pickles."""

    root: str
    commit_log: tuple[str, ...]
    broker_name: str
    topic: str
    queue_id: int
    start: int
    end: int


def slices_of(
    snapshot: Snapshot, ranges: Iterable[tuple[QueueBounds, int, int]] | None = None
) -> list[QueueSlice]:
    """Return the slices of (queue, start, end) ranges, half-open; of all that is held if None.

    Empty ranges are left out.
    """
    if ranges is None:
        ranges = ((queue, queue.low, queue.high) for queue in snapshot.queues)
    store, broker_name = snapshot.store, snapshot.broker_name
    return [
        QueueSlice(
            store.root, store.commit_log, broker_name, queue.topic, queue.queue_id, start, end
        )
        for queue, start, end in ranges
        if start < end
    ]


@dataclass(frozen=True, slots=True)
class Weighed:
    """A slice and how its bytes grow: ``bytes[i]`` CommitLog bytes before ``edges[i]``.

    ``edges`` ascend from the slice's start to its end.
    """

    slice: QueueSlice
    edges: Ints
    bytes: Ints

    @property
    def total(self) -> int:
        """Bytes of the whole slice."""
        return int(self.bytes[-1])


@dataclass(frozen=True, slots=True)
class SplitLimits:
    """What a partition may hold; ``parallelism`` is how many can be read at the same time."""

    max_bytes: int = MAX_PARTITION_BYTES
    max_records: int | None = None
    min_partitions: int | None = None
    parallelism: int = 1


def weigh(piece: QueueSlice, *, strict: bool = True) -> Weighed:
    """Return the slice with its bytes, from the sizes in its ConsumeQueue.

    Exact up to a million messages; of more, 256 evenly spread stretches stand for the rest.
    With ``strict``, a ConsumeQueue file that is missing or short is a CorruptStoreError; without
    it such messages weigh nothing, and the scan tells of them.
    """
    queue = ConsumeQueue(piece.root, piece.topic, piece.queue_id)
    count = piece.end - piece.start
    if count <= _EXACT_UNITS:
        grown = np.concatenate(([0], np.cumsum(_sizes(queue, piece.start, piece.end, strict))))
        marks = np.unique(np.linspace(0, count, min(count, _EDGES) + 1).astype(np.int64))
        return Weighed(piece, piece.start + marks, grown[marks])
    marks = np.linspace(piece.start, piece.end, _SAMPLES + 1).astype(np.int64)
    means = [_mean_size(queue, int(a), int(b), strict) for a, b in itertools.pairwise(marks)]
    grown = np.concatenate(([0], np.cumsum(np.array(means) * np.diff(marks)))).astype(np.int64)
    return Weighed(piece, marks, grown)


def split(weighed: Sequence[Weighed], limits: SplitLimits) -> list[tuple[QueueSlice, ...]]:
    """Return partitions: each a tuple of slices in order; every message is in exactly one.

    A partition holds at most ``max_bytes`` and ``max_records`` (a single message may be larger),
    and there are at least ``min_partitions`` as long as there are as many messages.
    """
    filled = [w for w in weighed if w.slice.end > w.slice.start]
    total = sum(w.total for w in filled)
    # A little more than a fair share: queues that differ slightly must not spill into one task
    # more than there are cores, for the last would run alone.
    share = max(_MIN_TARGET_BYTES, -(-total * 9 // (8 * max(1, limits.parallelism))))
    target = max(1, min(limits.max_bytes, share))
    wanted = min(limits.min_partitions or 0, sum(w.slice.end - w.slice.start for w in filled))
    partitions = _pack(filled, target, limits.max_records)
    for _ in range(_HALVINGS):
        if len(partitions) >= wanted:
            break
        target = max(1, min(target // 2, -(-total // wanted)))
        partitions = _pack(filled, target, limits.max_records)
    return partitions


def _sizes(queue: ConsumeQueue, start: int, end: int, strict: bool) -> Ints:
    """Return the record bytes of each unit of [start, end)."""
    if strict:
        units = queue.read(start, end)
        return np.maximum(units["size"].astype(np.int64), 0)
    sizes = np.zeros(end - start, np.int64)
    for chunk in chunks(queue, start, end):
        sizes[chunk.start - start : chunk.end - start] = chunk.sizes
    return sizes


def _mean_size(queue: ConsumeQueue, start: int, end: int, strict: bool) -> float:
    first = start + max(0, (end - start - _SAMPLE_UNITS) // 2)
    return float(_sizes(queue, first, min(end, first + _SAMPLE_UNITS), strict).mean())


def _pack(
    weighed: Sequence[Weighed], target: int, max_records: int | None
) -> list[tuple[QueueSlice, ...]]:
    partitions: list[tuple[QueueSlice, ...]] = []
    current: list[QueueSlice] = []
    held_bytes = held_records = 0
    for piece, piece_bytes in (cut for w in weighed for cut in _cut(w, target, max_records)):
        records = piece.end - piece.start
        # The cost of opening fills a partition, but never breaks a byte bound by itself.
        cost = max(piece_bytes, min(_SLICE_BYTES, target // 16))
        over_records = max_records is not None and held_records + records > max_records
        if current and (held_bytes + cost > target or over_records):
            partitions.append(tuple(current))
            current, held_bytes, held_records = [], 0, 0
        current.append(piece)
        held_bytes += cost
        held_records += records
    if current:
        partitions.append(tuple(current))
    return partitions


def _cut(weighed: Weighed, target: int, max_records: int | None) -> list[tuple[QueueSlice, int]]:
    """Cut a slice into even parts, each of at most ``target`` bytes or of a single message."""
    piece = weighed.slice
    share = weighed.total / max(1, -(-weighed.total // target))
    most = min(max_records or piece.end, piece.end - piece.start)
    cuts, start, before = [], piece.start, 0
    while start < piece.end:
        end = _reach(weighed, start, before + share)
        end = min(max(end, start + 1), start + most, piece.end)
        after = int(np.interp(end, weighed.edges, weighed.bytes))
        cuts.append((replace(piece, start=start, end=end), after - before))
        start, before = end, after
    return cuts


def _reach(weighed: Weighed, start: int, limit: float) -> int:
    """Return the last queue offset with at most ``limit`` bytes before it.

    An edge if there is one after ``start``: there bytes are known, not interpolated.
    """
    edge = int(weighed.edges[np.searchsorted(weighed.bytes, limit + 0.5, side="right") - 1])
    return edge if edge > start else int(np.interp(limit, weighed.bytes, weighed.edges))
