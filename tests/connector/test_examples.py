"""What users copy from examples/ does what it says."""

import runpy
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from support.growing import grow
from support.oracle import Message
from support.stores import MakeStore

EXAMPLES = Path(__file__).parents[2] / "examples"


@pytest.mark.spark
def test_a_second_copy_to_parquet_adds_what_is_new_alone(
    spark: SparkSession, store: MakeStore, tmp_path: Path
) -> None:
    example = runpy.run_path(str(EXAMPLES / "store_to_parquet.py"))
    every = [Message(topic="orders", queue_id=i % 3, body=b"%d" % i) for i in range(30)]
    laid = store(every[:20])
    arguments = (str(laid.root), "orders", str(tmp_path / "lake"))
    assert example["copy"](spark, *arguments) == 20
    assert example["copy"](spark, *arguments) == 0
    grow(laid, every)
    assert example["copy"](spark, *arguments) == 10
    rows = spark.read.parquet(str(tmp_path / "lake" / "rows")).select("body").collect()
    assert sorted(row.body for row in rows) == sorted(m.body for m in every)


@pytest.mark.spark
def test_a_rate_is_in_the_store_once_and_is_read_back_once(
    spark: SparkSession, tmp_path: Path, checked: Callable[[Path], Path]
) -> None:
    example = runpy.run_path(str(EXAMPLES / "rate_to_store.py"))
    store, target = tmp_path / "broker-a" / "store", tmp_path / "rates"
    counts = []
    for _ in range(2):
        writing = example["write"](spark, str(store), str(target), 50)
        try:
            deadline = time.monotonic() + 300
            while sum(progress.numInputRows > 0 for progress in writing.recentProgress) < 2:
                assert time.monotonic() < deadline
                assert not writing.awaitTermination(0.1)
        finally:
            writing.stop()
        assert example["read_back"](spark, str(store), str(target)).awaitTermination(300)
        rows = spark.read.parquet(str(target / "rows")).collect()
        assert sorted(int(row.keys) for row in rows) == list(range(len(rows)))
        counts.append(len(rows))
    assert 0 < counts[0] < counts[1]
    checked(store)
    assert spark.read.format("mqlog").load(str(store)).count() == counts[1]
