"""Ranges of queues to partitions: large ones split, small ones packed together.

Pure but for ``weigh``, which opens the slices' origins. A partition costs Spark tens of
milliseconds whatever is in it, so their number follows the bytes to read and the cores there
are to read them, never the number of queues. Large queues whose messages lie side by side in
the CommitLog are cut at the same places of it: a task then reads its stretch of the log once.

Reference: Spark's FilePartition#maxSplitBytes (the default size of a partition),
KafkaOffsetRangeCalculator (minPartitions, maxRecordsPerPartition).
"""

from bisect import bisect_right
from collections.abc import Callable, Sequence
from contextlib import closing
from dataclasses import dataclass, replace
from itertools import chain
from typing import Final, NamedTuple, Protocol, TypeVar, runtime_checkable

from mqstore.files.base.side_by_side import each_beside
from mqstore.read.source import Origin, QueueSlice, Weighed

T = TypeVar("T")

MAX_PARTITION_BYTES: Final = 256 * 1024 * 1024
_MIN_TARGET_BYTES: Final = 32 * 1024 * 1024  # Less takes less time than a partition costs.
_SLICE_BYTES: Final = 64 * 1024  # What opening one more queue costs, in bytes read meanwhile.
_HALVINGS: Final = 40
_MOST_CUTS: Final = 1 << 17  # Of one slice: queue offsets may lie as far apart as names of files.
_SHARED_BYTES: Final = 512 * 1024  # Of a queue with as much for each partition, each has some,
_GRAINS: Final = 8  # cut with that precision.


@runtime_checkable
class BoundsTasks(Protocol):
    """An origin that so many tasks of a read may be at, at a time; None: any number."""

    @property
    def max_tasks(self) -> int | None:
        """The bound."""


@dataclass(frozen=True, slots=True)
class SplitLimits:
    """What a partition may hold; ``parallelism`` is how many can be read at the same time."""

    max_bytes: int = MAX_PARTITION_BYTES
    max_records: int | None = None
    min_partitions: int | None = None
    parallelism: int = 1


def weigh(slices: Sequence[QueueSlice], *, strict: bool = True) -> list[Weighed]:
    """Return the slices with their bytes, in their order: see ``BoundsSource.weigh``."""
    by_origin = _by_origin(slices, lambda piece: piece.origin)

    def of_origin(group: tuple[Origin, list[int]]) -> list[Weighed]:
        origin, places = group
        with closing(origin.bounds()) as source:
            return source.weigh([slices[place] for place in places], strict=strict)

    each = each_beside(of_origin, by_origin.items(), looked_at=1)
    found = [
        (place, one)
        for places, weighed in zip(by_origin.values(), each, strict=True)
        for place, one in zip(places, weighed, strict=True)
    ]
    return [one for _, one in sorted(found, key=lambda pair: pair[0])]


def split(weighed: Sequence[Weighed], limits: SplitLimits) -> list[tuple[QueueSlice, ...]]:
    """Return partitions: each a tuple of slices in order; every message is in exactly one.

    A partition holds at most ``max_bytes`` and ``max_records`` (a single message may be larger),
    and there are at least ``min_partitions`` as long as there are as many messages. Where bytes
    need more than ``parallelism`` partitions, there are about a whole multiple of it.
    An origin that bounds its tasks is in no more partitions than that, however large they become.
    """
    by_origin = _by_origin(weighed, lambda one: one.slice.origin)
    bounds = {o: o.max_tasks for o in by_origin if isinstance(o, BoundsTasks)}
    bounded = {origin: most for origin, most in bounds.items() if most is not None}
    if not bounded:
        return _split(weighed, limits)
    free = [one for one in weighed if one.slice.origin not in bounded]
    count = len(bounded) + bool(free)
    each = replace(limits, min_partitions=-(-(limits.min_partitions or 0) // count))
    found = _split(free, each)
    for origin, most in bounded.items():
        found += _merged(_split([weighed[place] for place in by_origin[origin]], each), most)
    return found


def _by_origin(items: Sequence[T], origin_of: Callable[[T], Origin]) -> dict[Origin, list[int]]:
    """Return by origin the places of its items."""
    found: dict[Origin, list[int]] = {}
    for place, item in enumerate(items):
        found.setdefault(origin_of(item), []).append(place)
    return found


def _merged(
    partitions: Sequence[tuple[QueueSlice, ...]], most: int
) -> list[tuple[QueueSlice, ...]]:
    """Return at most so many partitions: neighbours in one, as many in each as in the others."""
    count = min(most, len(partitions))
    found = []
    for number in range(count):
        first, end = (len(partitions) * n // count for n in (number, number + 1))
        joined: dict[tuple[str, str, int], QueueSlice] = {}
        for piece in chain.from_iterable(partitions[first:end]):
            key = piece.broker_name, piece.topic, piece.queue_id
            before = joined.get(key)
            joined[key] = piece if before is None else _part(piece, before.start, piece.end)
        found.append(tuple(joined.values()))
    return found


def _split(weighed: Sequence[Weighed], limits: SplitLimits) -> list[tuple[QueueSlice, ...]]:
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
    slices = [w.slice for w in filled]
    cuts = _cuts(filled, target, limits.max_records)
    partitions = _pack(slices, cuts, target, parts, limits.max_records)
    for _ in range(_HALVINGS):
        if len(partitions) >= wanted:
            break
        target = max(1, min(target // 2, -(-total // wanted)))
        cuts = _cuts(filled, target, limits.max_records)
        partitions = _pack(slices, cuts, target, -(-total // target), limits.max_records)
    return partitions


class _Cut(NamedTuple):
    """A part [start, end) of the slice with that number: its bytes, and about where they begin."""

    number: int
    start: int
    end: int
    bytes: int
    place: int


def _pack(
    slices: Sequence[QueueSlice],
    cuts: Sequence[_Cut],
    target: int,
    parts: int,
    max_records: int | None,
) -> list[tuple[QueueSlice, ...]]:
    # The cost of opening fills a partition, but never breaks a byte bound by itself.
    least = min(_SLICE_BYTES, target // 16)
    total = sum(max(cut.bytes, least) for cut in cuts)
    # Each as full as the others: full ones and a rest would leave cores idle at the end.
    even = total / max(1, parts, -(-total // target))
    done = 0
    partitions: list[tuple[QueueSlice, ...]] = []
    current: list[_Cut] = []
    held_bytes = held_records = 0
    for cut in cuts:
        cost, records = max(cut.bytes, least), cut.end - cut.start
        over_records = max_records is not None and held_records + records > max_records
        over_even = done + held_bytes + cost / 2 > even * (len(partitions) + 1)
        if current and (held_bytes + cost > target or over_records or over_even):
            partitions.append(_joined(slices, current))
            done += held_bytes
            current, held_bytes, held_records = [], 0, 0
        current.append(cut)
        held_bytes += cost
        held_records += records
    if current:
        partitions.append(_joined(slices, current))
    return partitions


def _joined(slices: Sequence[QueueSlice], cuts: Sequence[_Cut]) -> tuple[QueueSlice, ...]:
    """Return what neighbouring cuts are of each slice, in the order of the slices."""
    found: dict[int, tuple[int, int]] = {}
    for cut in cuts:
        first = found.get(cut.number)
        found[cut.number] = (cut.start if first is None else first[0], cut.end)
    return tuple(_part(slices[number], *found[number]) for number in sorted(found))


def _part(piece: QueueSlice, start: int, end: int) -> QueueSlice:
    return QueueSlice(piece.origin, piece.broker_name, piece.topic, piece.queue_id, start, end)


def _cuts(weighed: Sequence[Weighed], target: int, max_records: int | None) -> list[_Cut]:
    """Cut all slices; into small cuts in the order of the log where queues may share a task."""
    totals = [w.total for w in weighed]
    parts = -(-sum(totals) // target)
    shared = [parts > 1 and total >= parts * _SHARED_BYTES for total in totals]
    if sum(shared) < 2:
        return [cut for n, w in enumerate(weighed) for cut in _cut(n, w, target, max_records)]
    cuts = []
    for number, (one, is_shared) in enumerate(zip(weighed, shared, strict=True)):
        most = -(-one.total // (parts * _GRAINS)) if is_shared else target
        cuts += _cut(number, one, most, max_records)
    names = [one.slice.origin.name for one in weighed]
    return sorted(cuts, key=lambda cut: (names[cut.number], cut.place, cut.number))


def _cut(number: int, weighed: Weighed, target: int, max_records: int | None) -> list[_Cut]:
    """Cut a slice into even parts, each of at most ``target`` bytes or of a single message."""
    piece = weighed.slice
    if weighed.again and (
        weighed.total > target or piece.end - piece.start > (max_records or piece.end)
    ):
        weighed = weighed.again()
    total = weighed.total
    share = total / max(1, -(-total // target))
    most = min(max_records or piece.end, piece.end - piece.start)
    most = max(most, -(-(piece.end - piece.start) // _MOST_CUTS))
    if share >= total and most >= piece.end - piece.start:
        return [_Cut(number, piece.start, piece.end, total, int(weighed.places[0]))]
    # Lists: a call of numpy for one value costs more than all the rest of a cut.
    edges, grown = weighed.edges.tolist(), weighed.bytes.tolist()
    places = weighed.places.tolist()
    cuts, start, before, place = [], piece.start, 0, places[0]
    while start < piece.end:
        end = piece.end if share >= total else _reach(edges, grown, start, before + share)
        end = min(max(end, start + 1), start + most, piece.end)
        after = total if end == piece.end else _between(end, edges, grown)
        cuts.append(_Cut(number, start, end, after - before, place))
        start, before = end, after
        place = _between(start, edges, places)
    return cuts


def _reach(edges: Sequence[int], grown: Sequence[int], start: int, limit: float) -> int:
    """Return the last queue offset with at most ``limit`` bytes before it.

    An edge if there is one after ``start``: there bytes are known, not interpolated.
    """
    edge = edges[bisect_right(grown, limit + 0.5) - 1]
    return edge if edge > start else _between(limit, grown, edges)


def _between(at: float, ascending: Sequence[int], values: Sequence[int]) -> int:
    """Return the value at a place on the lines between points, rounded down: see numpy.interp."""
    right = bisect_right(ascending, at)
    if right == 0:
        return values[0]
    if right == len(ascending):
        return values[-1]
    x, y = ascending[right - 1], values[right - 1]
    return int((values[right] - y) / (ascending[right] - x) * (at - x) + y)
