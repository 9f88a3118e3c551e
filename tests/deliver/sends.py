"""Sends numbered batches of rows to a cluster: sends.py ADDRESS LOG STOP MASTER OPTIONS.

Each turn sends a batch exactly once to the topic Once and one at least once to the topic Least,
while a query sends to the topic Stream. It goes on where LOG and the checkpoint beside it say,
and ends when a file STOP is there. What fails is tried again, as a scheduler would.
"""

import json
import signal
import sys
from pathlib import Path
from typing import TextIO

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming import StreamingQuery

from mqlog_jobs.session import LOOPBACK, QUIET, session

ROWS = 40
TRIES = 20
LIFE_S = 3600  # whatever became of who started it
TOPICS = ("Once", "Least", "Stream")


def bodies(version: int) -> list[bytes]:
    """Return what a batch holds; each body is there twice."""
    return [b"%d/%d" % (version, n // 2) for n in range(ROWS)]


def saved(log: Path, topic: str) -> int:
    """Return how many batches were saved, as the log tells."""
    lines = log.read_text().splitlines() if log.exists() else []
    return sum(line == f"saved {topic}" for line in lines)


def main(address: str, log: Path, stop: Path, master: str, options: dict[str, str]) -> None:
    signal.alarm(LIFE_S)
    own = {"spark.master": master, "spark.executor.memory": "512m", "spark.log.level": "OFF"}
    spark = session("sends", {**QUIET, **LOOPBACK, **own})
    with log.open("a", buffering=1) as told:
        query: StreamingQuery | None = None
        while not stop.exists():
            if query is None or not query.isActive:
                query = _stream(spark, address, f"{log}-checkpoint", options)
            for topic in ("Once", "Least"):
                _save(_frame(spark, saved(log, topic)), f"{address}/{topic}", told, options)
        while query is not None and query.isActive and query.lastProgress is None:
            query.awaitTermination(0.05)
        if query is not None:
            query.stop()


def _frame(spark: SparkSession, version: int) -> DataFrame:
    """Return a batch in two partitions."""
    body = f"concat('{version}/', CAST(id DIV 2 AS STRING)) AS body"
    return spark.range(0, ROWS, 1, 2).selectExpr(body)


def _save(rows: DataFrame, path: str, told: TextIO, options: dict[str, str]) -> None:
    topic = path.rpartition("/")[2]
    writer = rows.write.format("mqlog").mode("append").option("batchMaxMessages", "5")
    version = saved(Path(told.name), topic)
    if topic == "Once":
        once = {"delivery": "exactlyOnce", "txnAppId": "sends", "txnVersion": str(version)}
        writer = writer.options(**once, fenceWait="500ms")
    for _ in range(TRIES):
        try:
            writer.options(**options).save(path)
        except Exception as error:  # noqa: BLE001 - Spark has many names for a worker that died
            told.write(f"failed {' '.join(str(error).split())[:600]}\n")
        else:
            told.write(f"saved {topic}\n")
            return
    sys.exit(f"{path} failed {TRIES} times")


def _stream(
    spark: SparkSession, address: str, checkpoint: str, options: dict[str, str]
) -> StreamingQuery:
    source = spark.readStream.format("rate-micro-batch").option("rowsPerBatch", ROWS)
    values = source.option("numPartitions", "2").load().selectExpr("CAST(value AS STRING) AS body")
    writer = values.writeStream.format("mqlog").option("fenceWait", "500ms").options(**options)
    writer = writer.option("batchMaxMessages", "5").option("checkpointLocation", checkpoint)
    return writer.trigger(processingTime="1 second").start(f"{address}/Stream")


if __name__ == "__main__":
    main(sys.argv[1], Path(sys.argv[2]), Path(sys.argv[3]), sys.argv[4], json.loads(sys.argv[5]))
