"""What ``read`` and ``write`` do on any Spark: python function_steps.py MASTER FOLDER [STEP…].

Runs in the environment of the Spark that is tried, which has mqlog on its path and nothing of the
tests. ``FOLDER/questions.json`` has questions of the contract of doors, with what is right. Prints
a line a step.
"""

import json
import os
import re
import sys
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any, Final

import pyarrow as pa
from pyspark import TaskContext
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.functions import expr

import mqlog
import pyspark_mqlog
from pyspark_mqlog import versions

WRITTEN: Final = 300
TOPIC: Final = "ORDERS"
GROUP: Final = "CG_STEPS"
_CONDITION: Final = re.compile(r"\[(MQLOG_\w+)\]")


class FunctionSteps:
    """The steps, in their order; each leaves the store as the next one wants it."""

    def __init__(self, spark: SparkSession, folder: Path) -> None:
        self._spark = spark
        self._folder = folder
        self._root = folder / "broker-a" / "store"

    def write(self) -> None:
        """A DataFrame becomes a store; a write of the same transaction is done once."""
        once: dict[str, Any] = {"txn_app_id": "steps", "txn_version": 1}
        made = pyspark_mqlog.write(self._orders(WRITTEN), self._root, create_store=True, **once)
        assert (made.messages, made.is_repeated) == (WRITTEN, False)
        again = pyspark_mqlog.write(self._orders(WRITTEN), self._root, **once)
        assert (again.messages, again.is_repeated) == (0, True), again
        assert mqlog.open(self._root).scan(TOPIC).count() == WRITTEN

    def read(self) -> None:
        """All columns of all rows are those of ``mqlog.open``, and ends are pinned."""
        frame = pyspark_mqlog.read(self._spark, self._root, TOPIC, columns="full")
        assert self._rows(frame) == self._expected(columns="full")
        pyspark_mqlog.write(self._orders(10), str(self._root))
        assert frame.count() == WRITTEN
        assert pyspark_mqlog.read(self._spark, mqlog.open(self._root)).count() == WRITTEN + 10

    def tables(self) -> None:
        """Tables have the rows that ``mqlog.open`` gives, with their options."""
        offsets = self._root / "config" / "consumerOffset.json"
        offsets.write_text(json.dumps({"offsetTable": {f"{TOPIC}@{GROUP}": {"0": 3}}}))
        for name, options in (("queues", {}), ("backlog", {"groups": GROUP, "by_tag": "true"})):
            keywords: dict[str, Any] = options
            frame = pyspark_mqlog.read(self._spark, self._root, table=name, **keywords)
            right = mqlog.open(self._root).table(name, **keywords).to_table()
            rows = [row.asDict() for row in frame.select(*_comparable(right)).collect()]
            same = right.select(_comparable(right)).to_pylist()
            assert sorted(map(str, rows)) == sorted(map(str, same)), name

    def failed_task(self) -> None:
        """Rows of a task that failed, and ran again, are there once."""
        before = mqlog.open(self._root).scan(TOPIC).count()

        def fail_once(batches: Any) -> Any:
            context: Any = TaskContext.get()
            yield from batches
            if context.attemptNumber() == 0:
                raise ValueError("the first attempt of each task fails behind its rows")

        orders = self._orders(40)
        pyspark_mqlog.write(orders.mapInArrow(fail_once, orders.schema), self._root)
        assert mqlog.open(self._root).scan(TOPIC).count() == before + 40

    def bad_row(self) -> None:
        """A row that no broker would take is an error by name, and nothing is written."""
        before = mqlog.open(self._root).scan(TOPIC).count()
        bad = self._orders(5).withColumn("topic", expr("'no topic!'"))
        error = _error(lambda: pyspark_mqlog.write(bad, self._root))
        assert "[MQLOG_INVALID_MESSAGE]" in error, error
        assert "on_invalid=skip" in error, error
        assert mqlog.open(self._root).scan(TOPIC).count() == before

    def refused(self) -> None:
        """A stream is refused with the way out, and a Spark without sources by its version."""
        streamed: dict[str, Any] = {"max_bytes_per_trigger": "1m"}
        error = _error(lambda: pyspark_mqlog.read(self._spark, self._root, **streamed))
        assert "MQLOG_INVALID_OPTION" in error, error
        assert "from starting_offsets" in error, error
        if versions.SPARK < versions.OLDEST:
            assert pyspark_mqlog.DefaultSource is None
            error = _error(lambda: pyspark_mqlog.register(self._spark))
            assert "MQLOG_SPARK_TOO_OLD" in error, error
            assert "pyspark_mqlog.read" in error, error

    def questions(self) -> None:
        """The contract of doors: each question has its answer, or its error."""
        wrong = []
        for each in json.loads((self._folder / "questions.json").read_text(encoding="utf-8")):
            given: Any = self._answer(each["place"], each["options"])
            if given != each["right"]:
                wrong.append((each["name"], given if isinstance(given, str) else len(given)))
        assert not wrong, wrong

    def _answer(self, place: str, options: dict[str, Any]) -> Any:
        queue = ("queueId", "queueOffset")
        try:
            frame = pyspark_mqlog.read(self._spark, place, columns=queue, **options)
            return sorted([row.queueId, row.queueOffset] for row in frame.collect())
        except Exception as error:  # noqa: BLE001 - Spark has a class for each stage
            condition = _CONDITION.search(str(error))
            return condition[1] if condition else repr(error)

    def _orders(self, count: int) -> DataFrame:
        return self._spark.range(0, count, 1, 2).select(
            expr(f"'{TOPIC}'").alias("topic"),
            expr("cast(concat('body ', id) AS binary)").alias("body"),
            expr("element_at(array('paid', 'cancelled'), cast(id % 2 AS int) + 1)").alias("tags"),
            expr("concat('order-', id)").alias("keys"),
            expr("map('shop', cast(id % 10 + 7 AS string))").alias("properties"),
            expr("timestamp_seconds(1790000000 + id)").alias("bornTimestamp"),
        )

    def _rows(self, frame: DataFrame) -> list[str]:
        """The rows as texts; a timestamp as its microseconds, whatever the zone of this process."""
        micros = [
            expr(f"unix_micros({f.name})").alias(f.name)
            if f.dataType.simpleString() == "timestamp"
            else frame[f.name]
            for f in frame.schema.fields
        ]
        return sorted(_text(row.asDict()) for row in frame.select(*micros).collect())

    def _expected(self, **options: Any) -> list[str]:
        rows = mqlog.open(self._root).scan(TOPIC, **options).to_table()
        plain = [
            field.with_type(pa.int64()) if pa.types.is_timestamp(field.type) else field
            for field in rows.schema
        ]
        return sorted(map(_text, rows.cast(pa.schema(plain)).to_pylist()))


def _comparable(table: Any) -> list[str]:
    """The columns of a table that no clock moves between two looks."""
    return [
        field.name
        for field in table.schema
        if not (pa.types.is_timestamp(field.type) or field.name.endswith("Ms"))
    ]


def _text(row: dict[str, Any]) -> str:
    plain = {k: bytes(v) if isinstance(v, bytes | bytearray) else v for k, v in row.items()}
    plain = {k: sorted(dict(v).items()) if k == "properties" else v for k, v in plain.items()}
    return str(sorted(plain.items()))


def _error(run: Callable[[], object]) -> str:
    """Return the text of the error of a call, which Spark has a class of its own for."""
    try:
        run()
    except Exception as error:  # noqa: BLE001 - of mqlog here, of Spark where a task raised it
        return str(error)
    raise AssertionError("no error")


def session(master: str) -> SparkSession:
    """A session of the master, on the loopback interface and quiet; ``connect`` is a server."""
    os.environ["SPARK_LOCAL_IP"] = "127.0.0.1"
    if master == "connect":
        builder = SparkSession.builder.remote("local[2]")
    else:
        builder = SparkSession.builder.master(master)
    settings = {
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.driver.host": "127.0.0.1",
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.sql.session.timeZone": "Asia/Shanghai",
        "spark.log.level": "OFF",
    }
    for name, value in settings.items():
        builder = builder.config(name, value)
    spark = builder.getOrCreate()
    if master != "connect":
        spark.sparkContext.setLogLevel("OFF")
    return spark


def main(master: str, folder: str, *names: str) -> None:
    """Run the steps, those named or all; an AssertionError is what did not hold."""
    spark = session(master)
    try:
        steps = FunctionSteps(spark, Path(folder))
        every: dict[str, Callable[[], None]] = {
            name: partial(step, steps)
            for name, step in vars(FunctionSteps).items()
            if not name.startswith("_")
        }
        for name in names or every:
            began = time.monotonic()
            every[name]()
            sys.stdout.write(f"{spark.version} {name} {time.monotonic() - began:.1f} s\n")
    finally:
        spark.stop()


if __name__ == "__main__":
    main(*sys.argv[1:])
