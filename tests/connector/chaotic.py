"""One of two queries over one store, until it is killed.

python chaotic.py write|tail STORE TARGET SECONDS

Its batches begin so many seconds after another, or at once with 0.

`write` writes the numbers from 0 on, ROWS a batch, odd ones to queue 1. `tail` copies what is in
the store to TARGET/rows. The tests end the same queries in a session of their own.
"""

import signal
import sys

from pyspark.sql import SparkSession
from pyspark.sql.streaming import DataStreamWriter

from mqlog_jobs.machine.session import LOOPBACK, QUIET, session

ROWS = 20
LIFE_S = 3600  # whatever became of who started it
STORE = {
    "topic": "NUMBERS",
    "createStore": "true",
    "queueNums": "2",
    "mappedFileSizeCommitLog": "32k",
    "mappedFileSizeConsumeQueue": "2000",
    "maxHashSlotNum": "13",
    "maxIndexNum": "200",
}


def written(spark: SparkSession, target: str) -> DataStreamWriter:
    """Return the query that writes; its batches are the same when they are run again."""
    source = spark.readStream.format("rate-micro-batch").option("rowsPerBatch", ROWS)
    numbers = source.option("numPartitions", 2).load()
    columns = ("CAST(value AS STRING) AS body", "CAST(value % 2 AS INT) AS queueId")
    writer = numbers.selectExpr(*columns).writeStream.format("mqlog").options(**STORE)
    return writer.option("checkpointLocation", f"{target}/checkpoint")


def tailed(spark: SparkSession, store: str, target: str) -> DataStreamWriter:
    """Return the query that follows the store."""
    rows = (
        spark.readStream.schema("queueId int, queueOffset bigint, body binary")
        .format("mqlog")
        .option("startingOffsets", "earliest")
        .option("maxOffsetsPerTrigger", "50")
        .load(store)
    )
    writer = rows.writeStream.format("parquet").option("path", f"{target}/rows")
    return writer.option("checkpointLocation", f"{target}/checkpoint")


def main(what: str, store: str, target: str, seconds: str) -> None:
    signal.alarm(LIFE_S)
    spark = session(f"chaotic {what}", {**QUIET, **LOOPBACK, "spark.master": "local[2]"})
    query = written(spark, target) if what == "write" else tailed(spark, store, target)
    query = query.trigger(processingTime=f"{seconds} seconds")
    query.start(store if what == "write" else None).awaitTermination()


if __name__ == "__main__":
    main(*sys.argv[1:])
