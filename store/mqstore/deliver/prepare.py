"""Prepare a write to a cluster on the driver: refuse what cannot succeed before any task runs."""

import dataclasses
import hashlib
import secrets
from collections.abc import Sequence
from dataclasses import replace
from typing import Final

import pyarrow as pa

from mqstore.deliver.job import SendJob, SendReport
from mqstore.deliver.once.check import check_once
from mqstore.deliver.once.control import mark_of
from mqstore.deliver.settings import (
    AT_LEAST_ONCE,
    EXACTLY_ONCE,
    FENCE_MS,
    PROXY_FENCE_MS,
    SEND_OPTIONS,
    SendSettings,
)
from mqstore.errors import InvalidOptionError, UnknownTopicError, shown
from mqstore.files.txn import staging
from mqstore.files.txn.ledger import Key
from mqstore.format.message import FILE_SIZE
from mqstore.live.remoting.cluster import Cluster
from mqstore.live.remoting.routes import MASTER_ID
from mqstore.live.send.requests import Queue
from mqstore.live.send.sender import SendCounts
from mqstore.live.send.topics import MessageLimits, WriteQueues, message_limits
from mqstore.options.option import checked
from mqstore.write.stage import bad_rows
from mqstore.write.stage.effect import check_effect, key_of
from mqstore.write.stage.rows import check_columns

_JOB_ID_DIGITS: Final = 32
_NO_REPEATS: Final = ": what is sent at least once may come twice"
_ONLY_ONCE: Final = {
    "txn_app_id": _NO_REPEATS,
    "txn_version": _NO_REPEATS,
    "control_topic": "",
    "inline_bytes": "",
    "staging_path": "",
    "fence_wait_ms": "",
    "visibility_timeout_ms": "",
    "allow_lost_history": "",
}
"""Options of exactly once by field, and why they do nothing at least once."""
_ANY_QUEUE: Final = ("roundrobin", "random")
"""Partitioners by which any queue will do for a row."""
_NOT_ONCE: Final = {
    "latency_fault_tolerance": ": a message stays with the broker that it was meant for",
    "uniq_key": ", which makes ids of the content of messages",
    "allow_system_topics": ", whose messages go in batches: brokers take none for these topics",
}
"""Options that exactly once does not take, by field, and why."""


def prepare(
    settings: SendSettings,
    columns: pa.Schema,
    *,
    is_stream: bool = False,
    topics: Sequence[str] = (),
) -> SendJob:
    """Return the job; the topic is made if it is not there and ``createTopic`` says so.

    ``topics`` are all that rows name, where that is known before. A stream's job has no key before
    ``of_batch``.

    Raises InvalidOptionError, InvalidSchemaError, UnknownTopicError, UnsupportedTopicError,
    AccessDeniedError, BrokerUnavailableError, NoMasterError.
    """
    settings = checked(settings)
    carries_read = check_columns(columns, topic_given=settings.topic is not None)
    check_effect(settings, columns, carries_read=carries_read)
    _check_options(settings, columns)
    key = _key(settings, is_stream=is_stream)
    is_once = settings.delivery == EXACTLY_ONCE
    with Cluster(settings.cluster) as cluster:
        named = topics if settings.topic is None else (settings.topic,)
        queues = tuple(queue for topic in named for queue in _queues(cluster, settings, topic))
        brokers = sorted({queue.broker for queue in queues}) if queues else _masters(cluster)
        settings = replace(settings, cluster=cluster.settings)
        if is_once and cluster.is_proxy:
            settings = _fenced(settings)
        most = MessageLimits(settings.max_message_size, FILE_SIZE)
        limits = message_limits(cluster, brokers, most)
        if is_once:
            check_once(cluster, settings, queues, brokers)
    job = SendJob(
        settings=replace(settings, uniq_key="deterministic") if is_once else settings,
        job_id=secrets.token_hex(16),
        carries_read=carries_read,
        schedules=False,
        limits=limits,
        queues=queues,
        made=tuple(staging.make_directories(settings.side_path, settings.staging_path)),
    )
    return job if key is None else with_key(job, key)


def _fenced(settings: SendSettings) -> SendSettings:
    """Return the settings with a fence behind which no proxy holds a request of a dead sender.

    A request waits up to 3 s in a proxy, and 3 s more for the broker. Raises InvalidOptionError.

    Reference: ProxyConfig (remotingWaitTimeMillsInSendQueue), AbstractRemotingActivity#request.
    """
    if settings.fence_wait_ms == FENCE_MS:
        return replace(settings, fence_wait_ms=PROXY_FENCE_MS)
    if settings.fence_wait_ms < PROXY_FENCE_MS:
        expected = f"must be {PROXY_FENCE_MS} ms or more through a proxy, where requests wait"
        raise InvalidOptionError("fenceWait", settings.fence_wait_ms, expected)
    return settings


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
    """Remove the files of a job that failed. What was sent stays."""
    bad_rows.withdraw(job, reports)
    if job.staging is not None:
        staging.remove(job.staging)
    staging.remove_directories(job.made)


def of_batch(job: SendJob, query_id: str, batch_id: int) -> SendJob:
    """Return the job as that of a micro-batch: its messages have the same ids if it runs again."""
    digest = hashlib.sha256(f"{query_id}/{batch_id}".encode()).hexdigest()
    found = replace(job, job_id=digest[:_JOB_ID_DIGITS])
    is_once = job.settings.delivery == EXACTLY_ONCE
    return with_key(found, Key.of_stream(query_id, batch_id)) if is_once else found


def with_key(job: SendJob, key: Key) -> SendJob:
    """Return the job as that write, which happens once."""
    return replace(job, key=key, mark=mark_of(key.app_id, key.version))


def _key(settings: SendSettings, *, is_stream: bool) -> Key | None:
    """Return the key of a write that is to happen once; None where it comes later, or never."""
    if settings.delivery == AT_LEAST_ONCE or is_stream:
        return None
    key = key_of(settings)
    if key is None:
        expected = "needs txnAppId and txnVersion, which tell a write that runs again from another"
        raise InvalidOptionError("delivery", EXACTLY_ONCE, expected)
    return key


def _check_options(settings: SendSettings, columns: pa.Schema) -> None:
    if settings.timestamps == "preserve" and "bornTimestamp" not in columns.names:
        expected = "needs the column bornTimestamp: a broker gives storeTimestamp itself"
        raise InvalidOptionError("timestamps", "preserve", expected)
    if settings.queue_nums is not None and not settings.create_topic:
        expected = "needs createTopic=true: it is for topics that are made"
        raise InvalidOptionError("queueNums", settings.queue_nums, expected)
    if settings.latency_fault_tolerance and settings.partitioner not in _ANY_QUEUE:
        expected = (
            f"cannot stand with partitioner={settings.partitioner}, by which a row has its own "
            f"queue: rows that go to another broker need {' or '.join(_ANY_QUEUE)}"
        )
        raise InvalidOptionError("latencyFaultTolerance", "true", expected)
    is_once = settings.delivery == EXACTLY_ONCE
    fields, reason = (_NOT_ONCE, "cannot stand with") if is_once else (_ONLY_ONCE, "is for")
    defaults = {field.name: field.default for field in dataclasses.fields(SendSettings)}
    for field in fields:
        value = getattr(settings, field)
        if value != defaults[field]:
            name = SEND_OPTIONS[field].name
            raise InvalidOptionError(
                name, value, f"{reason} delivery={EXACTLY_ONCE}{fields[field]}"
            )


def _queues(cluster: Cluster, settings: SendSettings, topic: str) -> tuple[Queue, ...]:
    """Return the queues of a topic, at least one."""
    is_new = cluster.route(topic) is None
    queues = WriteQueues(cluster, new_queues(settings)).of(topic)
    if queues is None:
        try:
            cluster.known_route(topic, "topic")
        except UnknownTopicError as error:
            advice = "" if cluster.is_proxy else "; createTopic=true makes it"
            raise UnknownTopicError(f"{error.what}{advice}") from None
        raise UnknownTopicError(
            f"option topic: no broker has {shown(topic)} any more, though name servers show it; "
            "createTopic=true makes it"
        )
    if not queues:
        expected = (
            "the topic takes no messages now: its perm has no W (mqadmin updateTopicPerm), or none "
            "of its brokers has a master. Brokers that have just started are there in some seconds"
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
