"""Stores, ledgers and checkpoints of each release are read by this mqlog."""

import json
import tarfile
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

import mqlog
import mqstore
from kept import left_behind
from mqstore.check import check


@pytest.fixture(params=left_behind.VERSIONS)
def left(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    """What that release left, to be changed."""
    with tarfile.open(left_behind.HERE / f"{request.param}.tar.gz") as archive:
        # Python 3.11.0 to 3.11.3, as in Debian 12, have no filters.
        archive.extraction_filter = getattr(tarfile, "data_filter", lambda member, _: member)
        archive.extractall(tmp_path)
    return tmp_path


def read(spark: SparkSession, root: Path) -> list[int]:
    return left_behind.bodies(
        spark.read.format("mqlog").option("columns", "minimal").load(str(root))
    )


def test_something_is_kept_of_this_version() -> None:
    assert mqstore.__version__ in left_behind.VERSIONS


def test_the_stores_of_a_release_break_no_rule(left: Path) -> None:
    for root in (left / left_behind.SOURCE, left / left_behind.TARGET):
        assert [found for found in check(root) if found.severity == "error"] == []


def test_what_a_release_left_is_read_and_followed_without_spark(left: Path) -> None:
    source = mqlog.open(left / left_behind.SOURCE)
    target = mqlog.open(left / left_behind.TARGET)
    offsets = (left / left_behind.CHECKPOINT / "offsets" / "0").read_text(encoding="utf-8")
    position = json.loads(offsets.splitlines()[-1])

    assert source.scan().count() == target.scan().count() == 2 * left_behind.ROWS
    assert list(source.follow(position=position, timeout=0)) == []
    mqlog.write(source.scan(), left / left_behind.SOURCE)
    batches = [batch.num_rows for batch, _ in source.follow(position=position, timeout=0)]
    assert sum(batches) == 2 * left_behind.ROWS


@pytest.mark.spark
def test_a_version_that_a_release_committed_is_not_written_again(
    spark: SparkSession, left: Path
) -> None:
    left_behind.commit(spark, left, 2)
    assert read(spark, left / left_behind.SOURCE) == list(range(2 * left_behind.ROWS))

    left_behind.commit(spark, left, 3)
    assert read(spark, left / left_behind.SOURCE) == list(range(3 * left_behind.ROWS))


@pytest.mark.spark
def test_a_stream_goes_on_where_that_of_a_release_ended(spark: SparkSession, left: Path) -> None:
    left_behind.stream(spark, left)
    assert read(spark, left / left_behind.TARGET) == list(range(2 * left_behind.ROWS))

    left_behind.commit(spark, left, 3)
    left_behind.stream(spark, left)
    assert read(spark, left / left_behind.TARGET) == list(range(3 * left_behind.ROWS))
    table = spark.read.format("mqlog").load(f"{left / left_behind.SOURCE}#offsets")
    assert {row.group for row in table.collect()} == {left_behind.GROUP}
