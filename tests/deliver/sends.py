"""Sends numbered batches of rows to a cluster: sends.py ADDRESS LOG STOP MASTER OPTIONS.

Each turn sends a batch exactly once to the topic Once and one at least once to the topic Least,
while a query sends to the topic Stream. It goes on where LOG and the checkpoint beside it say,
and ends when a file STOP is there. What fails is tried again, as a scheduler would. LOG has a line
for each step, with its time if it is no ``saved``.
"""

import json
import signal
import sys
import time
from pathlib import Path
from typing import TextIO

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming import StreamingQuery

from mqlog_jobs.machine.session import LOOPBACK, QUIET, session

ROWS = 40
FENCE = "500ms"
TRIES = 20
LIFE_S = 6 * 3600  # whatever became of who started it
END_S = 300
TOPICS = ("Once", "Least", "Stream")


def bodies(version: int) -> list[bytes]:
    """Return what a batch holds; each body is there twice."""
    return [b"%d/%d" % (version, n // 2) for n in range(ROWS)]


def saved(log: Path, topic: str) -> int:
    """Return how many batches were saved, as the log tells."""
    lines = log.read_text(encoding="utf-8").splitlines() if log.exists() else []
    return sum(line == f"saved {topic}" for line in lines)


def main(address: str, log: Path, stop: Path, master: str, options: dict[str, str]) -> None:
    signal.alarm(LIFE_S)
    own = {"spark.master": master, "spark.executor.memory": "512m"}
    spark = session("sends", {**QUIET, **LOOPBACK, **own})
    with log.open("a", encoding="utf-8", buffering=1) as told:
        query = _Query(spark, address, f"{log}-checkpoint", told, options)
        while not stop.exists():
            query.keep()
            for topic in ("Once", "Least"):
                _save(_frame(spark, saved(log, topic)), f"{address}/{topic}", told, options)
        query.end()


class _Query:
    """The query, which is started again whenever it failed."""

    def __init__(
        self,
        spark: SparkSession,
        address: str,
        checkpoint: str,
        told: TextIO,
        options: dict[str, str],
    ) -> None:
        source = spark.readStream.format("rate-micro-batch").option("rowsPerBatch", ROWS)
        values = source.option("numPartitions", "2").load()
        writer = values.selectExpr("CAST(value AS STRING) AS body").writeStream.format("mqlog")
        writer = writer.option("fenceWait", FENCE).option("batchMaxMessages", "5")
        writer = writer.options(**options).option("checkpointLocation", checkpoint)
        self._writer = writer.trigger(processingTime="1 second")
        self._path = f"{address}/Stream"
        self._told = told
        self._running: StreamingQuery | None = None

    def keep(self) -> None:
        """Start it, if it does not run."""
        if self._running is not None and self._running.isActive:
            return
        if self._running is not None:
            _tell(self._told, f"failed Stream: {self._running.exception()}")
            self._running = None
        _tell(self._told, "start Stream")
        try:
            self._running = self._writer.start(self._path)
        except Exception as error:  # noqa: BLE001 - as in _save
            _tell(self._told, f"failed to start Stream: {error}")

    def end(self) -> None:
        """Stop it behind a batch."""
        _tell(self._told, "end")
        last = time.monotonic() + END_S
        while self._running is None or self._running.lastProgress is None:
            assert time.monotonic() < last, "the query does nothing"
            self.keep()
            time.sleep(0.05)
        self._running.stop()


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
        writer = writer.options(**once, fenceWait=FENCE)
    for turn in range(TRIES):
        _tell(told, f"send {topic} {version}, try {turn}")
        try:
            writer.options(**options).save(path)
        except Exception as error:  # noqa: BLE001 - Spark has many names for a worker that died
            _tell(told, f"failed {topic} {version}: {error}")
        else:
            told.write(f"saved {topic}\n")
            return
    sys.exit(f"{path} failed {TRIES} times")


def _tell(told: TextIO, words: str) -> None:
    told.write(f"{time.strftime('%H:%M:%S')} {' '.join(words.split())[:600]}\n")


if __name__ == "__main__":
    main(sys.argv[1], Path(sys.argv[2]), Path(sys.argv[3]), sys.argv[4], json.loads(sys.argv[5]))
