"""A store with queues and configuration in RocksDB, in Spark: the driver and each task open it."""

import shutil
from pathlib import Path

import pytest
from chispa import assert_df_equality
from pyspark.sql import DataFrame, SparkSession

from support import rocksdb

pytestmark = pytest.mark.spark


def test_spark_reads_a_store_in_rocksdb_as_one_in_files(
    spark: SparkSession, golden_550: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Half of the units are not flushed: tasks take them from the driver's walk."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    root = tmp_path / "rocketmq-5.5.0" / "store"
    shutil.copytree(golden_550, root)
    rocksdb.move_queues(root, before=260_000)
    rocksdb.move_config(root)

    def load(root: Path, table: str, **options: str) -> DataFrame:
        return spark.read.format("mqlog").options(**options).load(f"{root}#{table}")

    messages = {"columns": "topic,queueId,queueOffset,body,tags,brokerName", "minPartitions": "3"}
    found = load(root, "messages", **messages)
    assert found.rdd.getNumPartitions() >= 3
    assert_df_equality(found, load(golden_550, "messages", **messages), ignore_row_order=True)
    lag = {"columns": "group,topic,queueId,brokerOffset,lag,lagMatching"}
    waiting = load(root, "backlog", **lag)
    assert_df_equality(waiting, load(golden_550, "backlog", **lag), ignore_row_order=True)
    assert load(root, "verify").count() == 0
