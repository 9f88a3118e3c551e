"""What a store holds, as Arrow batches: its queues, its topics, its groups' offsets.

``bytes`` are exact: the sizes in the ConsumeQueue units added up, 20 bytes read a message and
none of the CommitLog. Times are those of the first and the last message held.
"""

from collections.abc import Sequence
from functools import partial
from typing import Any, Final

import numpy as np
import pyarrow as pa

from mqstore.codec.schema import TIMESTAMP
from mqstore.files import config
from mqstore.files.commit_log import CommitLog
from mqstore.files.config import TopicConfig
from mqstore.files.consume_queue import ConsumeQueue
from mqstore.format.config import CONSUMER_OFFSET, PERM_INHERIT
from mqstore.format.names import is_system_topic
from mqstore.read.heads import NO_TIMESTAMP, store_timestamps
from mqstore.read.snapshot import QueueBounds, Snapshot
from mqstore.read.units import chunks

_required = partial(pa.field, nullable=False)

QUEUES: Final = pa.schema(
    [
        _required("brokerName", pa.string()),
        _required("topic", pa.string()),
        _required("queueId", pa.int32()),
        _required("minOffset", pa.int64()),
        _required("maxOffset", pa.int64()),
        _required("messageCount", pa.int64()),
        _required("bytes", pa.int64()),
        pa.field("minStoreTimestamp", TIMESTAMP),
        pa.field("maxStoreTimestamp", TIMESTAMP),
    ]
)
TOPICS: Final = pa.schema(
    [
        _required("brokerName", pa.string()),
        _required("topic", pa.string()),
        pa.field("perm", pa.int32()),
        pa.field("readQueueNums", pa.int32()),
        pa.field("writeQueueNums", pa.int32()),
        pa.field("order", pa.bool_()),
        _required("messageCount", pa.int64()),
        _required("bytes", pa.int64()),
        _required("isSystem", pa.bool_()),
    ]
)
OFFSETS: Final = pa.schema(
    [
        _required("brokerName", pa.string()),
        _required("group", pa.string()),
        _required("topic", pa.string()),
        _required("queueId", pa.int32()),
        _required("consumerOffset", pa.int64()),
        _required("source", pa.string()),
    ]
)

_REPLY_SUFFIX: Final = "_REPLY_TOPIC"  # MixAll.REPLY_TOPIC_POSTFIX
_US: Final = 1000


def queues(snapshot: Snapshot) -> pa.RecordBatch:
    """Return a row for each queue that has a ConsumeQueue, in the order of topic and queueId.

    Times are null for an empty queue, or where the record cannot be read.
    """
    rows = []
    with CommitLog(snapshot.store.commit_log) as log:
        for queue in snapshot.queues:
            held = (queue.low, queue.high, queue.high - queue.low, _bytes(snapshot, queue))
            name = (snapshot.broker_name, queue.topic, queue.queue_id)
            rows.append((*name, *held, *_edge_times(log, snapshot, queue)))
    return _batch(rows, QUEUES)


def topics(snapshot: Snapshot) -> pa.RecordBatch:
    """Return a row for each topic of topics.json or with a ConsumeQueue, sorted by name.

    perm is PermName's bits (4 read, 2 write, 1 inherit). What topics.json alone knows is null
    for a topic it does not have: a broker does not let consumers pull such a topic.
    """
    counts: dict[str, int] = {}
    sizes: dict[str, int] = {}
    for queue in snapshot.queues:
        counts[queue.topic] = counts.get(queue.topic, 0) + queue.high - queue.low
        sizes[queue.topic] = sizes.get(queue.topic, 0) + _bytes(snapshot, queue)
    configured = config.topics(snapshot.store.root)
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
    return _batch(rows, TOPICS)


def offsets(snapshot: Snapshot) -> pa.RecordBatch:
    """Return a row for each offset a group committed, sorted by group, topic, queueId.

    consumerOffset is what is written there, believable or not; source is the file it is from.
    """
    committed = config.consumer_offsets(snapshot.store.root)
    rows = [
        (snapshot.broker_name, group, topic, queue_id, consumer_offset, CONSUMER_OFFSET)
        for (topic, group), of_queues in committed.items()
        for queue_id, consumer_offset in of_queues.items()
    ]
    return _batch(sorted(rows), OFFSETS)


def _own_topics(configured: dict[str, TopicConfig]) -> set[str]:
    """Return the topics a broker makes for itself under its own and its cluster's name.

    They alone pass their permissions on, and a cluster has a reply topic beside its own.
    Reference: TopicConfigManager#init.
    """
    own = {topic for topic, entry in configured.items() if entry.perm & PERM_INHERIT}
    return own | {topic + _REPLY_SUFFIX for topic in own}


def _bytes(snapshot: Snapshot, queue: QueueBounds) -> int:
    units = ConsumeQueue(snapshot.store.root, queue.topic, queue.queue_id)
    return sum(int(chunk.sizes.sum()) for chunk in chunks(units, queue.low, queue.high))


def _edge_times(
    log: CommitLog, snapshot: Snapshot, queue: QueueBounds
) -> tuple[int | None, int | None]:
    """Return the storeTimestamp of the first and the last message held, in µs."""
    if queue.low == queue.high:
        return None, None
    units = ConsumeQueue(snapshot.store.root, queue.topic, queue.queue_id)
    edges = [*chunks(units, queue.low, queue.low + 1), *chunks(units, queue.high - 1, queue.high)]
    places = np.concatenate([edge.physical_offsets for edge in edges])
    sizes = np.concatenate([edge.sizes for edge in edges])
    found = store_timestamps(log, places, sizes).tolist()
    times = [None if time == NO_TIMESTAMP else time * _US for time in found]
    return (times[0], times[1]) if len(times) == 2 else (None, None)


def _batch(rows: Sequence[tuple[Any, ...]], schema: pa.Schema) -> pa.RecordBatch:
    columns = list(zip(*rows, strict=True)) or [()] * len(schema)
    arrays = [pa.array(column, field.type) for column, field in zip(columns, schema, strict=True)]
    return pa.RecordBatch.from_arrays(arrays, schema=schema)
