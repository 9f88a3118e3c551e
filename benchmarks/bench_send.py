"""Rows sent to a running cluster over loopback, beside the official client and Kafka's connector.

    python -m benchmarks send

Messages have a body of 1 KiB, a key and a tag, and go to a 5.5.0 broker, to a topic of four queues;
name server, broker and client are JVMs with default flags. ``core``: record batches sent by one
task in one thread (``mqlog``), requests that are ready sent by the same sender (``raw``), and
DefaultMQProducer.send(List) of 100 on one thread (``java``). ``once`` is a publication of a few
rows, from what tasks handed on to COMMIT. ``spark``: rows that lie in Spark's memory, written at
least once and exactly once, beside Spark's Kafka connector; its broker syncs nothing, nor does
RocketMQ's.
"""

import itertools
import json
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyspark
from pyspark.sql import DataFrame

from benchmarks.facts import facts, load
from benchmarks.peers import (
    ROCKETMQ,
    PeerMissingError,
    connector_version,
    kafka_broker,
    rocketmq_servers,
    skip,
)
from benchmarks.rounds import Side, Timed, compare
from benchmarks.rows import batches
from benchmarks.spark import spark_session
from benchmarks.written import BODY_BYTES, KafkaWrites, content, orders
from broker.harness import DEFAULT_FILES, Broker
from mqstore.codec.encode import Messages
from mqstore.deliver.job import SendJob
from mqstore.deliver.once.commit import publish
from mqstore.deliver.parcels import LONGEST_HOSTS, parcels
from mqstore.deliver.prepare import prepare
from mqstore.deliver.settings import SendSettings
from mqstore.deliver.task import hand_on, limits_of, send
from mqstore.deliver.topics import TaskTopics
from mqstore.format.arrays import Int64s
from mqstore.live.remoting.cluster import Cluster
from mqstore.live.remoting.settings import ClusterSettings
from mqstore.live.send.requests import Parcel
from mqstore.live.send.sender import Sender, SenderSettings
from mqstore.live.send.topics import WriteQueues, create_topic
from mqstore.write.stage.compose import Composed
from mqstore.write.stage.rows import Rows
from mqstore.write.stage.task import RowTask

QUEUES = 4
JAVA_BATCH = 100
SMALL = 100
PUBLICATIONS = 100


def main(count: int) -> None:
    """Measure all, on two brokers one after the other."""
    with ExitStack() as stack:
        home = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        try:
            servers = stack.enter_context(rocketmq_servers(home))
        except PeerMissingError as missing:
            skip("rocketmq", str(missing))
            return
        for part, measure in (("core", measure_core), ("spark", measure_spark)):
            root = home / part / "store"
            root.mkdir(parents=True)
            with servers.broker(root, DEFAULT_FILES) as broker:
                measure(Sends(broker, servers.name_server), count, home)


@dataclass(slots=True)
class Sends:
    """A broker, and new topics on it for each write."""

    broker: Broker
    name_server: str
    last: str = ""
    _numbers: Iterator[int] = field(default_factory=itertools.count)

    @property
    def settings(self) -> ClusterSettings:
        """The cluster's settings."""
        return ClusterSettings(name_servers=(self.name_server,))

    def topic(self) -> str:
        """Make the next topic."""
        self.last = f"Bench{next(self._numbers)}"
        with Cluster(self.settings) as cluster:
            create_topic(cluster, self.last, QUEUES)
        return self.last

    def job(self, schema: pa.Schema, **more: Any) -> SendJob:
        """Prepare a write to the last topic."""
        return prepare(SendSettings(cluster=self.settings, topic=self.last, **more), schema)

    def java(self, count: int, batch: int) -> Timed:
        """Send by the official client."""
        found = self.broker.send_all(self.topic(), count, BODY_BYTES, batch)
        return Timed(found["rows"], found["seconds"])


def measure_core(sends: Sends, count: int, _home: Path) -> None:
    """Compare with the official client, then time small publications."""
    rows = batches(count, BODY_BYTES)

    def ours() -> Timed:
        sends.topic()
        job = sends.job(rows[0].schema)
        begin = time.perf_counter()
        report = send(job, rows, partition=0, attempt=1)
        return Timed(report.counts.messages, time.perf_counter() - begin)

    def raw() -> Timed:
        sends.topic()
        ready = encoded(sends, sends.job(rows[0].schema), rows)
        begin = time.perf_counter()
        with Cluster(sends.settings) as cluster:
            sender = Sender(cluster, SenderSettings(producer_group="bench", send_timeout_ms=60_000))
            for parcel in ready:
                sender.send(parcel)
            sender.flush()
        return Timed(sender.counts.messages, time.perf_counter() - begin)

    compare(
        "send",
        "core",
        [
            Side("mqlog", ours, count),
            Side("raw", raw, count),
            Side("java", lambda: sends.java(count, JAVA_BATCH), count),
        ],
        bodyBytes=BODY_BYTES,
        queues=QUEUES,
        broker=ROCKETMQ,
    )
    measure_once(sends)


def encoded(sends: Sends, job: SendJob, rows: list[pa.RecordBatch]) -> list[Parcel]:
    """Return the requests that a task sends for rows."""
    with Cluster(sends.settings) as cluster:
        topics = TaskTopics(WriteQueues(cluster, known=job.queues), job)
        sink = _Keeping(job, topics)
        RowTask(job, 0, 1, sink, limits_of(job, topics)).take_all(rows)
        return sink.parcels


class _Keeping:
    """Keeps the requests of a task, in a sender's place."""

    written = "Nothing was sent"

    def __init__(self, job: SendJob, topics: TaskTopics) -> None:
        self.parcels: list[Parcel] = []
        self._job = job
        self._topics = topics

    def record_sizes(self, messages: Messages) -> Int64s:
        return messages.sizes(LONGEST_HOSTS)

    def append(self, rows: Rows, queue_ids: Int64s, composed: Composed) -> None:
        placed = self._topics.placed(rows, queue_ids, composed)
        self.parcels += parcels(placed, self._job.settings, self._job.limits)


def measure_once(sends: Sends) -> None:
    """Time publications of a few rows: the whole commit of a micro-batch but its rows' encoding."""
    part = batches(SMALL, BODY_BYTES)[0]
    sends.topic()
    job = sends.job(part.schema, delivery="atLeastOnce")
    sent = median(lambda _: send(job, [part], partition=0, attempt=1))
    more: dict[str, Any] = {"delivery": "exactlyOnce", "txn_app_id": "bench", "create_topic": True}

    def once(version: int) -> None:
        job, report = handed[version]
        assert publish(job, [report]).messages == SMALL

    handed = []
    for version in range(PUBLICATIONS + 1):
        job = sends.job(part.schema, txn_version=version, **more)
        handed.append((job, hand_on(job, [part], partition=0, attempt=1)))
    told(f"sent at least once, {SMALL} rows", sent)
    told(f"published exactly once, {SMALL} rows", median(once))


def median(work: Callable[[int], object]) -> tuple[float, float]:
    """Return medians of milliseconds and of our CPU's milliseconds; the first does not count."""
    taken = []
    for number in range(PUBLICATIONS + 1):
        begin, busy = time.perf_counter(), time.process_time()
        work(number)
        taken.append((time.perf_counter() - begin, time.process_time() - busy))
    wall, cpu = zip(*taken[1:], strict=True)
    return 1e3 * statistics.median(wall), 1e3 * statistics.median(cpu)


def told(case: str, found: tuple[float, float]) -> None:
    """Print a line of one figure."""
    figures = {"ms": round(found[0], 2), "cpuMs": round(found[1], 2)}
    line = {"bench": "send", "case": case, **figures, "broker": ROCKETMQ}
    print(json.dumps({**line, "load": [load()], **facts()}), flush=True)


def measure_spark(sends: Sends, count: int, home: Path) -> None:
    """Compare writes of Spark with those of its Kafka connector."""
    with ExitStack() as stack:
        spark = stack.enter_context(spark_session(kafka=True))
        frame = orders(spark, count, QUEUES)
        writes = Writes(sends, frame, count)
        works: dict[str, Callable[[], Timed | int]] = {
            "mqlog": writes.at_least_once,
            "once": writes.exactly_once,
        }
        checks = [writes.check]
        try:
            of_kafka = home / "kafka"
            of_kafka.mkdir()
            servers = stack.enter_context(kafka_broker(of_kafka, QUEUES))
        except PeerMissingError as missing:
            skip("kafka", str(missing))
        else:
            kafka = KafkaWrites(frame, count, servers)
            works["kafka"] = kafka.write
            checks.append(kafka.check)
        compare(
            "send",
            "spark",
            [Side(name, work, count) for name, work in works.items()],
            bodyBytes=BODY_BYTES,
            queues=QUEUES,
            tasks=QUEUES,
            broker=ROCKETMQ,
            pyspark=pyspark.__version__,
            kafkaConnector=connector_version(),
        )
        for check in checks:
            check()


class Writes:
    """The same rows, written by each side to a new topic."""

    def __init__(self, sends: Sends, frame: DataFrame, rows: int) -> None:
        self._sends = sends
        self._frame = frame
        self._rows = rows
        self._ours: list[str] = []

    def at_least_once(self) -> Timed:
        """Write by tasks that send."""
        return self._write(delivery="atLeastOnce")

    def exactly_once(self) -> Timed:
        """Write by one publisher."""
        app = {"txnAppId": f"bench {len(self._ours)}", "txnVersion": 0}
        return self._write(delivery="exactlyOnce", createTopic=True, **app)

    def _write(self, **options: Any) -> Timed:
        topic = self._sends.topic()
        self._ours.append(topic)
        begin = time.perf_counter()
        sink = self._frame.write.format("mqlog").mode("append").options(**options)
        sink.save(f"rocketmq://{self._sends.name_server}/{topic}")
        return Timed(self._rows, time.perf_counter() - begin)

    def check(self) -> None:
        """Compare keys and bodies of the topics written last with the rows."""
        expected = content(self._frame)
        for topic in self._ours[-2:]:
            address = f"rocketmq://{self._sends.name_server}/{topic}"
            reader = self._frame.sparkSession.read.format("mqlog").option("columns", "keys,body")
            assert content(reader.load(address)) == expected


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 100_000)
