"""A union whose sources change their order at a restart."""

from collections.abc import Callable
from pathlib import Path

import pytest
from pyspark.errors import StreamingQueryException
from pyspark.sql import DataFrame, SparkSession

from support.oracle import Message
from support.stores import MakeStore

pytestmark = pytest.mark.spark


def test_sources_of_a_union_that_change_their_order_are_an_error_and_read_nothing_twice(
    spark: SparkSession, store: MakeStore, tmp_path: Path
) -> None:
    laid = store([Message(topic="AAB"[i % 3]) for i in range(30)])
    run = _runner(spark, laid.root, tmp_path)

    run("A", "B")
    run("A", "B")
    with pytest.raises(StreamingQueryException, match=r"STORE_REPLACED\] the offsets are of topic"):
        run("B", "A")

    assert spark.read.parquet(str(tmp_path / "rows")).count() == 30
    run("A", "B")


def _runner(spark: SparkSession, root: Path, folder: Path) -> Callable[[str, str], None]:
    def source(topic: str) -> DataFrame:
        reader = spark.readStream.format("mqlog").option("startingOffsets", "earliest")
        return reader.option("subscribe", topic).load(str(root)).select("topic", "body")

    def run(first: str, second: str) -> None:
        query = (
            source(first)
            .union(source(second))
            .writeStream.format("parquet")
            .option("checkpointLocation", str(folder / "checkpoint"))
            .trigger(availableNow=True)
            .start(str(folder / "rows"))
        )
        query.awaitTermination()

    return run
