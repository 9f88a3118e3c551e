"""Write a stream of messages into a store, once each, and read them back by a second query.

    spark-submit examples/rate_to_store.py /data/new/store /data/rates 30

No broker may have the store open meanwhile; a broker that opens it later serves the messages.
The script may be killed at any moment and started again: each query continues from its checkpoint,
below the second argument, and every message is in the store once and in the copy once. It ends
after the number of seconds in the third argument.
"""

import sys

from pyspark.sql import SparkSession
from pyspark.sql.streaming import StreamingQuery

import pyspark_mqlog

TOPIC = "RATES"


def write(spark: SparkSession, store: str, target: str, rows_per_second: int) -> StreamingQuery:
    """Start the query that writes; it creates the store if there is none."""
    messages = (
        spark.readStream.format("rate")
        .option("rowsPerSecond", rows_per_second)
        .load()
        .selectExpr(
            "to_json(named_struct('value', value, 'timestamp', timestamp)) AS body",
            "CAST(value AS STRING) AS keys",
            "IF(value % 2 = 0, 'even', 'odd') AS tags",
        )
    )
    return (
        messages.writeStream.format("mqlog")
        .option("topic", TOPIC)
        .option("createStore", "true")
        .option("checkpointLocation", f"{target}/write-checkpoint")
        .trigger(processingTime="1 second")
        .start(store)
    )


def read_back(spark: SparkSession, store: str, target: str) -> StreamingQuery:
    """Copy new messages of the store to ``target/rows``, and stop."""
    messages = (
        spark.readStream.format("mqlog")
        .option("subscribe", TOPIC)
        .option("startingOffsets", "earliest")
        .load(store)
    )
    return (
        messages.selectExpr(
            "queueId", "queueOffset", "keys", "tags", "CAST(body AS STRING) AS body"
        )
        .writeStream.format("parquet")
        .option("path", f"{target}/rows")
        .option("checkpointLocation", f"{target}/read-checkpoint")
        .trigger(availableNow=True)
        .start()
    )


def main() -> None:
    """Run both queries, the first for the seconds on the command line."""
    store, target, seconds = sys.argv[1:]
    spark = SparkSession.builder.appName("rate_to_store").getOrCreate()
    pyspark_mqlog.register(spark)
    writing = write(spark, store, target, rows_per_second=100)
    writing.awaitTermination(int(seconds))
    writing.stop()
    read_back(spark, store, target).awaitTermination()
    rows = spark.read.parquet(f"{target}/rows")
    keys = rows.select("keys").distinct().count()
    sys.stdout.write(f"{rows.count()} messages, {keys} different keys\n")
    spark.stop()


if __name__ == "__main__":
    main()
