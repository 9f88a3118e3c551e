"""The driver of a cluster: python -m workers.driver MASTER CORES, a line of JSON for each act.

An answer is a line of JSON with the rows, or with the error as Spark shows it to a user.
"""

import hashlib
import json
import sys
import time
from collections.abc import Callable
from typing import Any

from pyspark.sql import DataFrame, SparkSession

import pyspark_mqlog
from pyspark_mqlog.datasource import MqlogDataSource

IDENTITY = ("topic", "queueId", "queueOffset", "body")


def session(master: str, cores: int) -> SparkSession:
    """Start a session whose tasks fail at once, so that an act ends within seconds."""
    built = (
        SparkSession.builder.master(master)
        .appName("workers")
        .config("spark.driver.host", "127.0.0.1")
        .config("spark.driver.bindAddress", "127.0.0.1")
        .config("spark.ui.enabled", "false")
        .config("spark.executor.memory", "512m")
        .config("spark.cores.max", str(cores))
        .config("spark.default.parallelism", str(cores))
        .config("spark.task.maxFailures", "1")
        .config("spark.python.worker.reuse", "false")
        .config("spark.scheduler.minRegisteredResourcesRatio", "1.0")
        .config("spark.scheduler.maxRegisteredResourcesWaitingTime", "60s")
        .getOrCreate()
    )
    built.dataSource.register(MqlogDataSource)
    return built


def rows_of(frame: DataFrame) -> list[list[Any]]:
    """Return topic, queue, offset and the digest of the body of each row, in order."""
    rows = frame.select(*IDENTITY).collect()
    return sorted(
        [row.topic, row.queueId, row.queueOffset, hashlib.sha256(row.body).hexdigest()]
        for row in rows
    )


class Acts:
    """What a driver can be asked for."""

    def __init__(self, spark: SparkSession) -> None:
        self._spark = spark

    def read(self, place: str, options: dict[str, str]) -> Any:
        """Read by the source."""
        return rows_of(self._spark.read.format("mqlog").options(**options).load(place))

    def function(self, place: str, options: dict[str, Any]) -> Any:
        """Read by ``pyspark_mqlog.read``."""
        return rows_of(pyspark_mqlog.read(self._spark, place, **options))

    def table(self, place: str, table: str, options: dict[str, str]) -> Any:
        """Read a table."""
        frame = self._spark.read.format("mqlog").options(**options, table=table).load(place)
        return sorted(map(str, frame.collect()))

    def stream(self, place: str, options: dict[str, str], name: str, checkpoint: str) -> Any:
        """Read all that there is by a stream."""
        query = (
            self._spark.readStream.format("mqlog")
            .options(**options, startingOffsets="earliest")
            .load(place)
            .writeStream.format("memory")
            .queryName(name)
            .option("checkpointLocation", checkpoint)
            .trigger(availableNow=True)
            .start()
        )
        query.awaitTermination()
        return rows_of(self._spark.table(name))

    def write(self, place: str, rows: int, options: dict[str, str]) -> Any:
        """Write rows, their bodies the numbers from 0, by the source."""
        frame = self._numbers(rows)
        frame.write.format("mqlog").mode("append").options(**options).save(place)
        return rows

    def write_function(self, place: str, rows: int, options: dict[str, Any]) -> Any:
        """Write rows by ``pyspark_mqlog.write``."""
        return pyspark_mqlog.write(self._numbers(rows), place, **options).messages

    def _numbers(self, rows: int) -> DataFrame:
        cores = self._spark.sparkContext.defaultParallelism
        return self._spark.range(0, rows, 1, cores).selectExpr(
            "'WRITTEN' AS topic", "encode(string(id), 'UTF-8') AS body"
        )


def main(master: str, cores: str) -> None:
    """Answer each line of standard input until it ends."""
    acts = Acts(session(master, int(cores)))
    for line in sys.stdin:
        asked = json.loads(line)
        act: Callable[..., Any] = getattr(acts, asked.pop("act"))
        began = time.monotonic()
        try:
            answer = {"rows": act(**asked)}
        except Exception as error:  # noqa: BLE001 - whatever a user would see
            answer = {"error": str(error)}
        answer["seconds"] = round(time.monotonic() - began, 1)
        print(json.dumps({"answer": answer}), flush=True)  # noqa: T201


if __name__ == "__main__":
    main(*sys.argv[1:])
