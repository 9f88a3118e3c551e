"""Traces: what clients wrote about their sends and deliveries, an event a row.

The events lie in messages of a trace topic, some of many in one message, in no order of time. A
message id or a key is found by the index: clients write all of them into KEYS of a trace message.

Reference: AsyncDataSendTask#flushData; mqstore.format.trace_entries for the text.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final

import pyarrow as pa

from mqstore.codec.schema import TIMESTAMP
from mqstore.errors import UnknownTopicError
from mqstore.format.names import TRACE_TOPIC
from mqstore.format.trace_entries import END_TRANSACTION, PUB, TraceEntry, parse
from mqstore.read.known_names import unknown
from mqstore.read.plan import SplitLimits, split
from mqstore.read.scan import scan
from mqstore.read.selection import OpenStores
from mqstore.read.settings import ScanSettings
from mqstore.read.source import BoundsSource, QueueSlice, Snapshot
from mqstore.tables.choice import Window, slices
from mqstore.tables.columns import (
    BROKER_NAME,
    TABLE_BATCH_ROWS,
    US,
    Columns,
    TableRow,
    batch,
    schema,
)
from mqstore.tables.table import BY_TIME, FROM_LOG, Streamed, Table, TableRequest

__all__ = ["END_TRANSACTION", "PUB", "TRACES", "TRACE_TOPIC", "TraceEntry", "entries", "plan"]

COLUMNS: Final[Columns] = (
    BROKER_NAME,
    ("event", pa.string(), False, "Pub, SubBefore, SubAfter, EndTransaction, Recall or UNKNOWN"),
    ("msgId", pa.string(), True, "the message's id"),
    ("group", pa.string(), True, "producer group, or consumer group"),
    ("topic", pa.string(), True, "topic of the message; of Pub, EndTransaction and Recall"),
    ("tags", pa.string(), True, "property TAGS; of Pub and EndTransaction"),
    ("keys", pa.string(), True, "property KEYS"),
    (
        "timestamp",
        TIMESTAMP,
        True,
        "the client's clock: start of a send or delivery; SubAfter: end",
    ),
    ("costMs", pa.int32(), True, "of a send; of SubAfter that of the call / messages of the call"),
    ("success", pa.bool_(), True, "false: a status that is not SEND_OK, or a failed delivery"),
    ("result", pa.string(), True, "SUCCESS, TIME_OUT, EXCEPTION, RETURNNULL, FAILED; the outcome"),
    ("reconsumeTimes", pa.int32(), True, "failed deliveries before this one; of SubBefore"),
    ("requestId", pa.string(), True, "joins SubBefore and SubAfter: that of a listener's call"),
    ("messageType", pa.string(), True, "Normal_Msg, Trans_Msg_Half, Delay_Msg, Order_Msg, …"),
    ("region", pa.string(), True, "property MSG_REGION"),
    ("storeHost", pa.string(), True, "host and port of the broker"),
    ("offsetMsgId", pa.string(), True, "id with the broker's host and the physical offset; of Pub"),
    ("bodyLength", pa.int32(), True, "bytes of the body; of a batch, of the whole batch"),
    ("transactionId", pa.string(), True, "of EndTransaction"),
    ("fromCheck", pa.bool_(), True, "the broker had asked for the outcome; of EndTransaction"),
    ("clientHost", pa.string(), True, "host of the client"),
    ("fields", pa.int32(), False, "number of fields of the entry"),
    ("problem", pa.string(), True, "why the entry cannot be read; null: it can"),
    ("raw", pa.binary(), True, "first bytes of an entry that cannot be read"),
    ("queueId", pa.int32(), False, "queue of the trace topic"),
    ("queueOffset", pa.int64(), False, "queue offset of the trace message"),
    ("storeTimestamp", TIMESTAMP, False, "the broker's clock at the append of the trace message"),
)
SCHEMA: Final = schema(COLUMNS)

_DAMAGED: Final = TraceEntry(event="UNKNOWN", fields=0, problem="the body cannot be read")
_BATCH_BYTES: Final = 8 << 20
_TRACE_COLUMNS: Final = ("queueId", "queueOffset", "storeTimestamp", "bornHost", "body")


@dataclass(frozen=True, slots=True)
class TracesPart:
    """Slices of trace topics. Pickles into a task.

    ``keys`` chooses the events of messages that have one of them as id or among their keys.
    """

    slices: tuple[QueueSlice, ...]
    keys: tuple[str, ...] = ()
    on_corrupt: str = "fail"

    def batches(self, _columns: Sequence[str]) -> Iterator[pa.RecordBatch]:
        """Yield the events in the order of their queues and of the text."""
        for piece in self.slices:
            rows: list[TableRow] = []
            used = 0
            for place, entry in entries(piece, self.keys, self.on_corrupt):
                rows.append(_row(piece.broker_name, place, entry))
                used += entry.size
                if len(rows) == TABLE_BATCH_ROWS or used > _BATCH_BYTES:
                    yield batch(rows, SCHEMA)
                    rows, used = [], 0
            yield batch(rows, SCHEMA)


Place = tuple[int, int, int, str | None]
"""Of a trace message: queueId, queueOffset, storeTimestamp in µs, host of the client."""


def entries(
    piece: QueueSlice, keys: tuple[str, ...] = (), on_corrupt: str = "fail"
) -> Iterator[tuple[Place, TraceEntry]]:
    """Yield the events of a slice of a trace topic, each with its trace message's place.

    Raises what a scan raises; what a text has is never an error.
    """
    settings = ScanSettings(columns=_TRACE_COLUMNS, keys=keys, on_corrupt=on_corrupt)
    wanted = frozenset(keys)
    for found in scan([piece], settings):
        stored = found["storeTimestamp"].cast(pa.int64())
        columns = (found["queueId"], found["queueOffset"], stored, found["bornHost"])
        rows = zip(*(one.to_pylist() for one in columns), strict=True)
        for number, (queue_id, queue_offset, stored_us, host) in enumerate(rows):
            place = queue_id, queue_offset, stored_us, None if host is None else _address(host)
            body: bytes | None = found["body"][number].as_py()
            for entry in iter([_DAMAGED]) if body is None else parse(body):
                if not wanted or is_about(entry, wanted):
                    yield place, entry


def is_about(entry: TraceEntry, wanted: frozenset[str]) -> bool:
    """Tell whether an event is of a message with one of those ids or keys."""
    if entry.msg_id in wanted or entry.transaction_id in wanted:
        return True
    return entry.keys is not None and not wanted.isdisjoint(entry.keys.split(" "))


def plan(
    sources: Sequence[tuple[BoundsSource, Snapshot]],
    topic: str,
    window: Window,
    keys: tuple[str, ...],
    on_corrupt: str,
) -> list[TracesPart]:
    """Return the parts, of about equal bytes; ``window`` is on storeTimestamp."""
    parts = []
    for source, snapshot in sources:
        pieces = slices(source, snapshot, topic.__eq__, window)
        if keys:
            pieces = source.narrow(pieces, keys, ())
        weighed = source.weigh(pieces, strict=on_corrupt == "fail")
        found = split(weighed, SplitLimits())
        parts += [TracesPart(part, keys, on_corrupt) for part in found]
    return parts


def trace_sources(request: TableRequest) -> tuple[str, list[tuple[BoundsSource, Snapshot]]]:
    """Return the trace topic, and each broker with a snapshot of its queues.

    Raises UnknownTopicError if the option names a topic that no store knows; the default one need
    not be there.
    """
    topic = trace_topic(request.stores, request.trace_topic)
    return topic, request.sources(topic.__eq__)


def trace_topic(stores: OpenStores, named: str | None) -> str:
    """Return the trace topic, that which is named or the default one; raises as above."""
    if named is not None and named not in stores.topics:
        raise UnknownTopicError(unknown("traceTopic", "topic", named, set(stores.topics)))
    return named or TRACE_TOPIC


def _row(broker_name: str, place: Place, entry: TraceEntry) -> TableRow:
    queue_id, queue_offset, stored_us, host = place
    sent_ms = entry.timestamp_ms
    return (
        broker_name, entry.event, entry.msg_id, entry.group, entry.topic, entry.tags, entry.keys,
        None if sent_ms is None else sent_ms * US, entry.cost_ms, entry.success, entry.result,
        entry.reconsume_times, entry.request_id, entry.message_type, entry.region,
        entry.store_host, entry.offset_msg_id, entry.body_length, entry.transaction_id,
        entry.from_check, entry.client_host or host, entry.fields, entry.problem, entry.raw,
        queue_id, queue_offset, stored_us,
    )  # fmt: skip


def _address(host: str) -> str:
    """Return the host of ``host:port``."""
    return host.rpartition(":")[0]


def _planned(request: TableRequest) -> list[TracesPart]:
    topic, sources = trace_sources(request)
    return plan(sources, topic, request.window, request.keys, request.on_corrupt)


TRACES: Final = Table(
    "traces",
    COLUMNS,
    _planned,
    options=BY_TIME | FROM_LOG | {"traceTopic", "keys"},
    order=("timestamp", "brokerName", "queueId", "queueOffset"),
    streamed=Streamed(TRACE_TOPIC, "traceTopic", TracesPart),
)
