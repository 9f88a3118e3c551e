"""A task of a replay: slices of queues in, messages sent, or handed on to the publisher."""

import time
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from mqstore.codec.offset_map import OFFSET_MAP, SOURCES
from mqstore.deliver.job import SendJob, SendReport
from mqstore.deliver.once.handed import HandingSink
from mqstore.deliver.parcels import PlacedMessages
from mqstore.deliver.prepare import new_queues
from mqstore.deliver.receipts import NOWHERE, Receipts, StoredPlaces
from mqstore.deliver.replay.destinations import holds_failures, queue_for
from mqstore.deliver.replay.rows import ReplayReading, SourceRows
from mqstore.deliver.task import SendSink, hand_on_rows, send_rows, sender_settings
from mqstore.deliver.topics import TaskTopics
from mqstore.format.arrays import Int64s
from mqstore.live.remoting.cluster import Cluster
from mqstore.live.send.pace import NO_LIMIT, Pace
from mqstore.live.send.sender import Sender
from mqstore.live.send.topics import WriteQueues
from mqstore.read.source import QueueSlice
from mqstore.write.stage.compose import Composed
from mqstore.write.stage.rows import Rows

_ATTEMPT = 0


@dataclass(frozen=True, slots=True)
class Rate:
    """At most so many messages and bytes a second, NO_LIMIT for none."""

    messages_per_s: float = NO_LIMIT
    bytes_per_s: float = NO_LIMIT

    @classmethod
    def of(cls, messages: float | None, size: float | None) -> "Rate":
        """Return the rate of so many messages and bytes a second; None: as many as can be."""
        return cls(*(NO_LIMIT if limit is None else limit for limit in (messages, size)))

    def pace(self) -> Pace:
        """Return a pace that begins now."""
        return Pace(self.messages_per_s, self.bytes_per_s)


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplayTask:
    """What a task needs beside its slices. Plain values that pickle.

    ``brokers`` are the names of those of the source, in their order.
    """

    job: SendJob
    reading: ReplayReading
    brokers: tuple[str, ...]
    rate: Rate = Rate()


@dataclass(frozen=True, slots=True)
class HandedPart:
    """Messages for the publisher, and where each of them came from (SOURCES), in their order."""

    report: SendReport
    sources: pa.Table
    body_bytes: int


@dataclass(frozen=True, slots=True)
class SentPart:
    """What a task sent, and the OFFSET_MAP of it."""

    report: SendReport
    moved: pa.Table
    body_bytes: int


def encode(task: ReplayTask, number: int, slices: Sequence[QueueSlice]) -> HandedPart:
    """Return the messages of ``slices`` for the publisher; nothing is sent.

    ``number`` tells the part from others of the job. Raises what a scan raises and what
    ``deliver.task.hand_on`` raises.
    """
    job = task.job
    with Cluster(job.settings.cluster, was_reached=True) as cluster:
        placing = _Placing(task, cluster, slices)
        sink = HandingSink(job, placing.placed, number, _ATTEMPT)
        batches = placing.source.batches()
        report = hand_on_rows(sink, placing.topics, batches, (number, _ATTEMPT))
    numbers = np.concatenate([np.zeros(0, np.int64), *sink.numbers])
    return HandedPart(report, sources_of(placing.source, numbers), placing.source.body_bytes)


def send(task: ReplayTask, number: int, slices: Sequence[QueueSlice]) -> SentPart:
    """Send the messages of ``slices``; return once brokers have acknowledged all of them.

    Raises what a scan raises and what ``deliver.task.send`` raises.
    """
    job, receipts, pace = task.job, Receipts(), task.rate.pace()
    with Cluster(job.settings.cluster, was_reached=True) as cluster:
        placing = _Placing(task, cluster, slices)
        sender = Sender(
            cluster,
            sender_settings(job),
            placing.topics.queues,
            receipts.stored,
            pace=pace,
        )
        sink = _NotingSink(job, placing, sender)
        report = send_rows(sink, placing.topics, placing.source.batches(), (number, _ATTEMPT))
    # The next part begins when this one's last request has had its time.
    time.sleep(max(0.0, pace.ready_at - time.monotonic()))
    numbers = np.concatenate([np.zeros(0, np.int64), *sink.numbers])
    ids = pa.concat_arrays([pa.array([], pa.string()), *sink.ids])
    stored = receipts.places(int(numbers.max(initial=-1)) + 1)
    chosen = StoredPlaces(stored.queues, stored.places[numbers], stored.queue_offsets[numbers])
    moved = offset_map(sources_of(placing.source, numbers), chosen, ids)
    return SentPart(report, moved, placing.source.body_bytes)


def sources_of(source: SourceRows, numbers: Int64s) -> pa.Table:
    """Return where the rows of those numbers came from, as SOURCES."""
    queue, queue_offsets = source.places(numbers)
    brokers, topics, queue_ids = (
        pa.array([one[field] for one in source.queues], kind).take(pa.array(queue))
        for field, kind in enumerate((pa.string(), pa.string(), pa.int32()))
    )
    columns = [brokers, topics, queue_ids, pa.array(queue_offsets)]
    return pa.Table.from_arrays(columns, schema=SOURCES)


def offset_map(sources: pa.Table, stored: StoredPlaces, ids: pa.Array) -> pa.Table:
    """Return the OFFSET_MAP of messages; null where it is not known where one is."""
    places = pa.array(stored.places, mask=stored.places == NOWHERE)
    brokers, topics, queue_ids = (
        pa.array(values, kind).take(places)
        for values, kind in (
            ([queue.broker for queue in stored.queues], pa.string()),
            ([queue.topic for queue in stored.queues], pa.string()),
            ([queue.queue_id for queue in stored.queues], pa.int32()),
        )
    )
    at = pa.array(stored.queue_offsets, mask=stored.places == NOWHERE)
    columns = [*sources.combine_chunks().columns, brokers, topics, queue_ids, at, ids]
    return pa.Table.from_arrays(columns, schema=OFFSET_MAP)


class _Placing:
    """The queue of each message of a task, by the queue that it came from."""

    def __init__(self, task: ReplayTask, cluster: Cluster, slices: Sequence[QueueSlice]) -> None:
        job = task.job
        known = WriteQueues(cluster, new_queues(job.settings), job.queues)
        self.topics = TaskTopics(known, job)
        self.source = SourceRows(task.reading, slices)
        self._task = task

    def placed(self, rows: Rows, queue_ids: Int64s, composed: Composed) -> PlacedMessages:
        """Return the messages with the queue of each; see ``replay.destinations``."""
        found = self.topics.placed(rows, queue_ids, composed)
        index = {queue: number for number, queue in enumerate(found.queues)}
        places = found.places.copy()
        sources, _ = self.source.places(rows.numbers)
        pairs = sources * len(rows.topic_names) + rows.topics
        for pair in np.unique(pairs).tolist():
            source, topic = divmod(pair, len(rows.topic_names))
            broker, source_topic, queue_id = self.source.queues[source]
            if not holds_failures(source_topic):
                queues = self.topics.queues(rows.topic_names[topic])
                rank = self._task.brokers.index(broker)
                places[pairs == pair] = index[queue_for(queues, broker, queue_id, rank)]
        return PlacedMessages(rows, composed, found.queues, places)


class _NotingSink(SendSink):
    """Sends the messages of a task, and notes the number and the id of each."""

    def __init__(self, job: SendJob, placing: _Placing, sender: Sender) -> None:
        super().__init__(job, placing.placed, sender)
        self.numbers: list[Int64s] = []
        self.ids: list[pa.Array] = []

    def append(self, rows: Rows, queue_ids: Int64s, composed: Composed) -> None:
        self.numbers.append(rows.numbers)
        keys = composed.unique_keys
        self.ids.append(pa.nulls(len(rows), pa.string()) if keys is None else keys)
        super().append(rows, queue_ids, composed)
