"""T15, F11: what Spark does when a commit fails, which is why abort() may not believe it.

The data source here only writes down who calls it.
"""

import json
import os
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from py4j.protocol import Py4JJavaError
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark

PARTITIONS = 3


def failing_source(diary: str, how: str) -> Any:
    """A data source whose commit fails; made here so that it is sent to the workers by value."""
    from dataclasses import dataclass  # noqa: PLC0415 - what a class sent by value needs

    from pyspark.sql.datasource import (  # noqa: PLC0415
        DataSource,
        DataSourceWriter,
        WriterCommitMessage,
    )

    @dataclass
    class Staged(WriterCommitMessage):
        partition: int

    def write_down(call: str, messages: Any = ()) -> None:
        told = {"call": call, "pid": os.getpid(), "told": sum(m is not None for m in messages)}
        with open(diary, "a", encoding="utf-8") as out:  # noqa: PTH123
            out.write(json.dumps(told) + "\n")

    class Writer(DataSourceWriter):
        def write(self, iterator: Iterator[Any]) -> WriterCommitMessage:
            return Staged(sum(1 for _ in iterator))

        def commit(self, messages: Any) -> None:
            write_down("commit", messages)
            if how == "killed":
                os.kill(os.getpid(), signal.SIGKILL)
            raise OSError("the disk went away after the decision")

        def abort(self, messages: Any) -> None:
            write_down("abort", messages)

    class Source(DataSource):
        @classmethod
        def name(cls) -> str:
            return f"failing-{how}"

        def writer(self, schema: Any, overwrite: bool) -> DataSourceWriter:
            return Writer()

    return Source


@pytest.mark.parametrize("how", ["raises", "killed"])
def test_f11_after_a_failed_commit_spark_aborts_elsewhere_with_all_messages(
    spark: SparkSession, tmp_path: Path, how: str
) -> None:
    diary = tmp_path / "diary"
    spark.dataSource.register(failing_source(str(diary), how))
    rows = spark.range(30).repartition(PARTITIONS)
    with pytest.raises((PySparkException, Py4JJavaError)):
        rows.write.format(f"failing-{how}").mode("append").save()
    calls = [json.loads(line) for line in diary.read_text().splitlines()]
    assert [call["call"] for call in calls] == ["commit", "abort"]
    assert [call["told"] for call in calls] == [PARTITIONS, PARTITIONS]
    assert calls[0]["pid"] != calls[1]["pid"]
