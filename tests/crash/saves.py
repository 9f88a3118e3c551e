"""Saves numbered batches of rows to a store: spark-submit saves.py STORE LOG STOP.

It begins with the first batch of which LOG does not say that it was saved, and ends when a file
STOP is there. A save that fails is tried again, as a scheduler would, with the same txnAppId and
txnVersion.
"""

import sys
from pathlib import Path
from typing import TextIO

from pyspark.sql import DataFrame, SparkSession

import pyspark_mqlog

ROWS = 60
QUEUES = 3
APP_ID = "killed-saves"
TRIES = 20
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


def bodies(version: int) -> list[bytes]:
    """Return the rows of a batch, in order; row n goes to queue n modulo QUEUES."""
    return [b"%d.%d" % (version, n) for n in range(ROWS)]


def frame(spark: SparkSession, version: int) -> DataFrame:
    """Return the same rows, in two partitions."""
    columns = (
        f"CAST(CONCAT('{version}.', id) AS BINARY) AS body",
        f"CAST(id % {QUEUES} AS INT) AS queueId",
        f"CONCAT('k{version}-', id) AS keys",
    )
    return spark.range(0, ROWS, 1, 2).selectExpr(*columns)


def saved(log: Path) -> list[int]:
    """Return the batches that were saved, as the log tells."""
    if not log.exists():
        return []
    return [int(line.split()[1]) for line in log.read_text().splitlines() if line[:5] == "saved"]


def main(store: str, log: Path, stop: Path) -> None:
    spark = SparkSession.builder.getOrCreate()
    pyspark_mqlog.register(spark)
    version = len(saved(log))
    with log.open("a", buffering=1) as told:
        while not stop.exists():
            _save(spark, store, version, told)
            version += 1


def _save(spark: SparkSession, store: str, version: int, told: TextIO) -> None:
    writer = frame(spark, version).write.format("mqlog").mode("append").options(**OPTIONS)
    writer = writer.option("txnAppId", APP_ID).option("txnVersion", version)
    for number in range(TRIES):
        try:
            writer.save(store)
        except Exception as error:  # noqa: BLE001 - Spark has many names for a worker that died
            why = " ".join(str(error).split())[:600]
            told.write(f"failed {version} {number} {why}\n")
        else:
            told.write(f"saved {version}\n")
            return
    sys.exit(f"batch {version} failed {TRIES} times")


if __name__ == "__main__":
    main(sys.argv[1], Path(sys.argv[2]), Path(sys.argv[3]))
