"""A query that copies a topic of a cluster to Parquet until it is killed.

python following.py ADDRESS TARGET BROKER_ADDRESSES
"""

import os
import sys

from pyspark.sql import SparkSession

import pyspark_mqlog


def main(address: str, target: str, broker_addresses: str) -> None:
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
        spark.readStream.schema("brokerName string, queueId int, queueOffset bigint, body binary")
        .format("mqlog")
        .option("startingOffsets", "earliest")
        .option("maxOffsetsPerTrigger", "5000")
        .option("brokerAddresses", broker_addresses)
        .load(address)
    )
    writer = rows.writeStream.format("parquet").option("path", f"{target}/rows")
    writer.option("checkpointLocation", f"{target}/checkpoint").start().awaitTermination()


if __name__ == "__main__":
    main(*sys.argv[1:])
