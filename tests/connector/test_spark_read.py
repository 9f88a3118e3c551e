"""Reading through Spark: discovery, schemas, projection, one DataFrame used twice, errors, SQL."""

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from chispa import assert_df_equality
from pyspark.errors import AnalysisException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f

from pyspark_mqlog import DefaultSource, register
from support.growing import grow
from support.oracle import Message
from support.stores import MakeStore

pytestmark = pytest.mark.spark

STANDARD = (
    "topic string not null, queueId int not null, queueOffset bigint not null, "
    "body binary not null, storeTimestamp timestamp not null, tags string, keys string, "
    "properties map<string,string> not null, bornTimestamp timestamp not null, "
    "msgId string not null, brokerName string"
)


def read(spark: SparkSession, path: Path | str, **options: str) -> DataFrame:
    return spark.read.format("mqlog").options(**options).load(str(path))


def first_line(fails: Callable[[], object]) -> str:
    with pytest.raises(AnalysisException) as caught:
        fails()
    return str(caught.value).splitlines()[0]


def test_the_source_is_found_without_registration(spark: SparkSession, golden_550: Path) -> None:
    found = read(spark, golden_550)
    assert found.schema == spark.createDataFrame([], STANDARD).schema
    assert found.count() == 1122


def test_registering_by_hand_is_as_good(spark: SparkSession, golden_550: Path) -> None:
    session = spark.newSession()
    register(session)
    assert DefaultSource.name() == "mqlog"
    assert read(session, golden_550, subscribe="GTx").count() == 14


def test_a_users_schema_is_a_projection_by_name(spark: SparkSession, golden_550: Path) -> None:
    reader = spark.read.format("mqlog").option("subscribe", "GTx")
    asked = reader.schema("tags string, queueOffset bigint, QUEUEID int").load(str(golden_550))
    assert asked.columns == ["tags", "queueOffset", "QUEUEID"]
    whole = read(spark, golden_550, subscribe="GTx")
    same = whole.select("tags", "queueOffset", f.col("queueId").alias("QUEUEID"))
    assert_df_equality(asked, same, ignore_nullable=True, ignore_row_order=True)


def test_a_dataframe_used_twice_stays_right(spark: SparkSession, golden_550: Path) -> None:
    """What pushFilters would break on Spark 4.x; see pruning.py."""
    found = read(spark, golden_550, subscribe="GTopic", columns="queueId,queueOffset")
    one, other = found.where("queueId = 1"), found.where("queueId = 2")
    count = one.count()
    assert 0 < count < 481
    assert found.count() == 481
    assert one.union(other).count() == count + other.count()
    assert found.join(one, ["queueId", "queueOffset"], "anti").count() == 481 - count


def test_a_kafka_notebook_runs_with_the_format_changed(
    spark: SparkSession, golden_550: Path
) -> None:
    found = read(spark, golden_550, subscribe="GTopic", columns="kafka")
    values = found.selectExpr("CAST(key AS STRING)", "CAST(value AS STRING)", "partition", "offset")
    assert values.where("offset < 3").count() == 12


def test_sql_reads_through_a_view_and_through_a_table(
    spark: SparkSession, golden_550: Path
) -> None:
    options = f"path '{golden_550}', subscribe 'GTx'"
    spark.sql(f"CREATE OR REPLACE TEMPORARY VIEW gtx USING mqlog OPTIONS ({options})")
    assert spark.sql("SELECT * FROM gtx").count() == 14
    spark.sql("DROP TABLE IF EXISTS messages")
    spark.sql("CREATE TABLE messages USING mqlog")
    with_options = f"`path` = '{golden_550}', `subscribe` = 'GTx'"
    assert spark.sql(f"SELECT * FROM messages WITH ({with_options})").count() == 14
    assert "[MQLOG_INVALID_OPTION] option path=''" in first_line(
        spark.sql("SELECT * FROM messages").collect
    )
    spark.sql("DROP TABLE messages")


def test_a_view_holds_the_store_as_it_was_and_a_query_with_options_looks_anew(
    spark: SparkSession, store: MakeStore
) -> None:
    laid = store([Message()])
    view = f"CREATE OR REPLACE TEMPORARY VIEW held USING mqlog OPTIONS (path '{laid.root}')"
    spark.sql(view)
    spark.sql("CREATE TABLE IF NOT EXISTS looked USING mqlog")
    grow(laid, [Message(), Message()])
    spark.sql("REFRESH TABLE held")
    assert spark.table("held").count() == 1
    assert spark.sql(f"SELECT * FROM looked WITH (`path` = '{laid.root}')").count() == 2
    spark.sql("DROP TABLE looked")
    spark.sql(view)
    assert spark.table("held").count() == 2


@pytest.mark.parametrize(
    ("options", "told"),
    [
        ({"subscibe": "GTx"}, "[MQLOG_INVALID_OPTION] option subscibe='GTx': unknown option"),
        ({"subscribe": "GTy"}, "[MQLOG_UNKNOWN_TOPIC] option subscribe: no topic GTy; did you"),
        ({"columns": "body,tag"}, "[MQLOG_INVALID_SCHEMA] column tag (unknown): did you mean tags"),
        (
            {"subscribe": "GTx", "startingOffsets": '{"GTx":{"0":99}}'},
            "[MQLOG_DATA_LOSS] GTx/0: queue offsets [99, ",
        ),
    ],
)
def test_a_mistake_is_told_in_the_first_line_of_the_error_of_load(
    spark: SparkSession, golden_550: Path, options: dict[str, str], told: str
) -> None:
    assert told in first_line(lambda: read(spark, golden_550, **options))


@pytest.mark.parametrize(
    ("ddl", "told"),
    [
        ("tag string", "[MQLOG_INVALID_SCHEMA] column tag (unknown): did you mean tags?"),
        ("body string", "[MQLOG_INVALID_SCHEMA] column body (string): is binary"),
        ("tags string not null", "[MQLOG_INVALID_SCHEMA] column tags (not null): may be null"),
    ],
)
def test_a_wrong_schema_is_told_before_a_task_runs(
    spark: SparkSession, golden_550: Path, ddl: str, told: str
) -> None:
    found = spark.read.format("mqlog").schema(ddl).load(str(golden_550))
    assert told in first_line(found.collect)


def test_looking_for_sources_imports_nothing_heavy() -> None:
    """Spark imports the package in every session, whoever's data source is wanted."""
    program = (
        "import sys, pyspark_mqlog; loaded = set(sys.modules); "  # mqstore itself is its version.
        "loaded = {name for name in loaded if name.startswith('mqstore.')} | loaded & "
        "{'numpy', 'pyarrow'}; print(loaded)"
    )
    found = subprocess.run([sys.executable, "-c", program], capture_output=True, check=True)
    assert found.stdout.decode().strip() == "set()"
