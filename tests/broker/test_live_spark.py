"""A live broker, with the official producer at work, under a Spark query and under `snapshot`.

MQLOG_LIVE_MESSAGES=50000 make test ARGS='tests/broker/test_live_spark.py'
"""

import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path

import pytest
from pyspark.sql import DataFrame, SparkSession

from broker.harness import Broker, Cluster, Row
from broker.reading import by_queue
from broker.toolchain import VERSIONS
from mqstore.copy.copy_store import copy_store
from mqstore.format.names import is_system_topic
from mqstore.read.directory import take
from support import soak

pytestmark = [pytest.mark.broker, pytest.mark.spark, pytest.mark.soak]

MESSAGES = soak.size("live_messages", check=0, test=3_000, whole=50_000)
ROUNDS = 5
TOPIC = "Live"
SECONDS = 300
some_versions = pytest.mark.parametrize(
    "cluster", soak.sample(VERSIONS, check=1, test=1), indirect=True, scope="session"
)


@contextmanager
def producing(broker: Broker) -> Iterator[None]:
    """Let the producer send all messages while the block runs; then wait for them."""

    def send() -> None:
        for seed in range(ROUNDS):
            broker.produce(TOPIC, "Single", MESSAGES // ROUNDS, seed=seed)

    broker.produce(TOPIC, "Single", 1, seed=ROUNDS)
    with ThreadPoolExecutor(1) as pool:
        sent = pool.submit(send)
        yield
        sent.result(SECONDS)


def wait_for(root: Path, count: int) -> None:
    """Wait for that many messages. The harness is busy producing, so the store is asked."""
    deadline, pause = time.monotonic() + SECONDS, threading.Event()
    while sum(q.high - q.low for q in take(root).queues if q.topic == TOPIC) < count:
        assert time.monotonic() < deadline
        pause.wait(0.02)


@some_versions
def test_a_query_beside_a_live_broker_gets_each_message_once(
    cluster: Cluster, spark: SparkSession, tmp_path: Path
) -> None:
    root = tmp_path / "broker" / "store"
    root.mkdir(parents=True)
    seen: list[Row] = []

    def keep(batch: DataFrame, _: int) -> None:
        found = batch.selectExpr("topic", "queueId", "queueOffset", "msgId", "sha1(body) bodySha1")
        seen.extend(row.asDict() for row in found.collect())

    with cluster.broker(root) as broker:
        with producing(broker):
            query = (
                spark.readStream.format("mqlog")
                .option("subscribe", TOPIC)
                .option("startingOffsets", "earliest")
                .option("maxOffsetsPerTrigger", MESSAGES // 7)
                .load(str(root))
                .writeStream.foreachBatch(keep)
                .option("checkpointLocation", str(tmp_path / "checkpoint"))
                .start()
            )
        dump = broker.dump(TOPIC).rows
        query.processAllAvailable()
        query.stop()
        broker.kill()
    assert len(dump) == MESSAGES // ROUNDS * ROUNDS + 1
    names = ("queueOffset", "msgId", "bodySha1")
    found, expected = by_queue(seen), by_queue(dump)
    # In the order in which they came: nothing is sorted here, nothing lost, nothing twice.
    assert {q: [[r[n] for n in names] for r in rows] for q, rows in found.items()} == {
        q: [[r[n] for n in names] for r in rows] for q, rows in expected.items()
    }
    soak.tell(f"{len(dump)} messages of a live {cluster.version} broker, each once and in order")


@some_versions
def test_a_copy_of_a_live_store_is_served_by_another_broker(
    cluster: Cluster, tmp_path: Path
) -> None:
    root = tmp_path / "broker" / "store"
    root.mkdir(parents=True)
    (tmp_path / "copy").mkdir()
    with cluster.broker(root) as broker:
        with producing(broker):
            wait_for(root, MESSAGES // 3)
            copied = copy_store(root, tmp_path / "copy" / "store")
        whole = [row for row in broker.dump().rows if not is_system_topic(row["topic"])]
        broker.kill()
    with cluster.broker(tmp_path / "copy" / "store") as broker:
        served = [row for row in broker.dump().rows if not is_system_topic(row["topic"])]
        broker.stop()
    found, expected = by_queue(served), by_queue(whole)
    counts = {(q.topic, q.queue_id): q.high - q.low for q in copied.snapshot.queues}
    assert {q: len(rows) for q, rows in found.items()} == {
        q: count for q, count in counts.items() if count and not is_system_topic(q[0])
    }
    assert len(served) >= MESSAGES // 3
    for queue, rows in found.items():
        assert [r["msgId"] for r in rows] == [r["msgId"] for r in expected[queue][: len(rows)]]
