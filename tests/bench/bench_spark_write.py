"""Rows written through Spark: into a store, into Kafka, and into nothing.

    PYTHONPATH=tests python tests/bench/bench_spark_write.py [ROWS]

The rows (a key, a tag, a body of 1 KiB) lie in Spark's memory, in four partitions. ``mqlog``
makes a new store, with four queues, committed and synced; ``kafka`` sends them to a new topic
of four partitions, with the tag as a header (its broker syncs nothing); ``limit`` is a Python
sink that only counts. ``disk`` writes as many bytes as the store's CommitLog has, and syncs.
"""

import contextlib
import os
import shutil
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import pyspark
from pyspark.sql import DataFrame

from bench.nothing import CountingSink
from bench.peers import PeerMissingError, connector_version, kafka_broker, skip
from bench.rounds import Side, Timed, compare
from bench.spark import spark_session
from bench.written import BODY_BYTES, KafkaWrites, content, orders

QUEUES = 4
PIECE = bytes(1 << 20)


def main(rows: int) -> None:
    """Measure a write of that many rows."""
    with contextlib.ExitStack() as stack:
        spark = stack.enter_context(spark_session(kafka=True))
        spark.dataSource.register(CountingSink)
        home = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        frame = orders(spark, rows, QUEUES)
        writes = Writes(home, frame, rows)
        works: dict[str, Callable[[], Timed | int]] = {
            "mqlog": writes.mqlog,
            "limit": writes.limit,
            "disk": writes.disk,
        }
        checks = [writes.check]
        try:
            servers = stack.enter_context(kafka_broker(home, QUEUES))
        except PeerMissingError as missing:
            skip("kafka", str(missing))
        else:
            kafka = KafkaWrites(frame, rows, servers)
            works["kafka"] = kafka.write
            checks.append(kafka.check)
        compare(
            "spark write",
            f"{rows} rows",
            [Side(name, work, rows) for name, work in works.items()],
            bodyBytes=BODY_BYTES,
            queues=QUEUES,
            pyspark=pyspark.__version__,
            kafkaConnector=connector_version(),
        )
        for check in checks:
            check()


class Writes:
    """The same rows, written by each side."""

    def __init__(self, home: Path, frame: DataFrame, rows: int) -> None:
        self._store = home / "store"
        self._file = home / "file"
        self._frame = frame
        self._rows = rows

    def mqlog(self) -> Timed:
        """Write a new store."""
        shutil.rmtree(self._store, ignore_errors=True)
        begin = time.perf_counter()
        sink = self._frame.write.format("mqlog").mode("append").option("topic", "BENCH")
        sink.options(createStore=True, queueNums=QUEUES).save(str(self._store))
        return Timed(self._rows, time.perf_counter() - begin)

    def limit(self) -> int:
        """Hand the rows to Python."""
        sink = self._frame.write.format("counting").mode("append")
        sink.option("rows", self._rows).save()
        return self._rows

    def disk(self) -> Timed:
        """Write the bytes of the store's CommitLog."""
        size = sum(file.stat().st_blocks for file in (self._store / "commitlog").iterdir()) * 512
        self._file.unlink(missing_ok=True)
        begin = time.perf_counter()
        with self._file.open("wb", buffering=0) as file:
            for _ in range(-(-size // len(PIECE))):
                file.write(PIECE)
            os.fsync(file.fileno())
        return Timed(self._rows, time.perf_counter() - begin)

    def check(self) -> None:
        """Compare keys and bodies of the last store with the rows."""
        reader = self._frame.sparkSession.read.format("mqlog").option("columns", "keys,body")
        assert content(reader.load(str(self._store))) == content(self._frame)


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 1_000_000)
