"""Units of ConsumeQueues in bounded batches: read queue by queue, merged in the order of the log.

The messages of a topic's queues lie side by side in the CommitLog. Read queue by queue, the
same bytes are fetched once for each; merged by physical offset, once for all. Within a queue
the order stays as it is, whatever places damaged units claim.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Final, Protocol, TypeAlias

import numpy as np
from numpy.typing import NDArray

from mqstore.codec.decode import QueuePositions
from mqstore.errors import CorruptStoreError
from mqstore.files.queue.units import Units
from mqstore.format.arrays import Int64s, Mask, Span, TopicQueue
from mqstore.format.batch_consume_queue import is_of_batch
from mqstore.format.consume_queue import GAP_SIZE, UNIT
from mqstore.format.message import HARD_RECORD_BYTES

CHUNK_UNITS: Final = (1 << 20) // UNIT.itemsize  # 1 MiB, whatever the queue's size

QueueName: TypeAlias = tuple[str, int, str]
"""A topic, a queue id and a broker's name."""

HoleReport: TypeAlias = Callable[[int, int, CorruptStoreError | FileNotFoundError], None]
"""Called with queue offsets [start, end) that no file holds (any more), and the error of it."""


class UnitReader(Protocol):
    """A source of units of queues: ConsumeQueues, or another list of messages."""

    def read(
        self,
        queue: TopicQueue,
        bounds: Span,
        most: int = ...,
        *,
        names: Sequence[QueueName] = (),
        number: int = 0,
        report: HoleReport | None = None,
    ) -> "Iterator[UnitBatch]":
        """Yield the units of a queue as ``read_units`` does."""

    def files(self, queue: TopicQueue) -> list[Span]:
        """Return the queue offsets [start, end) of each file, or of what stands for one."""


@dataclass(frozen=True, slots=True)
class UnitBatch:
    """n units: int64[n] of where their records should lie and how large they should be.

    ``positions`` are the queues, queue offsets and tags codes of the units.
    """

    physical_offsets: Int64s
    sizes: Int64s
    positions: QueuePositions

    def __len__(self) -> int:
        return len(self.sizes)

    @property
    def start(self) -> int:
        """The first queue offset, of a batch that is a range of one queue."""
        return int(self.positions.queue_offsets[0])

    @property
    def end(self) -> int:
        """The queue offset after the last unit, of a batch that is a range of one queue."""
        return int(self.positions.queue_offsets[-1]) + 1

    @property
    def tags_codes(self) -> Int64s:
        """The tagsCode of each unit."""
        return self.positions.tags_codes

    @property
    def record_bytes(self) -> Int64s:
        """The bytes of each record; its messages share them, where it holds several."""
        return shared_bytes(self.physical_offsets, self.sizes, self.tags_codes)

    def take(self, rows: "NDArray[Any] | slice") -> "UnitBatch":
        """Return those rows only."""
        return UnitBatch(self.physical_offsets[rows], self.sizes[rows], self.positions.take(rows))

    def believable(self) -> "UnitBatch":
        """Return the same with size 0 where no record is: at a gap, or out of all bounds."""
        valid = (self.sizes > 0) & (self.sizes <= HARD_RECORD_BYTES) & (self.physical_offsets >= 0)
        valid &= self.sizes != GAP_SIZE
        if valid.all():
            return self
        return UnitBatch(self.physical_offsets, np.where(valid, self.sizes, 0), self.positions)


def join(parts: Sequence[UnitBatch]) -> UnitBatch:
    """Return the units of one batch after another; at least one is given."""
    if len(parts) == 1:
        return parts[0]
    positions = [part.positions for part in parts]
    queues, numbers = positions[0].queues, [of.queue for of in positions]
    if any(of.queues is not queues for of in positions):
        starts = np.cumsum([0, *(len(of.queues) for of in positions)])
        queues = [queue for of in positions for queue in of.queues]
        numbers = [number + start for number, start in zip(numbers, starts[:-1], strict=True)]
    return UnitBatch(
        np.concatenate([part.physical_offsets for part in parts]),
        np.concatenate([part.sizes for part in parts]),
        QueuePositions(
            queues,
            np.concatenate(numbers),
            np.concatenate([of.queue_offsets for of in positions]),
            np.concatenate([of.tags_codes for of in positions]),
        ),
    )


def shared_bytes(physical_offsets: Int64s, sizes: Int64s, tags_codes: Int64s) -> Int64s:
    """Return the sizes of records, those of batches spread evenly over their messages' units."""
    again = is_of_batch(tags_codes[1:]) & (physical_offsets[1:] == physical_offsets[:-1])
    if not again.any():
        return sizes
    first = np.flatnonzero(np.concatenate(([True], ~again)))
    counts = np.diff(np.append(first, len(sizes)))
    shares = np.repeat(sizes[first] // counts, counts)
    shares[first] += sizes[first] % counts
    return shares


def units_at(queue: QueueName, queue_offsets: Int64s, places: Int64s, sizes: Int64s) -> UnitBatch:
    """Return units of one queue, whose tags codes do not matter."""
    none = np.zeros(len(sizes), np.int64)
    return UnitBatch(places, sizes, QueuePositions([queue], none, queue_offsets, none))


def read_units(
    queue: Units,
    bounds: Span,
    most: int = CHUNK_UNITS,
    *,
    names: Sequence[QueueName] = (),
    number: int = 0,
    report: HoleReport | None = None,
) -> Iterator[UnitBatch]:
    """Yield the units of queue offsets ``bounds``, half-open, at most ``most`` at a time.

    They are of ``names[number]``; without names, of the queue and no broker. As the broker does:
    where a file is missing, the next one goes on (ConsumeQueue#rollNextFile); no consumer ever
    receives what lay between. ``report`` is called with such a hole.
    """
    names = names or [(queue.topic, queue.queue_id, "")]
    start, end = bounds
    while (start := queue.behind_gap(start)) < end:
        stop = min(end, start + most)
        try:
            units = queue.read(start, stop)
        except (CorruptStoreError, FileNotFoundError) as error:
            units = queue.before_hole(start, stop)
            if not len(units):
                after = queue.next_start(start) or end
                if report is not None:
                    report(start, after, error)
                start = after
                continue
        yield UnitBatch(
            units["physical_offset"].astype(np.int64),
            units["size"].astype(np.int64),
            QueuePositions(
                names,
                np.full(len(units), number),
                np.arange(start, start + len(units)),
                units["tags_code"].astype(np.int64),
            ),
        )
        start += len(units)


def fitting(units: Iterator[UnitBatch], start: int, end: int, room: int) -> tuple[int, int]:
    """Return how many messages of [start, end) have at most ``room`` bytes, and their bytes.

    ``units`` are those of the range; what is missing of them weighs nothing.
    """
    used = 0
    for batch in units:
        grown = used + np.cumsum(batch.record_bytes)
        count = int(np.searchsorted(grown, room, side="right"))
        if count < len(batch):
            return batch.start + count - start, int(grown[count - 1]) if count else used
        used = int(grown[-1])
    return end - start, used


Holds: TypeAlias = Callable[[Int64s, Int64s], Mask]
"""Tells for physical offsets and sizes whether the log has room for such records."""


def in_log_order(
    queues: Sequence[Iterator[UnitBatch]], holds: Holds, few: int
) -> Iterator[UnitBatch]:
    """Merge the units of several queues by their place in the log.

    A queue that has less than ``few`` units at hand is read on: what lies behind the last unit
    at hand of any queue has to wait for that one.
    """
    if len(queues) == 1:
        yield from queues[0]
        return
    lanes = [_Lane(queue, holds) for queue in queues]
    while True:
        for lane in lanes:
            lane.fill(few)
        lanes = [lane for lane in lanes if len(lane.places)]
        if not lanes:
            return
        reach = min(int(lane.places[-1]) for lane in lanes)
        places, heads = zip(*(lane.take_up_to(reach) for lane in lanes), strict=True)
        order = np.argsort(np.concatenate(places), kind="stable")
        yield join(heads).take(order)


class _Lane:
    """What is at hand of one queue: its units, and ascending places to merge them by."""

    def __init__(self, queue: Iterator[UnitBatch], holds: Holds) -> None:
        self._queue = queue
        self._holds = holds
        self._units: list[UnitBatch] = []
        self._last = 0
        self.places: Int64s = np.empty(0, np.int64)

    def fill(self, few: int) -> None:
        """Read on if fewer than ``few`` units are at hand."""
        if len(self.places) >= few:
            return
        more = next(self._queue, None)
        if more is None:
            return
        # A unit that points nowhere, or back, keeps its turn: behind the one before it.
        held = self._holds(more.physical_offsets, more.sizes)
        places = np.where(held, more.physical_offsets, 0)
        places = np.maximum.accumulate(np.maximum(places, self._last))
        self._last = int(places[-1])
        self.places = np.concatenate((self.places, places))
        self._units.append(more)

    def take_up_to(self, reach: int) -> tuple[Int64s, UnitBatch]:
        """Take off the units whose place is at most ``reach``, which may be none."""
        count = int(np.searchsorted(self.places, reach, side="right"))
        places, self.places = self.places[:count], self.places[count:]
        units = join(self._units)
        self._units = [units.take(slice(count, None))] if count < len(units) else []
        return places, units.take(slice(0, count))


def in_batches(
    parts: Iterator[UnitBatch],
    weigh: Callable[[UnitBatch], Int64s],
    limits: tuple[int, int],
    first_rows: int,
) -> Iterator[UnitBatch]:
    """Join and cut batches at ``limits``: rows and bytes, whichever comes first.

    ``weigh`` gives the bytes of each unit; only a single one may be larger than the limit. A
    batch may hold units of many small queues, so that ten thousand queues of ten messages cost
    no more than one queue of a hundred thousand. The first batch has at most ``first_rows``.
    """
    most_rows, most_bytes = limits
    pending: list[UnitBatch] = []
    rows = held = 0
    most = first_rows
    for part in parts:
        grown = np.concatenate(([0], np.cumsum(weigh(part))))
        start = 0
        while start < len(part):
            count = _count_within(grown, start, most_bytes - held, first=not rows)
            count = min(count, most - rows)
            pending.append(part.take(slice(start, start + count)))
            rows += count
            held += int(grown[start + count] - grown[start])
            start += count
            if start < len(part) or rows >= most or held >= most_bytes:
                yield join(pending)
                pending, rows, held, most = [], 0, 0, most_rows
    if pending:
        yield join(pending)


def _count_within(grown: Int64s, start: int, room: int, *, first: bool) -> int:
    """Return how many from ``start`` on fit: ``grown[i]`` bytes lie before unit i."""
    reach = int(np.searchsorted(grown, int(grown[start]) + room, side="right")) - 1
    return max(reach - start, 1 if first else 0)


def cut(sizes: Int64s, most: int) -> Iterator[slice]:
    """Yield consecutive slices of at most ``most`` bytes, or of one item that is larger."""
    ends = np.cumsum(sizes)
    begin = 0
    while begin < len(sizes):
        done = int(ends[begin - 1]) if begin else 0
        stop = int(np.searchsorted(ends, done + most, side="right"))
        stop = max(stop, begin + 1)
        yield slice(begin, stop)
        begin = stop
