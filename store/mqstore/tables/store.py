"""What a store holds, as Arrow batches: its queues, its topics, its groups' offsets.

``bytes`` of a store are exact: the sizes in the ConsumeQueue units added up, 20 bytes read a
message and none of the CommitLog. Of a cluster they are the count of messages times the mean size
of some at both ends. Times are those of the first and the last message held. What is not among the
``columns`` asked for is neither read nor right.
"""

import logging
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass, replace
from typing import Final

import pyarrow as pa

from mqstore.backlog.request import group_test
from mqstore.codec.schema import TIMESTAMP
from mqstore.format.names import is_system_topic
from mqstore.read.queues import QueueBounds
from mqstore.read.source import RecordSource, Snapshot
from mqstore.read.system_topics import own_topics, topic_configs
from mqstore.read.units import UnitBatch, join
from mqstore.tables.choice import RowChoice
from mqstore.tables.columns import BROKER_NAME, Columns, batch, known_us, packed, schema
from mqstore.tables.owners import OF_GROUP, OF_TOPIC
from mqstore.tables.table import BY_GROUP, BY_QUEUE, FROM_LOG, Table, TableRequest

QUEUE_COLUMNS: Final[Columns] = (
    BROKER_NAME,
    ("topic", pa.string(), False, "topic"),
    ("queueId", pa.int32(), False, "queue of the topic"),
    ("minOffset", pa.int64(), False, "queue offset of the first message held"),
    ("maxOffset", pa.int64(), False, "queue offset of the next message to come"),
    ("messageCount", pa.int64(), False, "messages held"),
    ("bytes", pa.int64(), False, "bytes of their records; of a cluster an estimate"),
    ("minStoreTimestamp", TIMESTAMP, True, "of the first message held"),
    ("maxStoreTimestamp", TIMESTAMP, True, "of the last message held"),
    ("namedCount", pa.int64(), True, "with `queues=log`: messages that the ConsumeQueue names"),
)
TOPIC_COLUMNS: Final[Columns] = (
    BROKER_NAME,
    ("topic", pa.string(), False, "topic"),
    ("perm", pa.int32(), True, "4 read, 2 write, 1 inherit; null: not in topics.json"),
    ("readQueueNums", pa.int32(), True, "queues that consumers may pull"),
    ("writeQueueNums", pa.int32(), True, "queues that producers send to"),
    ("order", pa.bool_(), True, "ordered topic"),
    ("messageCount", pa.int64(), False, "messages held in all queues"),
    ("bytes", pa.int64(), False, "bytes of their records; of a cluster an estimate"),
    *OF_TOPIC,
)
OFFSET_COLUMNS: Final[Columns] = (
    BROKER_NAME,
    ("group", pa.string(), False, "consumer group"),
    ("topic", pa.string(), False, "topic"),
    ("queueId", pa.int32(), False, "queue of the topic"),
    ("consumerOffset", pa.int64(), False, "next queue offset to consume, as written"),
    (
        "source",
        pa.string(),
        False,
        "file of config/ or its .bak; mqlog: a stream's commitGroup; broker: a cluster's answer",
    ),
    (
        "pullOffset",
        pa.int64(),
        True,
        "next queue offset to pull or pop: beyond consumerOffset in KV groups; null: not written",
    ),
)
QUEUE_SCHEMA: Final = schema(QUEUE_COLUMNS)
TOPIC_SCHEMA: Final = schema(TOPIC_COLUMNS)
OFFSETS: Final = schema(OFFSET_COLUMNS)

_LOG = logging.getLogger(__name__)
_BATCH_QUEUES: Final = 1000
_TASK_UNITS: Final = 5_000_000  # of ConsumeQueue: 100 MB, about 0.1 s
_QUEUE_UNITS: Final = 5_000  # what opening a queue costs, in units


def queues(snapshot: Snapshot, columns: Sequence[str] = QUEUE_SCHEMA.names) -> pa.RecordBatch:
    """Return a row for each queue that has a ConsumeQueue, in the order of topic and queueId.

    Times are null for an empty queue, or where the record cannot be read.
    """
    rows = []
    timed = not {"minStoreTimestamp", "maxStoreTimestamp"}.isdisjoint(columns)
    with closing(snapshot.origin.records()) as source:
        sizes = _sizes(source, snapshot.queues, columns)
        for queue, size in zip(snapshot.queues, sizes, strict=True):
            held = (queue.low, queue.high, queue.messages, size)
            name = (snapshot.broker_name, queue.topic, queue.queue_id)
            rows.append((*name, *held))
        edges = [_edges(source, queue) if timed else None for queue in snapshot.queues]
        times = _edge_times(source, edges)
    named = [queue.named for queue in snapshot.queues]
    joined = [(*row, *edge, count) for row, edge, count in zip(rows, times, named, strict=True)]
    return batch(joined, QUEUE_SCHEMA)


def topics(snapshot: Snapshot, columns: Sequence[str] = TOPIC_SCHEMA.names) -> pa.RecordBatch:
    """Return a row for each topic of topics.json or with a ConsumeQueue, sorted by name.

    perm is PermName's bits (4 read, 2 write, 1 inherit). What topics.json alone knows is null
    for a topic it does not have: a broker does not let consumers pull such a topic.
    """
    counts: dict[str, int] = {}
    sizes: dict[str, int] = {}
    with closing(snapshot.origin.records()) as source:
        found = _sizes(source, snapshot.queues, columns)
        for queue, size in zip(snapshot.queues, found, strict=True):
            counts[queue.topic] = counts.get(queue.topic, 0) + queue.messages
            sizes[queue.topic] = sizes.get(queue.topic, 0) + size
    hidden = {topic for topic, _ in snapshot.refused}
    configured = {t: entry for t, entry in topic_configs(snapshot).items() if t not in hidden}
    own = own_topics(configured)
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
    return batch(rows, TOPIC_SCHEMA)


def committed_offsets(snapshot: Snapshot, columns: Sequence[str] = OFFSETS.names) -> pa.RecordBatch:
    """Return a row for each offset a group committed, sorted by group, topic, queueId.

    consumerOffset is what is written there, believable or not; source is the file it is from.
    pullOffset is looked up if ``columns`` have it (ConsumerOffsetManager, pullOffsetTable).
    """
    with closing(snapshot.origin.bounds()) as bounds:
        committed = bounds.config.committed()
        pulled = bounds.config.pull_offsets() if "pullOffset" in columns else {}
    rows = [
        (snapshot.broker_name, group, topic, queue_id, consumer_offset, found.source,
         pulled.get((topic, group), {}).get(queue_id))
        for (topic, group), found in committed.items()
        for queue_id, consumer_offset in found.queues.items()
    ]  # fmt: skip
    return batch(sorted(rows), OFFSETS)


_ROWS: Final = {"queues": queues, "topics": topics, "offsets": committed_offsets}


@dataclass(frozen=True, slots=True)
class StorePart:
    """The rows of one store, or of some of its queues; of ``offsets`` those of groups.

    Pickles into a task.
    """

    table: str
    snapshot: Snapshot
    choice: RowChoice | None
    groups: str | None = None
    system: bool = True
    """RocketMQ's own groups too."""

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
            if self.table == "offsets":
                chosen = group_test(self.groups, system=self.system)
                passed = map(chosen, found["group"].to_pylist())
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
    shares = packed(snapshot.queues, lambda q: q.high - q.low + _QUEUE_UNITS, _TASK_UNITS)
    return [StorePart(table, replace(snapshot, queues=share), choice) for share in shares]


def _sizes(
    source: RecordSource, queues: Sequence[QueueBounds], columns: Sequence[str]
) -> list[int]:
    """Return the bytes of each queue; zeros if they are no column that is read."""
    sizes = [0] * len(queues)
    if "bytes" not in columns:
        return sizes
    open_ = []
    for place, queue in enumerate(queues):
        weight = queue.weight
        if weight is not None and (weight.start, weight.end) == (queue.low, queue.high):
            sizes[place] = weight.bytes
        else:
            open_.append(place)
    ranges = [((queues[p].topic, queues[p].queue_id), queues[p].low, queues[p].high) for p in open_]
    for place, size in zip(open_, source.sizes(ranges), strict=True):
        sizes[place] = size
    return sizes


def _edges(source: RecordSource, queue: QueueBounds) -> UnitBatch | None:
    """Return the first and the last record held; None if they are not known."""
    if queue.low == queue.high:
        return None
    return source.at((queue.topic, queue.queue_id), (queue.low, queue.high - 1))


def _edge_times(
    source: RecordSource, edges: Sequence[UnitBatch | None]
) -> list[tuple[int | None, int | None]]:
    """Return the storeTimestamp in µs of each first and last record, all in one reading."""
    known = [(row, units) for row, units in enumerate(edges) if units is not None]
    times: list[tuple[int | None, int | None]] = [(None, None)] * len(edges)
    if not known:
        return times
    try:
        found = known_us(source.store_timestamps(join([units for _, units in known])).tolist())
    except FileNotFoundError:  # A running broker deleted expired files.
        if len(edges) == 1:
            return times
        return [time for edge in edges for time in _edge_times(source, [edge])]
    for (row, _), first, last in zip(known, found[::2], found[1::2], strict=True):
        times[row] = first, last
    return times


def _planned(table: str) -> Callable[[TableRequest], list[StorePart]]:
    def planned(request: TableRequest) -> list[StorePart]:
        choice = request.choice()
        return [part for held in request.stores.held for part in plan(table, held, choice)]

    return planned


def _planned_offsets(request: TableRequest) -> list[StorePart]:
    choice = request.choice(consumed=True)
    request.group_choice(request.known_groups)
    return [
        StorePart("offsets", snapshot, choice, request.groups, request.system)
        for _, snapshot in request.sources()
    ]


QUEUE_TABLE: Final = Table(
    "queues",
    (*QUEUE_COLUMNS, *OF_TOPIC),
    _planned("queues"),
    options=BY_QUEUE | FROM_LOG,
    owner="topic",
    estimated=("bytes",),
)
TOPIC_TABLE: Final = Table(
    "topics",
    TOPIC_COLUMNS,
    _planned("topics"),
    options=BY_QUEUE | FROM_LOG,
    owner="topic",
    estimated=("bytes",),
    untold=("order",),
)
OFFSET_TABLE: Final = Table(
    "offsets",
    (*OFFSET_COLUMNS, *OF_GROUP),
    _planned_offsets,
    options=BY_QUEUE | BY_GROUP | FROM_LOG,
    order=("group", "brokerName", "topic", "queueId"),
    owner="group",
    untold=("pullOffset",),
)
