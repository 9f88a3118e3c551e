"""Rows written through Spark: into a store, into Kafka, and into nothing.

    python -m benchmarks spark_write

The rows (a key, a tag, a body of 1 KiB) lie in Spark's memory, in four partitions. ``mqlog``
makes a new store, with four queues, committed and synced; ``kafka`` sends them to a new topic
of four partitions, with the tag as a header (its broker syncs nothing); ``limit`` is a Python
sink that only counts. ``disk`` writes as many bytes as the store's CommitLog has, and syncs.
``mqlog 500`` and ``limit 500`` are the same with Arrow batches of 500 rows and no bound of bytes.

``parts`` are CPU microseconds a row, the medians of the rounds: of Spark's JVM (which has Kafka's
connector in it), of Kafka's broker, and of our sink's steps: ``receive`` the Arrow batches,
``stage`` them, ``commit``; ``python`` is all else in Python's processes.
"""

import contextlib
import os
import shutil
import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path

import pyspark
from pyspark.sql import DataFrame

from benchmarks.facts import cpu_by_kind
from benchmarks.nothing import CountingSink
from benchmarks.peers import PeerMissingError, connector_version, kafka_broker, skip
from benchmarks.rounds import Side, Timed, compare
from benchmarks.spark import defaults, spark_session
from benchmarks.timed_sink import TimedSink, taken
from benchmarks.written import BODY_BYTES, KafkaWrites, content, orders

QUEUES = 4
PIECE = bytes(1 << 20)
ROWS_AT_A_TIME = "spark.sql.execution.arrow.maxRecordsPerBatch"
BYTES_AT_A_TIME = "spark.sql.execution.arrow.maxBytesPerBatch"
SMALL_BATCHES = {ROWS_AT_A_TIME: "500", BYTES_AT_A_TIME: str(2**31 - 1)}


def main(rows: int) -> None:
    """Measure a write of that many rows."""
    with contextlib.ExitStack() as stack:
        spark = stack.enter_context(spark_session(kafka=True))
        spark.dataSource.register(CountingSink)
        spark.dataSource.register(TimedSink)
        home = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        frame = orders(spark, rows, QUEUES)
        writes = Writes(home, frame, rows)
        works: dict[str, Callable[[], Timed | int]] = {
            "mqlog": writes.mqlog,
            "limit": writes.limit,
            "mqlog 500": partial(writes.in_batches, SMALL_BATCHES, writes.mqlog),
            "limit 500": partial(writes.in_batches, SMALL_BATCHES, writes.limit),
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
        parts = Parts(rows, writes)
        compare(
            "spark write",
            f"{rows} rows",
            [Side(name, partial(parts.of, name, work), rows) for name, work in works.items()],
            found=lambda: {"parts": parts.medians()},
            bodyBytes=BODY_BYTES,
            queues=QUEUES,
            pyspark=pyspark.__version__,
            kafkaConnector=connector_version(),
        )
        for check in checks:
            check()


class Parts:
    """Which processes and steps worked for each side, round by round."""

    def __init__(self, rows: int, writes: "Writes") -> None:
        self._rows = rows
        self._writes = writes
        self._rounds: dict[str, list[dict[str, float]]] = {}

    def of(self, name: str, work: Callable[[], Timed | int]) -> Timed | int:
        """Return what ``work`` does, and keep who worked for it."""
        before = cpu_by_kind()
        done = work()
        seconds = {kind: now - before[kind] for kind, now in cpu_by_kind().items()}
        steps = self._writes.steps()
        seconds["python"] += seconds.pop("driver") - sum(steps.values())
        self._rounds.setdefault(name, []).append(seconds | steps)
        return done

    def medians(self) -> dict[str, dict[str, float]]:
        """Return CPU microseconds a row of each side, without its first round."""
        return {
            name: {
                part: round(statistics.median(one[part] for one in rounds) / self._rows * 1e6, 2)
                for part in rounds[0]
            }
            for name, (_, *rounds) in self._rounds.items()
        }


class Writes:
    """The same rows, written by each side."""

    def __init__(self, home: Path, frame: DataFrame, rows: int) -> None:
        self._steps: dict[str, float] = {}
        self._store = home / "store"
        self._file = home / "file"
        self._frame = frame
        self._rows = rows

    def mqlog(self) -> Timed:
        """Write a new store."""
        shutil.rmtree(self._store, ignore_errors=True)
        begin = time.perf_counter()
        sink = self._frame.write.format("timed").mode("append").option("topic", "BENCH")
        sink.options(createStore=True, queueNums=QUEUES).save(str(self._store))
        seconds = time.perf_counter() - begin
        self._steps = taken(self._store)
        return Timed(self._rows, seconds)

    def steps(self) -> dict[str, float]:
        """Return the CPU seconds of the steps of the write that just ended, if it was ours."""
        steps, self._steps = self._steps, {}
        return steps

    def in_batches(self, settings: dict[str, str], work: Callable[[], Timed | int]) -> Timed | int:
        """Return what ``work`` does with Arrow batches by those settings."""
        conf = self._frame.sparkSession.conf
        for name, value in settings.items():
            conf.set(name, value)
        try:
            return work()
        finally:
            for name in settings:
                conf.set(name, defaults()[name])

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
