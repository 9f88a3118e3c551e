"""A stream from two brokers, of which brokers, connections and drivers are killed: all once.

The size live_minutes says how long, the seed chooses the moments.
The brokers are of 5.5.0: a 4.9.7 that is killed may skip messages when it starts again, which
is MQLOG_DATA_LOSS.
"""

import json
import os
import random
import sys
import threading
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager, closing
from functools import partial
from pathlib import Path

import pytest
from pyspark.sql import DataFrame, SparkSession

from broker.harness import DEFAULT_FILES
from broker.harness import Cluster as Servers
from live.real import Live
from live.relay import Relay, relay
from live.sending import create_topic, producing
from mqstore.live.origin.bounds import bounds
from mqstore.live.remoting.cluster import Cluster
from support import soak
from support.victim import Victim, begun

pytestmark = [pytest.mark.broker, pytest.mark.spark]

MINUTES = soak.size("live_minutes", check=0, test=0, whole=60)
SEED = soak.SEED
TOPIC = "Chaos"
QUEUES = 2
BROKERS = ("broker-k", "broker-l")
START_S = 300
FILES = {**DEFAULT_FILES, "mappedFileSizeCommitLog": str(64 << 20), "maxIndexNum": "2000000"}
"""With the small files of other tests a broker has 20,000 open after an hour, and cannot start."""
NO_PROCESS_IN_TIME = "Python worker failed to connect back"
"""Spark waits 10 s for a Python process to start (PythonWorkerFactory#createSimpleWorker)."""
Queue = tuple[str, int]


@soak.only
@pytest.mark.parametrize("cluster", ["5.5.0"], indirect=True, scope="session")
def test_a_stream_gets_every_message_once_whatever_is_killed(
    cluster: Servers, spark: SparkSession, tmp_path: Path
) -> None:
    moments, done = random.Random(SEED), Counter[str]()
    with (
        closing(
            Live(cluster, tmp_path / "k" / "store", FILES | {"brokerName": BROKERS[0]})
        ) as first,
        closing(
            Live(cluster, tmp_path / "l" / "store", FILES | {"brokerName": BROKERS[1]})
        ) as second,
        relay(first.broker.address) as to_first,
        relay(second.broker.address) as to_second,
    ):
        lives, relays = dict(zip(BROKERS, (first, second), strict=True)), (to_first, to_second)
        for broker in BROKERS:
            create_topic(first.cluster, broker, TOPIC, QUEUES)
        addresses = {broker: r.address for broker, r in zip(BROKERS, relays, strict=True)}
        query = Query(f"{first.address}/{TOPIC}", tmp_path / "job", addresses)
        with sending(first.name_servers), closing(query):
            query.await_batches(2)
            end = time.monotonic() + 60 * MINUTES
            while time.monotonic() < end:
                threading.Event().wait(moments.uniform(2, 8))
                done[_harm(moments, lives, relays, query)] += 1
        held = ends(first.cluster)
        with closing(query):
            query.start()
            query.await_rows(spark, sum(held.values()))
        found = query.rows(spark)
        kept = spark.read.format("mqlog").load(f"{first.address}/{TOPIC}")
        kept = kept.select("brokerName", "queueId", "queueOffset", "body")
        assert found.exceptAll(kept).count() == 0
        assert kept.exceptAll(found).count() == 0
        counted = Counter((row.brokerName, row.queueId) for row in found.collect())
    assert dict(counted) == held
    soak.tell(f"{sum(held.values())} messages, {query.lives} drivers, {dict(done)}")


def _harm(
    moments: random.Random, lives: Mapping[str, Live], relays: tuple[Relay, ...], query: "Query"
) -> str:
    """Kill something; start it again."""
    kind = moments.choice(("broker", "connections", "connections", "driver"))
    if kind == "broker":
        victim = lives[moments.choice(BROKERS)]
        victim.kill()
        threading.Event().wait(moments.uniform(0, 5))
        victim.start()
    elif kind == "connections":
        for one in relays:
            one.drop()
    else:
        query.close()
        query.start()
        query.await_batches(1)
    return kind


class Query(Victim):
    """The query in a process of its own, which may be killed."""

    late_s = START_S

    def __init__(self, address: str, target: Path, broker_addresses: Mapping[str, str]) -> None:
        program = Path(soak.__file__).with_name("copied_query.py")
        columns = "brokerName string, queueId int, queueOffset bigint, body binary"
        options = {"maxOffsetsPerTrigger": "5000", "brokerAddresses": json.dumps(broker_addresses)}
        command = [sys.executable, program, address, target, columns, json.dumps(options)]
        super().__init__(command, target.with_name("query.log"))
        self._target = target
        self.lives = 0
        """How often it was started."""
        self.start()

    def start(self) -> None:
        self.lives += 1
        super().start()

    def pause(self, seconds: float) -> None:
        """Start it again if it ended because no Python process started in time."""
        if self.process.poll() is not None and NO_PROCESS_IN_TIME in self.told():
            self.start()
        super().pause(seconds)

    def await_batches(self, count: int) -> None:
        """Wait until so many more batches are begun."""
        wanted = begun(self._target) + count
        self.until(lambda: begun(self._target) >= wanted, 2)

    def await_rows(self, spark: SparkSession, count: int) -> None:
        """Wait until that many rows are written; each START_S at least one more."""

        def is_more(than: int) -> bool:
            return self.rows(spark).count() > than

        while (found := self.rows(spark).count()) < count:
            self.until(partial(is_more, found), 2)

    def rows(self, spark: SparkSession) -> DataFrame:
        """What is written, as Spark's own log of the files tells."""
        return spark.read.parquet(str(self._target / "rows"))


def sending(name_servers: Sequence[str]) -> AbstractContextManager[None]:
    """Send to all queues while the block runs."""
    queues = [(broker, TOPIC, queue_id) for broker in BROKERS for queue_id in range(QUEUES)]
    return producing(name_servers, queues, lambda: [os.urandom(200)] * 20)


def ends(cluster: Cluster) -> dict[Queue, int]:
    """How many messages each queue has."""
    held = bounds(cluster, [cluster.known_route(TOPIC)])
    return {(queue.broker, queue.queue_id): queue.high for queue in held}
