"""Half messages of transactions that were neither committed nor rolled back.

A half message is unresolved if it lies at or behind the half queue's consumer offset, no op
message at or behind the op queue's offset names it, and no newer copy of it is there. An op
body is one half queue offset (up to 5.0) or several, each with a comma behind it (5.1 on). When
a broker asks the producer, it appends the half message again with TRANSACTION_CHECK_TIMES one
higher; while a producer is immune to being asked, with TRAN_PREPARED_QUEUE_OFFSET, the place of
the first copy, which an op message may name instead. What was asked too often was copied to
TRANS_CHECK_MAX_TIME_TOPIC: the broker gave it up, and it stays unresolved for ever.

A broker with transRocksDBEnable and without transWriteOriginTransHalfEnable (5.4 on) has half
messages in RMQ_SYS_ROCKSDB_TRANS_HALF_TOPIC. It never appends one again: how often it checked is in
its RocksDB alone. One is unresolved if no op message of RMQ_SYS_ROCKSDB_TRANS_OP_HALF_TOPIC has its
physical offset in TRANS_OFFSET; no offset of a consumer says where to begin, so all are read.

Reference: TransactionalMessageServiceImpl#check, #fillOpRemoveMap, #checkPrepareQueueOffset,
#putBackHalfMsgQueue; TransactionalMessageBridge; TransactionalMessageUtil.OFFSET_SEPARATOR;
TransactionalMessageRocksDBService, TransMessageRocksDBStore.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
import pyarrow as pa

from mqstore.codec import compute as pc
from mqstore.codec.schema import TIMESTAMP, message_schema
from mqstore.errors import InvalidOptionError
from mqstore.format import properties
from mqstore.format.arrays import Int64s, Mask
from mqstore.format.names import (
    CHECK_MAX_TIME_TOPIC,
    HALF_TOPIC,
    OP_HALF_TOPIC,
    ROCKSDB_HALF_TOPIC,
    ROCKSDB_OP_HALF_TOPIC,
    TRANSACTION_GROUP,
    TRANSACTION_TOPICS,
)
from mqstore.read.queues import QueueBounds
from mqstore.read.scan import scan
from mqstore.read.settings import ScanSettings
from mqstore.read.source import BoundsSource, QueueSlice, Snapshot
from mqstore.tables.choice import RowChoice, chosen_rows
from mqstore.tables.columns import (
    BROKER_NAME,
    PENDING,
    Columns,
    completed,
    integers,
    parse,
    repeat,
    schema,
    text,
)
from mqstore.tables.table import BY_QUEUE, FROM_LOG, Table, TableRequest

GIVEN_UP: Final = "GIVEN_UP"

COLUMNS: Final[Columns] = (
    BROKER_NAME,
    ("state", pa.string(), False, "PENDING, or GIVEN_UP: checked too often"),
    ("realTopic", pa.string(), True, "topic of the message after a commit"),
    ("realQueueId", pa.int32(), True, "queue of the message after a commit"),
    ("producerGroup", pa.string(), True, "producer group that the broker asks for the outcome"),
    ("transactionId", pa.string(), True, "property __transactionId__ (5.1 on), else msgId"),
    ("checkTimes", pa.int32(), True, "how often the broker checked it; null: not known"),
    ("tags", pa.string(), True, "property TAGS"),
    ("keys", pa.string(), True, "property KEYS"),
    ("msgId", pa.string(), False, "the message's id; copies have the same"),
    ("bornTimestamp", TIMESTAMP, False, "the producer's clock at the send"),
    ("storeTimestamp", TIMESTAMP, False, "the broker's clock at the append of the newest copy"),
    ("queueOffset", pa.int64(), False, "queue offset of the newest copy"),
    ("physicalOffset", pa.int64(), False, "byte of the CommitLog of the newest copy"),
    ("storeSize", pa.int32(), False, "bytes of its record"),
)
SCHEMA: Final = schema(COLUMNS)

_MAX_HALVES: Final = 100_000_000  # a byte each
_MAX_COPIES: Final = 1_000_000  # about 200 bytes each
_MAX_PLACES: Final = 20_000_000  # 9 bytes each
_REMOVE_TAG: Final = "d"  # TransactionalMessageUtil.REMOVETAG
_OFFSETS_SEPARATOR: Final = b","
_MESSAGE_COLUMNS: Final = tuple(message_schema(tuple(SCHEMA.names[7:])).names)
_MAX_LONG: Final = 2**63 - 1


@dataclass(frozen=True, slots=True)
class HalfPart:
    """The queues of half and op messages of one store, from where the broker's check goes on.

    ``stored`` and ``ended`` are those of a broker that keeps transactions in RocksDB. Pickles into
    a task.
    """

    halves: tuple[QueueSlice, ...]
    ops: tuple[QueueSlice, ...]
    given_up: tuple[QueueSlice, ...]
    stored: tuple[QueueSlice, ...]
    ended: tuple[QueueSlice, ...]
    choice: RowChoice | None
    on_corrupt: str

    def batches(self, _columns: Sequence[str]) -> Iterator[pa.RecordBatch]:
        """Yield the unresolved half messages, then those that were given up.

        Raises InvalidOptionError if the broker has not checked for so long that they do not
        fit into memory.
        """
        for halves in self.halves:
            ops = [op for op in self.ops if op.queue_id == halves.queue_id]
            check = _Check(halves, ops, self.on_corrupt)
            for found in self._scan([halves]):
                open_ = found.filter(pa.array(check.unresolved(found)))
                yield self._rows(halves.broker_name, open_, PENDING)
        if self.stored:
            places, is_ended = _outcomes(self.stored, self.ended, self.on_corrupt)
            for piece in self.stored:
                for found in self._scan([piece]):
                    rows = np.searchsorted(places, found["physicalOffset"].to_numpy())
                    open_ = found.filter(pa.array(~is_ended[rows]))
                    yield self._rows(piece.broker_name, open_, PENDING, is_counted=False)
        for piece in self.given_up:
            for found in self._scan([piece]):
                yield self._rows(piece.broker_name, found, GIVEN_UP)

    def _scan(self, pieces: Sequence[QueueSlice]) -> Iterator[pa.RecordBatch]:
        columns = (*_MESSAGE_COLUMNS, "properties")
        return scan(pieces, ScanSettings(columns=columns, on_corrupt=self.on_corrupt))

    def _rows(
        self, broker_name: str, found: pa.RecordBatch, state: str, *, is_counted: bool = True
    ) -> pa.RecordBatch:
        checks = integers(found, properties.TRANSACTION_CHECK_TIMES, pa.int32())
        own = {
            "brokerName": repeat(broker_name, found),
            "state": repeat(state, found),
            "realTopic": text(found, properties.REAL_TOPIC),
            "realQueueId": integers(found, properties.REAL_QID, pa.int32()),
            "producerGroup": text(found, properties.PRODUCER_GROUP),
            "transactionId": pc.coalesce(text(found, properties.TRANSACTION_ID), found["msgId"]),
            "checkTimes": checks.fill_null(0) if is_counted else checks,
        }
        return chosen_rows(self.choice, completed(SCHEMA, own, found), "realTopic", "realQueueId")


def is_source(topic: str) -> bool:
    """Tell whether the table is made of the messages of that topic."""
    return topic in TRANSACTION_TOPICS


def plan(
    source: BoundsSource, snapshot: Snapshot, choice: RowChoice | None, on_corrupt: str
) -> list[HalfPart]:
    """Return the part of one store, or none if it has no such queue.

    ``choice`` is on the real topic and queue. Raises CorruptConfigError.
    """
    committed = source.config.consumer_offsets()

    def pieces(topic: str, *, checked: bool) -> tuple[QueueSlice, ...]:
        done = committed.get((topic, TRANSACTION_GROUP), {}) if checked else {}
        queues = [queue for queue in snapshot.queues if queue.topic == topic]
        return tuple(_from(snapshot, queue, done.get(queue.queue_id, 0)) for queue in queues)

    part = HalfPart(
        pieces(HALF_TOPIC, checked=True),
        pieces(OP_HALF_TOPIC, checked=True),
        pieces(CHECK_MAX_TIME_TOPIC, checked=False),
        pieces(ROCKSDB_HALF_TOPIC, checked=False),
        pieces(ROCKSDB_OP_HALF_TOPIC, checked=False),
        choice,
        on_corrupt,
    )
    return [part] if part.halves or part.given_up or part.stored else []


def _from(snapshot: Snapshot, queue: QueueBounds, done: int) -> QueueSlice:
    start = min(max(done, queue.low), queue.high)
    place = queue.topic, queue.queue_id, start, queue.high
    return QueueSlice(snapshot.origin, snapshot.broker_name, *place)


class _Check:
    """What is known of one queue of half messages: outcomes, and copies."""

    def __init__(self, halves: QueueSlice, ops: Sequence[QueueSlice], on_corrupt: str) -> None:
        count = halves.end - halves.start
        if count > _MAX_HALVES:
            raise _too_many(count)
        self._start = halves.start
        self._done = np.zeros(count, np.bool_)
        # Of messages that were put back: the newest copy, by id.
        self._newest: dict[str, int] = {}
        # First copies before the start that a renewed one refers to: were they resolved?
        self._before: dict[int, bool] = {}
        self._read_copies(halves, on_corrupt)
        self._read_outcomes(ops, on_corrupt)

    def unresolved(self, found: pa.RecordBatch) -> Mask:
        """Tell for each half message of a batch whether its outcome is open."""
        queue_offsets = found["queueOffset"].to_numpy()
        open_: Mask = ~self._done[queue_offsets - self._start]
        firsts = integers(found, properties.PREPARED_QUEUE_OFFSET, pa.int64()).to_pylist()
        ids = found["msgId"].to_pylist()
        for row in np.flatnonzero(open_).tolist():
            newest = self._newest.get(ids[row], -1) <= queue_offsets[row]
            open_[row] = newest and not self._is_done(firsts[row])
        return open_

    def _is_done(self, queue_offset: int | None) -> bool:
        if queue_offset is None:
            return False
        row = queue_offset - self._start
        if 0 <= row < len(self._done):
            return bool(self._done[row])
        return self._before.get(queue_offset, False)

    def _read_copies(self, halves: QueueSlice, on_corrupt: str) -> None:
        columns = ("queueOffset", "msgId", "properties")
        for found in scan([halves], ScanSettings(columns=columns, on_corrupt=on_corrupt)):
            checks = text(found, properties.TRANSACTION_CHECK_TIMES)
            firsts = integers(found, properties.PREPARED_QUEUE_OFFSET, pa.int64())
            copies = found.filter(pc.or_(checks.is_valid(), firsts.is_valid()))
            pairs = zip(copies["msgId"].to_pylist(), copies["queueOffset"].to_pylist(), strict=True)
            self._newest.update(pairs)  # In the order of the queue: the last one stands.
            early = (first for first in firsts.to_pylist() if first is not None)
            self._before |= dict.fromkeys((first for first in early if first < self._start), False)
            if len(self._newest) > _MAX_COPIES or len(self._before) > _MAX_COPIES:
                raise _too_many(len(self._newest))

    def _read_outcomes(self, ops: Sequence[QueueSlice], on_corrupt: str) -> None:
        settings = ScanSettings(columns=("tags", "body"), on_corrupt=on_corrupt)
        for found in scan(ops, settings):
            for tag, body in zip(found["tags"].to_pylist(), found["body"].to_pylist(), strict=True):
                for piece in body.split(_OFFSETS_SEPARATOR) if tag == _REMOVE_TAG else ():
                    half = parse(piece.strip().decode(errors="replace"), 0, _MAX_LONG)
                    if half is not None and 0 <= half - self._start < len(self._done):
                        self._done[half - self._start] = True
                    elif half in self._before:
                        self._before[half] = True


def _outcomes(
    halves: Sequence[QueueSlice], ops: Sequence[QueueSlice], on_corrupt: str
) -> tuple[Int64s, Mask]:
    """Return the physical offsets of half messages, ascending, and whether each was ended.

    Raises InvalidOptionError for more half messages than fit into memory.
    """
    count = sum(piece.end - piece.start for piece in halves)
    if count > _MAX_PLACES:
        raise _too_many(count)
    settings = ScanSettings(columns=("physicalOffset",), on_corrupt=on_corrupt)
    parts = [found["physicalOffset"].to_numpy() for found in scan(halves, settings)]
    places = np.unique(np.concatenate([np.empty(0, np.int64), *parts]))
    is_ended = np.zeros(len(places) + 1, np.bool_)  # The last one stands for any other place.
    settings = ScanSettings(columns=("tags", "properties"), on_corrupt=on_corrupt)
    for found in scan(ops, settings):
        named = found.filter(pc.equal(found["tags"], _REMOVE_TAG))
        ended = integers(named, properties.TRANS_OFFSET, pa.int64()).drop_null().to_numpy()
        rows = np.searchsorted(places, ended)
        is_ended[rows[np.append(places, -1)[rows] == ended]] = True
    return places, is_ended


def _too_many(count: int) -> InvalidOptionError:
    return InvalidOptionError(
        "table",
        "halfmessages",
        f"the broker left {count:,} half messages unchecked, more than fit into memory: read "
        f"{HALF_TOPIC} as messages",
    )


def _planned(request: TableRequest) -> list[HalfPart]:
    choice = request.choice()
    return [
        part
        for source, snapshot in request.sources(is_source)
        for part in plan(source, snapshot, choice, request.on_corrupt)
    ]


HALF_MESSAGES: Final = Table(
    "halfmessages",
    COLUMNS,
    _planned,
    options=BY_QUEUE | FROM_LOG,
    order=("bornTimestamp", "brokerName", "physicalOffset"),
)
