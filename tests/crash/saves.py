"""Saves numbered batches of rows to a store: spark-submit saves.py batch|stream STORE LOG STOP.

It goes on where LOG or the checkpoint beside it says, and ends when a file STOP is there. A save
that fails is tried again, as a scheduler would, with the same txnAppId and txnVersion; a query
that fails is started again from its checkpoint.
"""

import signal
import sys
from pathlib import Path
from typing import TextIO

from pyspark.sql import DataFrame, SparkSession

import pyspark_mqlog

ROWS = 60
QUEUES = 2
APP_ID = "killed-saves"
TRIES = 20
LIFE_S = 3600  # whatever became of who started it
OPTIONS = {
    "topic": "SAVED",
    "createStore": "true",
    "queueNums": str(QUEUES),
    "mappedFileSizeCommitLog": "16k",
    "mappedFileSizeConsumeQueue": "400",
    "maxHashSlotNum": "13",
    "maxIndexNum": "100",
    "batchMaxMessages": "7",
    "lockTimeout": "60s",
}
_COLUMNS = (
    "CAST(value AS STRING) AS body",
    f"CAST(value % {QUEUES} AS INT) AS queueId",
    "CONCAT('k', value) AS keys",
)


def numbers(version: int) -> range:
    """Return what a batch holds: number n goes to queue n modulo QUEUES."""
    return range(version * ROWS, (version + 1) * ROWS)


def saved(log: Path) -> list[int]:
    """Return the batches that were saved, as the log tells."""
    if not log.exists():
        return []
    return [
        int(line.split()[1])
        for line in log.read_text(encoding="utf-8").splitlines()
        if line[:5] == "saved"
    ]


def main(what: str, store: str, log: Path, stop: Path) -> None:
    signal.alarm(LIFE_S)
    spark = SparkSession.builder.getOrCreate()
    pyspark_mqlog.register(spark)
    with log.open("a", encoding="utf-8", buffering=1) as told:
        if what == "stream":
            _stream(spark, store, stop, told)
        else:
            _batches(spark, store, stop, told)


def _batches(spark: SparkSession, store: str, stop: Path, told: TextIO) -> None:
    version = len(saved(Path(told.name)))
    while not stop.exists():
        _save(_frame(spark, version), store, version, told)
        version += 1


def _frame(spark: SparkSession, version: int) -> DataFrame:
    """Return a batch in two partitions, one for each queue."""
    values = numbers(version)
    parts = [spark.range(values.start + n, values.stop, QUEUES, 1) for n in range(QUEUES)]
    return parts[0].union(parts[1]).selectExpr("id AS value").selectExpr(*_COLUMNS)


def _save(rows: DataFrame, store: str, version: int, told: TextIO) -> None:
    writer = rows.write.format("mqlog").mode("append").options(**OPTIONS)
    writer = writer.option("txnAppId", APP_ID).option("txnVersion", version)
    for _ in range(TRIES):
        try:
            writer.save(store)
        except Exception as error:  # noqa: BLE001 - Spark has many names for a worker that died
            _fail(error, told)
        else:
            told.write(f"saved {version}\n")
            return
    sys.exit(f"batch {version} failed {TRIES} times")


def _stream(spark: SparkSession, store: str, stop: Path, told: TextIO) -> None:
    source = spark.readStream.format("rate-micro-batch").option("rowsPerBatch", ROWS)
    values = source.option("numPartitions", QUEUES).load().selectExpr(*_COLUMNS)
    writer = values.writeStream.format("mqlog").options(**OPTIONS)
    writer = writer.option("checkpointLocation", f"{told.name}-checkpoint")
    done = len(saved(Path(told.name)))
    while not stop.exists():
        query = writer.start(store)
        try:
            while not (stop.exists() or query.awaitTermination(0.05)):
                last = query.lastProgress
                for version in range(done, last.batchId + 1 if last and last.numInputRows else 0):
                    told.write(f"saved {version}\n")
                    done = version + 1
        except Exception as error:  # noqa: BLE001 - as above
            _fail(error, told)
        finally:
            query.stop()


def _fail(error: Exception, told: TextIO) -> None:
    told.write(f"failed {' '.join(str(error).split())[:600]}\n")


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], Path(sys.argv[3]), Path(sys.argv[4]))
