"""Views of a whole place in Spark, which have the rows that every other engine has."""

from pathlib import Path

import duckdb
import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

import mqlog
import pyspark_mqlog
from mqlog.errors import InvalidOptionError
from support import soak

pytestmark = [pytest.mark.spark, soak.not_in_check]


@pytest.fixture(scope="module")
def attached(spark: SparkSession, golden_550: Path) -> list[str]:
    return pyspark_mqlog.attach(spark, golden_550, prefix="shop_", tls=None)


def test_each_topic_and_table_is_a_view(
    spark: SparkSession, golden_550: Path, attached: list[str]
) -> None:
    place = mqlog.open(golden_550)

    found = {row.viewName for row in spark.sql("SHOW VIEWS LIKE 'shop_*'").collect()}

    assert set(attached) == {f"shop_{n}" for n in (*place.topics(), *place.tables())}
    assert found == {name.lower() for name in attached}  # As Spark lists them.


def test_spark_has_the_rows_and_sums_of_the_other_engines(
    spark: SparkSession, golden_550: Path, attached: list[str]
) -> None:
    place = mqlog.open(golden_550)
    query = (
        "SELECT tags, count(*) AS n, CAST(sum(queueOffset) AS BIGINT) AS s, "
        "max(storeTimestamp) AS t "
        "FROM {} GROUP BY tags ORDER BY n, tags NULLS FIRST"
    )
    columns = ["queueId", "queueOffset", "body", "tags", "keys", "msgId", "properties"]
    for topic in ("GTopic", "GBatch", "GTx"):
        scan = place.scan(topic, columns=columns)
        order = [("queueId", "ascending"), ("queueOffset", "ascending")]
        rows = spark.table(f"shop_{topic}").select(columns).toArrow().cast(scan.schema)
        assert rows.sort_by(order).equals(scan.to_table().sort_by(order))

        whole = place.scan(topic)
        ours = duckdb.sql(query.format("whole")).to_arrow_table()
        theirs = spark.sql(query.format(f"shop_{topic}")).toArrow()
        assert theirs.cast(ours.schema).equals(ours), whole


def test_a_view_of_a_table_has_its_rows(
    spark: SparkSession, golden_550: Path, attached: list[str]
) -> None:
    rows = spark.sql("SELECT topic, messageCount FROM shop_topics").collect()

    found = mqlog.open(golden_550).table("topics", columns="topic,messageCount").to_table()
    assert sorted(map(tuple, rows)) == sorted(map(tuple, (r.values() for r in found.to_pylist())))


def test_a_view_stays_with_what_was_stored_at_its_first_query(
    spark: SparkSession, tmp_path: Path
) -> None:
    rows = pa.table({"body": ["a"], "topic": ["odd-topic"]})
    mqlog.write(rows, tmp_path / "s", create_store=True)
    options = {"columns": ["body"], "broker_name": "b"}
    names = pyspark_mqlog.attach(spark, tmp_path / "s", **options)

    before = spark.sql("SELECT * FROM `odd-topic`").collect()
    mqlog.write(rows, tmp_path / "s")
    after = spark.table("`odd-topic`").count()
    pyspark_mqlog.attach(spark, tmp_path / "s", **options)

    assert "odd-topic" in names
    assert (len(before), after, spark.table("`odd-topic`").count()) == (1, 1, 2)
    assert spark.table("`odd-topic`").columns == ["body"]


def test_a_topic_with_the_name_of_a_table_keeps_it(spark: SparkSession, tmp_path: Path) -> None:
    mqlog.write(pa.table({"body": ["a"]}), tmp_path / "s", topic="backlog", create_store=True)

    names = pyspark_mqlog.attach(spark, tmp_path / "s")

    assert {"backlog", "backlog_table"} <= set(names)
    assert spark.table("backlog").count() == 1
    assert "lag" in spark.table("backlog_table").columns


def test_names_that_differ_in_case_only_are_refused(spark: SparkSession, tmp_path: Path) -> None:
    for topic in ("t", "T"):
        mqlog.write(pa.table({"body": ["a"]}), tmp_path / "s", topic=topic, create_store=True)

    with pytest.raises(InvalidOptionError, match="has this name already"):
        pyspark_mqlog.attach(spark, tmp_path / "s")
