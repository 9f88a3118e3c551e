"""A query that copies a store to Parquet until it is killed: python followed.py STORE TARGET."""

import os
import sys

from pyspark.sql import SparkSession

import pyspark_mqlog


def main(store: str, target: str) -> None:
    os.environ["PYSPARK_PYTHON"] = sys.executable
    os.environ["SPARK_LOCAL_IP"] = "127.0.0.1"
    spark = (
        SparkSession.builder.master("local[2]")
        .config("spark.ui.enabled", "false")
        .config("spark.driver.host", "127.0.0.1")
        .config("spark.log.level", "ERROR")
        .getOrCreate()
    )
    pyspark_mqlog.register(spark)
    rows = (
        spark.readStream.schema("topic string, queueId int, queueOffset bigint")
        .format("mqlog")
        .option("startingOffsets", "earliest")
        .option("maxOffsetsPerTrigger", "20")
        .load(store)
    )
    writer = rows.writeStream.format("parquet").option("path", f"{target}/rows")
    writer.option("checkpointLocation", f"{target}/checkpoint").start().awaitTermination()


if __name__ == "__main__":
    main(*sys.argv[1:])
