"""Counts the messages and bytes before each group in a queue, for all groups at once.

Queues are counted side by side, a block of units of each at a time, because their records lie
side by side in the CommitLog: so it is read in its order, and not once for each queue.

Only ConsumeQueue units are read; of records the timestamps at both edges, the tags of those that a
hash leaves open, and for SQL92 the properties of all.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property, reduce
from itertools import groupby
from typing import Final, TypeAlias

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from mqstore.backlog.items import BacklogItem
from mqstore.backlog.keys import (
    Classifier,
    EveryMessage,
    SqlVerdicts,
    TagHashes,
    TagStrings,
    Wanted,
    classify,
)
from mqstore.backlog.open_messages import OpenMessages
from mqstore.backlog.request import HASH, BacklogRequest
from mqstore.backlog.standing import Standing
from mqstore.backlog.tally import NONE, Tally
from mqstore.errors import InvalidOptionError, shown
from mqstore.format.arrays import Int64s, Mask
from mqstore.read.queues import QueueRange
from mqstore.read.source import RecordSource
from mqstore.read.sql.filter import SqlFilter
from mqstore.read.tags import TagFilter
from mqstore.read.units import CHUNK_UNITS, UnitBatch, join, units_at

MAX_CELLS: Final = 4_000_000  # of queues counted together: starts × tags, 24 bytes each
MAX_CHARS: Final = 64 << 20  # of their distinct tags
MAX_QUEUES_AT_ONCE: Final = 256
_Expression: TypeAlias = tuple[str | None, str | None]
_COUNTED_UNITS: Final = 131_072  # of all queues counted together, some 100 bytes each, but
_LEAST_UNITS: Final = 1_024  # no less than this of each.


class TooManyTagsError(Exception):
    """Queues counted together have more tags than memory is for; one by one they may do."""


@dataclass(frozen=True, slots=True)
class Amounts:
    """What n rows count: messages and bytes, those that pass, and the first that does.

    ``item`` is the number of each row's item; ``first`` a queue offset or NONE; ``tags`` are
    those the rows are about, if they are about one each.
    """

    item: Int64s
    lag: Int64s
    bytes: Int64s
    lag_matching: Int64s
    bytes_matching: Int64s
    first: Int64s
    tags: Sequence[str | None]
    by_tag: bool = False


class QueueCount:
    """The items of one queue, and what is counted for them."""

    def __init__(self, items: Sequence[BacklogItem], request: BacklogRequest) -> None:
        self.items = items
        self.request = request
        self.standing = Standing.of(items)
        self._filters: dict[_Expression, Wanted] = {
            item.expression: item.sql_filter(request.lag_mode) or item.tag_filter(request.lag_mode)
            for item in items
        }
        start, last = self.standing.start, self.standing.last_consumed
        self._tally = Tally(np.unique(start[start < self.standing.high]))
        self._consumed = np.unique(last[last >= 0])
        self.open = OpenMessages.of(items)
        self._classifier = self._classify()

    @property
    def cells(self) -> int:
        """Places in the tally, as far as its tags are known."""
        return len(self._tally.starts) * self._classifier.count

    @property
    def chars(self) -> int:
        """Characters of the tags that were met."""
        return self._classifier.chars

    @property
    def classifier(self) -> Classifier:
        """What messages are counted under."""
        return self._classifier

    def units(self, source: RecordSource, most: int) -> Iterator[UnitBatch]:
        """Yield the units from the first start, or the first consumed last, to the end."""
        begins = [*self._tally.starts[:1].tolist(), *self._consumed[:1].tolist()]
        if begins:
            item = self.items[0]
            yield from source.units((item.topic, item.queue_id), min(begins), item.high, most)

    @property
    def span(self) -> QueueRange | None:
        """What some group has not consumed; None if there is nothing."""
        starts, item = self._tally.starts, self.items[0]
        return ((item.topic, item.queue_id), int(starts[0]), item.high) if len(starts) else None

    def add(self, units: UnitBatch, keys: NDArray[np.intp]) -> None:
        """Count ``units``, and note those that groups consumed last."""
        self._tally.add(units, keys, self._classifier.count)
        low, high = np.searchsorted(self._consumed, [units.start, units.end])
        self._tally.note(units, self._consumed[low:high])
        self._check_room()

    def add_some(self, units: UnitBatch, column: pa.Array) -> None:
        """Count the messages that were asked for, by their tags or, for SQL92, properties."""
        assert isinstance(self._classifier, TagStrings | SqlVerdicts)
        keys = self._classifier.keys_of(column)
        self._tally.add_some(units, keys, self._classifier.count)
        self._check_room()

    def add_open(self, units: UnitBatch, keys: NDArray[np.intp]) -> None:
        """Count open messages before all starts; ``keys[i]`` is the key of unit i."""
        self._tally.widen(self._classifier.count)
        self._tally.note_all(units)
        self.open.add(units, keys)
        self._check_room()

    def add_open_some(self, units: UnitBatch, column: pa.Array) -> None:
        """As ``add_some``, of open messages: count those of ``units`` that are."""
        assert isinstance(self._classifier, TagStrings | SqlVerdicts)
        rows = np.flatnonzero(np.isin(units.positions.queue_offsets, self.open.places))
        self.open.add(units.take(rows), self._classifier.keys_of(column.take(pa.array(rows))))
        self._check_room()

    def fill_open(self, sizes: Sequence[int]) -> None:
        """Count the open messages that were not added; ``sizes`` are those of their runs."""
        self.open.fill(sizes)
        self._tally.note_places(self.open.places)

    def fill(self, size: int) -> None:
        """Count the messages of ``span`` that were not added; all of it has about that size."""
        self._tally.fill(self.items[0].high, size)

    def note_consumed(self) -> None:
        """Note the messages that groups consumed last."""
        self._tally.note_places(self._consumed)

    def _check_room(self) -> None:
        if self._tally.counts.size > MAX_CELLS or self.chars > MAX_CHARS:
            item = self.items[0]
            raise InvalidOptionError(
                "byTag",
                "true",
                f"queue {item.queue_id} of {shown(item.topic)} has more than "
                f"{self._classifier.count:,} different tags: name fewer groups, or count without",
            )

    def edges(self) -> UnitBatch:
        """Return the units whose times the rows have, once all is counted."""
        self._tally.accumulate()
        self._tally.widen(self._classifier.count)
        item = self.items[0]
        name = item.topic, item.queue_id, item.broker_name
        wanted = np.concatenate((self.amounts().first, self._consumed))
        return units_at(name, *self._tally.noted(wanted))

    def amounts(self) -> Amounts:
        """Return what is behind each item's start, and open before it, after ``edges``."""
        return self._by_tag if self.request.by_tag else self._by_item

    def _classify(self) -> Classifier:
        topic = self.items[0].topic
        by_sql = [found for found in self._filters.values() if isinstance(found, SqlFilter)]
        if by_sql:
            return SqlVerdicts(by_sql, by_tag=self.request.by_tag)
        filters = [found for found in self._filters.values() if isinstance(found, TagFilter)]
        if self.request.by_tag:
            return TagStrings(topic, None, by_hash=self.request.lag_mode == HASH)
        if not filters:
            return EveryMessage()
        wanted = reduce(lambda a, b: TagFilter(a.tags | b.tags, a.codes | b.codes), filters)
        if self.request.lag_mode == HASH:
            return TagHashes(topic, wanted)
        filtered = [self._filters[item.expression] is not None for item in self.items]
        since = min(int(self.standing.start[filtered].min()), self.open.first)
        return TagStrings(topic, wanted, since=since)

    def _passes(self, expression: _Expression) -> Mask:
        """Tell which columns of the tally pass."""
        found = self._classifier.passes(self._filters[expression])
        passes = np.zeros(self._tally.counts.shape[1], np.bool_)
        passes[: len(found)] = found[: len(passes)]
        return passes

    @cached_property
    def _by_item(self) -> Amounts:
        """Return one row for each item."""
        tally, lag = self._tally, self.standing.ahead
        sizes, matching, matching_sizes = np.zeros((3, len(lag)), np.int64)
        first = np.full(len(lag), NONE)
        numbers = {expression: number for number, expression in enumerate(self._filters)}
        asked = np.array([numbers[item.expression] for item in self.items])
        for expression, number in numbers.items():
            chosen = np.flatnonzero((asked == number) & (lag > 0))
            starts = np.searchsorted(tally.starts, self.standing.start[chosen])
            passes = self._passes(expression)
            rows, inverse = np.unique(starts, return_inverse=True)
            sizes[chosen] = tally.bytes[rows].sum(axis=1)[inverse]
            # Without a filter, units of a file that is missing count too: none was read.
            every = self._filters[expression] is None
            counts = tally.counts[rows][:, passes].sum(axis=1)[inverse]
            matching[chosen] = lag[chosen] if every else counts
            matching_sizes[chosen] = tally.bytes[rows][:, passes].sum(axis=1)[inverse]
            found = tally.first[rows][:, passes].min(axis=1, initial=NONE)
            first[chosen] = found[inverse]
            if len(self.open.places):
                found = sizes, matching, matching_sizes, first
                self.open.add_to(np.flatnonzero(asked == number), None if every else passes, found)
        lag = self.standing.lag
        item, none = np.arange(len(lag)), [None] * len(lag)
        return Amounts(item, lag, sizes, matching, matching_sizes, first, none)

    @cached_property
    def _by_tag(self) -> Amounts:
        """Return a row for each tag behind each item's start, or one where there is none."""
        tally, lag = self._tally, self.standing.lag.tolist()
        classifier = self._classifier
        assert isinstance(classifier, TagStrings | SqlVerdicts)
        names = classifier.names
        passes = {expression: self._passes(expression) for expression in self._filters}
        rows: list[tuple[int, ...]] = []
        tags: list[str | None] = []
        starts = np.searchsorted(tally.starts, self.standing.start)
        for number, (item, start) in enumerate(zip(self.items, starts.tolist(), strict=True)):
            if not lag[number]:
                rows.append((number, 0, 0, 0, 0, NONE))
                tags.append(None)
                continue
            counts, sizes, first = self._behind(number, start)
            counts[0] += lag[number] - counts.sum()  # Units of a missing file have no tag.
            keys = sorted(np.flatnonzero(counts).tolist(), key=lambda k: _none_last(names[k]))
            of_key = counts.tolist(), sizes.tolist(), first.tolist()
            passed = passes[item.expression]
            for tag, of_tag in groupby(keys, lambda k: names[k]):
                rows.append((number, *_summed(of_key, list(of_tag), passed)))
                tags.append(tag)
        found = np.array(rows, np.int64).reshape(-1, 6).T
        numbers, *sums = found
        return Amounts(numbers, sums[0], sums[1], sums[2], sums[3], sums[4], tags, by_tag=True)

    def _behind(self, number: int, start: int) -> tuple[Int64s, Int64s, Int64s]:
        """Return messages, bytes and the first of an item by key; ``start`` is its segment."""
        tally = self._tally
        if start < len(tally.starts):
            found = tally.counts[start].copy(), tally.bytes[start].copy(), tally.first[start].copy()
        else:
            zeros = np.zeros(tally.counts.shape[1], np.int64)
            found = zeros, zeros.copy(), np.full_like(zeros, NONE)
        self.open.add_by_key(number, found)
        return found


def _summed(
    of_key: tuple[list[int], list[int], list[int]], keys: Sequence[int], passed: Mask
) -> tuple[int, ...]:
    """Return messages, bytes, those that pass, their bytes and their first, over some keys."""
    counts, sizes, first = of_key
    matching = [key for key in keys if passed[key]]
    return (
        sum(counts[key] for key in keys),
        sum(sizes[key] for key in keys),
        sum(counts[key] for key in matching),
        sum(sizes[key] for key in matching),
        min((first[key] for key in matching), default=NONE),
    )


def _none_last(tag: str | None) -> tuple[bool, str]:
    return tag is None, tag or ""


def count(source: RecordSource, queues: Sequence[QueueCount]) -> None:
    """Count the units of queues of one origin, together.

    Raises InvalidOptionError if one of them has too many tags, TooManyTagsError if they only
    have together, and FileNotFoundError if a file expired since it was listed.
    """
    most = min(CHUNK_UNITS, max(_LEAST_UNITS, _COUNTED_UNITS // max(len(queues), 1)))
    if len(queues) == 1:
        most = CHUNK_UNITS
    lanes = [(queue, queue.units(source, most)) for queue in queues]
    for queue in queues:
        for units in queue.open.units(source, queue.items[0], most):
            (found,) = classify(source, [(queue.classifier, units)])
            queue.add_open(units, found)
    while lanes:
        read = [(queue, lane, next(lane, None)) for queue, lane in lanes]
        held = [(queue, lane, units) for queue, lane, units in read if units is not None]
        keys = classify(source, [(queue.classifier, units) for queue, _, units in held])
        for (queue, _, units), found in zip(held, keys, strict=True):
            queue.add(units, found)
        if len(queues) > 1 and not fits(queues):
            raise TooManyTagsError
        lanes = [(queue, lane) for queue, lane, _ in held]


def fits(queues: Sequence[QueueCount]) -> bool:
    """Tell whether memory is for all that is counted for these queues."""
    cells, chars = sum(queue.cells for queue in queues), sum(queue.chars for queue in queues)
    return cells <= MAX_CELLS and chars <= MAX_CHARS


def edge_times(source: RecordSource, edges: Sequence[UnitBatch]) -> Iterator[tuple[Int64s, Int64s]]:
    """Yield the queue offsets of each queue's ``edges`` and their storeTimestamps in ms.

    All are read together, in the order of the log; NO_TIMESTAMP stands where none can be read.
    """
    times = source.store_timestamps(join(edges))
    ends = np.cumsum([len(units) for units in edges])
    for units, of_queue in zip(edges, np.split(times, ends[:-1]), strict=True):
        yield units.positions.queue_offsets, of_queue
