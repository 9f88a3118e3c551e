"""A task's side of a write to a cluster, at least once: rows in, messages sent and acknowledged."""

import time
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import Final, Self

import pyarrow as pa

from mqstore.codec.encode import Messages
from mqstore.deliver.job import SendJob, SendReport
from mqstore.deliver.once.handed import HandingSink
from mqstore.deliver.parcels import LONGEST_HOSTS, parcels
from mqstore.deliver.prepare import new_queues
from mqstore.deliver.settings import EXACTLY_ONCE
from mqstore.deliver.topics import Placing, TaskTopics
from mqstore.format.arrays import Int64s
from mqstore.format.client_message import MAX_PROPERTIES_SENT
from mqstore.format.message import RECORD_ROOM_BYTES
from mqstore.live.remoting.cluster import Cluster
from mqstore.live.send.sender import SendCounts, Sender, SenderSettings
from mqstore.live.send.topics import WriteQueues
from mqstore.write.stage.compose import Composed
from mqstore.write.stage.job import TopicQueues
from mqstore.write.stage.rows import Rows
from mqstore.write.stage.task import RowTask
from mqstore.write.stage.validate import RowLimits

_BATCHED_BYTES: Final = 33_000
"""Of a message in a batch, which maxMessageSize bounds as a whole: properties and head."""
_IDLE_S: Final = 30.0
_ROOM_BYTES: Final = 1_024  # Room for properties that a broker adds to a message.


def send(
    job: SendJob, batches: Iterable[pa.RecordBatch], *, partition: int, attempt: int
) -> SendReport:
    """Send the rows of ``batches``; return once brokers have acknowledged all of them.

    Raises InvalidMessageError, and what Sender#send and WriteQueues#of raise: then some of the
    messages may be stored.
    """
    with sending(job, partition=partition, attempt=attempt) as task:
        task.take(batches)
        return task.finish()


@contextmanager
def sending(job: SendJob, *, partition: int, attempt: int) -> Iterator["SendTask"]:
    """Open a task that sends rows in several parts; an error leaves no file of bad rows.

    Raises as SendTask#take.
    """
    settings = job.settings
    with Cluster(settings.cluster, was_reached=True) as cluster:
        topics = TaskTopics(WriteQueues(cluster, new_queues(settings), job.queues), job)
        sender = Sender(cluster, sender_settings(job), topics.queues)
        sink = SendSink(job, topics.placed, sender)
        with SendTask(sink, topics, (partition, attempt), cluster) as task:
            yield task


def hand_on(
    job: SendJob, batches: Iterable[pa.RecordBatch], *, partition: int, attempt: int
) -> SendReport:
    """Return the messages of ``batches`` for the publisher; nothing is sent.

    Raises InvalidMessageError, InvalidOptionError, OSError, and what WriteQueues#of raises.
    """
    with Cluster(job.settings.cluster, was_reached=True) as cluster:
        topics = TaskTopics(WriteQueues(cluster, new_queues(job.settings), job.queues), job)
        sink = HandingSink(job, topics.placed, partition, attempt)
        return hand_on_rows(sink, topics, batches, (partition, attempt))


def send_rows(
    sink: "SendSink", topics: TaskTopics, batches: Iterable[pa.RecordBatch], task: tuple[int, int]
) -> SendReport:
    """Send rows by a sink; ``task`` is its partition and attempt. Raises as ``send``."""
    with SendTask(sink, topics, task) as opened:
        opened.take(batches)
        return opened.finish()


def hand_on_rows(
    sink: HandingSink, topics: TaskTopics, batches: Iterable[pa.RecordBatch], task: tuple[int, int]
) -> SendReport:
    """Encode rows by a sink; ``task`` is its partition and attempt. Raises as ``hand_on``."""
    rows = RowTask(sink.job, *task, sink, limits_of(sink.job, topics))
    try:
        rows.take_all(batches)
        side = rows.finish()
        handed = sink.finish()
    except BaseException:
        sink.discard()
        rows.discard()
        raise
    partition, attempt = task
    return SendReport(
        partition=partition, attempt=attempt, skipped=rows.skipped, side=side, handed=handed
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


def limits_of(job: SendJob, topics: Mapping[str, TopicQueues]) -> RowLimits:
    """Return what the job's rows are checked against."""
    is_once = job.settings.delivery == EXACTLY_ONCE
    return RowLimits(
        queue_counts=topics,
        new_topic_queues=0,
        extends_new_topics=False,
        max_message_size=job.limits.max_message_size - (_BATCHED_BYTES if is_once else 0),
        record_room=RECORD_ROOM_BYTES,
        commit_log_file_size=job.limits.log_file - _ROOM_BYTES,
        allow_system_topics=job.settings.allow_system_topics,
        max_properties=MAX_PROPERTIES_SENT,
        for_broker=True,
        takes_delayed=not is_once,
    )


class SendSink:
    """Sends the messages of a task."""

    written = "Rows before it may have been sent"

    def __init__(self, job: SendJob, placing: Placing, sender: Sender) -> None:
        self.job = job
        self._placing = placing
        self._sender = sender

    def record_sizes(self, messages: Messages) -> Int64s:
        """Return the bytes of each message's record, at most: int64[n]."""
        return messages.sizes(LONGEST_HOSTS)

    def append(self, rows: Rows, queue_ids: Int64s, composed: Composed) -> None:
        """Send the messages of ``rows``; raises what Sender#send raises."""
        placed = self._placing(rows, queue_ids, composed)
        for parcel in parcels(placed, self.job.settings, self.job.limits):
            self._sender.send(parcel)

    def flush(self) -> SendCounts:
        """Return what was sent so far, once all of it is acknowledged; raises as ``append``."""
        self._sender.flush()
        return self._sender.counts


class SendTask:
    """A task that sends rows, which may come in several parts. Not for several threads.

    As a context manager it removes the file of bad rows at an error. ``task`` is its partition and
    attempt. ``cluster`` has the sink's connections: those that were idle for long are made anew,
    because a broker closes them after two minutes.

    Reference: NettyServerConfig#serverChannelMaxIdleTimeSeconds; ClientConfig#
    heartbeatBrokerInterval, the 30 seconds in which a broker expects to hear of a client.
    """

    def __init__(
        self,
        sink: SendSink,
        topics: Mapping[str, TopicQueues],
        task: tuple[int, int],
        cluster: Cluster | None = None,
    ) -> None:
        self._partition, self._attempt = task
        self._sink = sink
        self._rows = RowTask(sink.job, *task, sink, limits_of(sink.job, topics))
        self._cluster = cluster
        self._idle_since: float | None = None

    def take(self, batches: Iterable[pa.RecordBatch]) -> None:
        """Send rows; some of them may wait for brokers when it returns.

        Raises InvalidMessageError, and what Sender#send and WriteQueues#of raise: then some of the
        messages may be stored.
        """
        if self._idle_since is not None and self._cluster is not None:
            if time.monotonic() - self._idle_since > _IDLE_S:
                self._cluster.close()
            self._idle_since = None
        self._rows.take_all(batches)

    def flush(self) -> None:
        """Return when brokers have acknowledged all rows so far; raises as ``take``."""
        self._sink.flush()
        self._idle_since = time.monotonic()

    def finish(self) -> SendReport:
        """Return what was sent, once all of it is acknowledged; raises as ``take``, and OSError."""
        counts = self._sink.flush()
        side = self._rows.finish()
        return SendReport(
            partition=self._partition,
            attempt=self._attempt,
            skipped=self._rows.skipped,
            side=side,
            counts=counts,
        )

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        if kind is not None:
            self._rows.discard()
