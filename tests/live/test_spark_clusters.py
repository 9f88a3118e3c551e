"""Spark on a cluster on loopback: batches and streams, restarts, commitGroup, secrets."""

import json
from pathlib import Path
from typing import Any

import pytest
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession

from live.loopback import FakeCluster
from mqlog_jobs.spark import backlog as backlog_job
from support.event_log import event_log

pytestmark = pytest.mark.spark

SECRETS = {name: f"hush-hush-{name}" for name in ("accessKey", "secretKey", "securityToken")}
Row = tuple[str, int, int]


def load(spark: SparkSession, fake: FakeCluster, rest: str = "", **options: Any) -> DataFrame:
    reader = spark.read.format("mqlog").options(retryTimeout="2s", **options)
    return reader.load(f"rocketmq://{fake.address}{rest}")


def offsets_of(frame: DataFrame) -> list[Row]:
    found = frame.select("brokerName", "queueId", "queueOffset").collect()
    return sorted((row[0], row[1], row[2]) for row in found)


def test_a_batch_of_two_brokers(spark: SparkSession, fake: FakeCluster) -> None:
    fake.fill("T", 300, tags=lambda i: "AB"[i % 2])
    fake.fill("T", 40, queue_id=1, low=10, tags=lambda _: "A")
    fake.fill("T", 20, broker="broker-b", tags=lambda i: "AB"[i % 2])
    fake.fill("U", 5)
    whole = load(spark, fake, "/T")
    expected = [("broker-a", 0, n) for n in range(300)]
    expected += [("broker-a", 1, n) for n in range(10, 50)]
    expected += [("broker-b", 0, n) for n in range(20)]
    assert offsets_of(whole) == expected
    assert whole.selectExpr("sum(length(body))").first() is not None
    tagged = load(spark, fake, "/T", tags="B", startingOffsets='{"T":{"0":10}}')
    assert offsets_of(tagged) == [
        *(("broker-a", 0, n) for n in range(11, 300, 2)),
        *(("broker-b", 0, n) for n in range(11, 20, 2)),
    ]
    reader = spark.read.format("mqlog").option("nameServers", fake.address)
    assert reader.option("subscribe", "T").load().count() == len(expected)


def test_tables_of_two_brokers(spark: SparkSession, fake: FakeCluster) -> None:
    fake.fill("T", 30, tags=lambda i: "AB"[i % 2])
    fake.fill("U", 10, broker="broker-b")
    fake.committed["T", "g", 0] = 20
    fake.groups["g"] = 1
    fake.subscriptions["g"] = {"T": ("A", "TAG")}
    backlog = load(spark, fake, "#backlog").where("lag > 0 and brokerName = 'broker-a'")
    assert backlog.select("group", "topic", "lag", "lagMatching").collect() == [("g", "T", 10, 5)]
    held = load(spark, fake, "#queues").where("messageCount > 0").select("brokerName", "maxOffset")
    assert sorted(held.collect()) == [("broker-a", 30), ("broker-b", 10)]


def test_the_job_of_the_backlog_takes_the_address_of_a_cluster(
    spark: SparkSession, fake: FakeCluster, tmp_path: Path
) -> None:
    fake.fill("T", 30)
    fake.committed["T", "g", 0] = 20
    keys = tmp_path / "keys"
    keys.write_text("accessKey: reader\nsecretKey: hush-hush\n")
    fake.requests.clear()
    target, place = tmp_path / "out", f"rocketmq://{fake.address}"
    option = f"credentialsFile={keys}"
    assert backlog_job.main(["--from", place, "--to", f"json:{target}", "--option", option]) == 0
    assert [row["diff"] for row in spark.read.json(str(target)).collect()] == [10]
    assert {request["extFields"].get("AccessKey") for request in fake.requests} == {"reader"}


def test_a_wrong_topic_names_the_nearest(spark: SparkSession, fake: FakeCluster) -> None:
    fake.fill("TopicA", 1)
    with pytest.raises(PySparkException, match="no topic TopicB; did you mean TopicA"):
        load(spark, fake, "/TopicB").count()


def test_no_secret_is_in_a_plan_an_error_an_event_or_a_checkpoint(
    spark: SparkSession, fake: FakeCluster, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    fake.fill("T", 30)
    events = tmp_path / "events"
    events.mkdir()
    with event_log(spark, events) as text:
        frame = load(spark, fake, "/T", **SECRETS)
        frame.explain("extended")
        frame.explain("formatted")
        assert len(frame.collect()) == 30
        stream = follow(spark, fake, tmp_path, **SECRETS)
        fake.queues.clear()
        with pytest.raises(PySparkException) as caught:
            load(spark, fake, "/T", **SECRETS).collect()
        shown = text()
    assert "mqlog" in shown
    assert "SparkListenerTaskEnd" in shown
    files = [path for path in tmp_path.rglob("*") if path.is_file()]
    everything = [shown, str(caught.value), *capfd.readouterr()]
    everything += [path.read_text(errors="replace") for path in files]
    assert stream == [("broker-a", 0, n) for n in range(30)]
    assert not [text for text in everything if "hush-hush" in text]
    signed = [request["extFields"].get("AccessKey") for request in fake.requests]
    assert set(signed) == {SECRETS["accessKey"]}


def follow(spark: SparkSession, fake: FakeCluster, folder: Path, **options: Any) -> list[Row]:
    """Run a stream until it has read all; return the rows it gave."""
    seen: list[Row] = []

    def keep(batch: DataFrame, _: int) -> None:
        seen.extend(offsets_of(batch))

    reader = spark.readStream.format("mqlog").options(
        startingOffsets="earliest", retryTimeout="2s", **options
    )
    query = (
        reader.load(f"rocketmq://{fake.address}/T")
        .writeStream.foreachBatch(keep)
        .option("checkpointLocation", str(folder / "checkpoint"))
        .trigger(availableNow=True)
        .start()
    )
    assert query.awaitTermination(60)
    return seen


def test_a_stream_goes_on_after_restarts_with_new_brokers_and_tells_its_group(
    spark: SparkSession, fake: FakeCluster, tmp_path: Path
) -> None:
    fake.fill("T", 50)
    first = follow(spark, fake, tmp_path, maxOffsetsPerTrigger=20, commitGroup="audit")
    assert first == [("broker-a", 0, n) for n in range(50)]
    assert fake.committed == {("T", "audit", 0): 50}
    offsets = sorted(
        (tmp_path / "checkpoint" / "offsets").glob("[0-9]*"), key=lambda p: int(p.name)
    )
    last = offsets[-1].read_text().splitlines()[-1]
    assert json.loads(last) == {"T": {"broker-a": {"0": 50}}}
    fake.fill("T", 7, broker="broker-b")
    refill(fake, 60)
    again = follow(spark, fake, tmp_path)
    assert again == [
        *(("broker-a", 0, n) for n in range(50, 60)),
        *(("broker-b", 0, n) for n in range(7)),
    ]
    refill(fake, 40)
    with pytest.raises(PySparkException, match=r"STORE_REPLACED.*ends at queue offset 40"):
        follow(spark, fake, tmp_path)


def refill(fake: FakeCluster, count: int) -> None:
    """Let the first queue have so many messages: the same ones, and more or fewer.

    It comes first among its namesakes: all brokers of a FakeCluster answer at one address.
    """
    others = {key: queue for key, queue in fake.queues.items() if key[0] != "broker-a"}
    fake.queues.clear()
    fake.fill("T", count)
    fake.queues |= others
