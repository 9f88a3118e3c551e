"""The queues of a store by its CommitLog alone: units that its records imply, by topic and queue.

What the walk of a log file implies is kept as sections in a cache directory (``walked_log``).
Memory holds what sections have of each queue, and a few batches of units.

The offset of a message is the queueOffset of its record. Where two records of a queue have the same
one, both are units of it, in log order; where none has it, the queue has a gap.
"""

from bisect import bisect_left
from collections import OrderedDict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Final

import numpy as np

from mqstore.derive.log_sections import LogDamage, LogUnits
from mqstore.derive.section_files import (
    SECTION_BATCH_ROWS,
    FileEnd,
    QueueTotals,
    SectionFile,
)
from mqstore.errors import UnsupportedStoreError
from mqstore.files.base.mapped_file_queue import MappedFile
from mqstore.files.queue.consume_queue import MOST_QUEUES
from mqstore.format.arrays import TopicQueue

_BATCHES: Final = 32  # 20 MB
_OPEN_SECTIONS: Final = 16
_NO_END: Final = 2**62


@dataclass(frozen=True, slots=True)
class LogFile:
    """One file of the log, walked: its key, its sections, and how its walk ended."""

    file: MappedFile
    key: str
    sections: tuple[SectionFile, ...]
    end: FileEnd


class LogQueues:
    """The units of all queues that a CommitLog implies. ``close`` it."""

    def __init__(self, files: Sequence[LogFile], *, forgets: bool = False) -> None:
        """Take walked files. Raises UnsupportedStoreError for more than a million queues.

        ``forgets`` says that files before them expired whose queues are not known any more.
        """
        self.files = tuple(files)
        self._forgets = forgets
        self._held: dict[TopicQueue, list[tuple[SectionFile, QueueTotals]]] = {}
        for file in files:
            for section in file.sections:
                for queue, totals in section.queues.items():
                    self._held.setdefault(queue, []).append((section, totals))
        if len(self._held) > MOST_QUEUES:
            where = files[0].file.folder.name
            raise UnsupportedStoreError(where, "TOO_LARGE", f"more than {MOST_QUEUES} queues")
        self._batches: OrderedDict[TopicQueue, LogUnits] = OrderedDict()
        self._open: OrderedDict[str, SectionFile] = OrderedDict()

    def close(self) -> None:
        """Close what is open; a later read opens it again."""
        while self._open:
            self._open.popitem()[1].close()
        self._batches.clear()

    @property
    def queues(self) -> list[TopicQueue]:
        """The queues, sorted."""
        return sorted(self._held)

    @property
    def keys(self) -> tuple[str, ...]:
        """The keys of the log files that are not closed: they change when a broker appends."""
        return tuple(file.key for file in self.files if not file.end.is_closed)

    @property
    def low(self) -> int:
        """The physical offset of the first file; 0 if there is none."""
        return self.files[0].file.start if self.files else 0

    def forgotten(self, queue: TopicQueue, start: int, end: int) -> int:
        """Return how many of the queue offsets [start, end), from ``start`` on, may have expired.

        0 where everything is known that the log held when a read was planned.
        """
        if not self._forgets:
            return 0
        low = min((totals.low for totals in self.totals(queue)), default=end)
        return max(0, min(low, end) - start)

    def totals(self, queue: TopicQueue) -> list[QueueTotals]:
        """Return what each section has of a queue, in log order; nothing of an unknown one."""
        return [totals for _, totals in self._held.get(queue, ())]

    def damages(self) -> Iterator[LogDamage]:
        """Yield damage of the log, in its order: of each file the first hundred."""
        for number, file in enumerate(self.files):
            yield from file.end.damages
            follows = any(section.rows for f in self.files[number + 1 :] for section in f.sections)
            if not file.end.is_closed and follows:
                reason = "no blank record ends this file, and later ones have records"
                yield LogDamage(file.end.end, file.file.end, reason)

    @property
    def damaged(self) -> int:
        """How many damages there are."""
        return sum(file.end.damaged for file in self.files)

    def units(
        self, queue: TopicQueue, start: int, end: int, most: int = SECTION_BATCH_ROWS
    ) -> Iterator[LogUnits]:
        """Yield the units of queue offsets [start, end), in their order, at most ``most`` at once.

        Raises CorruptStoreError where a section was damaged meanwhile; OSError.
        """
        for group in _overlapping(self._held.get(queue, ())):
            if len(group) == 1:
                yield from self._rows(*group[0], start, end, most)
            else:
                low = max(start, min(totals.low for _, totals in group))
                high = min(end, max(totals.high for _, totals in group) + 1)
                yield from self._merged(group, low, high, most)

    def first_at(self, queue: TopicQueue, start: int, end: int, ms: int) -> int:
        """Return the first queue offset in [start, end) stored at or after a time; else ``end``."""
        found = end
        for section, totals in self._held.get(queue, ()):
            if totals.last_ms < ms or totals.low >= found:
                continue
            for units in self._rows(section, totals, start, found, SECTION_BATCH_ROWS):
                late = np.flatnonzero(units.store_timestamps_ms >= ms)
                if len(late):
                    found = int(units.queue_offsets[late[0]])
                    break
        return found

    def count_gaps(self, queue: TopicQueue) -> "GapsAndDoubles":
        """Return what ``gaps_and_doubles`` does, by reading all units of a queue."""
        missing = doubled = 0
        first_gap = first_double = last = -1
        for units in self.units(queue, 0, _NO_END):
            numbers = units.queue_offsets
            before = np.append(last if last >= 0 else int(numbers[0]) - 1, numbers[:-1])
            steps = numbers - before
            last = int(numbers[-1])
            missing += int((steps[steps > 1] - 1).sum())
            doubled += int((steps == 0).sum())
            if first_gap < 0 and missing:
                first_gap = int(before[np.argmax(steps > 1)]) + 1
            if first_double < 0 and doubled:
                first_double = int(numbers[np.argmax(steps == 0)])
        return missing, first_gap, doubled, first_double

    def _merged(self, group: "_Group", start: int, end: int, most: int) -> Iterator[LogUnits]:
        """Yield units of sections whose queue offsets overlap: halved until they are few."""
        spans = [(section, *self._span(section, totals, start, end)) for section, totals in group]
        spans = [span for span in spans if span[1] < span[2]]
        if len(spans) <= 1 or end - start <= 1:
            for span in spans:
                yield from self._pieces(*span, most)
        elif sum(last - first for _, first, last in spans) <= most:
            parts = [units for span in spans for units in self._pieces(*span, most)]
            joined = LogUnits.joined(parts)
            yield joined.take(np.argsort(joined.queue_offsets, kind="stable"))
        else:
            middle = start + (end - start) // 2
            yield from self._merged(group, start, middle, most)
            yield from self._merged(group, middle, end, most)

    def _rows(
        self, section: SectionFile, totals: QueueTotals, start: int, end: int, most: int
    ) -> Iterator[LogUnits]:
        yield from self._pieces(section, *self._span(section, totals, start, end), most)

    def _span(
        self, section: SectionFile, totals: QueueTotals, start: int, end: int
    ) -> tuple[int, int]:
        """Return the rows of a section that have queue offsets [start, end) of a queue."""
        first, last = totals.first, totals.first + totals.rows
        if totals.distinct == totals.rows == totals.high - totals.low + 1:
            low = min(max(start - totals.low, 0), totals.rows)
            return first + low, first + min(max(end - totals.low, low), totals.rows)

        def number(row: int) -> int:
            batch, place = divmod(row, SECTION_BATCH_ROWS)
            return int(self._batch(section, batch).queue_offsets[place])

        rows = range(first, last)
        low = first if start <= totals.low else first + bisect_left(rows, start, key=number)
        high = last if end > totals.high else first + bisect_left(rows, end, key=number)
        return low, max(low, high)

    def _pieces(self, section: SectionFile, first: int, last: int, most: int) -> Iterator[LogUnits]:
        while first < last:
            number, place = divmod(first, SECTION_BATCH_ROWS)
            stop = min(place + last - first, place + most, SECTION_BATCH_ROWS)
            yield self._batch(section, number).take(slice(place, stop))
            first += stop - place

    def _batch(self, section: SectionFile, number: int) -> LogUnits:
        key = section.path, number
        found = self._batches.pop(key, None)
        if found is None:
            self._open.pop(section.path, None)
            if len(self._open) >= _OPEN_SECTIONS:
                self._open.popitem(last=False)[1].close()
            self._open[section.path] = section
            found = section.batch(number)
            if len(self._batches) >= _BATCHES:
                self._batches.popitem(last=False)
        self._batches[key] = found
        return found


_Group = Sequence[tuple[SectionFile, QueueTotals]]


def _overlapping(held: "_Group") -> Iterator["_Group"]:
    """Yield sections in the order of their queue offsets; those that overlap together."""
    order = sorted(range(len(held)), key=lambda number: held[number][1].low)
    group: list[int] = []
    reach = -1
    for number in order:
        if group and held[number][1].low > reach:
            yield [held[one] for one in sorted(group)]
            group = []
        group.append(number)
        reach = max(reach, held[number][1].high)
    if group:
        yield [held[one] for one in sorted(group)]


GapsAndDoubles = tuple[int, int, int, int]


def gaps_and_doubles(totals: Sequence[QueueTotals]) -> GapsAndDoubles | None:
    """Return what is missing and double: a count and the first queue offset of each, or -1.

    Double are units behind the first with the same queue offset. None where sections overlap: then
    their totals do not tell.
    """
    order = sorted(totals, key=lambda one: one.low)
    if any(a.high >= b.low for a, b in pairwise(order)):
        return None
    distinct = sum(one.distinct for one in order)
    missing = order[-1].high + 1 - order[0].low - distinct
    between = (a.high + 1 for a, b in pairwise(order) if b.low > a.high + 1)
    first_gap = min([*(one.gap for one in order if one.gap >= 0), *between], default=-1)
    doubled = sum(one.rows for one in order) - distinct
    first_double = min((one.double for one in order if one.double >= 0), default=-1)
    return missing, first_gap, doubled, first_double
