"""Messages of queues as rows to send: what their producers set, and where each came from.

Of the properties those stay that a producer sets: all that RocketMQ does not reserve, TAGS, KEYS,
WAIT, __SHARDINGKEY, those of requests (CORRELATION_ID, REPLY_TO_CLIENT, TTL, MSG_TYPE), BUYER_ID
and INSTANCE_ID; UNIQ_KEY where messages keep their ids. What brokers and consumers add is left
out: of retries and dead letters (their WAIT, RETRY_TOPIC, ORIGIN_MESSAGE_ID, RECONSUME_TIME), of
delays that are over (DELAY, TIMER_…, REAL_TOPIC), of transactions that were committed (TRAN_MSG,
PGROUP, __transactionId__), of POP, CLUSTER, MSG_REGION, TRACE_ON and checksums. Bodies go as they
were stored: compressed ones are not touched.

Reference: MessageConst.STRING_HASH_SET; AbstractSendMessageProcessor#consumerSendMsgBack sets
RETRY_TOPIC to the topic that a message was consumed from first.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import groupby
from typing import Final

import numpy as np
import pyarrow as pa

from mqstore.codec import compute as pc
from mqstore.codec.properties_encode import entries
from mqstore.codec.schema import message_schema
from mqstore.deliver.replay.destinations import TopicMap, holds_failures
from mqstore.errors import InvalidMessageError, shown
from mqstore.format import properties as p
from mqstore.format.arrays import Int64s, Mask
from mqstore.read.scan import scan
from mqstore.read.settings import ScanSettings
from mqstore.read.source import QueueSlice

_OF_PRODUCERS: Final = frozenset(
    {
        p.TAGS,
        p.KEYS,
        p.WAIT,
        p.SHARDING_KEY,
        "CORRELATION_ID",
        "REPLY_TO_CLIENT",
        "TTL",
        "MSG_TYPE",
        "BUYER_ID",
        "INSTANCE_ID",
    }
)
LEFT_OUT: Final = (p.RESERVED - _OF_PRODUCERS) | {p.WRITE_PROPERTY}
_SENT: Final = ("body", "topic", "properties", "flag", "sysFlag", "bodyCRC")
_BORN: Final = "bornTimestamp"
_SCANNED: Final = (*_SENT, "queueId", "queueOffset")
_BATCH_ROWS: Final = 10_000

SourceQueue = tuple[str, str, int]
"""Name of a broker, topic, queueId."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplayReading:
    """How messages are read and what becomes of them. Plain values that pickle.

    ``scan`` has the filters; ``keeps_ids`` tells whether UNIQ_KEY stays, ``keeps_born`` whether
    bornTimestamp does. Messages that the application with the tag ``own_tag`` wrote are left out.
    """

    scan: ScanSettings
    topics: TopicMap
    keeps_ids: bool = False
    keeps_born: bool = False
    own_tag: str | None = None

    @property
    def schema(self) -> pa.Schema:
        """The schema of the rows."""
        return message_schema([*_SENT, _BORN] if self.keeps_born else _SENT)

    def scan_settings(self) -> ScanSettings:
        """Return how the messages are scanned."""
        columns = (*_SCANNED, _BORN) if self.keeps_born else _SCANNED
        return replace(
            self.scan, columns=columns, decompress=False, merged=True, batch_rows=_BATCH_ROWS
        )


class SourceRows:
    """The messages of some slices as rows, and where each of them came from."""

    def __init__(self, reading: ReplayReading, slices: Sequence[QueueSlice]) -> None:
        self.body_bytes = 0
        """Bytes of all bodies so far, as they are stored."""
        self.queues: list[SourceQueue] = []
        """The queues that rows came from so far."""
        self._reading = reading
        self._slices = slices
        self._numbers: dict[SourceQueue, int] = {}
        self._queue = np.zeros(0, np.int64)
        self._queue_offsets = np.zeros(0, np.int64)

    def batches(self) -> Iterator[pa.RecordBatch]:
        """Yield the rows. Raises what a scan raises, InvalidMessageError for one without origin."""
        settings = self._reading.scan_settings()
        for broker, pieces in groupby(self._slices, key=lambda piece: piece.broker_name):
            for batch in scan(list(pieces), settings):
                yield self._row_batch(broker, batch)

    def places(self, numbers: Int64s) -> tuple[Int64s, Int64s]:
        """Return, for rows by number, the index into ``queues`` and the queue offset."""
        return self._queue[numbers], self._queue_offsets[numbers]

    def _row_batch(self, broker: str, batch: pa.RecordBatch) -> pa.RecordBatch:
        found = _Entries.of(batch.column("properties"))
        own = found.written_by(self._reading.own_tag)
        if own.any():
            return self._row_batch(broker, batch.filter(pa.array(~own)))
        topics = self._topics(batch, found)
        self._note(broker, batch)
        columns = {name: batch.column(name) for name in self._reading.schema.names}
        columns |= {"topic": topics, "properties": self._properties(batch, found)}
        self.body_bytes += pc.sum(pc.binary_length(columns["body"])).as_py() or 0
        return pa.RecordBatch.from_arrays(list(columns.values()), schema=self._reading.schema)

    def _properties(self, batch: pa.RecordBatch, found: "_Entries") -> pa.Array:
        kept = found.named(self._keeps)
        # As the broker does: a message that failed gets WAIT=false, whatever it had.
        topics = batch.column("topic").dictionary_encode()
        failed = np.array([holds_failures(topic) for topic in topics.dictionary.to_pylist()])
        if failed.any():
            of_row = failed[topics.indices.to_numpy(zero_copy_only=False)]
            kept &= ~(found.named(p.WAIT.__eq__) & np.repeat(of_row, np.diff(found.starts)))
        return found.only(kept)

    def _keeps(self, name: str) -> bool:
        if name == p.UNIQ_KEY:
            return self._reading.keeps_ids
        return name not in LEFT_OUT and not name.startswith(p.TRANSIENT_PREFIX)

    def _topics(self, batch: pa.RecordBatch, found: "_Entries") -> pa.Array:
        encoded = batch.column("topic").dictionary_encode()
        of_topic = [self._reading.topics.of(topic) for topic in encoded.dictionary.to_pylist()]
        topics = pa.array(of_topic, pa.string()).take(encoded.indices)
        if None not in of_topic:
            return topics
        topics = pc.coalesce(topics, found.values_of(p.RETRY_TOPIC))
        if topics.null_count:
            row = pc.index(topics.is_null(), True).as_py()
            queue = f"{batch['topic'][row]}/{batch['queueId'][row]}"
            raise InvalidMessageError(
                f"{shown(queue)}, queue offset {batch['queueOffset'][row]}: the message has no "
                f"property {p.RETRY_TOPIC}, which names the topic that it was sent to first: name "
                "a topic for it with --to"
            )
        return topics

    def _note(self, broker: str, batch: pa.RecordBatch) -> None:
        topics = batch.column("topic").dictionary_encode()
        codes = topics.indices.to_numpy(zero_copy_only=False).astype(np.int64)
        pairs = codes * 2**32 + batch.column("queueId").to_numpy()
        distinct, inverse = np.unique(pairs, return_inverse=True)
        names = topics.dictionary.to_pylist()
        numbers = [
            self._number((broker, names[pair >> 32], pair & (2**32 - 1)))
            for pair in distinct.tolist()
        ]
        self._queue = np.append(self._queue, np.array(numbers, np.int64)[inverse])
        self._queue_offsets = np.append(self._queue_offsets, batch.column("queueOffset").to_numpy())

    def _number(self, queue: SourceQueue) -> int:
        if queue not in self._numbers:
            self._numbers[queue] = len(self.queues)
            self.queues.append(queue)
        return self._numbers[queue]


@dataclass(frozen=True, slots=True)
class _Entries:
    """The entries of a column of properties; ``known[codes]`` are their names."""

    starts: Int64s
    names: pa.Array
    values: pa.Array
    known: list[str]
    codes: Int64s

    @classmethod
    def of(cls, properties: pa.Array) -> "_Entries":
        starts, names, values = entries(properties)
        distinct = names.dictionary_encode()
        codes = distinct.indices.to_numpy(zero_copy_only=False)
        return cls(starts, names, values, distinct.dictionary.to_pylist(), codes)

    def values_of(self, name: str) -> pa.Array:
        """Return one string a row: the value of that property, null where it has none."""
        places = np.full(len(self.starts) - 1, -1, np.int64)
        if name in self.known:
            chosen = np.flatnonzero(self.codes == self.known.index(name))
            parents = np.repeat(np.arange(len(places)), np.diff(self.starts))
            places[parents[chosen]] = chosen
        return self.values.take(pa.array(places, mask=places < 0))

    def written_by(self, tag: str | None) -> Mask:
        """Tell which messages an application with that tag wrote exactly once."""
        if tag is None or p.WRITE_PROPERTY not in self.known:
            return np.zeros(len(self.starts) - 1, np.bool_)
        own = pc.starts_with(self.values_of(p.WRITE_PROPERTY), f"{tag}-").fill_null(False)
        found: Mask = own.to_numpy(zero_copy_only=False)
        return found

    def named(self, chosen: Callable[[str], bool]) -> Mask:
        """Tell which entries have a chosen name."""
        found: Mask = np.array([chosen(name) for name in self.known], np.bool_)[self.codes]
        return found

    def only(self, kept: Mask) -> pa.Array:
        """Return the column with those entries alone."""
        counts = np.concatenate(([0], np.cumsum(kept)))
        edges = pa.array(counts[self.starts].astype(np.int32))
        mask = pa.array(kept)
        return pa.MapArray.from_arrays(edges, self.names.filter(mask), self.values.filter(mask))
