"""Keep a Parquet copy of a topic up to date: each run adds what is new, and only that.

    spark-submit examples/store_to_parquet.py /data/broker-a/store orders /data/lake/orders

The broker may be running. Every message is copied once: the checkpoint beside the copy says how
far the last run came, and Parquet's own log which files count. Delete both to start again.
"""

import sys

from pyspark.sql import SparkSession

import pyspark_mqlog


def copy(spark: SparkSession, store: str, topic: str, target: str) -> int:
    """Append what is new of the topic to ``target/rows``; return how many messages that was."""
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
    """Run the copy that the command line asks for."""
    store, topic, target = sys.argv[1:]
    spark = SparkSession.builder.appName("store_to_parquet").getOrCreate()
    pyspark_mqlog.register(spark)
    sys.stdout.write(f"{copy(spark, store, topic, target)} new messages\n")
    spark.stop()


if __name__ == "__main__":
    main()
