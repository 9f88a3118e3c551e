"""A program for ``shared_classes``: do a little of what tests do with Spark, and end its JVM.

python spark_classes.py FOLDER
"""

import sys
from pathlib import Path

from pyspark import SparkContext

from mqlog_jobs.session import LOOPBACK, QUIET, session

SECONDS = 300


def main(folder: Path) -> None:
    own = {"spark.master": "local[2]", "spark.sql.shuffle.partitions": "2"}
    spark = session("spark classes", {**QUIET, **LOOPBACK, **own})
    store, copy = str(folder / "store"), str(folder / "copy")
    rows = spark.createDataFrame([("Topic", b"body")] * 4, "topic string, body binary")
    rows.write.format("mqlog").option("createStore", "true").mode("append").save(store)
    read = spark.read.format("mqlog").load(store)
    read.write.parquet(copy)
    spark.read.parquet(copy).groupBy("queueId").count().orderBy("count").toPandas()
    stream = spark.readStream.format("mqlog").load(store).writeStream
    stream = stream.format("parquet").option("checkpointLocation", str(folder / "checkpoint"))
    stream.trigger(availableNow=True).start(str(folder / "copied")).awaitTermination(SECONDS)
    process = SparkContext._gateway.proc  # type: ignore[union-attr]
    spark.stop()
    process.stdin.close()  # The JVM ends, and writes its archive.
    process.wait(SECONDS)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
