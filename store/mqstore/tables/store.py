"""What a store holds, as Arrow batches: its queues, its topics, its groups' offsets.

``bytes`` are exact: the sizes in the ConsumeQueue units added up, 20 bytes read a message and
none of the CommitLog. Times are those of the first and the last message held. What is not
among the ``columns`` asked for is neither read nor right.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Final, TypeAlias

import numpy as np
import pyarrow as pa

from mqstore.arrays import Int64s
from mqstore.codec.schema import TIMESTAMP
from mqstore.files.config import broker_config
from mqstore.files.config.broker_config import TopicConfig
from mqstore.files.log.commit_log import CommitLog
from mqstore.files.queue.consume_queue import ConsumeQueue
from mqstore.format.config import PERM_INHERIT
from mqstore.format.names import is_system_topic
from mqstore.read.heads import NO_TIMESTAMP, store_timestamps
from mqstore.read.snapshot import QueueBounds, Snapshot
from mqstore.read.units import Chunk, chunks
from mqstore.tables.choice import RowChoice
from mqstore.tables.columns import BROKER_NAME, US, Columns, batch, schema

Edges: TypeAlias = tuple[Int64s, Int64s]

QUEUE_COLUMNS: Final[Columns] = (
    BROKER_NAME,
    ("topic", pa.string(), False, "topic"),
    ("queueId", pa.int32(), False, "queue of the topic"),
    ("minOffset", pa.int64(), False, "queue offset of the first message held"),
    ("maxOffset", pa.int64(), False, "queue offset of the next message to come"),
    ("messageCount", pa.int64(), False, "messages held"),
    ("bytes", pa.int64(), False, "bytes of their records"),
    ("minStoreTimestamp", TIMESTAMP, True, "of the first message held"),
    ("maxStoreTimestamp", TIMESTAMP, True, "of the last message held"),
)
TOPIC_COLUMNS: Final[Columns] = (
    BROKER_NAME,
    ("topic", pa.string(), False, "topic"),
    ("perm", pa.int32(), True, "4 read, 2 write, 1 inherit; null: not in topics.json"),
    ("readQueueNums", pa.int32(), True, "queues that consumers may pull"),
    ("writeQueueNums", pa.int32(), True, "queues that producers send to"),
    ("order", pa.bool_(), True, "ordered topic"),
    ("messageCount", pa.int64(), False, "messages held in all queues"),
    ("bytes", pa.int64(), False, "bytes of their records"),
    ("isSystem", pa.bool_(), False, "one of RocketMQ's own topics"),
)
OFFSET_COLUMNS: Final[Columns] = (
    BROKER_NAME,
    ("group", pa.string(), False, "consumer group"),
    ("topic", pa.string(), False, "topic"),
    ("queueId", pa.int32(), False, "queue of the topic"),
    ("consumerOffset", pa.int64(), False, "next queue offset to consume, as written"),
    ("source", pa.string(), False, "file of config/ or its .bak; mqlog: a stream's commitGroup"),
)
QUEUES: Final = schema(QUEUE_COLUMNS)
TOPICS: Final = schema(TOPIC_COLUMNS)
OFFSETS: Final = schema(OFFSET_COLUMNS)

_BATCH_QUEUES: Final = 1000
_TASK_UNITS: Final = 5_000_000  # of ConsumeQueue: 100 MB, about 0.1 s
_QUEUE_UNITS: Final = 5_000  # what opening a queue costs, in units
_SHORT_UNITS: Final = 1_000  # read at once, not one by one from both ends
_NONE: Final[Edges] = (np.zeros(0, np.int64), np.zeros(0, np.int64))
_REPLY_SUFFIX: Final = "_REPLY_TOPIC"  # MixAll.REPLY_TOPIC_POSTFIX


def queues(snapshot: Snapshot, columns: Sequence[str] = QUEUES.names) -> pa.RecordBatch:
    """Return a row for each queue that has a ConsumeQueue, in the order of topic and queueId.

    Times are null for an empty queue, or where the record cannot be read.
    """
    rows, edges = [], []
    timed = not {"minStoreTimestamp", "maxStoreTimestamp"}.isdisjoint(columns)
    with CommitLog(snapshot.store.commit_log) as log:
        for queue in snapshot.queues:
            units = _units(snapshot, queue)
            size = _bytes(units, queue) if "bytes" in columns else 0
            held = (queue.low, queue.high, queue.high - queue.low, size)
            name = (snapshot.broker_name, queue.topic, queue.queue_id)
            rows.append((*name, *held))
            edges.append(_edges(units, queue) if timed else _NONE)
        times = _edge_times(log, edges)
    return batch([(*row, *of_row) for row, of_row in zip(rows, times, strict=True)], QUEUES)


def topics(snapshot: Snapshot, columns: Sequence[str] = TOPICS.names) -> pa.RecordBatch:
    """Return a row for each topic of topics.json or with a ConsumeQueue, sorted by name.

    perm is PermName's bits (4 read, 2 write, 1 inherit). What topics.json alone knows is null
    for a topic it does not have: a broker does not let consumers pull such a topic.
    """
    counts: dict[str, int] = {}
    sizes: dict[str, int] = {}
    for queue in snapshot.queues:
        counts[queue.topic] = counts.get(queue.topic, 0) + queue.high - queue.low
        size = _bytes(_units(snapshot, queue), queue) if "bytes" in columns else 0
        sizes[queue.topic] = sizes.get(queue.topic, 0) + size
    configured = broker_config.topics(snapshot.store.root)
    own = _own_topics(configured)
    rows = []
    for topic in sorted({*counts, *configured}):
        entry = configured.get(topic)
        known = (
            (entry.perm, entry.read_queue_nums, entry.write_queue_nums, entry.order)
            if entry
            else (None,) * 4
        )
        amount = counts.get(topic, 0), sizes.get(topic, 0)
        system = is_system_topic(topic) or topic in own
        rows.append((snapshot.broker_name, topic, *known, *amount, system))
    return batch(rows, TOPICS)


def committed_offsets(
    snapshot: Snapshot, _columns: Sequence[str] = OFFSETS.names
) -> pa.RecordBatch:
    """Return a row for each offset a group committed, sorted by group, topic, queueId.

    consumerOffset is what is written there, believable or not; source is the file it is from.
    """
    committed = broker_config.committed(snapshot.store.root)
    rows = [
        (snapshot.broker_name, group, topic, queue_id, consumer_offset, found.source)
        for (topic, group), found in committed.items()
        for queue_id, consumer_offset in found.queues.items()
    ]
    return batch(sorted(rows), OFFSETS)


_ROWS: Final = {"queues": queues, "topics": topics, "offsets": committed_offsets}


@dataclass(frozen=True, slots=True)
class StorePart:
    """The rows of one store, or of some of its queues. Pickles into a task."""

    table: str
    snapshot: Snapshot
    choice: RowChoice | None

    def batches(self, columns: Sequence[str]) -> Iterator[pa.RecordBatch]:
        """Yield the rows; of ``columns`` at least."""
        for snapshot in self._snapshots():
            found = _ROWS[self.table](snapshot, columns)
            if self.choice is not None:
                topics_ = found["topic"].to_pylist()
                no_queues = [None] * len(topics_)
                of_queues = "queueId" in found.schema.names
                queue_ids = found["queueId"].to_pylist() if of_queues else no_queues
                passed = map(self.choice.passes, topics_, queue_ids)
                found = found.filter(pa.array(passed, pa.bool_()))
            yield found

    def _snapshots(self) -> Iterator[Snapshot]:
        held = self.snapshot.queues
        if self.table != "queues":
            yield self.snapshot
            return
        for start in range(0, len(held), _BATCH_QUEUES):
            yield replace(self.snapshot, queues=held[start : start + _BATCH_QUEUES])


def plan(table: str, snapshot: Snapshot, choice: RowChoice | None) -> list[StorePart]:
    """Return the parts of queues, topics or offsets of one store; many queues are many parts."""
    if table != "queues":
        return [StorePart(table, snapshot, choice)]
    parts: list[list[QueueBounds]] = [[]]
    cost = 0
    for queue in snapshot.queues:
        cost += queue.high - queue.low + _QUEUE_UNITS
        parts[-1].append(queue)
        if cost >= _TASK_UNITS:
            parts.append([])
            cost = 0
    return [
        StorePart(table, replace(snapshot, queues=tuple(part)), choice) for part in parts if part
    ]


def _own_topics(configured: dict[str, TopicConfig]) -> set[str]:
    """Return the topics a broker makes for itself under its own and its cluster's name.

    They alone pass their permissions on, and a cluster has a reply topic beside its own.
    Reference: TopicConfigManager#init.
    """
    own = {topic for topic, entry in configured.items() if entry.perm & PERM_INHERIT}
    return own | {topic + _REPLY_SUFFIX for topic in own}


def _units(snapshot: Snapshot, queue: QueueBounds) -> ConsumeQueue:
    """Return the queue's units; its files are listed when they are first needed."""
    return ConsumeQueue(snapshot.store.root, queue.topic, queue.queue_id)


def _bytes(units: ConsumeQueue, queue: QueueBounds) -> int:
    weight = queue.weight
    if weight is not None and (weight.start, weight.end) == (queue.low, queue.high):
        return weight.bytes
    return sum(int(chunk.sizes.sum()) for chunk in chunks(units, queue.low, queue.high))


def _edges(units: ConsumeQueue, queue: QueueBounds) -> Edges:
    """Return physical offsets and sizes of the first and the last record held; none if unknown."""
    low, high = queue.low, queue.high
    if low == high:
        return _NONE
    if high - low <= _SHORT_UNITS:
        parts = list(chunks(units, low, high))
        if sum(map(len, parts)) == high - low:
            return _joined(parts, [0, -1])
    parts = [*chunks(units, low, low + 1), *chunks(units, high - 1, high)]
    return _joined(parts, [0, 1]) if len(parts) == 2 else _NONE


def _joined(parts: Sequence[Chunk], rows: list[int]) -> Edges:
    places = np.concatenate([part.physical_offsets for part in parts])
    return places[rows], np.concatenate([part.sizes for part in parts])[rows]


def _edge_times(log: CommitLog, edges: Sequence[Edges]) -> list[tuple[int | None, int | None]]:
    """Return the storeTimestamp in µs of each first and last record, all in one reading."""
    known = [row for row, (places, _) in enumerate(edges) if len(places)]
    times: list[tuple[int | None, int | None]] = [(None, None)] * len(edges)
    if not known:
        return times
    places, sizes = (np.concatenate([edges[row][part] for row in known]) for part in (0, 1))
    try:
        found = store_timestamps(log, places, sizes).tolist()
    except FileNotFoundError:  # A running broker deleted expired files.
        if len(edges) == 1:
            return times
        return [time for edge in edges for time in _edge_times(log, [edge])]
    told = [None if time == NO_TIMESTAMP else time * US for time in found]
    for row, first, last in zip(known, told[::2], told[1::2], strict=True):
        times[row] = first, last
    return times
