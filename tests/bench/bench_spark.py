"""Messages of 1 KiB read a second through Spark, beside a source that only repeats one batch.

    python tests/bench/bench_spark.py [MESSAGES]

Both go to Spark's noop sink with the same columns, number of rows and batch size, so ``limit``
is the most that any Python data source can give here, and ``ofLimit`` the part of it that
reading a store leaves. ``cpuMicroseconds`` is the work of JVM and Python workers together for
a message, which others on the machine disturb less. One JSON line a case: best of three, warm
page cache, warm JVM. The machine decides: compare within one run only.
"""

import json
import os
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyspark
from facts import facts
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.datasource import DataSource, DataSourceReader, InputPartition
from pyspark.sql.types import StructType

from mqstore.codec.schema import PROFILES, message_schema
from mqstore.read.plan import QueueSlice
from mqstore.read.scan import scan
from mqstore.read.settings import ScanSettings
from mqstore.read.snapshot import take
from mqstore.write.commit import commit
from mqstore.write.job import WriteSettings
from mqstore.write.prepare import prepare
from mqstore.write.stage import stage
from pyspark_mqlog import register
from pyspark_mqlog.schema import to_struct

BODY_BYTES = 1024
TOPIC = "BENCH"
RUNS = 3
CASES = {
    "minimal": PROFILES["minimal"],
    "standard": PROFILES["standard"],
    "no properties": tuple(c for c in PROFILES["standard"] if c != "properties"),
    "queueOffset": ("queueOffset",),
}


class RepeatingSource(DataSource):
    """Yields one batch of a real read again and again: what the road itself costs."""

    @classmethod
    def name(cls) -> str:
        return "repeating"

    def schema(self) -> StructType:
        return to_struct(message_schema(self.options["columns"].split(",")))

    def reader(self, schema: StructType) -> DataSourceReader:
        return RepeatingReader(dict(self.options))


class RepeatingReader(DataSourceReader):
    def __init__(self, options: dict[str, str]) -> None:
        self._options = options

    def partitions(self) -> list[InputPartition]:
        count = int(self._options["partitions"])
        return [InputPartition(int(self._options["rows"]) // count)] * count

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        with pa.ipc.open_file(self._options["batch"]) as file:
            batch = file.get_batch(0)
        left = partition.value
        while left > 0:
            yield batch.slice(0, min(left, batch.num_rows))
            left -= batch.num_rows


def main(count: int) -> None:
    """Make a store of that many messages and read it."""
    os.environ["PYSPARK_PYTHON"] = sys.executable
    spark = (
        SparkSession.builder.master("local[2]")
        .config("spark.ui.enabled", "false")
        .config("spark.ui.showConsoleProgress", "false")
        .config("spark.python.unix.domain.socket.enabled", "true")
        .config("spark.sql.session.timeZone", "UTC")
        .config("spark.log.level", "ERROR")
        .getOrCreate()
    )
    register(spark)
    spark.dataSource.register(RepeatingSource)
    with tempfile.TemporaryDirectory() as directory:
        root = Path(directory) / "store"
        _write(root, count)
        for case, columns in CASES.items():
            _report(spark, root, case, columns, count)
    spark.stop()


def _report(
    spark: SparkSession, root: Path, case: str, columns: tuple[str, ...], count: int
) -> None:
    names = ",".join(columns)
    frame = spark.read.format("mqlog").option("columns", names).load(str(root))
    tasks = frame.rdd.getNumPartitions()
    batch = root.with_name("batch.arrow")
    _keep_batch(root, columns, batch)
    limit = (
        spark.read.format("repeating")
        .options(columns=names, partitions=tasks, rows=count, batch=str(batch))
        .load()
    )
    (seconds, busy), (limit_seconds, limit_busy) = _best(frame), _best(limit)
    found = {
        "bench": "spark-read",
        "case": case,
        "messages": count,
        "bodyBytes": BODY_BYTES,
        "tasks": tasks,
        "seconds": round(seconds, 3),
        "messagesPerSecond": round(count / seconds),
        "limitMessagesPerSecond": round(count / limit_seconds),
        "ofLimit": round(limit_seconds / seconds, 2),
        "cpuMicroseconds": round(busy / count * 1e6, 2),
        "limitCpuMicroseconds": round(limit_busy / count * 1e6, 2),
        "pyspark": pyspark.__version__,
        **facts(),
    }
    print(json.dumps(found), flush=True)


def _best(frame: DataFrame) -> tuple[float, float]:
    """Return the least seconds of a read, and the least CPU seconds."""
    seconds, busy = [], []
    for _ in range(RUNS + 1):  # The first one warms up.
        begin, begin_busy = time.perf_counter(), _cpu_seconds()
        frame.write.format("noop").mode("overwrite").save()
        seconds.append(time.perf_counter() - begin)
        busy.append(_cpu_seconds() - begin_busy)
    return min(seconds[1:]), min(busy[1:])


def _cpu_seconds() -> float:
    """Return what this process and all below it, the JVM and its workers, have used."""
    parents, used = {}, {}
    for path in Path("/proc").glob("[0-9]*/stat"):
        try:
            fields = path.read_text().rpartition(")")[2].split()
        except OSError:  # It ended meanwhile.
            continue
        pid = int(path.parent.name)
        parents[pid] = int(fields[1])
        used[pid] = sum(map(int, fields[11:15]))  # utime, stime, and those of waited children
    found = {os.getpid()}
    for _ in range(6):  # this process, the launcher, the JVM, the daemon, its workers
        found |= {pid for pid, parent in parents.items() if parent in found}
    return sum(used[pid] for pid in found) / os.sysconf("SC_CLK_TCK")


def _keep_batch(root: Path, columns: tuple[str, ...], path: Path) -> None:
    """Keep the second batch of a read, the first of full size."""
    snapshot = take(root)
    slices = [
        QueueSlice(
            str(root), snapshot.store.commit_log, "b", queue.topic, queue.queue_id, 0, queue.high
        )
        for queue in snapshot.queues
    ]
    batches = scan(slices, ScanSettings(columns=columns))
    first = next(batches)
    batch = next(batches, first)
    with pa.OSFile(str(path), "wb") as sink, pa.ipc.new_file(sink, batch.schema) as file:
        file.write_batch(batch)


def _write(root: Path, count: int) -> None:
    """Write the store as any DataFrame is written, a task of 100,000 rows at a time."""
    random = np.random.default_rng(7)
    bodies = [random.bytes(BODY_BYTES) for _ in range(500)]
    schema = pa.schema([("body", pa.binary()), ("tags", pa.string()), ("keys", pa.string())])
    settings = WriteSettings(
        root=str(root), topic=TOPIC, create_store=True, mapped_file_size_commit_log=1 << 28
    )
    job = prepare(settings, schema)
    manifests = []
    for partition, start in enumerate(range(0, count, 100_000)):
        rows = range(start, min(start + 100_000, count))
        columns = [
            pa.array([bodies[row % len(bodies)] for row in rows], pa.binary()),
            pa.array(["TagA"] * len(rows)),
            pa.array([f"order-{row}" for row in rows]),
        ]
        batch = pa.record_batch(columns, schema=schema)
        manifests.append(stage(job, [batch], partition=partition, attempt=0))
    commit(job, manifests)


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 400_000)
