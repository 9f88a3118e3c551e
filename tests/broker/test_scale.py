"""One Spark job's store, served by brokers: counted by them, and sampled through the client.

    MQLOG_SCALE_MESSAGES=10000000 make test ARGS='tests/broker/test_scale.py'

takes the size that the project claims; without it a size that a gate can wait for.
"""

import hashlib
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from broker.harness import DEFAULT_FILES, LOOPBACK, Cluster, Row
from broker.our_messages import NUMBER
from broker.ports import free_ports
from broker.toolchain import VERSIONS
from support import soak

pytestmark = [pytest.mark.broker, pytest.mark.spark, pytest.mark.soak]

MESSAGES = soak.size("scale_messages", check=0, test=30_000, whole=10_000_000)
TOPIC = "Scale"
QUEUES = 8
STRETCHES = 20


@pytest.fixture(scope="session")
def written(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, int]:
    """A store of default sizes that one job wrote, and the port its messages name."""
    root = tmp_path_factory.mktemp("scale") / "store"
    port = free_ports(-2, 0, 1)
    rows = spark.range(MESSAGES, numPartitions=8).selectExpr(
        "CAST(repeat(sha2(CAST(id AS STRING), 256), 4) AS BINARY) AS body",
        "concat('k', id) AS keys",
        "concat('T', id % 10) AS tags",
        f"map('{NUMBER}', CAST(id AS STRING)) AS properties",
    )
    options = {
        "topic": TOPIC,
        "queueNums": str(QUEUES),
        "createStore": "true",
        "storeHost": f"{LOOPBACK}:{port}",
    }
    rows.write.format("mqlog").mode("append").options(**options).save(str(root))
    return root, port


@pytest.mark.parametrize(
    "cluster", soak.sample(VERSIONS, check=1, test=1), indirect=True, scope="session"
)
def test_brokers_count_and_serve_what_one_spark_job_wrote(
    cluster: Cluster, written: tuple[Path, int]
) -> None:
    root, port = written
    with cluster.broker(root, DEFAULT_FILES, port) as broker:
        status = broker.topic_status(TOPIC)
        sample = broker.sample(TOPIC, STRETCHES)
        step = max(1, MESSAGES // 500)
        numbers = range(0, MESSAGES, step)
        found = broker.lookup(("key", TOPIC, f"k{number}") for number in numbers)
        broker.stop()
    assert len(status) == QUEUES
    assert sum(row["maxOffset"] - row["minOffset"] for row in status) == MESSAGES
    assert sample.problems == []
    assert len(sample.rows) == QUEUES * STRETCHES * 32
    assert [row for row in sample.rows if not is_whole(row)] == []
    assert [[row["properties"][NUMBER] for row in rows] for rows in found] == [
        [str(number)] for number in numbers
    ]


def is_whole(row: Row) -> bool:
    """Tell whether a message is the one that was made under its number."""
    number = row["properties"][NUMBER]
    body = hashlib.sha256(number.encode()).hexdigest() * 4
    sha1 = hashlib.sha1(body.encode(), usedforsecurity=False).hexdigest()
    named = {"KEYS": f"k{number}", "TAGS": f"T{int(number) % 10}"}
    return bool(row["bodySha1"] == sha1) and named.items() <= row["properties"].items()
