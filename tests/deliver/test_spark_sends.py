"""Spark writes to a cluster on loopback: a batch, a stream that runs again, options, secrets."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from live.taking import Take, TakingCluster

pytestmark = pytest.mark.spark


@pytest.fixture
def taking() -> Iterator[TakingCluster]:
    with TakingCluster().running() as found:
        assert isinstance(found, TakingCluster)
        yield found


def test_a_batch_is_there_once_per_id_though_answers_are_lost(
    spark: SparkSession, taking: TakingCluster, capfd: pytest.CaptureFixture[str]
) -> None:
    taking.topic("T", 2)
    lost = [Take(code=None), Take(stores=5, code=None)]
    taking.take = lambda _: lost.pop() if lost else None
    writer = spark.range(1_000).selectExpr("CAST(id AS STRING) AS body").write.format("mqlog")
    writer = writer.mode("append").option("accessKey", "hush-key").option("secretKey", "hush-hush")
    writer.save(f"rocketmq://{taking.address}/T")
    reader = spark.read.format("mqlog").option("subscribe", "T")
    found = reader.load(f"rocketmq://{taking.address}")
    assert found.count() > 1_000
    once = found.dropDuplicates(["msgId"])
    total = once.selectExpr("count(*)", "sum(CAST(CAST(body AS STRING) AS INT))").first()
    assert total is not None
    assert tuple(total) == (1_000, 499_500)
    signed = [request["extFields"].get("AccessKey") for request in taking.sends()]
    assert set(signed) == {"hush-key"}
    assert "hush-hush" not in "".join(capfd.readouterr())
    with pytest.raises(PySparkException, match="MQLOG_OVERWRITE_UNSUPPORTED"):
        writer.mode("overwrite").save(f"rocketmq://{taking.address}/T")


def test_a_stream_that_runs_a_batch_again_sends_the_same_ids(
    spark: SparkSession, taking: TakingCluster, tmp_path: Path
) -> None:
    taking.topic("From")
    taking.topic("To", 2)
    with TakingCluster().running() as source:
        source.fill("From", 30)

        def run() -> None:
            reader = spark.readStream.format("mqlog").option("startingOffsets", "earliest")
            rows = reader.load(f"rocketmq://{source.address}/From").select("body")
            query = (
                rows.writeStream.format("mqlog")
                .option("checkpointLocation", str(tmp_path / "checkpoint"))
                .option("delivery", "atLeastOnce")
                .trigger(availableNow=True)
                .start(f"rocketmq://{taking.address}/To")
            )
            assert query.awaitTermination(60)

        run()
        assert len(taking.all_bodies("To")) == 30
        for done in (tmp_path / "checkpoint" / "commits").glob("*0*"):
            done.unlink()  # As if Spark had been killed before it noted the batch.
        run()
    assert len(taking.all_bodies("To")) == 60
    ids = [m.msg_id for q in taking.queues.values() for m in q.messages if m and m.topic == "To"]
    assert len(set(ids)) == 30


def test_a_batch_and_a_stream_are_exactly_once_though_answers_are_lost(
    spark: SparkSession, taking: TakingCluster, tmp_path: Path
) -> None:
    taking.topic("T", 2)
    taking.topic("MQLOG_CONTROL")
    lost = [Take(code=None), Take(stores=5, code=None), Take(stores=0, code=None)]
    taking.take = lambda r: lost.pop() if lost and r["extFields"]["b"] == "T" else None
    rows = spark.range(500).selectExpr("CAST(id % 400 AS STRING) AS body")
    for partitions in (3, 2):  # The second time nothing is sent.
        (
            rows.repartition(partitions)
            .write.format("mqlog")
            .mode("append")
            .options(delivery="exactlyOnce", txnAppId="load", txnVersion="7", fenceWait="1ms")
            .save(f"rocketmq://{taking.address}/T")
        )
        assert sorted(taking.all_bodies("T")) == sorted(b"%d" % (n % 400) for n in range(500))
    lost += [Take(stores=1, code=None), Take(code=None)]
    with TakingCluster().running() as source:
        source.fill("From", 30)
        for _ in range(2):
            reader = spark.readStream.format("mqlog").option("startingOffsets", "earliest")
            query = (
                reader.load(f"rocketmq://{source.address}/From")
                .selectExpr("concat('s', CAST(body AS STRING)) AS body")
                .writeStream.format("mqlog")
                .option("checkpointLocation", str(tmp_path / "checkpoint"))
                .option("fenceWait", "1ms")
                .trigger(availableNow=True)
                .start(f"rocketmq://{taking.address}/T")
            )
            assert query.awaitTermination(60)
            for done in (tmp_path / "checkpoint" / "commits").glob("*0*"):
                done.unlink()  # As if Spark had been killed before it noted the batch.
    assert not lost
    streamed = [body for body in taking.all_bodies("T") if body.startswith(b"s")]
    assert streamed == sorted(b"s%d" % n for n in range(30))
