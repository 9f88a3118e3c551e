"""Spark on real brokers of both versions: rows are those of the broker's directory, each once."""

import threading
import time
from contextlib import closing
from pathlib import Path

import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming import StreamingQuery

from broker.harness import BROKER_NAME, Cluster
from mqstore.live.cluster import ClusterSettings
from mqstore.live.origin import ClusterOrigin

pytestmark = [pytest.mark.broker, pytest.mark.spark]

TOPIC = "LiveSpark"
ROUND = 150
SECONDS = 120
Row = tuple[int, int, str]


def keyed(frame: DataFrame) -> list[Row]:
    found = frame.selectExpr("queueId", "queueOffset", "msgId").collect()
    return sorted((row[0], row[1], row[2]) for row in found)


def test_a_batch_and_a_stream_through_a_killed_broker_and_a_restart(
    cluster: Cluster, spark: SparkSession, tmp_path: Path
) -> None:
    root = tmp_path / "broker" / "store"
    root.mkdir(parents=True)
    address = f"rocketmq://{cluster.name_server}/{TOPIC}"
    seen: list[Row] = []

    def keep(batch: DataFrame, _: int) -> None:
        seen.extend(keyed(batch))

    def start(**more: str) -> StreamingQuery:
        reader = spark.readStream.format("mqlog").options(startingOffsets="earliest", **more)
        writer = reader.load(address).writeStream.foreachBatch(keep)
        return writer.option("checkpointLocation", str(tmp_path / "checkpoint")).start()

    def wait(query: StreamingQuery, count: int) -> None:
        deadline, pause = time.monotonic() + SECONDS, threading.Event()
        while len(seen) < count:
            error = query.exception()
            assert error is None, error
            assert time.monotonic() < deadline, f"{len(seen)} of {count}"
            pause.wait(0.1)

    with cluster.broker(root) as broker:
        broker.produce(TOPIC, "Single", ROUND, seed=1)
        live = spark.read.format("mqlog").option("columns", "full").load(address)
        disk = spark.read.format("mqlog").option("columns", "full").option("subscribe", TOPIC)
        disk = disk.option("brokerName", BROKER_NAME).load(str(root))
        order = ["queueId", "queueOffset"]
        rows = live.orderBy(*order).collect()
        assert len(rows) == ROUND
        assert rows == disk.orderBy(*order).collect()
        query = start(commitGroup="live_audit", maxOffsetsPerTrigger="40")
        wait(query, ROUND)
        broker.kill()
    with cluster.broker(root, port=broker.port) as broker:
        broker.produce(TOPIC, "Single", ROUND, seed=2)
        wait(query, 2 * ROUND)
        origin = ClusterOrigin(ClusterSettings(name_servers=(cluster.name_server,)), BROKER_NAME)
        with closing(origin.bounds()) as source:
            told = source.config.consumer_offsets()[TOPIC, "live_audit"]
        assert sum(told.values()) >= ROUND  # The last batch is told when the next one is planned.
        query.stop()
        broker.produce(TOPIC, "Single", ROUND, seed=3)
        again = start()
        wait(again, 3 * ROUND)
        again.stop()
        expected = keyed(spark.read.format("mqlog").load(address))  # What is there now.
        broker.kill()
    assert len(expected) == 3 * ROUND
    assert sorted(seen) == expected
