"""A master that is gone, and its slave that is left: real brokers, through Spark."""

import threading
import time
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession

from broker.harness import Cluster as Servers
from live.real import READING, Live
from live.sending import create_topic, send
from mqstore.errors import StoreError
from mqstore.live.origin.bounds import bounds
from mqstore.live.remoting.cluster import Cluster
from mqstore.live.remoting.settings import ClusterSettings
from support import soak

pytestmark = [pytest.mark.broker, pytest.mark.spark]

BROKER = "broker-s"
TOPIC = "Slaved"
COUNT = 500
SECONDS = 120
SLAVE = {"brokerName": BROKER, "brokerId": "1", "brokerRole": "SLAVE", "slaveReadEnable": "true"}


@pytest.fixture
def pair(cluster: Servers, tmp_path: Path) -> Iterator[tuple[Live, Live]]:
    """A master with messages in two queues, and its slave that has them all."""
    with (
        closing(Live(cluster, tmp_path / "master" / "store", {"brokerName": BROKER})) as master,
        closing(Live(cluster, tmp_path / "slave" / "store", SLAVE)) as slave,
    ):
        create_topic(master.cluster, BROKER, TOPIC, 2)
        for queue_id in (0, 1):
            send(master.cluster, BROKER, (TOPIC, queue_id), [b"%d" % n for n in range(COUNT)])
        settings = ClusterSettings(
            name_servers=master.name_servers,
            limits=READING,
            retry_timeout_ms=0,
            broker_addresses={BROKER: slave.broker.address},
        )
        with Cluster(settings) as client:
            deadline, pause = time.monotonic() + SECONDS, threading.Event()
            while held(client) < 2 * COUNT:
                assert time.monotonic() < deadline, "the slave never had all"
                pause.wait(0.2)
        yield master, slave


def held(client: Cluster) -> int:
    """How many messages a broker has of the topic; none as long as it does not know it."""
    try:
        return sum(q.high - q.low for q in bounds(client, [client.known_route(TOPIC)]))
    except StoreError:
        return 0


@soak.only
def test_a_slave_is_read_in_place_of_its_master_where_read_from_says_so(
    pair: tuple[Live, Live], spark: SparkSession, tmp_path: Path
) -> None:
    master, _ = pair
    path = f"{master.address}/{TOPIC}"

    def rows(read_from: str) -> list[tuple[int, int, bytes]]:
        reader = spark.read.format("mqlog").options(readFrom=read_from, retryTimeout="2s")
        frame = reader.load(path).select("queueId", "queueOffset", "body")
        return sorted((row[0], row[1], bytes(row[2])) for row in frame.collect())

    expected = [(queue, n, b"%d" % n) for queue in (0, 1) for n in range(COUNT)]
    for read_from in ("master", "slave", "any"):
        assert rows(read_from) == expected
    batches: list[tuple[int, int]] = []

    def keep(batch: DataFrame, _: int) -> None:
        batches.extend((row[0], row[1]) for row in batch.select("queueId", "queueOffset").collect())

    reader = spark.readStream.format("mqlog").options(readFrom="any", startingOffsets="earliest")
    writer = reader.load(path).writeStream.foreachBatch(keep)
    writer = writer.option("checkpointLocation", str(tmp_path / "checkpoint"))
    master.kill()
    assert rows("any") == expected
    with pytest.raises(PySparkException, match=r"NO_MASTER.*readFrom=any|BROKER_UNAVAILABLE"):
        rows("master")
    query = writer.trigger(availableNow=True).start()
    assert query.awaitTermination(SECONDS)
    assert sorted(batches) == [row[:2] for row in expected]
