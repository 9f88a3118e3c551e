"""What has to work on every Spark, on one store: python steps.py MASTER FOLDER [STEP…].

Runs in the environment of the Spark that is tried, which has mqlog on its path and nothing of the
tests. Prints a line a step. Nothing here registers the source: Spark has to find it.
"""

import io
import json
import os
import shutil
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, redirect_stdout
from functools import partial
from pathlib import Path
from typing import Any, Final, TypeVar

from pyspark.errors import PySparkException, StreamingQueryException
from pyspark.sql import DataFrame, Row, SparkSession
from pyspark.sql.functions import expr

import pyspark_mqlog  # noqa: F401 - names the interpreter
from mqlog_jobs.spark import audit
from mqstore.check import check

TOPIC: Final = "ORDERS"
TAGS: Final = ("paid", "cancelled", "created")
WRITTEN: Final = 300
QUEUES: Final = 4
CONSUMED: Final = 10
"""What the group GROUP has consumed of each queue."""
GROUP: Final = "CG_STEPS"
PLACE: Final = ("topic", "queueId", "queueOffset")
SECONDS: Final = 300
TRIES: Final = 6

Place = tuple[str, int, int]
Result = TypeVar("Result")


class Steps:
    """The steps, in their order; each leaves the store as the next one wants it."""

    def __init__(self, spark: SparkSession, folder: Path) -> None:
        self._spark = spark
        self._folder = folder
        self._root = folder / "broker-a" / "store"
        self._count = 0

    def write(self) -> None:
        """A DataFrame becomes a store."""
        self._append(WRITTEN, createStore="true", queueNums=str(QUEUES))
        assert self._read().count() == WRITTEN

    def read_with_tags(self) -> None:
        """A tag expression lets through what it says; a DataFrame used twice stays the same."""
        rows = self._read(subscribe=TOPIC, tags="paid || cancelled")
        assert {row.tags for row in rows.select("tags").distinct().collect()} == {*TAGS[:2]}
        assert rows.count() == WRITTEN * 2 // 3
        first = rows.where("keys = 'order-0'").collect()
        assert [(bytes(row.body), row.properties["shop"]) for row in first] == [(b"body 0", "7")]

    def backlog(self) -> None:
        """The backlog of a group, with its tags."""
        queues = ",".join(f"{queue}:{CONSUMED}" for queue in range(QUEUES))
        offsets = self._root / "config" / "consumerOffset.json"
        offsets.write_text(f'{{"offsetTable":{{"{TOPIC}@{GROUP}":{{{queues}}}}}}}')
        subscriptions = json.dumps({GROUP: {TOPIC: "paid"}})
        rows = self._read(table="backlog", groups=GROUP, subscriptions=subscriptions).collect()
        waiting = self._read().where(f"queueOffset >= {CONSUMED}")
        assert sum(row.lag for row in rows) == waiting.count() == WRITTEN - QUEUES * CONSUMED
        assert sum(row.lagMatching for row in rows) == waiting.where("tags = 'paid'").count()

    def schema_read(self) -> None:
        """A user's schema is a projection."""
        reader = self._spark.read.schema(
            "queueOffset bigint, storeTimestamp timestamp, keys string"
        )
        rows = reader.format("mqlog").load(str(self._root))
        assert rows.columns == ["queueOffset", "storeTimestamp", "keys"]
        assert rows.where("storeTimestamp > '2020-01-01'").count() == self._count

    def repeated_transaction(self) -> None:
        """A write with the same txnAppId and txnVersion is done once."""
        transaction = {"txnAppId": "steps", "txnVersion": "1"}
        same = self._orders(20)
        self._append(20, **transaction)
        same.write.format("mqlog").mode("append").options(**transaction).save(str(self._root))
        assert self._read().count() == self._count

    def stream_with_restart(self) -> None:
        """A stream from a start that moves reads all once, again when its batches were not done."""
        target = self._folder / "restarted"
        start = {"startingTimestamp": "2020-01-01T00:00:00Z"}
        self._stream(target, **start)
        assert self._places(target) == self._all()
        for kept in ("commits", "offsets"):  # None of the batches but the first is known.
            for file in (target / "checkpoint" / kept).iterdir():
                if file.name not in {"0", ".0.crc"} or kept == "commits":
                    file.unlink()
        shutil.rmtree(target / "rows")
        self._append(30)
        self._stream(target, startingOffsets="latest")  # The start is known from the checkpoint.
        self._stream(target, startingOffsets="latest")
        assert self._places(target) == self._all()
        self._append(10)
        self._stream(target, **start)
        assert self._places(target) == self._all()

    def limited_stream(self) -> None:
        """A limit of the trigger is the most of a micro-batch, and all is read in the end."""
        target = self._folder / "limited"
        limits = {"startingOffsets": "earliest", "maxOffsetsPerTrigger": "100"}
        sizes = _tried(lambda: self._batch_sizes(target, **limits))
        assert max(sizes) == 100
        assert self._places(target) == self._all()

    def stream_to_store(self) -> None:
        """A stream of one store becomes another store, each message once."""
        copy = self._folder / "broker-b" / "store"
        columns = "topic,body,tags,keys"
        stream = self._spark.readStream.format("mqlog").option("startingOffsets", "earliest")
        rows = stream.option("columns", columns).load(str(self._root))
        writer = rows.writeStream.format("mqlog").option("createStore", True)
        writer = writer.option("checkpointLocation", str(self._folder / "copy"))
        for _ in range(2):
            _end(lambda: writer.trigger(availableNow=True).start(str(copy)))
        same = ("tags", "keys", "body")
        copied = self._spark.read.format("mqlog").load(str(copy)).select(*same)
        assert copied.exceptAll(self._read().select(*same)).count() == 0
        assert copied.count() == self._count
        _whole(copy)

    def bad_row(self) -> None:
        """A row that no broker would take is an error by name, and nothing is written."""
        bad = self._orders(5).withColumn("topic", expr("'no topic!'"))
        told = ""
        try:
            bad.write.format("mqlog").mode("append").save(str(self._root))
        except PySparkException as error:
            told = str(error)
        assert "[MQLOG_INVALID_MESSAGE]" in told, told
        assert self._read().count() == self._count

    def sql_view(self) -> None:
        """SQL sees the store through a view."""
        self._spark.sql(
            f"CREATE OR REPLACE TEMPORARY VIEW steps USING mqlog OPTIONS (path '{self._root}')"
        )
        found = self._spark.sql("SELECT topic, count(*) AS n FROM steps GROUP BY topic").collect()
        assert found == [Row(topic=TOPIC, n=self._count)]

    def audit(self) -> None:
        """Tasks find the messages that a copy lacks, and none where it is the same."""
        copy = self._folder / "audited" / "store"
        shutil.copytree(self._root, copy)
        places = ["--from", str(self._root), "--against", str(copy), "--json"]
        assert _audited(places) == (0, [])
        self._append(3)
        code, rows = _audited(places)
        assert (code, [row["difference"] for row in rows]) == (1, ["missing"] * 3)

    def whole(self) -> None:
        """The store has no finding."""
        _whole(self._root)

    def _orders(self, count: int) -> DataFrame:
        numbers = self._spark.range(self._count, self._count + count, 1, 2)
        return numbers.select(
            expr(f"'{TOPIC}'").alias("topic"),
            expr("cast(concat('body ', id) AS binary)").alias("body"),
            expr(f"element_at(array{TAGS}, cast(id % 3 AS int) + 1)").alias("tags"),
            expr("concat('order-', id)").alias("keys"),
            expr("map('shop', cast(id % 10 + 7 AS string))").alias("properties"),
        )

    def _append(self, count: int, **options: str) -> None:
        writer = self._orders(count).write.format("mqlog").mode("append").options(**options)
        writer.save(str(self._root))
        self._count += count

    def _read(self, **options: str) -> DataFrame:
        return self._spark.read.format("mqlog").options(**options).load(str(self._root))

    def _all(self) -> list[Place]:
        return sorted(tuple(row) for row in self._read().select(*PLACE).collect())

    def _places(self, target: Path) -> list[Place]:
        rows = self._spark.read.parquet(str(target / "rows"))
        return sorted(tuple(row) for row in rows.select(*PLACE).collect())

    def _start(self, target: Path, trigger: dict[str, Any], **options: str) -> Any:
        rows = self._spark.readStream.format("mqlog").options(**options).load(str(self._root))
        writer = rows.writeStream.format("parquet").option("path", str(target / "rows"))
        writer = writer.option("checkpointLocation", str(target / "checkpoint"))
        return writer.trigger(**trigger).start()

    def _stream(self, target: Path, **options: str) -> None:
        _end(lambda: self._start(target, {"availableNow": True}, **options))

    def _batch_sizes(self, target: Path, **options: str) -> list[int]:
        """Run a query until it has read all; return the rows of its batches."""
        query = self._start(target, {"processingTime": "0 seconds"}, **options)
        try:
            end = time.monotonic() + SECONDS
            while True:
                sizes = {p["batchId"]: p["numInputRows"] for p in query.recentProgress}
                if sum(sizes.values()) >= self._count:
                    return list(sizes.values())
                assert time.monotonic() < end, sizes
                assert not query.awaitTermination(0.2), "the query ended"
        finally:
            query.stop()


def _end(start: Callable[[], Any]) -> None:
    """Start a query and wait until it has ended."""
    assert _tried(lambda: start().awaitTermination(SECONDS))


def _tried(run: Callable[[], Result]) -> Result:
    """Return the result of a query; run it again if Spark did not wait for its Python worker.

    Spark gives a stream its worker in ten seconds (PythonWorkerFactory#createSimpleWorker) or not,
    and a busy machine may need longer to start it. Nothing was read by then.
    """
    for _ in range(TRIES - 1):
        try:
            return run()
        except StreamingQueryException as error:
            if "failed to connect back" not in str(error):
                raise
    return run()


def _audited(arguments: list[str]) -> tuple[int, list[dict[str, Any]]]:
    out = io.StringIO()
    with redirect_stdout(out):
        code = audit.main(arguments)
    return code, [json.loads(line) for line in out.getvalue().splitlines()]


def _whole(root: Path) -> None:
    assert [finding for finding in check(root) if finding.severity == "error"] == []


@contextmanager
def session(master: str) -> Iterator[SparkSession]:
    """A session of the master, on the loopback interface and quiet; ``connect`` is a server."""
    os.environ["SPARK_LOCAL_IP"] = "127.0.0.1"
    if master == "connect":
        builder = SparkSession.builder.remote("local[2]")
    else:
        builder = SparkSession.builder.master(master)
    settings = {
        "spark.ui.enabled": "false",
        "spark.executor.extraJavaOptions": os.environ.get("SPARK_SUBMIT_OPTS", ""),
        "spark.driver.host": "127.0.0.1",
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.sql.session.timeZone": "UTC",
        "spark.sql.shuffle.partitions": "2",
        "spark.log.level": "ERROR",
    }
    for name, value in settings.items():
        builder = builder.config(name, value)
    spark = builder.getOrCreate()
    try:
        yield spark
    finally:
        spark.stop()


def main(master: str, folder: str, *names: str) -> None:
    """Run the steps, those named or all; an AssertionError is what did not hold."""
    with session(master) as spark:
        steps = Steps(spark, Path(folder))
        every: dict[str, Callable[[], None]] = {
            name: partial(step, steps)
            for name, step in vars(Steps).items()
            if not name.startswith("_")
        }
        for name in names or every:
            began = time.monotonic()
            every[name]()
            sys.stdout.write(f"{spark.version} {name} {time.monotonic() - began:.1f} s\n")
            sys.stdout.flush()


if __name__ == "__main__":
    main(*sys.argv[1:])
