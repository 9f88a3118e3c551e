"""A program for ``shared_classes``: do a little of what tests do with Spark, and end its JVM.

python spark_classes.py FOLDER
"""

import sys
from pathlib import Path

from pyspark import SparkContext
from pyspark.sql import SparkSession

SECONDS = 300


def main(folder: Path) -> None:
    session = (
        SparkSession.builder.master("local[2]")
        .config("spark.ui.enabled", "false")
        .config("spark.driver.host", "127.0.0.1")
        .config("spark.driver.bindAddress", "127.0.0.1")
        .config("spark.sql.shuffle.partitions", "2")
        .config("spark.log.level", "OFF")
        .getOrCreate()
    )
    store, copy = str(folder / "store"), str(folder / "copy")
    rows = session.createDataFrame([("Topic", b"body")] * 4, "topic string, body binary")
    rows.write.format("mqlog").option("createStore", "true").mode("append").save(store)
    read = session.read.format("mqlog").load(store)
    read.write.parquet(copy)
    session.read.parquet(copy).groupBy("queueId").count().orderBy("count").toPandas()
    stream = session.readStream.format("mqlog").load(store).writeStream
    stream = stream.format("parquet").option("checkpointLocation", str(folder / "checkpoint"))
    stream.trigger(availableNow=True).start(str(folder / "copied")).awaitTermination(SECONDS)
    process = SparkContext._gateway.proc  # type: ignore[union-attr]
    session.stop()
    process.stdin.close()  # The JVM ends, and writes its archive.
    process.wait(SECONDS)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
