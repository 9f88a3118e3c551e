"""A query that copies the messages of a store or a cluster to Parquet until it is killed.

python copied_query.py PLACE TARGET SCHEMA OPTIONS, with the options of the read as JSON.
"""

import json
import os
import sys

from pyspark.sql import SparkSession

import pyspark_mqlog


def main(place: str, target: str, schema: str, options: str) -> None:
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
    reader = spark.readStream.schema(schema).format("mqlog")
    reader = reader.option("startingOffsets", "earliest").options(**json.loads(options))
    rows = reader.load(place)
    writer = rows.writeStream.format("parquet").option("path", f"{target}/rows")
    writer.option("checkpointLocation", f"{target}/checkpoint").start().awaitTermination()


if __name__ == "__main__":
    main(*sys.argv[1:])
