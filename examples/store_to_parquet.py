"""Keep a Parquet copy of a topic up to date: each run adds the new messages.

    spark-submit examples/store_to_parquet.py /data/broker-a/store orders /data/lake/orders

The broker may be running. Every message is copied once: the checkpoint beside the copy has the
offsets of the last run, and Parquet's own log the files that count. Delete both to start again.
"""

import sys

from pyspark.sql import SparkSession

import pyspark_mqlog


def copy(spark: SparkSession, store: str, topic: str, target: str) -> int:
    """Append new messages of the topic to ``target/rows``; return their number."""
    messages = (
        spark.readStream.format("mqlog")
        .option("subscribe", topic)
        .option("startingOffsets", "earliest")
        .option("maxBytesPerTrigger", "1g")
        .load(store)
    )
    query = (
        messages.writeStream.format("parquet")
        .option("path", f"{target}/rows")
        .option("checkpointLocation", f"{target}/checkpoint")
        .trigger(availableNow=True)
        .start()
    )
    query.awaitTermination()
    return sum(progress.numInputRows for progress in query.recentProgress)


def main() -> None:
    """Copy the topic of the store that the command line names."""
    store, topic, target = sys.argv[1:]
    spark = SparkSession.builder.appName("store_to_parquet").getOrCreate()
    pyspark_mqlog.register(spark)
    sys.stdout.write(f"{copy(spark, store, topic, target)} new messages\n")
    spark.stop()


if __name__ == "__main__":
    main()
