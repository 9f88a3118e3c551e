"""A ConsumeQueue of which messages are missing in the middle: gap units stand for them.

So it is with all points of a repository: files that brokers deleted between two points are in
none of them, and neither is the rest of a file that one point has the beginning of.
"""

from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from itertools import accumulate

import numpy as np

from mqstore.files.base.mapped_file_queue import MappedFileQueue
from mqstore.files.queue.consume_queue import ConsumeQueue
from mqstore.files.queue.unit_blocks import UnitBlocks
from mqstore.files.queue.units import QueueExtent, Units
from mqstore.format.arrays import Mask, Span, Structs
from mqstore.format.consume_queue import FILLER_SIZE, GAP_SIZE, UNIT


@dataclass(frozen=True)
class HeldQueue(Units):
    """The units of ``queue`` whose records are held; a gap unit for each other queue offset.

    ``log_spans`` are the physical offsets [start, end) that are held, ascending, and
    ``held_bytes`` are by name how many bytes of each file of units are.
    """

    queue: ConsumeQueue = field(compare=False)
    log_spans: Sequence[Span] = field(compare=False)
    held_bytes: Mapping[str, int] = field(compare=False)

    @property
    def path(self) -> str:
        """The queue's directory below the root."""
        return self.queue.path

    @cached_property
    def files(self) -> MappedFileQueue:
        """The files of units."""
        return self.queue.files

    @property
    def room_low(self) -> int:
        """The first queue offset that its files have room for."""
        return self.queue.room_low

    def file_ranges(self) -> list[Span]:
        """Return the queue offsets [start, end) that each file has room for."""
        return self.queue.file_ranges()

    @cached_property
    def high(self) -> int:
        """The next queue offset to come."""
        return self.queue.look(0).high

    @property
    def low(self) -> int:
        """The first queue offset whose message is held; ``high`` if none is."""
        return self.spans[0][0] if self.spans else self.high

    @cached_property
    def spans(self) -> list[Span]:
        """The queue offsets [start, end) whose messages are held, ascending, apart."""
        spans: list[Span] = []
        for low, high in self._unit_spans():
            for start, end in self._with_records(low, high):
                joins = spans and spans[-1][1] == start
                spans.append((spans.pop()[0] if joins else start, end))
        return spans

    @property
    def missing(self) -> list[Span]:
        """The queue offsets [start, end) behind the first message held that are not held."""
        ends = [end for _, end in self.spans]
        starts = [start for start, _ in self.spans[1:]]
        return [(a, b) for a, b in zip(ends, [*starts, self.high], strict=True) if a < b]

    def look(self, commit_log_low: int) -> QueueExtent:
        """Return the bounds: from the first message held on."""
        spans = self.spans
        if not spans:
            return QueueExtent(self.high, self.high)
        last = self.queue.read(spans[-1][1] - 1, spans[-1][1])[0]
        end = int(last["physical_offset"]) + int(last["size"])
        return QueueExtent(spans[0][0], self.high, end)

    def read(self, start: int, end: int) -> Structs:
        """Return the units of [start, end), with a gap unit for each message that is not held.

        Before the first one held the units are as they are: their records have expired.
        """
        if start < self.room_low or end > self.high:
            return self.queue.read(start, end)
        if start < self.low:
            expired = self.queue.read(start, min(end, self.low))
            rest = self.read(self.low, end) if self.low < end else expired[:0]
            return np.concatenate((expired, rest))
        units = np.zeros(max(end - start, 0), UNIT)
        units["size"] = GAP_SIZE
        for low, high in self._spans_in(start, end):
            units[low - start : high - start] = self.queue.read(low, high)
        return units

    def before_hole(self, start: int, end: int) -> Structs:
        """Return the units of [start, end) before the queue's end."""
        if start < self.low:
            return self.queue.before_hole(start, min(end, self.low))
        return self.read(start, max(start, min(end, self.high)))

    def next_start(self, queue_offset: int) -> int | None:
        """Return the first message of the next stretch that is held."""
        return next((start for start, _ in self.spans if start > queue_offset), None)

    def behind_gap(self, queue_offset: int) -> int:
        """Return the first message that is held at or behind a queue offset, else the end.

        What lies before the first one held is no gap: it has expired.
        """
        if queue_offset < self.low:
            return queue_offset
        at = bisect_right(self.spans, queue_offset, key=lambda span: span[1])
        if at < len(self.spans):
            return max(queue_offset, self.spans[at][0])
        return max(queue_offset, self.high)

    def chunks(self, most: int, end: int) -> Iterator[tuple[int, Structs]]:
        """Yield the units of messages that are held before ``end``."""
        for low, high in self._spans_in(0, end):
            for start in range(low, high, most):
                yield start, self.queue.read(start, min(high, start + most))

    def first(self, low: int, high: int, holds: Callable[[np.void], bool]) -> int:
        """Return the first message held in [low, high) whose unit ``holds``; ``high`` if none."""
        spans = list(self._spans_in(low, high))
        counts = [0, *accumulate(end - start for start, end in spans)]

        def offset_of(number: int) -> int:
            at = bisect_right(counts, number) - 1
            return spans[at][0] + number - counts[at]

        def test(number: int) -> bool:
            queue_offset = offset_of(number)
            return holds(self.queue.read(queue_offset, queue_offset + 1)[0])

        number = bisect_left(range(counts[-1]), True, key=test)
        return offset_of(number) if number < counts[-1] else high

    def _spans_in(self, low: int, high: int) -> Iterator[Span]:
        at = bisect_right(self.spans, low, key=lambda span: span[1])
        for start, end in self.spans[at:]:
            if start >= high:
                break
            yield max(start, low), min(end, high)

    def _unit_spans(self) -> Iterator[Span]:
        """Yield the queue offsets of each file that have a unit."""
        for file in self.files.files:
            start, count = file.start // UNIT.itemsize, self.held_bytes.get(file.path, file.size)
            count = min(count // UNIT.itemsize, self.high - start)
            if count <= 0:
                continue
            blocks = UnitBlocks(file)
            try:
                first = blocks.first(count, lambda units: ~_is_filler(units))
            finally:
                blocks.close()
            if first < count:
                yield start + first, start + count

    def _with_records(self, low: int, high: int) -> Iterator[Span]:
        """Yield the parts of a range of one file whose records are held: places ascend in it."""
        edges = self.queue.read(low, low + 1), self.queue.read(high - 1, high)
        first, last = (int(units["physical_offset"][0]) for units in edges)
        at = bisect_right(self.log_spans, first, key=lambda span: span[1])
        for start, end in self.log_spans[at:]:
            if start > last:
                break
            begin = low if start <= first else self.queue.first_behind(low, high, start)
            stop = high if last < end else self.queue.first_behind(begin, high, end)
            if begin < stop:
                yield begin, stop


def _is_filler(units: Structs) -> Mask:
    filler: Mask = (units["size"] == FILLER_SIZE) & (units["physical_offset"] == 0)
    return filler
