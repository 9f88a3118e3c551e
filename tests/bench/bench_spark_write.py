"""Rows written through Spark: into a store, into Kafka, and into nothing.

    PYTHONPATH=tests python tests/bench/bench_spark_write.py [ROWS]

The rows (a key, a tag, a body of 1 KiB) lie in Spark's memory, in four partitions. ``mqlog``
makes a new store, with four queues, committed and synced; ``kafka`` sends them to a new topic
of four partitions, with the tag as a header (its broker syncs nothing); ``limit`` is a Python
sink that only counts. ``disk`` writes as many bytes as the store's CommitLog has, and syncs.
"""

import contextlib
import itertools
import os
import shutil
import sys
import tempfile
import time
from pathlib import Path

import pyspark
from pyspark.sql import DataFrame
from pyspark.sql import functions as F  # noqa: N812

from bench.nothing import CountingSink
from bench.peers import PeerMissingError, connector_version, kafka_broker, skip
from bench.rounds import Side, Timed, compare
from bench.spark import spark_session

QUEUES = 4
PIECE = bytes(1 << 20)


def main(rows: int) -> None:
    """Measure a write of that many rows."""
    with contextlib.ExitStack() as stack:
        spark = stack.enter_context(spark_session(kafka=True))
        spark.dataSource.register(CountingSink)
        home = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        text = F.sha2(F.col("id").cast("string"), 256)
        frame = spark.range(rows, numPartitions=QUEUES).select(
            F.concat(F.lit("order-"), F.col("id")).alias("keys"),
            F.concat(F.lit("Tag"), F.col("id") % 3).alias("tags"),
            F.repeat(text, 16).cast("binary").alias("body"),
        )
        frame = frame.cache()
        frame.count()
        writes = Writes(home, frame, rows)
        works = {"mqlog": writes.mqlog, "limit": writes.limit, "disk": writes.disk}
        try:
            writes.servers = stack.enter_context(kafka_broker(home, QUEUES))
            works["kafka"] = writes.kafka
        except PeerMissingError as missing:
            skip("kafka", str(missing))
        compare(
            "spark write",
            f"{rows} rows",
            [Side(name, work, rows) for name, work in works.items()],
            bodyBytes=1024,
            queues=QUEUES,
            pyspark=pyspark.__version__,
            kafkaConnector=connector_version(),
        )
        writes.check()


class Writes:
    """The same rows, written by each side."""

    def __init__(self, home: Path, frame: DataFrame, rows: int) -> None:
        self._store = home / "store"
        self._file = home / "file"
        self._frame = frame
        self._rows = rows
        self._topics = (f"w{number}" for number in itertools.count())
        self._last = ""
        self.servers = ""

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

    def kafka(self) -> int:
        """Write a new topic."""
        self._last = next(self._topics)
        header = F.struct(F.lit("TAGS").alias("key"), F.col("tags").cast("binary").alias("value"))
        messages = self._frame.select(
            F.col("keys").alias("key"),
            F.col("body").alias("value"),
            F.array(header).alias("headers"),
        )
        sink = messages.write.format("kafka").option("kafka.bootstrap.servers", self.servers)
        sink.options(topic=self._last, includeHeaders="true").save()
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
        """Compare keys and bodies of the last store and the last topic with the rows."""
        spark = self._frame.sparkSession
        row = F.sum(F.xxhash64("keys", "body").cast("decimal(38,0)"))
        expected = self._frame.agg(F.count("*"), row).first()
        stored = spark.read.format("mqlog").option("columns", "keys,body").load(str(self._store))
        assert stored.agg(F.count("*"), row).first() == expected
        if self.servers:
            source = spark.read.format("kafka").option("kafka.bootstrap.servers", self.servers)
            sent = source.option("subscribe", self._last).load()
            sent = sent.select(F.col("key").cast("string").alias("keys"), sent.value.alias("body"))
            assert sent.agg(F.count("*"), row).first() == expected


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 1_000_000)
