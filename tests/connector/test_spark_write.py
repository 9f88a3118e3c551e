"""Writing through Spark: all rows or none, each refusal in the first line, nothing left behind."""

import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
from chispa import assert_df_equality
from pyspark.errors import AnalysisException, PySparkException
from pyspark.sql import DataFrame, SparkSession

from support import goldens

pytestmark = pytest.mark.spark


def save(frame: DataFrame, root: Path, mode: str = "append", **options: str) -> None:
    frame.write.format("mqlog").mode(mode).options(**options).save(str(root))


def load(spark: SparkSession, root: Path, **options: str) -> DataFrame:
    return spark.read.format("mqlog").options(**options).load(str(root))


def orders(spark: SparkSession, count: int) -> DataFrame:
    return spark.range(count).selectExpr(
        "CAST(CONCAT('body ', id) AS BINARY) AS body",
        "IF(id % 3 = 0, NULL, CONCAT('T', id % 3)) AS tags",
        "CONCAT('k', id) AS keys",
        "map('colour', CONCAT('c', id)) AS properties",
        "CAST(id AS INT) AS flag",
    )


@pytest.fixture
def copy(golden_550: Path, tmp_path: Path, checked: Callable[[Path], Path]) -> Path:
    return checked(Path(shutil.copytree(golden_550, tmp_path / "broker-a" / "store")))


def test_what_is_written_is_read_back(
    spark: SparkSession, tmp_path: Path, checked: Callable[[Path], Path]
) -> None:
    root = checked(tmp_path / "new" / "store")
    frame = orders(spark, 1000).repartition(3)
    save(frame, root, topic="ORDERS", createStore="true")
    save(frame.limit(0), root, topic="ORDERS")
    back = load(spark, root, subscribe="ORDERS")
    # Spark does not order by a map, so properties are compared by the one that is there.
    own = ["body", "tags", "keys", "properties['colour'] AS colour", "flag"]
    full = load(spark, root, columns="body,tags,keys,properties,flag")
    same = frame.selectExpr(own)
    assert_df_equality(full.selectExpr(own), same, ignore_row_order=True, ignore_nullable=True)
    assert {row[0] for row in back.select("queueId").distinct().collect()} == {0, 1, 2, 3}
    assert load(spark, root, tags="T1 || T2").count() == 666
    assert load(spark, root, keys="k7,k8").count() == 2
    assert not (root / ".mqlog" / "staging").exists()


def test_a_write_goes_on_where_the_store_ends(spark: SparkSession, copy: Path) -> None:
    before = load(spark, copy, subscribe="GOrder").count()
    save(orders(spark, 20), copy, topic="GOrder")
    assert load(spark, copy, subscribe="GOrder").count() == before + 20
    assert load(spark, copy).count() == 1122 + 20


def test_a_bad_row_fails_the_job_and_changes_nothing(spark: SparkSession, copy: Path) -> None:
    before = goldens.digest(copy)
    frame = orders(spark, 50).selectExpr("body", "IF(keys = 'k33', 'a topic!', 'GOrder') AS topic")
    with pytest.raises(PySparkException) as caught:
        save(frame.coalesce(1), copy)
    told = str(caught.value)
    assert "[MQLOG_INVALID_MESSAGE]" in told
    assert "row 33" in told
    assert "a topic!" in told
    assert goldens.digest(copy) == before


@pytest.mark.parametrize(
    ("options", "told"),
    [
        ({"mode": "overwrite"}, "[MQLOG_OVERWRITE_UNSUPPORTED] a message store only grows: write"),
        ({"topik": "GOrder"}, "[MQLOG_INVALID_OPTION] option topik='GOrder': unknown option; did"),
        ({"txnAppId": "a"}, "[MQLOG_INVALID_OPTION] option txnAppId='a': needs txnVersion too"),
        ({"select": "body AS bodi"}, "[MQLOG_INVALID_SCHEMA] column bodi (binary): did you mean"),
        ({"select": "keys"}, "[MQLOG_INVALID_SCHEMA] column body (missing)"),
        ({"topic": ""}, "topic"),
    ],
)
def test_a_mistake_is_told_by_save_before_a_task_runs(
    spark: SparkSession, copy: Path, options: dict[str, str], told: str
) -> None:
    before = goldens.digest(copy)
    given = {"topic": "GOrder", "select": "*", "mode": "append", **options}
    frame = orders(spark, 3).selectExpr(given.pop("select"))
    with pytest.raises(AnalysisException) as caught:
        save(frame, copy, **given)
    assert told in str(caught.value).splitlines()[0]
    assert goldens.digest(copy) == before


def test_a_store_that_is_open_or_is_none_is_refused(
    spark: SparkSession, copy: Path, tmp_path: Path
) -> None:
    frame = orders(spark, 3)
    (copy / "abort").touch()
    with pytest.raises(AnalysisException, match=r"\[MQLOG_STORE_UNCLEAN\]"):
        save(frame, copy, topic="GOrder")
    (copy / "abort").unlink()
    with pytest.raises(AnalysisException, match=r"\[MQLOG_STORE_NOT_FOUND\]"):
        save(frame, tmp_path / "nowhere", topic="GOrder")
    (tmp_path / "file").touch()
    with pytest.raises(AnalysisException) as caught:
        save(frame, tmp_path / "file" / "store", topic="GOrder", createStore="true")
    assert "[MQLOG_" in str(caught.value).splitlines()[0]


def test_a_write_that_is_repeated_is_there_once(spark: SparkSession, copy: Path) -> None:
    def rows() -> int:
        return load(spark, copy, subscribe="GOrder").count()

    before = rows()
    frame = orders(spark, 20)
    save(frame, copy, topic="GOrder", txnAppId="loader", txnVersion="7")
    told = goldens.digest(copy)
    for version in ("7", "3"):
        save(frame, copy, topic="GOrder", txnAppId="loader", txnVersion=version)
        assert goldens.digest(copy) == told
    save(frame, copy, topic="GOrder", txnAppId="another", txnVersion="7")
    save(frame, copy, topic="GOrder", txnAppId="loader", txnVersion="8")
    assert rows() == before + 60
    commits = load(spark, copy, table="commits").orderBy("committedAt").collect()
    assert [(row.appId, row.version, row.rows, row.state) for row in commits] == [
        ("loader", 7, 20, "done"),
        ("another", 7, 20, "done"),
        ("loader", 8, 20, "done"),
    ]
