"""The table ``forecast``: when a group will have consumed what waits, and when it will be deleted.

A row is a queue of a group. Rates are those between looks: recorded samples, a look a while
before this one, or both. What is not known is null.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Final

import pyarrow as pa

from mqstore.backlog import BacklogItem, BacklogRequest, PackedItems, Statuses
from mqstore.backlog.schema import AHEAD
from mqstore.backlog.standing import Standing
from mqstore.codec.schema import TIMESTAMP
from mqstore.pop.state import PULL
from mqstore.tables.backlogs import planned_items
from mqstore.tables.columns import BROKER_NAME, US, Columns, TableRow, batches, schema
from mqstore.tables.looks import QueueSeries, earlier_looks, log_states, series
from mqstore.tables.owners import OF_GROUP
from mqstore.tables.retained import Retained, retained
from mqstore.tables.table import BY_GROUP, BY_QUEUE, FROM_LOG, LOOKS, Table, TableRequest
from mqstore.tables.verdict_facts import stored_ms
from mqstore.verdicts.loss import Loss
from mqstore.verdicts.rates import COMMIT_MS, Drift, Spread

COLUMNS: Final[Columns] = (
    BROKER_NAME,
    ("group", pa.string(), False, "consumer group"),
    ("topic", pa.string(), False, "topic"),
    ("queueId", pa.int32(), False, "queue of the topic"),
    ("lag", pa.int64(), False, "messages held and not consumed; of a POP group not acknowledged"),
    ("storedRate", pa.float64(), True, "messages stored a second; null: not known"),
    ("storedRateLow", pa.float64(), True, "its least value, with a probability of 95 %"),
    ("storedRateHigh", pa.float64(), True, "its largest value likewise"),
    ("consumedRate", pa.float64(), True, "messages consumed a second; null: not known"),
    ("consumedRateLow", pa.float64(), True, "its least value, with a probability of 95 %"),
    ("consumedRateHigh", pa.float64(), True, "its largest value likewise"),
    ("looks", pa.int32(), False, "looks of which the rates are made, this one too"),
    ("ratesMs", pa.int64(), True, "between the first and the last of them; null: one look"),
    ("etaZero", TIMESTAMP, True, "when nothing waits; null: rates not known, or never"),
    ("etaZeroEarliest", TIMESTAMP, True, "the spread of the rates as times; null as above"),
    ("etaZeroLatest", TIMESTAMP, True, "likewise; null too where it may be never"),
    ("etaLoss", TIMESTAMP, True,
     "when the broker deletes the first message of lag; null: not known, or nothing waits"),
    ("etaLossEarliest", TIMESTAMP, True, "the earliest time at which that may be; null as above"),
    ("etaLossLatest", TIMESTAMP, True, "likewise; null too where it may be never"),
    ("lossBy", pa.string(), True, "TIME: its file expires; DISK: its disk is full; null as above"),
    ("status", pa.string(), False, "as the backlog has it"),
    ("asOf", TIMESTAMP, False, "when the offsets were read"),
)  # fmt: skip
SCHEMA: Final = schema(COLUMNS)
_LAST_US: Final = 253_402_300_799_999_999
"""The last microsecond of the year 9999, where Python's times end."""


@dataclass(frozen=True, slots=True)
class ForecastPart:
    """Queues of groups to foresee: how they moved, and what retention was found. Pickles."""

    items: PackedItems
    request: BacklogRequest
    as_of_ms: int
    moved: tuple[QueueSeries | None, ...]
    retention: Retained

    def batches(self, _columns: Sequence[str]) -> Iterator[pa.RecordBatch]:
        """Yield the rows, in the order of the items."""
        yield from batches(self._rows(), SCHEMA)

    def _rows(self) -> Iterator[TableRow]:
        items = self.items.items()
        standing = Standing.of(items) if items else None
        starts = standing.start.tolist() if standing else []
        statuses = Statuses(self.request).of(items, self.as_of_ms)
        lags = standing.lag.tolist() if standing else []
        columns = zip(items, starts, lags, statuses, self.moved, strict=True)
        for item, start, lag, status, moved in columns:
            numbers = item, start, lag, moved if status != AHEAD else None
            yield (*self._row(*numbers), status, self.as_of_ms * US)

    def _row(self, item: BacklogItem, start: int, lag: int, moved: QueueSeries | None) -> TableRow:
        """Return the row, but status and asOf."""
        zero = self._zero(lag, moved)
        queue = item.broker_name, item.topic, item.queue_id
        loss: Loss | None = None
        if lag and (item.group, queue) in self.retention.places:
            since_ms = stored_ms(item.origin, queue, start)
            loss = self.retention.loss(item.group, queue, since_ms, self.as_of_ms)
        stored, consumed = (None, None) if moved is None else (moved.stored, moved.consumed)
        times = moved.times_ms if moved is not None else (self.as_of_ms,)
        return (
            item.broker_name, item.group, item.topic, item.queue_id, lag,
            *_rate(stored), *_rate(consumed),
            len(times), times[-1] - times[0] if len(times) > 1 else None,
            *self._moments(zero),
            *_loss(loss),
        )  # fmt: skip

    def _zero(self, lag: int, moved: QueueSeries | None) -> Spread | None:
        """Return in how many ms nothing waits: a committed offset is some seconds old."""
        if not lag:
            return Spread(0.0, 0.0, 0.0)
        drained = None if moved is None else moved.drained
        found = None if drained is None else drained.reach_ms(lag)
        if drained is None or found is None or not drained.carries(found.value):
            return None
        low = max(0.0, (found.low or 0.0) - 2 * COMMIT_MS)
        return replace(
            found, low=low, high=None if found.high is None else found.high + 2 * COMMIT_MS
        )

    def _moments(self, ahead: Spread | None) -> tuple[int | None, ...]:
        if ahead is None:
            return None, None, None
        return tuple(
            None if ms is None else _us(self.as_of_ms + int(ms))
            for ms in (ahead.value, ahead.low, ahead.high)
        )


def _us(ms: int) -> int:
    return min(max(ms * US, 0), _LAST_US)


def _rate(found: Drift | None) -> tuple[float | None, ...]:
    spread = None if found is None else found.per_second
    return (None, None, None) if spread is None else (spread.value, spread.low, spread.high)


def _loss(found: Loss | None) -> tuple[int | str | None, ...]:
    if found is None:
        return None, None, None, None
    latest = None if found.latest_ms is None else _us(found.latest_ms)
    return _us(found.at_ms), _us(found.earliest_ms), latest, found.by


def _planned(request: TableRequest) -> list[ForecastPart]:
    past = earlier_looks(request)
    snapshots = request.stores.held_of(lambda _: True)
    items, asked, as_of_ms = planned_items(request, snapshots)
    pairs = list(zip(request.stores.sources, snapshots, strict=True))
    kept = retained(pairs, items, request, log_states(pairs), past, as_of_ms)
    moved: list[QueueSeries | None] = []
    for item in items:
        queue = item.broker_name, item.topic, item.queue_id
        done = item.consumer_offset
        if done is None or item.topic_gone or item.mode != PULL:
            moved.append(None)
        else:
            moved.append(series(past, item.group, queue, (as_of_ms, item.high, done)))
    items = _with_movers(items, moved)
    return [ForecastPart(PackedItems.of(items), asked, as_of_ms, tuple(moved), kept)]


def _with_movers(
    items: Sequence[BacklogItem], moved: Sequence[QueueSeries | None]
) -> list[BacklogItem]:
    """Return the items, with ``consumers`` None in place of 0 of groups whose offsets moved.

    Who moves an offset is there, whatever the broker knows of it.
    """
    movers = {
        item.group
        for item, of_queue in zip(items, moved, strict=True)
        if of_queue is not None and of_queue.committed[-1] > of_queue.committed[0]
    }
    return [
        replace(item, consumers=None) if item.consumers == 0 and item.group in movers else item
        for item in items
    ]


FORECAST: Final = Table(
    "forecast",
    (*COLUMNS, *OF_GROUP),
    _planned,
    options=BY_QUEUE | BY_GROUP | FROM_LOG | LOOKS | {"lateAfter"},
    order=("group", "brokerName", "topic", "queueId"),
    owner="group",
    untold=("etaLoss", "etaLossEarliest", "etaLossLatest", "lossBy"),
)
