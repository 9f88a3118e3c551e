"""What writing a stream costs: the commit of a small batch as a store grows, and a micro-batch.

    python -m benchmarks sink

``commit`` is a batch of 1,000 rows (or ROWS) without Spark: its preparation, its task, its
commit, in a store of 1, 10 and 100 files of CommitLog. The micro-batches, with no rows and with
as many, are Spark's own rate source into a store, into a Python sink that does nothing, and into
Spark's noop sink, in turn. One JSON line a case; medians of milliseconds, warm; ``cpu`` is what
the processors worked, which a busy machine changes least. Compare within one run only.
"""

import json
import statistics
import sys
import tempfile
import time
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyspark
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.datasource import (
    DataSource,
    DataSourceStreamArrowWriter,
    WriterCommitMessage,
)
from pyspark.sql.streaming import StreamingQuery
from pyspark.sql.types import StructType

from benchmarks.facts import cpu_seconds, facts, load
from benchmarks.spark import spark_session
from mqstore.write.commit import commit
from mqstore.write.prepare import prepare
from mqstore.write.stage.settings import WriteSettings
from mqstore.write.stage.task import stage

ROWS = 1_000
FILES = (1, 10, 100)
COMMITS = 60  # enough for a 95th percentile
BATCHES = 12
WARM = 3
ROUNDS = 2
LONGEST_S = 300
BODY = bytes(1024)
RECORD_BYTES = 1200  # of such a body, about
SCHEMA = pa.schema([("body", pa.binary()), ("queueId", pa.int32())])


class NothingSink(DataSource):
    """Takes micro-batches and forgets them."""

    @classmethod
    def name(cls) -> str:
        return "nothing"

    def streamWriter(  # noqa: N802
        self, schema: StructType, overwrite: bool
    ) -> DataSourceStreamArrowWriter:
        return NothingWriter()


class NothingWriter(DataSourceStreamArrowWriter):
    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        for _ in iterator:
            pass
        return WriterCommitMessage()

    def commit(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803
        pass

    def abort(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803
        pass


def main(rows: int) -> None:
    """Measure batches of so many rows."""
    with tempfile.TemporaryDirectory() as directory:
        _commits(Path(directory) / "grown", rows)
        with spark_session() as spark:
            spark.dataSource.register(NothingSink)
            for case, count in (("empty batch", 0), (f"batch of {rows}", rows)):
                _through_spark(spark, Path(directory) / str(count), case, count)


def _commits(root: Path, rows: int) -> None:
    file_bytes = 4 * rows * RECORD_BYTES
    per_file = file_bytes // RECORD_BYTES
    settings = WriteSettings(
        root=str(root),
        topic="BENCH",
        create_store=True,
        mapped_file_size_commit_log=file_bytes,
    )
    for files in FILES:
        while len(list((root / "commitlog").glob("*"))) < files:
            _append(settings, per_file)
        times = [_append(settings, rows) for _ in range(COMMITS)]
        medians = [round(statistics.median(each), 2) for each in zip(*times, strict=True)]
        steps = ("prepareMs", "stageMs", "commitMs", "commitCpuMs")
        slow = statistics.quantiles((each[2] for each in times), n=20)[-1]
        found = dict(zip(steps, medians, strict=True)) | {"commitP95Ms": round(slow, 2)}
        _report("commit", rows=rows, files=files, **found)


def _append(settings: WriteSettings, rows: int) -> list[float]:
    """Append a batch; return the milliseconds of its steps, and those the last one worked."""
    columns = [pa.array([BODY] * rows), pa.array([n % 4 for n in range(rows)], pa.int32())]
    batch = pa.record_batch(columns, schema=SCHEMA)
    marks = [time.perf_counter()]
    job = prepare(settings, SCHEMA)
    marks.append(time.perf_counter())
    manifest = stage(job, [batch], partition=0, attempt=0)
    marks.append(time.perf_counter())
    busy = time.process_time()
    commit(job, [manifest])
    marks.append(time.perf_counter())
    busy = time.process_time() - busy
    return [1000 * seconds for seconds in (*(b - a for a, b in pairwise(marks)), busy)]


def _through_spark(spark: SparkSession, directory: Path, case: str, rows: int) -> None:
    """Let each sink have its micro-batches, in turn."""
    options = {"topic": "BENCH", "createStore": "true", "mappedFileSizeCommitLog": "64m"}
    sinks: dict[str, dict[str, str]] = {
        "mqlog": options | {"path": str(directory / "store")},
        "nothing": {},
        "noop": {},
    }
    taken: dict[str, list[float]] = {name: [] for name in sinks}
    busy: dict[str, list[float]] = {name: [] for name in sinks}
    for number in range(ROUNDS):
        for name, told in sinks.items():
            checkpoint = directory / f"{name}-{number}"
            times, worked = _batches(_numbers(spark, rows), name, told, checkpoint)
            taken[name] += times
            busy[name].append(worked)
    medians = {name: round(statistics.median(times), 1) for name, times in taken.items()}
    worked_ms = {name: round(min(each), 1) for name, each in busy.items()}
    batches = {name: len(times) for name, times in taken.items()}
    _report(case, rows=rows, ms=medians, cpuMs=worked_ms, batches=batches)


def _numbers(spark: SparkSession, rows: int) -> DataFrame:
    source = spark.readStream.format("rate-micro-batch").option("rowsPerBatch", rows or ROWS)
    numbers = source.option("numPartitions", 2).load()
    if not rows:  # The offsets move, no row passes.
        numbers = numbers.where("value < 0")
    return numbers.selectExpr("rpad(string(value), 1024, 'x') AS body")


def _batches(
    rows: DataFrame, sink: str, options: dict[str, str], checkpoint: Path
) -> tuple[list[float], float]:
    """Return the milliseconds of each warm micro-batch of a query, and those it worked in each."""
    writer = rows.writeStream.format(sink).options(**options)
    query = writer.option("checkpointLocation", str(checkpoint)).start()
    try:
        _until(query, WARM)
        begun, busy = len(query.recentProgress), cpu_seconds()
        _until(query, BATCHES)
        worked = (cpu_seconds() - busy) * 1000 / (len(query.recentProgress) - begun)
    finally:
        query.stop()
    done: list[dict[str, Any]] = [p.durationMs for p in query.recentProgress]
    times = [float(each["triggerExecution"]) for each in done if each.get("addBatch")]
    return times[WARM:], worked


def _until(query: StreamingQuery, batches: int) -> None:
    deadline = time.monotonic() + LONGEST_S
    while len(query.recentProgress) < batches:
        if query.awaitTermination(0.05) or time.monotonic() > deadline:
            raise AssertionError(f"{query.lastProgress}")


def _report(case: str, **found: Any) -> None:
    line = {
        "bench": "sink",
        "case": case,
        **found,
        "load": [load()],
        "pyspark": pyspark.__version__,
        **facts(),
    }
    print(json.dumps(line), flush=True)


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else ROWS)
