"""A backlog's items to rows: one pass over each queue for all the groups in it.

Some hundred queues of a store are counted together, for their records lie side by side.
"""

from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from contextlib import closing
from itertools import compress
from operator import not_
from typing import Final

import numpy as np
import pyarrow as pa

from mqstore.backlog.count import (
    MAX_QUEUES_AT_ONCE,
    Amounts,
    QueueCount,
    TooManyTagsError,
    count,
    edge_times,
    fits,
)
from mqstore.backlog.items import BacklogItem
from mqstore.backlog.keys import TagHashes
from mqstore.backlog.matches import count_matches
from mqstore.backlog.request import BacklogRequest
from mqstore.backlog.rows import rows
from mqstore.backlog.schema import SCHEMA
from mqstore.backlog.standing import Standing
from mqstore.format.arrays import Int64s
from mqstore.read.source import Origin, RecordSource

_BATCH_ROWS: Final = 10_000


def measure(items: Sequence[BacklogItem], request: BacklogRequest, as_of_ms: int) -> pa.RecordBatch:
    """Return the rows of ``items``, in their order, with the schema SCHEMA.

    ``request`` is the one they were planned with; ``as_of_ms`` is asOf, in ms since the epoch.
    Raises StoreNotFoundError if a store cannot be seen from here, and InvalidOptionError if a
    queue has too many tags for byTag.
    """
    numbers = [np.empty(0, np.int64)]
    batches = []
    for number, batch in _measured(items, request, as_of_ms):
        numbers.append(number)
        batches.append(batch)
    order = np.argsort(np.concatenate(numbers), kind="stable")
    return _joined(batches).take(pa.array(order))


def measure_in_batches(
    items: Sequence[BacklogItem], request: BacklogRequest, as_of_ms: int
) -> Iterator[pa.RecordBatch]:
    """As ``measure``, ten thousand rows or those of a queue at a time, queue by queue."""
    pending: list[pa.RecordBatch] = []
    for _, batch in _measured(items, request, as_of_ms):
        pending.append(batch)
        if sum(batch.num_rows for batch in pending) >= _BATCH_ROWS:
            yield _joined(pending)
            pending = []
    if pending:
        yield _joined(pending)


def by_offsets(items: Sequence[BacklogItem], as_of_ms: int) -> Iterator[pa.RecordBatch]:
    """Yield the rows of ``items``, with the values of the columns BY_OFFSETS only.

    No message is looked at. ``as_of_ms`` is asOf, in ms since the epoch.
    """
    for first in range(0, len(items), _BATCH_ROWS):
        some = items[first : first + _BATCH_ROWS]
        standing, none = Standing.of(some), np.zeros(len(some), np.int64)
        amounts = Amounts(
            np.arange(len(some)), standing.lag, none, none, none, none, [None] * len(some)
        )
        yield rows(some, standing, amounts, (none[:0], none[:0]), as_of_ms)


def _joined(batches: Sequence[pa.RecordBatch]) -> pa.RecordBatch:
    columns = pa.Table.from_batches(batches, SCHEMA).columns
    return pa.RecordBatch.from_arrays([one.combine_chunks() for one in columns], schema=SCHEMA)


def _measured(
    items: Sequence[BacklogItem], request: BacklogRequest, as_of_ms: int
) -> Iterator[tuple[Int64s, pa.RecordBatch]]:
    """Yield the rows of each queue, and the number of each row's item."""
    stores: defaultdict[Origin, list[int]] = defaultdict(list)
    for number, one in enumerate(items):
        stores[one.origin].append(number)
    for origin, numbers in stores.items():
        with closing(origin.records()) as source:
            queues = _queues(items, numbers, request.lag_mode)
            counts = (QueueCount([items[n] for n in queue], request) for queue in queues)
            found = (one for some in _together(counts) for one in _counted(source, some, as_of_ms))
            for queue, (item, batch) in zip(queues, found, strict=True):
                yield np.array(queue)[item], batch


def _queues(items: Sequence[BacklogItem], numbers: Iterable[int], lag_mode: str) -> list[list[int]]:
    """Return the items of each queue; those by SQL92, which needs all records, stand apart."""
    queues: defaultdict[tuple[str, int, bool], list[int]] = defaultdict(list)
    for number in numbers:
        item = items[number]
        by_sql = item.sql_filter(lag_mode) is not None
        queues[item.topic, item.queue_id, by_sql].append(number)
    return list(queues.values())


def _together(queues: Iterable[QueueCount]) -> Iterator[list[QueueCount]]:
    """Yield queues that memory is for at the same time."""
    some: list[QueueCount] = []
    for queue in queues:
        if some and (len(some) == MAX_QUEUES_AT_ONCE or not fits([*some, queue])):
            yield some
            some = []
        some.append(queue)
    if some:
        yield some


def _counted(
    source: RecordSource, queues: Sequence[QueueCount], as_of_ms: int
) -> Iterator[tuple[Int64s, pa.RecordBatch]]:
    """Yield the rows of queues counted together, or one by one if that cannot be."""
    try:
        times = _count(source, queues)
    except (FileNotFoundError, TooManyTagsError):
        for queue in queues:
            # A running broker deleted expired files: what is left is listed anew.
            again = QueueCount(queue.items, queue.request)
            with closing(queue.items[0].origin.records()) as fresh:
                (its,) = _count(fresh, [again])
            yield _rows(again, its, as_of_ms)
        return
    for queue, its in zip(queues, times, strict=True):
        yield _rows(queue, its, as_of_ms)


def _count(source: RecordSource, queues: Sequence[QueueCount]) -> list[tuple[Int64s, Int64s]]:
    """Count the queues together; return the times their rows have, as ``edge_times`` does."""
    by_hash = [source.has_cheap_units or isinstance(q.classifier, TagHashes) for q in queues]
    count(source, list(compress(queues, by_hash)))
    count_matches(source, list(compress(queues, map(not_, by_hash))))
    return list(edge_times(source, [queue.edges() for queue in queues]))


def _rows(
    queue: QueueCount, times: tuple[Int64s, Int64s], as_of_ms: int
) -> tuple[Int64s, pa.RecordBatch]:
    """Return the rows of a queue, and the number of each row's item."""
    amounts = queue.amounts()
    late_after_ms = queue.request.late_after_ms
    found = rows(queue.items, queue.standing, amounts, times, as_of_ms, late_after_ms)
    return amounts.item, found
