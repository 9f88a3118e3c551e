"""Through Spark, both golden stores give what RocketMQ's own client and tools told of them."""

import shutil
from collections import Counter
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from chispa import assert_df_equality
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f

from support import expectations, goldens, oracle
from support.stores import is_consumable, stored

pytestmark = pytest.mark.spark

GROUPS = {"4.9.7": ("CG_H", "LP_H"), "5.5.0": ("CG_G", "LP_G")}
TOPICS = {"4.9.7": "H", "5.5.0": "G"}
KEPT = ["body", "tags", "keys", "properties", "flag", "bornTimestamp"]


def load(spark: SparkSession, root: Path, **options: object) -> DataFrame:
    reader = spark.read.format("mqlog")
    return reader.options(**{k: str(v) for k, v in options.items()}).load(str(root))


def table(frame: DataFrame) -> pa.Table:
    return frame.toArrow()


def by_place(rows: list[dict[str, Any]]) -> dict[tuple[str, int, int], dict[str, Any]]:
    found = {(row["topic"], row["queueId"], row["queueOffset"]): row for row in rows}
    assert len(found) == len(rows), "a message came twice"
    return found


def test_every_field_of_every_message_is_what_the_client_decoded(
    spark: SparkSession, golden: tuple[str, Path]
) -> None:
    version, root = golden
    frame = load(spark, root, columns="full", includeSystemTopics="true")
    rows = by_place(expectations.rows(table(frame)))
    told = goldens.expected(version)
    assert [
        goldens.as_told(rows[t["topic"], t["queueId"], t["queueOffset"]], version) for t in told
    ] == told


def test_every_column_of_every_message_on_disk_is_what_the_oracle_says(
    spark: SparkSession, golden: tuple[str, Path]
) -> None:
    _, root = golden
    frame = load(spark, root, columns="full", includeSystemTopics="true")
    rows = by_place(expectations.rows(table(frame)))
    messages = [m for _, data in stored(root) for _, m in oracle.walk(data) if is_consumable(m)]
    assert rows == by_place([expectations.row(m, "broker-a") for m in messages])


def test_user_topics_alone_are_read_unless_asked(
    spark: SparkSession, golden: tuple[str, Path]
) -> None:
    version, root = golden
    counts = load(spark, root).groupBy("topic").count().collect()
    letter = TOPICS[version]
    expected = Counter(
        row["topic"] for row in goldens.expected(version) if row["topic"].startswith(letter)
    )
    assert {row["topic"]: row["count"] for row in counts} == dict(expected)


def test_the_backlog_is_what_consumer_progress_printed(
    spark: SparkSession, golden: tuple[str, Path]
) -> None:
    version, root = golden
    frame = load(spark, root, table="backlog", groups=",".join(GROUPS[version]))
    found = {(r["group"], r["topic"], r["queueId"]): r for r in table(frame).to_pylist()}
    for key, printed in goldens.progress(version).items():
        row = found[key]
        consumed = row["consumerOffset"]
        assert (row["brokerOffset"], max(consumed or 0, 0), row["diff"]) == (
            printed.broker_offset,
            printed.consumer_offset,
            printed.diff,
        ), key


def test_the_queues_are_what_topic_status_printed(
    spark: SparkSession, golden: tuple[str, Path]
) -> None:
    version, root = golden
    found = {
        (r["topic"], r["queueId"]): (r["minOffset"], r["maxOffset"])
        for r in table(load(spark, root, table="queues", includeSystemTopics="true")).to_pylist()
    }
    printed = goldens.topic_status(version)
    assert {queue: found[queue] for queue in printed} == printed


def test_the_topics_are_those_the_client_pulled(
    spark: SparkSession, golden: tuple[str, Path]
) -> None:
    version, root = golden
    frame = load(spark, root, table="topics", includeSystemTopics="true")
    found = {row["topic"]: row for row in table(frame).to_pylist()}
    pulled = Counter(row["topic"] for row in goldens.expected(version))
    for topic, count in pulled.items():
        # The client pulled a few seconds before the broker stopped: system topics grew on.
        more = found[topic]["isSystem"]
        assert found[topic]["messageCount"] == count or (
            more and found[topic]["messageCount"] > count
        )
    for topic, _ in goldens.topic_status(version):
        assert (found[topic]["readQueueNums"], found[topic]["writeQueueNums"]) == (4, 4)
        assert not found[topic]["isSystem"]


def test_the_offsets_are_those_of_the_offset_file(
    spark: SparkSession, golden: tuple[str, Path]
) -> None:
    version, root = golden
    found = {
        (row["topic"], row["group"], row["queueId"]): row["consumerOffset"]
        for row in table(load(spark, root, table="offsets", includeSystemTopics="true")).to_pylist()
    }
    for (group, topic, queue_id), printed in goldens.progress(version).items():
        if (topic, group, queue_id) in found:  # a %RETRY% queue nobody committed has no entry
            assert found[topic, group, queue_id] == printed.consumer_offset


def test_the_rows_of_a_starting_group_are_its_backlog(
    spark: SparkSession, golden: tuple[str, Path]
) -> None:
    version, root = golden
    topic, group = f"{TOPICS[version]}Batch", GROUPS[version][1]
    counts = (
        load(spark, root, subscribe=topic, startingGroup=group).groupBy("queueId").count().collect()
    )
    assert {row["queueId"]: row["count"] for row in counts} == {
        queue_id: printed.diff
        for (of, held, queue_id), printed in goldens.progress(version).items()
        if (of, held) == (group, topic)
    }


@pytest.mark.parametrize("kind", ["Topic", "Batch", "Order"])
def test_a_topic_read_and_written_to_a_new_store_reads_the_same(
    spark: SparkSession, golden: tuple[str, Path], tmp_path: Path, checked: Any, kind: str
) -> None:
    version, root = golden
    topic = f"{TOPICS[version]}{kind}"
    before = load(spark, root, subscribe=topic, columns="full")
    copy = tmp_path / "copy"
    (
        before.write.format("mqlog")
        .mode("append")
        .option("createStore", "true")
        .option("timestamps", "preserve")
        .option("mappedFileSizeCommitLog", "256k")
        .option("mappedFileSizeConsumeQueue", "4000")
        .option("maxHashSlotNum", "100")
        .option("maxIndexNum", "400")
        .save(str(checked(copy)))
    )
    after = load(spark, copy, subscribe=topic, columns="full")
    assert_df_equality(
        sortable(before), sortable(after), ignore_row_order=True, ignore_nullable=True
    )
    assert after.where("NOT crcOk").count() == 0


def sortable(frame: DataFrame) -> DataFrame:
    """The fields that a round trip keeps; a map as text, for maps have no order."""
    properties = f.to_json(f.array_sort(f.map_entries("properties")))
    kept = frame.select("topic", "queueId", *KEPT).withColumn("properties", properties)
    return kept.withColumn("body", f.sha2("body", 256))


def test_a_golden_store_takes_more_messages_and_keeps_its_own(
    spark: SparkSession, golden: tuple[str, Path], tmp_path: Path, checked: Any
) -> None:
    version, root = golden
    copy = tmp_path / "store"
    shutil.copytree(root, copy)
    topic = f"{TOPICS[version]}Order"
    more = load(spark, root, subscribe=topic, columns="standard")
    count = more.count()
    more.write.format("mqlog").mode("append").save(str(checked(copy)))
    before = by_place(
        expectations.rows(table(load(spark, root, columns="full", includeSystemTopics="true")))
    )
    after = by_place(
        expectations.rows(table(load(spark, copy, columns="full", includeSystemTopics="true")))
    )
    assert {place: after[place] for place in before} == before
    assert Counter(place[0] for place in after.keys() - before.keys()) == {topic: count}
