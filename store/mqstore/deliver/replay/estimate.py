"""A dry run: counts the messages that a replay would send, by destination."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from mqstore.codec import compute as pc
from mqstore.deliver.prepare import new_queues
from mqstore.deliver.replay.destinations import holds_failures, queue_for
from mqstore.deliver.replay.rows import ReplayReading, SourceQueue, SourceRows
from mqstore.deliver.replay.run import parts_of
from mqstore.deliver.settings import SendSettings
from mqstore.errors import InvalidOptionError
from mqstore.live.remoting.cluster import Cluster
from mqstore.live.remoting.routes import MASTER_ID
from mqstore.live.send.requests import Queue
from mqstore.live.send.topics import WriteQueues
from mqstore.read.source import QueueSlice


@dataclass(frozen=True, slots=True)
class PlannedQueue:
    """Messages, and bytes of their bodies, of a source queue, and the queue they would go to.

    ``to_broker`` and ``to_queue_id`` are None for messages that go to all queues in turn.
    """

    broker: str
    topic: str
    queue_id: int
    to_topic: str
    to_broker: str | None
    to_queue_id: int | None
    messages: int
    body_bytes: int


def estimate(
    reading: ReplayReading,
    slices: Sequence[QueueSlice],
    brokers: Sequence[str],
    settings: SendSettings,
    progress: Callable[[int, int], None],
) -> list[PlannedQueue]:
    """Return what would be sent where, by source queue; ``brokers`` as in ReplayTask.

    Makes no topic. Raises what a scan raises, UnknownTopicError for a topic that is not there and
    would not be made, InvalidOptionError for one that takes no messages.
    """
    found: dict[tuple[SourceQueue, str], list[int]] = {}
    parts = parts_of(slices)
    for number, part in enumerate(parts):
        progress(number, len(parts))
        source = SourceRows(reading, part)
        first = 0
        for batch in source.batches():
            numbers = np.arange(first, first + batch.num_rows)
            first += batch.num_rows
            for key, counts in _counted(source, numbers, batch).items():
                held = found.setdefault(key, [0, 0])
                held[0], held[1] = held[0] + counts[0], held[1] + counts[1]
    with Cluster(settings.cluster) as cluster:
        queues = {
            topic: _queues(cluster, topic, settings) for topic in sorted({t for _, t in found})
        }
    return [
        _planned(key, (counts[0], counts[1]), queues[key[1]], brokers)
        for key, counts in sorted(found.items())
    ]


def _counted(
    source: SourceRows, numbers: np.ndarray[tuple[int], np.dtype[np.int64]], batch: pa.RecordBatch
) -> dict[tuple[SourceQueue, str], tuple[int, int]]:
    """Return messages and bytes of a batch by source queue and topic to go to."""
    if not batch.num_rows:
        return {}
    queues, _ = source.places(numbers)
    topics = batch.column("topic").dictionary_encode()
    names = topics.dictionary.to_pylist()
    pairs = queues * len(names) + topics.indices.to_numpy(zero_copy_only=False)
    sizes = pc.binary_length(batch.column("body")).to_numpy(zero_copy_only=False)
    distinct, inverse = np.unique(pairs, return_inverse=True)
    counts, totals = np.bincount(inverse), np.bincount(inverse, sizes)
    return {
        (source.queues[pair // len(names)], names[pair % len(names)]): (int(count), int(total))
        for pair, count, total in zip(distinct.tolist(), counts, totals, strict=True)
    }


def _queues(cluster: Cluster, topic: str, settings: SendSettings) -> tuple[Queue, ...]:
    """Return the queues of a topic, or those that it would be made with."""
    found = WriteQueues(cluster).of(topic)
    if found is None and settings.create_topic:
        masters = [name for name, hosts in cluster.brokers().items() if MASTER_ID in hosts]
        count = new_queues(settings)
        return tuple(Queue(topic, name, n) for name in sorted(masters) for n in range(count))
    if found is None:
        cluster.known_route(topic, "topic")
    if not found:
        raise InvalidOptionError("topic", topic, "the topic takes no messages now")
    return found


def _planned(
    key: tuple[SourceQueue, str],
    counts: tuple[int, int],
    queues: Sequence[Queue],
    brokers: Sequence[str],
) -> PlannedQueue:
    (broker, topic, queue_id), to_topic = key
    if holds_failures(topic):
        return PlannedQueue(broker, topic, queue_id, to_topic, None, None, *counts)
    queue = queue_for(queues, broker, queue_id, brokers.index(broker))
    return PlannedQueue(broker, topic, queue_id, to_topic, queue.broker, queue.queue_id, *counts)
