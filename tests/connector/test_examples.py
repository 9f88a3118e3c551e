"""What users copy from examples/ does what it says."""

import runpy
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from conftest import MakeStore
from growing import grow
from oracle import Message

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
