"""Prepare a write to a cluster on the driver: refuse what cannot succeed before any task runs."""

import secrets
from dataclasses import replace

import pyarrow as pa

from mqstore.deliver.job import SendJob, SendReport
from mqstore.deliver.settings import AT_LEAST_ONCE, SendSettings
from mqstore.errors import InvalidOptionError
from mqstore.live.cluster import Cluster
from mqstore.live.routes import MASTER_ID
from mqstore.live.send.requests import Queue
from mqstore.live.send.sender import SendCounts
from mqstore.live.send.topics import WriteQueues, message_limits
from mqstore.options.option import checked
from mqstore.printable import shown
from mqstore.stage import bad_rows
from mqstore.stage.effect import check_effect
from mqstore.stage.rows import check_columns
from mqstore.txn import staging


def prepare(settings: SendSettings, columns: pa.Schema) -> SendJob:
    """Return the job; the topic is made if it is not there and ``createTopic`` says so.

    Raises InvalidOptionError, InvalidSchemaError, UnknownTopicError, UnsupportedTopicError,
    AccessDeniedError, BrokerUnavailableError, NoMasterError.
    """
    settings = checked(settings)
    carries_read = check_columns(columns, topic_given=settings.topic is not None)
    check_effect(settings, columns, carries_read=carries_read)
    _check_options(settings, columns)
    with Cluster(settings.cluster) as cluster:
        queues = _queues(cluster, settings)
        brokers = sorted({queue.broker for queue in queues}) if queues else _masters(cluster)
        limits = message_limits(cluster, brokers)
    return SendJob(
        settings=settings,
        job_id=secrets.token_hex(16),
        carries_read=carries_read,
        schedules=False,
        max_message_size=min([settings.max_message_size, *limits.values()]),
        made=tuple(staging.make_directories(settings.side_path)),
    )


def new_queues(settings: SendSettings) -> int:
    """Return how many queues a topic gets that is not there; 0 if none is to be made."""
    return settings.new_topic_queues if settings.create_topic else 0


def finish(job: SendJob, reports: list[SendReport]) -> SendCounts:
    """Give the files of bad rows their names; return what all tasks did together."""
    bad_rows.publish(job, reports)
    counts = SendCounts()
    for report in reports:
        counts.add(report.counts)
    return counts


def withdraw(job: SendJob, reports: list[SendReport]) -> None:
    """Remove the files of bad rows of a job that failed. What was sent stays."""
    bad_rows.withdraw(job, reports)
    staging.remove_directories(job.made)


def of_batch(job: SendJob, job_id: str) -> SendJob:
    """Return the job with an id by which messages get the same UNIQ_KEYs when it runs again."""
    return replace(job, job_id=job_id)


def _check_options(settings: SendSettings, columns: pa.Schema) -> None:
    if settings.timestamps == "preserve" and "bornTimestamp" not in columns.names:
        expected = "needs the column bornTimestamp: a broker gives storeTimestamp itself"
        raise InvalidOptionError("timestamps", "preserve", expected)
    if settings.queue_nums is not None and not settings.create_topic:
        expected = "needs createTopic=true: it is for topics that are made"
        raise InvalidOptionError("queueNums", settings.queue_nums, expected)
    if settings.delivery == AT_LEAST_ONCE:
        for name, value in (
            ("txnAppId", settings.txn_app_id),
            ("txnVersion", settings.txn_version),
        ):
            if value is not None:
                expected = "is for delivery=exactlyOnce: what is sent at least once may come twice"
                raise InvalidOptionError(name, value, expected)


def _queues(cluster: Cluster, settings: SendSettings) -> tuple[Queue, ...]:
    """Return the queues of the option ``topic``; none if rows name their topics."""
    topic = settings.topic
    if topic is None:
        return ()
    is_new = cluster.route(topic) is None
    queues = WriteQueues(cluster, new_queues(settings)).of(topic)
    if queues is None:
        cluster.known_route(topic, "topic")
    if not queues:
        expected = (
            "the topic takes no messages now: its perm has no W (mqadmin updateTopicPerm), or none "
            "of its brokers has a master"
        )
        raise InvalidOptionError("topic", topic, expected)
    found = {queue.broker: queue.queue_id + 1 for queue in queues}
    wanted = settings.queue_nums
    if not is_new and wanted is not None and set(found.values()) != {wanted}:
        numbers = ", ".join(f"{broker} {count}" for broker, count in found.items())
        expected = f"is for new topics, and {shown(topic)} has write queues: {numbers}"
        raise InvalidOptionError("queueNums", wanted, expected)
    return queues


def _masters(cluster: Cluster) -> list[str]:
    return sorted(name for name, hosts in cluster.brokers().items() if MASTER_ID in hosts)
