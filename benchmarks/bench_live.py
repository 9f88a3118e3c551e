"""A running cluster read over loopback, beside the official client and Spark's Kafka connector.

    python -m benchmarks live

A 5.5.0 broker serves a store that was laid out, 1 KiB bodies in four queues; name server, broker
and client are JVMs with default flags. ``core``: our pulls, decoded to record batches in one
process and one thread, beside DefaultMQPullConsumer with a thread a queue, with the broker's
settings as they are and as the guide advises. ``spark``: to Spark's noop sink, beside the store's
directory and Spark's Kafka connector on the same messages. ``look`` is what a stream asks while
it has nothing to do; ``beside`` is what the official client gets while eight tasks of a read or
more pull the same topic from its broker, and while ``maxTasksPerBroker`` lets two; ``bounds`` and
``backlog`` are of 20 topics and 100 groups that committed in each; ``memory`` is what a task's
process needs beyond its imports, at two sizes.
"""

import json
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, closing, contextmanager
from functools import partial
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import pyspark
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812

import mqlog
from benchmarks.alone import alone
from benchmarks.facts import facts, load
from benchmarks.laid_out import Shape, lay_out, topic_name
from benchmarks.peers import (
    ROCKETMQ,
    PeerMissingError,
    connector_version,
    kafka_broker,
    rocketmq_servers,
    skip,
)
from benchmarks.rounds import Side, Timed, compare
from benchmarks.spark import spark_session, to_noop, told
from broker.harness import BROKER_NAME, DEFAULT_FILES, Broker
from broker.harness import Cluster as Servers
from mqstore.codec.schema import PROFILES
from mqstore.live.origin.bounds import bounds
from mqstore.live.origin.cluster_origin import ClusterOrigin
from mqstore.live.origin.groups import committed
from mqstore.live.origin.pull import LiveSlice, PullReader
from mqstore.live.remoting.cluster import Cluster
from mqstore.live.remoting.settings import ClusterSettings
from mqstore.read.capabilities import followable
from mqstore.read.queues import QueueFilter
from mqstore.read.scan import scan
from mqstore.read.settings import ScanSettings
from mqstore.read.source import QueueSlice
from mqstore.request.plan import plan_read, read_schema
from pyspark_mqlog.options import parse_read

TOPIC = topic_name(0)
QUEUES = 4
BODY_BYTES = 1024
TOPICS, GROUPS, EACH = 20, 100, 100
LOOKS = 100
TASKS, BOUNDED = 8, 2
ADVISED = {
    "maxTransferCountOnMessageInMemory": "1000",
    "maxTransferBytesOnMessageInMemory": "2097152",
}


def main(count: int) -> None:
    """Measure all, on two brokers one after the other."""
    with ExitStack() as stack:
        home = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        try:
            servers = stack.enter_context(rocketmq_servers(home))
        except PeerMissingError as missing:
            skip("rocketmq", str(missing))
            return
        with served(servers, home / "groups", Shape(TOPICS * QUEUES * EACH, 100, QUEUES, TOPICS)):
            measure_groups(servers.name_server)
        with served(servers, home / "reads", Shape(count, BODY_BYTES, QUEUES)) as broker:
            settings = ClusterSettings(name_servers=(servers.name_server,))
            rows = count // QUEUES * QUEUES
            measure_memory(settings, rows)
            measure_core(broker, settings, rows, "as installed")
            for key, value in ADVISED.items():
                where = ("-b", broker.address, "-n", servers.name_server)
                broker.mqadmin("updateBrokerConfig", *where, "-k", key, "-v", value)
            measure_core(broker, settings, rows, "as advised")
            measure_beside(broker, f"rocketmq://{servers.name_server}/{TOPIC}", rows)
            measure_spark(f"rocketmq://{servers.name_server}/{TOPIC}", home, rows)


@contextmanager
def served(servers: Servers, folder: Path, shape: Shape) -> Iterator[Broker]:
    """Lay a store out, with GROUPS that committed half of each queue, and run a broker on it."""
    root = folder / "store"
    root.mkdir(parents=True)
    lay_out(root, shape)
    offsets = {
        f"{topic_name(topic)}@G{group}": dict.fromkeys(map(str, range(shape.queues)), EACH // 2)
        for topic in range(shape.topics)
        for group in range(GROUPS)
    }
    path = root / "config" / "consumerOffset.json"
    path.write_text(json.dumps({"offsetTable": offsets}))
    with servers.broker(root, DEFAULT_FILES) as broker:
        yield broker


def pieces(rows: int) -> list[LiveSlice]:
    """The queues of the topic."""
    each = rows // QUEUES
    return [LiveSlice(BROKER_NAME, TOPIC, queue, 0, each) for queue in range(QUEUES)]


def read_all(settings: ClusterSettings, rows: int) -> int:
    """Read all messages as a task does; return how many."""
    origin = ClusterOrigin(settings, BROKER_NAME)
    slices = [
        QueueSlice(origin, BROKER_NAME, TOPIC, piece.queue_id, 0, piece.end)
        for piece in pieces(rows)
    ]
    chosen = ScanSettings(columns=PROFILES["standard"])
    return sum(batch.num_rows for batch in scan(slices, chosen))


def measure_core(broker: Broker, settings: ClusterSettings, rows: int, case: str) -> None:
    """Compare with the official client."""

    def bodies() -> int:
        with Cluster(settings) as cluster:
            answers = PullReader(cluster, pieces(rows)).answers()
            return sum(answer.end - answer.start for answer in answers)

    def java() -> Timed:
        found = broker.pull_all(TOPIC)
        assert found["bytes"] == rows * BODY_BYTES
        return Timed(found["rows"], found["seconds"])

    compare(
        "live",
        f"core, broker {case}",
        [
            Side("mqlog", partial(read_all, settings, rows), rows),
            Side("raw", bodies, rows),
            Side("java", java, rows),
        ],
        bodyBytes=BODY_BYTES,
        queues=QUEUES,
        broker=ROCKETMQ,
    )


def measure_beside(broker: Broker, path: str, rows: int) -> None:
    """Compare what the official client gets alone, and beside the tasks of a read."""

    def java(more: dict[str, Any] | None) -> Timed:
        splits = [] if more is None else mqlog.open(path).scan(**more).splits(TASKS)
        assert len(splits) <= BOUNDED or not more
        with reading(splits):
            found = broker.pull_all(TOPIC)
        return Timed(found["rows"], found["seconds"])

    sides = {"alone": None, "unbounded": {}, "bounded": {"max_tasks_per_broker": BOUNDED}}
    compare(
        "live",
        "beside",
        [Side(name, partial(java, more), rows) for name, more in sides.items()],
        tasks=TASKS,
        bounded=BOUNDED,
    )


@contextmanager
def reading(splits: Sequence[mqlog.Split]) -> Iterator[None]:
    """Have a process for each split, as a task of Spark is, read it again and again."""
    context = get_context("spawn")
    begun, stop = context.Semaphore(0), context.Event()
    tasks = [context.Process(target=_read_on, args=(one, begun, stop)) for one in splits]
    for task in tasks:
        task.start()
    for _ in tasks:
        assert begun.acquire(timeout=60)
    try:
        yield
    finally:
        stop.set()
        for task in tasks:
            task.join(60)


def _read_on(split: mqlog.Split, begun: Any, stop: Any) -> None:
    is_first = True
    while not stop.is_set():
        for _ in split.to_reader():
            if is_first:
                begun.release()
            is_first = False
            if stop.is_set():
                return


def measure_spark(address: str, home: Path, rows: int) -> None:
    """Compare with Kafka's connector, and with the same store's directory."""
    with ExitStack() as stack:
        spark = stack.enter_context(spark_session(kafka=True))

        def ours(path: str, columns: str) -> DataFrame:
            reader = spark.read.format("mqlog").option("columns", columns)
            return reader.load(path)

        store = str(home / "reads" / "store")
        live = ours(address, "kafka")
        tasks = live.rdd.getNumPartitions()
        frames = {"mqlog": live, "store": ours(store, "kafka").where(f"topic = '{TOPIC}'")}
        of_kafka = home / "kafka"
        of_kafka.mkdir()
        try:
            servers = stack.enter_context(kafka_broker(of_kafka, QUEUES))
        except PeerMissingError as missing:
            skip("kafka", str(missing))
        else:
            told(f"loading {rows} messages into Kafka")
            frames["kafka"] = _in_kafka(spark, servers, live, tasks)
            _check(live, frames["kafka"])

        def work(frame: DataFrame) -> int:
            to_noop(frame)
            return rows

        compare(
            "live",
            "spark, Kafka's columns",
            [Side(name, partial(work, frame), rows) for name, frame in frames.items()],
            bodyBytes=BODY_BYTES,
            queues=QUEUES,
            tasks=tasks,
            broker=ROCKETMQ,
            pyspark=pyspark.__version__,
            kafkaConnector=connector_version(),
        )


def _in_kafka(spark: SparkSession, servers: str, rows: DataFrame, tasks: int) -> DataFrame:
    sink = rows.select("key", "value", "partition", "headers").withColumn("topic", F.lit("b"))
    options = {"kafka.bootstrap.servers": servers, "includeHeaders": "true"}
    sink.write.format("kafka").options(**options).save()
    source = spark.read.format("kafka").options(**options, minPartitions=str(tasks))
    return source.option("subscribe", "b").load()


def _check(ours: DataFrame, theirs: DataFrame) -> None:
    """Compare all keys, values, partitions and headers of both."""
    row = F.xxhash64("key", "value", "partition", "headers").cast("decimal(38,0)")
    found = [frame.agg(F.count("*"), F.sum(row)).first() for frame in (ours, theirs)]
    assert found[0] == found[1], found


def measure_groups(name_server: str) -> None:
    """Time looks of a stream, the bounds of all queues, and the backlog of all groups."""
    settings = ClusterSettings(name_servers=(name_server,))
    every = QueueFilter(lambda _: True, lambda _topic, _queue: True)
    one = QueueFilter(TOPIC.__eq__, lambda _topic, _queue: True)
    for case, chosen in (("1 topic", one), (f"{TOPICS} topics", every)):
        with (
            closing(ClusterOrigin(settings, BROKER_NAME).bounds()) as source,
            closing(followable(source).tail(chosen)) as tail,
        ):
            _report(f"look, {case}", _median(partial(tail.look, at_once=True)))
            _report(f"look within 200 ms, {case}", _median(tail.look))
    with Cluster(settings) as cluster:
        routes = [cluster.known_route(topic_name(number)) for number in range(TOPICS)]

        def ask() -> None:
            assert len(bounds(cluster, routes)) == TOPICS * QUEUES
            assert len(committed(cluster, [BROKER_NAME])[BROKER_NAME]) >= TOPICS * GROUPS

        _report(f"bounds, {GROUPS} groups x {TOPICS} topics", _median(ask))
    path = f"rocketmq://{name_server}#backlog"
    counts = "group,topic,queueId,brokerOffset,consumerOffset,diff,lag,lagMatching,status"
    for case, columns in (("all columns", None), ("counts", counts)):
        work = partial(_backlog, {"path": path} | ({"columns": columns} if columns else {}))
        _report(f"backlog, {GROUPS} groups x {TOPICS} topics, {case}", _median(work, 5))


def _backlog(options: dict[str, str]) -> None:
    parsed = parse_read(options)
    plan = plan_read(parsed, read_schema(parsed).names)
    found = sum(batch.num_rows for work in plan.work() for batch in work.batches())
    assert found >= TOPICS * QUEUES * GROUPS, found


def measure_memory(settings: ClusterSettings, rows: int) -> None:
    """Take a quarter of the messages, then all: what grows with the work shows."""
    for part in (rows // QUEUES // QUEUES * QUEUES, rows):
        needed, found = alone(read_all, settings, part)
        assert found == part
        _print({"case": "memory", "messages": part, "MiB": round(needed, 1)})


def _median(call: Callable[[], object], times: int = LOOKS) -> float:
    """Return the median milliseconds of a call; the first does not count."""
    taken = []
    for _ in range(times + 1):
        begin = time.perf_counter()
        call()
        taken.append((time.perf_counter() - begin) * 1e3)
    return statistics.median(taken[1:])


def _report(case: str, milliseconds: float) -> None:
    _print({"case": case, "ms": round(milliseconds, 4)})


def _print(line: dict[str, object]) -> None:
    shown = {"bench": "live", **line, "broker": ROCKETMQ, "load": [load()], **facts()}
    print(json.dumps(shown), flush=True)


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 400_000)
