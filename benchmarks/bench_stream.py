"""What following a store costs: an idle look, an empty micro-batch, one of 1,000 rows.

    python -m benchmarks stream

``idle`` is the share of a core that an idle query over a store of many queues takes in Spark's
process for offsets, asked again after 10 ms as Spark does, and the bytes that pass in a trigger:
as it is, and ``plain`` without what spares a query of very many queues. ``look`` is what Spark
asks some 80 times a second of a query that has nothing to do. The micro-batches go to Spark's noop
sink, beside those of a Python source that makes the same rows from nothing: the rest is Spark's
own. One JSON line a case; medians, warm JVM. The machine decides: compare within one run only.
"""

import json
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyspark
from pyspark.sql import DataFrame
from pyspark.sql.datasource import DataSource, DataSourceStreamReader, InputPartition
from pyspark.sql.types import StructType

from benchmarks.facts import facts, load
from benchmarks.spark import spark_session
from mqstore.read import tail
from mqstore.read.admission import Admission
from mqstore.read.capabilities import Tail
from mqstore.read.follow import Follower
from mqstore.request.plan import read_schema
from mqstore.write.commit import commit
from mqstore.write.prepare import prepare
from mqstore.write.stage.settings import WriteSettings
from mqstore.write.stage.task import stage
from pyspark_mqlog import stream_reader
from pyspark_mqlog.compat import ReadAllAvailable
from pyspark_mqlog.options import parse_stream
from pyspark_mqlog.schema import to_struct
from pyspark_mqlog.stream_reader import MqlogStreamReader
from support.opened import tail_of

ROWS = 1_000
BATCHES = 12
BODY = bytes(1024)
POLL_S = 0.01  # spark.sql.streaming.pollingDelay
SETTLE_S = 15.0
IDLE_S = 60.0
COLUMNS = "queueId int, queueOffset bigint, body binary"
SCHEMA = pa.schema([("body", pa.binary()), ("queueId", pa.int32())])


class NothingSource(DataSource):
    """A stream of ``rows`` rows a micro-batch, of the same columns, read from nowhere."""

    @classmethod
    def name(cls) -> str:
        return "nothing"

    def schema(self) -> str:
        return COLUMNS

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:  # noqa: N802
        return NothingReader(int(self.options["rows"]))


class NothingReader(DataSourceStreamReader):
    def __init__(self, rows: int) -> None:
        self._rows = rows
        self._asked = 0

    def initialOffset(self) -> dict[str, int]:  # noqa: N802
        return {"n": 0}

    def latestOffset(self, start: dict[str, int], limit: Any) -> dict[str, int]:  # noqa: N802
        return {"n": min(start["n"] + 1, BATCHES)}

    def partitions(self, start: dict[str, int], end: dict[str, int]) -> list[InputPartition]:
        return [InputPartition(self._rows)] if self._rows else []

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        if partition.value is None:
            return
        numbers = pa.array(range(partition.value))
        queues, bodies = numbers.cast(pa.int32()), pa.array([BODY] * partition.value)
        yield pa.RecordBatch.from_arrays(
            [queues, numbers, bodies], ["queueId", "queueOffset", "body"]
        )


def main(queues: int) -> None:
    """Measure looks at a store of that many queues and micro-batches."""
    with tempfile.TemporaryDirectory() as directory:
        root = Path(directory) / "store"
        _write(root, [n % queues for n in range(max(queues, ROWS))])
        _report("look", queues, _looks(root), "us")
        _report("next", queues, _nexts(root), "us")
        with _plainly():
            _idle(root, "plain", queues)
        _idle(root, "spared", queues)
        _through_spark(Path(directory))


def _idle(root: Path, case: str, queues: int) -> None:
    options = parse_stream({"path": str(root), "startingOffsets": "earliest"})
    columns = tuple(read_schema(options.read).names)
    reader = MqlogStreamReader(options, to_struct(read_schema(options.read)), columns)
    limit = ReadAllAvailable()
    end = json.dumps(reader.latestOffset(reader.initialOffset(), limit))
    passed = triggers = 0

    def trigger() -> int:
        told = json.dumps(reader.latestOffset(json.loads(end), limit))
        assert told == end
        latest = reader.reportLatestOffset()
        return len(end) + len(told) + (len(json.dumps(latest)) if latest is not None else 0)

    def for_s(seconds: float) -> tuple[int, int]:
        until, count, total = time.monotonic() + seconds, 0, 0
        while time.monotonic() < until:
            total += trigger()
            count += 1
            time.sleep(POLL_S)
        return count, total

    for_s(SETTLE_S)
    begin, cpu = time.monotonic(), time.process_time()
    triggers, passed = for_s(IDLE_S)
    share = (time.process_time() - cpu) / (time.monotonic() - begin)
    reader.stop()
    more = {"triggersPerSecond": round(triggers / IDLE_S, 1), "offsetBytes": len(end)}
    more["bytesPerTrigger"] = passed // max(1, triggers)
    _report(f"idle, {case}", queues, share * 100, "percentOfCore", **more)


@contextmanager
def _plainly() -> Iterator[None]:
    """Have a stream of very many queues do as one of a few."""
    spared = [(stream_reader, "_PACKED_FROM"), (stream_reader, "_MUCH_S"), (tail, "_LONG_LOOK_S")]
    before = [getattr(module, name) for module, name in spared]
    for module, name in spared:
        setattr(module, name, float("inf"))
    try:
        yield
    finally:
        for (module, name), value in zip(spared, before, strict=True):
            setattr(module, name, value)


def _looks(root: Path) -> float:
    one = tail_of(root)
    _settle(one)
    return _median(lambda: one.look(at_once=True))


def _nexts(root: Path) -> float:
    """All of latestOffset but the JSON."""
    one = tail_of(root)
    stream = Follower([one], Admission(max_offsets=ROWS * ROWS))
    end = stream.next({})
    _settle(one)
    return _median(lambda: stream.next(end))


def _settle(one: Tail) -> None:
    for _ in range(4):  # Directories that just changed are looked at as a whole.
        time.sleep(0.1)
        one.look(at_once=True)


def _median(call: Callable[[], object]) -> float:
    times = []
    for _ in range(300):
        begin = time.perf_counter()
        call()
        times.append(time.perf_counter() - begin)
    return statistics.median(times) * 1e6


def _through_spark(directory: Path) -> None:
    with spark_session() as spark:
        spark.dataSource.register(NothingSource)
        _write(directory / "rows", [0] * ROWS * BATCHES)
        for case, rows in (("empty batch", 0), ("batch of 1000", ROWS)):
            reader = spark.readStream.schema(COLUMNS).format("mqlog")
            options = {"startingOffsets": "earliest", "maxOffsetsPerTrigger": str(ROWS)}
            if not rows:  # The offsets move, no message passes.
                options["tags"] = "NoSuchTag"
            ours = reader.options(**options).load(str(directory / "rows"))
            nothing = spark.readStream.format("nothing").option("rows", rows).load()
            _report(case, 1, _batches(ours, directory / f"ours-{rows}"), "ms")
            _report(f"{case}, no-op source", 1, _batches(nothing, directory / f"no-{rows}"), "ms")


def _batches(rows: DataFrame, checkpoint: Path) -> float:
    """Return the median milliseconds of a warm micro-batch."""
    writer = rows.writeStream.format("noop").option("checkpointLocation", str(checkpoint))
    query = writer.start()
    query.processAllAvailable()
    query.stop()
    done = [
        p.durationMs["triggerExecution"]
        for p in query.recentProgress
        if p.durationMs.get("addBatch")
    ]
    return statistics.median(done[3:])


def _write(root: Path, queue_ids: list[int]) -> None:
    settings = WriteSettings(
        root=str(root),
        topic="BENCH",
        create_store=True,
        queue_nums=max(queue_ids) + 1,
        mapped_file_size_commit_log=1 << 26,
        mapped_file_size_consume_queue=20 * 1000,
    )
    job = prepare(settings, SCHEMA)
    columns = [pa.array([BODY] * len(queue_ids)), pa.array(queue_ids, pa.int32())]
    batch = pa.record_batch(columns, schema=SCHEMA)
    commit(job, [stage(job, [batch], partition=0, attempt=0)])


def _report(case: str, queues: int, value: float, unit: str, **more: object) -> None:
    found = {
        "bench": "stream",
        "case": case,
        "queues": queues,
        unit: round(value, 1),
        **more,
        "load": [load()],
        "pyspark": pyspark.__version__,
        **facts(),
    }
    print(json.dumps(found), flush=True)


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 100)
