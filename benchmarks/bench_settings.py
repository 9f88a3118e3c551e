"""What settings gain: of Spark, one session each, and of a read; in alternating runs.

    python -m benchmarks settings

Messages of 1 KiB, ``standard`` columns, to Spark's noop sink. ``sessions`` compares sessions
that differ in one setting from conf/spark-defaults.conf (``base``), each in processes of its
own. ``options`` compares options of a read, ``write`` the most bytes of the Arrow batches that a
sink is handed (a batch has 10,000 rows at most), each within one session.
"""

import multiprocessing
import shutil
import sys
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from functools import partial
from multiprocessing.connection import Connection
from pathlib import Path

import pyspark
from pyspark.sql import SparkSession
from pyspark.sql import functions as F  # noqa: N812

from benchmarks.laid_out import Shape, lay_out
from benchmarks.nothing import CountingSink
from benchmarks.rounds import Side, compare
from benchmarks.spark import spark_session, to_noop

QUEUES = 4
READ_SECONDS = 300
SESSIONS = {
    "base": {},
    "loopback TCP": {"spark.python.unix.domain.socket.enabled": "false"},
    "new workers": {"spark.python.worker.reuse": "false"},
    "buffer 1m": {"spark.buffer.size": "1048576"},
}
OPTIONS = {
    "base": {},
    "mmap": {"readMode": "mmap"},
    "batchBytes 1m": {"batchBytes": "1m"},
    "batchBytes 8m": {"batchBytes": "8m"},
    "batchBytes 16m": {"batchBytes": "16m"},
    "maxBytesPerPartition 32m": {"maxBytesPerPartition": "32m"},
    "maxBytesPerPartition 1g": {"maxBytesPerPartition": "1g"},
    "verifyCrc false": {"verifyCrc": "false"},
}
ARROW = ("64m", "8m", "4m", "2m", "1m", "512k")


def main(count: int) -> None:
    """Measure the three."""
    with tempfile.TemporaryDirectory() as directory:
        root = Path(directory)
        shape = Shape(count, 1024, QUEUES)
        lay_out(root, shape)
        rows = shape.each * QUEUES
        with ExitStack() as stack:
            sides = [
                Side(name, stack.enter_context(_elsewhere(settings, root, rows)), rows)
                for name, settings in SESSIONS.items()
            ]
            compare("settings", "sessions", sides, bodyBytes=1024, pyspark=pyspark.__version__)
        with spark_session() as spark:
            sides = [
                Side(name, partial(_read, spark, root, options, rows), rows)
                for name, options in OPTIONS.items()
            ]
            compare("settings", "options", sides, bodyBytes=1024, pyspark=pyspark.__version__)
            spark.dataSource.register(CountingSink)
            _arrow(spark, root / "written", rows)


def _read(spark: SparkSession, root: Path, options: dict[str, str], rows: int) -> int:
    to_noop(spark.read.format("mqlog").options(**options).load(str(root)))
    return rows


def _arrow(spark: SparkSession, home: Path, rows: int) -> None:
    """Vary the Arrow batches of a write, into a sink that only counts and into a store."""
    text = F.sha2(F.col("id").cast("string"), 256)
    frame = spark.range(rows, numPartitions=QUEUES)
    frame = frame.select(F.repeat(text, 16).cast("binary").alias("body")).cache()
    frame.count()

    def write(sink: str, size: str) -> int:
        spark.conf.set("spark.sql.execution.arrow.maxBytesPerBatch", size)
        shutil.rmtree(home, ignore_errors=True)
        writer = frame.write.format(sink).mode("append")
        options = {"counting": {"rows": rows}, "mqlog": {"topic": "BENCH", "createStore": True}}
        writer.options(**options[sink]).save(str(home))
        return rows

    for sink in ("counting", "mqlog"):
        sides = [
            Side(f"maxBytesPerBatch {size}", partial(write, sink, size), rows) for size in ARROW
        ]
        compare("settings", f"write, {sink}", sides, bodyBytes=1024, pyspark=pyspark.__version__)


@contextmanager
def _elsewhere(settings: dict[str, str], root: Path, rows: int) -> "Iterator[partial[int]]":
    """Start a session in a process of its own; yield what has it read the store once."""
    context = multiprocessing.get_context("spawn")
    ours, theirs = context.Pipe()
    process = context.Process(target=_serve, args=(theirs, settings, root, rows))
    process.start()
    theirs.close()
    try:
        yield partial(_asked, ours)
    finally:
        ours.close()
        process.join(READ_SECONDS)
        if process.is_alive():
            process.kill()


def _asked(pipe: Connection) -> int:
    pipe.send(None)
    if not pipe.poll(READ_SECONDS):
        raise TimeoutError(f"no answer in {READ_SECONDS} s")
    found: int = pipe.recv()
    return found


def _serve(pipe: Connection, settings: dict[str, str], root: Path, rows: int) -> None:
    with spark_session(settings) as spark:
        while True:
            try:
                pipe.recv()
            except EOFError:
                return
            pipe.send(_read(spark, root, {}, rows))


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 400_000)
