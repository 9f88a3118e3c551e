"""queues=log in Spark: planned by the driver, read by tasks from the cache it left."""

import shutil
from pathlib import Path

import pytest
from chispa import assert_df_equality
from pyspark.sql import DataFrame, SparkSession

pytestmark = pytest.mark.spark


def test_spark_reads_a_store_without_queues_as_a_whole_one(
    spark: SparkSession, golden_550: Path, tmp_path: Path
) -> None:
    lost = tmp_path / "rocketmq-5.5.0" / "store"
    shutil.copytree(golden_550, lost, ignore=shutil.ignore_patterns("consumequeue", "index"))
    cache = tmp_path / "cache"
    by_log = {"queues": "log", "cacheDir": str(cache)}

    def load(root: Path, table: str, **options: str) -> DataFrame:
        return spark.read.format("mqlog").options(**options).load(f"{root}#{table}")

    messages = {"columns": "topic,queueId,queueOffset,body,tags,brokerName", "minPartitions": "3"}
    found = load(lost, "messages", **messages, **by_log)
    assert found.rdd.getNumPartitions() >= 3
    whole = load(golden_550, "messages", **messages)
    assert_df_equality(found, whole, ignore_row_order=True)
    lag = {"columns": "group,topic,queueId,brokerOffset,lag,lagMatching", "groups": "CG_G"}
    waiting = load(lost, "backlog", **lag, **by_log)
    assert_df_equality(waiting, load(golden_550, "backlog", **lag), ignore_row_order=True)
    assert len(list(cache.glob("*/*.arrow"))) == len(list((lost / "commitlog").iterdir()))
