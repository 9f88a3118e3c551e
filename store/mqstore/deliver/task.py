"""A task's side of a write to a cluster, at least once: rows in, messages sent and acknowledged."""

from collections.abc import Iterable, Iterator, Mapping

import numpy as np
import pyarrow as pa

from mqstore.arrays import Int64s
from mqstore.codec.encode import Messages
from mqstore.deliver.job import SendJob, SendReport
from mqstore.deliver.parcels import PlacedMessages, parcels, place
from mqstore.deliver.prepare import new_queues
from mqstore.format.client_message import MAX_PROPERTIES_SENT
from mqstore.format.message import RECORD_ROOM_BYTES
from mqstore.format.names import is_system_topic, is_writable_topic
from mqstore.live.cluster import Cluster
from mqstore.live.send.requests import Queue
from mqstore.live.send.sender import Sender, SenderSettings
from mqstore.live.send.topics import WriteQueues
from mqstore.stage.compose import Composed
from mqstore.stage.job import TopicQueues
from mqstore.stage.rows import Rows
from mqstore.stage.task import RowTask
from mqstore.stage.validate import RowLimits

_NO_FILE_LIMIT = 2**31 - 1


def send(
    job: SendJob, batches: Iterable[pa.RecordBatch], *, partition: int, attempt: int
) -> SendReport:
    """Send the rows of ``batches``; return once brokers have acknowledged all of them.

    Raises InvalidMessageError, and what Sender#send and WriteQueues#of raise: then some of the
    messages may be stored.
    """
    settings = job.settings
    with Cluster(settings.cluster) as cluster:
        topics = TaskTopics(WriteQueues(cluster, new_queues(settings)), job)
        sender = Sender(cluster, sender_settings(job), topics.queues)
        sink = SendSink(job, topics, sender)
        task = RowTask(job, partition, attempt, sink, limits_of(job, topics))
        try:
            task.take_all(batches)
            sender.flush()
            side = task.finish()
        except BaseException:
            task.discard()
            raise
    return SendReport(
        partition=partition,
        attempt=attempt,
        skipped=task.skipped,
        side=side,
        counts=sender.counts,
    )


def sender_settings(job: SendJob) -> SenderSettings:
    """Return how the job's options have messages sent."""
    settings = job.settings
    return SenderSettings(
        producer_group=settings.producer_group,
        send_timeout_ms=settings.send_timeout_ms,
        passes_over=settings.latency_fault_tolerance,
        requires_replica=settings.require_replica,
    )


class TaskTopics(Mapping[str, TopicQueues]):
    """The topics that rows name, asked for when one first does: how many queues each has.

    A name that no topic may have, or that the options do not allow, is not asked for.
    """

    def __init__(self, write_queues: WriteQueues, job: SendJob) -> None:
        self._write_queues = write_queues
        self._allows_system = job.settings.allow_system_topics

    def queues(self, topic: str) -> tuple[Queue, ...]:
        """Return the queues to send to; raises KeyError if there is no such topic."""
        is_open = self._allows_system or not is_system_topic(topic)
        found = self._write_queues.of(topic) if is_writable_topic(topic) and is_open else None
        if found is None:
            raise KeyError(topic)
        return found

    def __getitem__(self, topic: str) -> TopicQueues:
        queues = self.queues(topic)
        highest = max((queue.queue_id + 1 for queue in queues), default=0)
        return TopicQueues(len(queues), highest)

    def __iter__(self) -> Iterator[str]:
        return iter(())

    def __len__(self) -> int:
        return 0


def limits_of(job: SendJob, topics: Mapping[str, TopicQueues]) -> RowLimits:
    """Return what the job's rows are checked against."""
    return RowLimits(
        queue_counts=topics,
        new_topic_queues=0,
        extends_new_topics=False,
        max_message_size=job.max_message_size,
        record_room=RECORD_ROOM_BYTES,
        commit_log_file_size=_NO_FILE_LIMIT,
        allow_system_topics=job.settings.allow_system_topics,
        max_properties=MAX_PROPERTIES_SENT,
        for_broker=True,
    )


class SendSink:
    """Sends the messages of a task."""

    written = "Rows before it may have been sent"

    def __init__(self, job: SendJob, topics: TaskTopics, sender: Sender) -> None:
        self._settings = job.settings
        self._max_batch_bytes = min(job.settings.batch_max_bytes, job.max_message_size)
        self._topics = topics
        self._sender = sender

    def record_sizes(self, messages: Messages) -> Int64s:
        """Return the bytes of each message as it is sent: int64[n]."""
        return messages.client_sizes()

    def append(self, rows: Rows, queue_ids: Int64s, composed: Composed) -> None:
        """Send the messages of ``rows``; raises what Sender#send raises."""
        placed = placed_in(rows, queue_ids, composed, self._topics)
        for parcel in parcels(placed, self._settings, self._max_batch_bytes):
            self._sender.send(parcel)


def placed_in(
    rows: Rows, queue_ids: Int64s, composed: Composed, topics: TaskTopics
) -> PlacedMessages:
    """Return the messages with the queue of each; ``queue_ids`` as ``assign_queues`` gives."""
    queues_of = [topics.queues(name) for name in rows.topic_names]
    places = place(rows, queue_ids, queues_of)
    bases = np.cumsum([0, *map(len, queues_of)])
    queues = [queue for of_topic in queues_of for queue in of_topic]
    return PlacedMessages(rows, composed, queues, bases[rows.topics] + places)
