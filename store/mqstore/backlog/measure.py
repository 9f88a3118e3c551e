"""A backlog's items to rows: one pass over each queue for all the groups in it.

Only ConsumeQueue units are read, about 1 MiB at a time; of records the timestamps at both
edges, and the tags of those that a hash leaves open.
"""

from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import reduce
from itertools import groupby
from typing import Any, Final, TypeAlias

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from mqstore.backlog.keys import Classifier, EveryMessage, TagHashes, TagStrings
from mqstore.backlog.plan import BacklogItem
from mqstore.backlog.request import HASH, OFFSET, BacklogRequest
from mqstore.backlog.schema import SCHEMA
from mqstore.backlog.tally import NONE, Tally
from mqstore.errors import InvalidOptionError, shown
from mqstore.files.commit_log import CommitLog
from mqstore.files.consume_queue import ConsumeQueue
from mqstore.files.store_dir import open_dir
from mqstore.read.heads import NO_TIMESTAMP, store_timestamps
from mqstore.read.tags import TagFilter, parse_tags
from mqstore.read.units import chunks

Row: TypeAlias = tuple[Any, ...]

_MAX_CELLS: Final = 4_000_000  # of one queue: starts × tags, 24 bytes each
_MAX_CHARS: Final = 64 << 20  # of the distinct tags of one queue
_US: Final = 1000
_BATCH_ROWS: Final = 10_000


@dataclass(frozen=True, slots=True)
class _Amount:
    """What one row counts: messages and bytes, those that pass, and the first that does."""

    lag: int = 0
    bytes: int = 0
    lag_matching: int = 0
    bytes_matching: int = 0
    first: int | None = None
    tag: str | None = None


def measure(items: Sequence[BacklogItem], request: BacklogRequest, as_of_ms: int) -> pa.RecordBatch:
    """Return the rows of ``items``, in their order, with the schema SCHEMA.

    ``request`` is the one they were planned with; ``as_of_ms`` is asOf, in ms since the epoch.
    Raises StoreNotFoundError if a store cannot be seen from here, and InvalidOptionError if a
    queue has too many tags for byTag.
    """
    rows: list[list[Row]] = [[] for _ in items]
    for numbers, found in _measured(items, request, as_of_ms):
        for number, item_rows in zip(numbers, found, strict=True):
            rows[number] = item_rows
    return _batch([row for item_rows in rows for row in item_rows])


def measure_in_batches(
    items: Sequence[BacklogItem], request: BacklogRequest, as_of_ms: int
) -> Iterator[pa.RecordBatch]:
    """As ``measure``, ten thousand rows or those of a queue at a time, queue by queue."""
    rows: list[Row] = []
    for _, found in _measured(items, request, as_of_ms):
        rows += (row for item_rows in found for row in item_rows)
        if len(rows) >= _BATCH_ROWS:
            yield _batch(rows)
            rows = []
    if rows:
        yield _batch(rows)


def _measured(
    items: Sequence[BacklogItem], request: BacklogRequest, as_of_ms: int
) -> Iterator[tuple[list[int], list[list[Row]]]]:
    """Yield the items' numbers of each queue, and the rows of each."""
    for (root, commit_log), numbers in _grouped(items):
        with CommitLog(open_dir(root, commit_log).commit_log) as log:
            for queue in _queues(items, numbers):
                chosen = [items[number] for number in queue]
                try:
                    found = _Queue(log, chosen, request).rows(as_of_ms)
                except FileNotFoundError:
                    # A running broker deleted expired files: what is left is listed anew.
                    with CommitLog(commit_log) as again:
                        found = _Queue(again, chosen, request).rows(as_of_ms)
                yield queue, found


def _batch(rows: Sequence[Row]) -> pa.RecordBatch:
    columns = list(zip(*rows, strict=True))
    arrays = [pa.array(columns[i] if columns else [], field.type) for i, field in enumerate(SCHEMA)]
    return pa.RecordBatch.from_arrays(arrays, schema=SCHEMA)


def _grouped(
    items: Sequence[BacklogItem],
) -> Iterator[tuple[tuple[str, tuple[str, ...]], list[int]]]:
    """Yield the items' numbers by store, one store after the other."""

    def store(number: int) -> tuple[str, tuple[str, ...]]:
        return items[number].root, items[number].commit_log

    for key, numbers in groupby(sorted(range(len(items)), key=store), store):
        yield key, list(numbers)


def _queues(items: Sequence[BacklogItem], numbers: Iterable[int]) -> Iterable[list[int]]:
    queues: defaultdict[tuple[str, int], list[int]] = defaultdict(list)
    for number in numbers:
        queues[items[number].topic, items[number].queue_id].append(number)
    return queues.values()


class _Queue:
    """The items of one queue and what is counted for them."""

    def __init__(
        self, log: CommitLog, items: Sequence[BacklogItem], request: BacklogRequest
    ) -> None:
        self._log = log
        self._items = items
        self._request = request
        expressions = {item.tag_expression for item in items}
        self._filters: dict[str | None, TagFilter | None] = {
            e: None if request.lag_mode == OFFSET else parse_tags(e) for e in expressions
        }
        starts = {item.start for item in items if item.lag}
        self._tally = Tally(np.array(sorted(starts), np.int64))
        self._classifier = self._classify()
        self._passes: dict[str | None, NDArray[np.bool_]] = {}

    def rows(self, as_of_ms: int) -> list[list[Row]]:
        """Return the rows of each item."""
        self._scan()
        amounts = [self._amounts(item) for item in self._items]
        times = self._times({a.first for found in amounts for a in found})
        return [
            [_row(item, amount, times, as_of_ms) for amount in found]
            for item, found in zip(self._items, amounts, strict=True)
        ]

    def _classify(self) -> Classifier:
        topic = self._items[0].topic
        filters = [found for found in self._filters.values() if found]
        if self._request.by_tag:
            by_hash = self._request.lag_mode == HASH
            return TagStrings(self._log, topic, None, by_hash=by_hash)
        if not filters:
            return EveryMessage()
        wanted = reduce(lambda a, b: TagFilter(a.tags | b.tags, a.codes | b.codes), filters)
        if self._request.lag_mode == HASH:
            return TagHashes(topic, wanted)
        since = min(item.start for item in self._items if self._filters[item.tag_expression])
        return TagStrings(self._log, topic, wanted, since=since)

    def _scan(self) -> None:
        """Count the units from the first start on, and note those that groups consumed last."""
        tally, classifier = self._tally, self._classifier
        last = {q for item in self._items if (q := item.last_consumed) is not None}
        consumed = np.array(sorted(last), np.int64)
        begins = [*tally.starts[:1].tolist(), *consumed[:1].tolist()]
        if begins:
            item = self._items[0]
            queue = ConsumeQueue(item.root, item.topic, item.queue_id)
            for chunk in chunks(queue, min(begins), item.high):
                tally.add(chunk, classifier.keys(chunk), classifier.count)
                low, high = np.searchsorted(consumed, [chunk.start, chunk.end])
                tally.note(chunk, consumed[low:high])
                self._check_cells()
        tally.accumulate()
        width = tally.counts.shape[1]
        for expression, wanted in self._filters.items():
            passes = np.zeros(width, np.bool_)
            found = classifier.passes(wanted)[:width]
            passes[: len(found)] = found
            self._passes[expression] = passes

    def _check_cells(self) -> None:
        if self._tally.counts.size > _MAX_CELLS or self._classifier.chars > _MAX_CHARS:
            item = self._items[0]
            raise InvalidOptionError(
                "byTag",
                "true",
                f"queue {item.queue_id} of {shown(item.topic)} has more than "
                f"{self._classifier.count:,} different tags: name fewer groups, or count without",
            )

    def _amounts(self, item: BacklogItem) -> list[_Amount]:
        if not item.lag:
            return [_Amount()]
        tally = self._tally
        row = int(np.searchsorted(tally.starts, item.start))
        passes = self._passes[item.tag_expression]
        counts, sizes, first = tally.counts[row], tally.bytes[row], tally.first[row]
        if self._request.by_tag:
            return self._amounts_by_tag(item, row, passes)
        # Without a filter, units of a file that is missing count too: nobody looked at them.
        every = self._filters[item.tag_expression] is None
        matching = item.lag if every else int(counts[passes].sum())
        return [
            _Amount(
                item.lag,
                int(sizes.sum()),
                matching,
                int(sizes[passes].sum()),
                _first(first[passes]),
            )
        ]

    def _amounts_by_tag(
        self, item: BacklogItem, row: int, passes: NDArray[np.bool_]
    ) -> list[_Amount]:
        tally, classifier = self._tally, self._classifier
        assert isinstance(classifier, TagStrings)
        counts, sizes = tally.counts[row].copy(), tally.bytes[row]
        counts[0] += item.lag - counts.sum()  # Units of a file that is missing have no tag.
        found = []
        for key in np.flatnonzero(counts).tolist():
            count, size = int(counts[key]), int(sizes[key])
            amount = _Amount(count, size, tag=classifier.names[key])
            if passes[key]:
                first = _first(tally.first[row, key : key + 1])
                amount = replace(amount, lag_matching=count, bytes_matching=size, first=first)
            found.append(amount)
        return sorted(found, key=lambda amount: (amount.tag is None, amount.tag or ""))

    def _times(self, firsts: set[int | None]) -> dict[int, int]:
        """Return the storeTimestamp in ms of the units rows tell of, where it can be read."""
        wanted = firsts | {item.last_consumed for item in self._items}
        noted = self._tally.noted()
        chosen = np.array([queue_offset in wanted for queue_offset in noted[0]], np.bool_)
        queue_offsets, places, sizes = (column[chosen] for column in map(np.array, noted))
        times = store_timestamps(self._log, places, sizes)
        read = times != NO_TIMESTAMP
        return dict(zip(queue_offsets[read].tolist(), times[read].tolist(), strict=True))


def _first(queue_offsets: NDArray[np.int64]) -> int | None:
    first = int(queue_offsets.min(initial=NONE))
    return None if first == NONE else first


def _row(item: BacklogItem, amount: _Amount, times: dict[int, int], as_of_ms: int) -> Row:
    """Return one row, its values in the order of SCHEMA."""
    first = None if amount.first is None else times.get(amount.first)
    last = None if item.last_consumed is None else times.get(item.last_consumed)
    return (
        item.broker_name,
        item.group,
        item.topic,
        item.queue_id,
        amount.tag,
        item.high,
        item.consumer_offset,
        item.low,
        item.diff,
        amount.lag,
        item.expired,
        item.subscription,
        amount.lag_matching,
        amount.bytes,
        amount.bytes_matching,
        None if first is None else first * _US,
        None if first is None else max(0, as_of_ms - first),
        None if last is None else last * _US,
        item.status,
        as_of_ms * _US,
        item.expression_type,
    )
