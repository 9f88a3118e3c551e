"""Messages that are to be delivered later: what is due when, and what was delivered.

Two places hold them. ``SCHEDULE_TOPIC_XXXX`` has a queue for each delay level; how far it was
delivered is in delayOffset.json, which a broker writes every ten seconds: after a crash some
messages that were delivered still count as pending, and will be delivered again. The timers of
5.x lie in ``rmq_sys_wheel_timer``; slots of the wheel before the time in config/timercheck were
delivered. A timer further away than the wheel reaches is put back when its slot comes: it has a
row for each time, with its number in ``rollTimes``.

Reference: ScheduleMessageService#start, #decode; HookUtils#transformDelayLevelMessage;
TimerMessageStore#dequeue, #doEnqueue; TimerCheckpoint.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import pyarrow as pa

from mqstore.codec.decode import timestamps
from mqstore.codec.schema import TIMESTAMP, message_schema
from mqstore.format import properties
from mqstore.format.names import SCHEDULE_TOPIC, TIMER_TOPIC
from mqstore.read.plan import SplitLimits, split
from mqstore.read.scan import scan
from mqstore.read.settings import ScanSettings
from mqstore.read.source import BoundsSource, QueueSlice, Snapshot
from mqstore.tables.choice import RowChoice, Window, chosen_rows, slices
from mqstore.tables.columns import (
    BROKER_NAME,
    PENDING,
    Columns,
    integers,
    repeat,
    schema,
    text,
    times,
)
from mqstore.tables.table import BY_QUEUE, BY_TIME, FROM_LOG, Table, TableRequest

DELIVERED: Final = "DELIVERED"
CANCEL: Final = "CANCEL"  # a request to drop another timer, not a message

COLUMNS: Final[Columns] = (
    BROKER_NAME,
    ("kind", pa.string(), False, "delay: by level; timer: 5.x, by time"),
    ("state", pa.string(), False, "PENDING, DELIVERED; CANCEL: deletes the timer with that msgId"),
    ("deliverTimestamp", TIMESTAMP, True, "when it is due"),
    ("realTopic", pa.string(), True, "topic that it is delivered to"),
    ("realQueueId", pa.int32(), True, "queue that it is delivered to"),
    ("level", pa.int32(), True, "delay level 1 to 18; null for a timer"),
    ("rollTimes", pa.int32(), True, "how often a timer was stored again; null for a delay"),
    ("tags", pa.string(), True, "property TAGS"),
    ("keys", pa.string(), True, "property KEYS"),
    ("msgId", pa.string(), False, "the message's id; the delivered message has it too"),
    ("bornTimestamp", TIMESTAMP, False, "the producer's clock at the send"),
    ("storeTimestamp", TIMESTAMP, False, "the broker's clock at the append"),
    ("topic", pa.string(), False, "topic that it waits in"),
    ("queueId", pa.int32(), False, "queue that it waits in"),
    ("queueOffset", pa.int64(), False, "its queue offset there"),
    ("physicalOffset", pa.int64(), False, "byte of the CommitLog"),
    ("storeSize", pa.int32(), False, "bytes of the record"),
)
SCHEMA: Final = schema(COLUMNS)

_DELAY_TOPICS: Final = frozenset({SCHEDULE_TOPIC, TIMER_TOPIC})
_MESSAGE_COLUMNS: Final = frozenset(message_schema(tuple(SCHEMA.names[8:])).names) - {"topic"}
_FROM_PROPERTIES: Final = frozenset({"realTopic", "realQueueId", "rollTimes"})


@dataclass(frozen=True, slots=True)
class DeliveryProgress:
    """How far one store had delivered: by delay level a queue offset, of timers a time in ms."""

    delays: tuple[tuple[int, int], ...]
    timers_ms: int


@dataclass(frozen=True, slots=True)
class ScheduledPart:
    """Slices of schedule queues of one store. Pickles into a task."""

    slices: tuple[QueueSlice, ...]
    progress: DeliveryProgress
    choice: RowChoice | None
    on_corrupt: str

    def batches(self, columns: Sequence[str]) -> Iterator[pa.RecordBatch]:
        """Yield the messages in the order of their queues; only ``columns`` are right."""
        for piece in self.slices:
            timer = piece.topic == TIMER_TOPIC
            wanted = {"queueOffset", "tagsCode", *_MESSAGE_COLUMNS.intersection(columns)}
            if timer or self.choice or not _FROM_PROPERTIES.isdisjoint(columns):
                wanted.add("properties")
            settings = ScanSettings(columns=tuple(sorted(wanted)), on_corrupt=self.on_corrupt)
            for found in scan([piece], settings):
                rows = self._timers(piece, found) if timer else self._delays(piece, found)
                yield chosen_rows(self.choice, rows, "realTopic", "realQueueId")

    def _delays(self, piece: QueueSlice, found: pa.RecordBatch) -> pa.RecordBatch:
        level = piece.queue_id + 1
        # As the broker does: a level that the file does not name starts at 0.
        delivered = dict(self.progress.delays).get(level, 0)
        state = np.where(found["queueOffset"].to_numpy() < delivered, DELIVERED, PENDING)
        own = {
            "kind": repeat("delay", found),
            "state": pa.array(state.tolist(), pa.string()),
            "deliverTimestamp": timestamps(found["tagsCode"].to_numpy()),
            "level": repeat(level, found),
        }
        return _batch(piece, found, own)

    def _timers(self, piece: QueueSlice, found: pa.RecordBatch) -> pa.RecordBatch:
        due = integers(found, properties.TIMER_OUT_MS, pa.int64())
        cancels = text(found, properties.TIMER_DELETE_UNIQ_KEY).is_valid().to_pylist()
        state = [
            CANCEL if cancel else PENDING if ms is None or ms >= self.progress.timers_ms
            else DELIVERED
            for ms, cancel in zip(due.to_pylist(), cancels, strict=True)
        ]  # fmt: skip
        own = {
            "kind": repeat("timer", found),
            "state": pa.array(state, pa.string()),
            "deliverTimestamp": times(due),
            "rollTimes": integers(found, properties.TIMER_ROLL_TIMES, pa.int32()).fill_null(0),
        }
        return _batch(piece, found, own)


def is_source(topic: str) -> bool:
    """Tell whether the table is made of the messages of that topic."""
    return topic in _DELAY_TOPICS


def plan(
    source: BoundsSource,
    snapshot: Snapshot,
    window: Window,
    choice: RowChoice | None,
    on_corrupt: str,
) -> list[ScheduledPart]:
    """Return the parts of one store, balanced by bytes.

    ``window`` is on storeTimestamp, ``choice`` on the real topic and queue. Raises
    CorruptConfigError.
    """
    delays = sorted(source.config.delay_offsets().items())
    progress = DeliveryProgress(tuple(delays), source.timers_delivered_ms())
    pieces = slices(source, snapshot, is_source, window)
    weighed = source.weigh(pieces, strict=on_corrupt == "fail")
    return [
        ScheduledPart(part, progress, choice, on_corrupt) for part in split(weighed, SplitLimits())
    ]


def _batch(piece: QueueSlice, found: pa.RecordBatch, own: dict[str, Any]) -> pa.RecordBatch:
    """Return the rows of SCHEMA; null, or empty, what was not read."""
    arrays = own | {
        "brokerName": repeat(piece.broker_name, found),
        "topic": repeat(piece.topic, found),
        "queueId": repeat(piece.queue_id, found),
    }
    if "properties" in found.schema.names:
        arrays["realTopic"] = text(found, properties.REAL_TOPIC)
        arrays["realQueueId"] = integers(found, properties.REAL_QID, pa.int32())
    arrays |= {name: found[name] for name in SCHEMA.names if name in found.schema.names}
    unread = set(SCHEMA.names) - set(arrays)
    fields = [field.with_nullable(field.nullable or field.name in unread) for field in SCHEMA]
    columns = [arrays.get(field.name, pa.nulls(found.num_rows, field.type)) for field in fields]
    return pa.RecordBatch.from_arrays(columns, schema=pa.schema(fields))


def _planned(request: TableRequest) -> list[ScheduledPart]:
    choice = request.choice()
    return [
        part
        for source, snapshot in request.sources(is_source)
        for part in plan(source, snapshot, request.window, choice, request.on_corrupt)
    ]


SCHEDULED: Final = Table(
    "scheduled",
    COLUMNS,
    _planned,
    options=BY_QUEUE | BY_TIME | FROM_LOG,
    order=("deliverTimestamp", "brokerName", "physicalOffset"),
    not_served="GET_ALL_DELAY_OFFSET",
)
