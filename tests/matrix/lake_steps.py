"""What an archive has to do on every Spark that its format is tried on.

python lake_steps.py FORMAT FOLDER [STEP…]

Runs in the environment of that Spark, as steps.py does. Prints a line a step.
"""

import contextlib
import io
import json
import re
import shutil
import sys
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Final

import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.sql import DataFrame, SparkSession

import mqlog
from mqlog_jobs.machine.session import LOOPBACK, QUIET, session
from mqlog_jobs.output.form import Form
from mqlog_jobs.spark import archive, audit
from mqlog_jobs.spark.lake.packages import PACKAGES, settings
from mqlog_jobs.spark.lake.tables import LAKE_TABLES, LakeTable
from mqlog_jobs.work.audit import Audited
from mqlog_jobs.work.audit import audit as audited_by_command
from pyspark_mqlog.versions import INSTALLED

QUEUES: Final = 3
ID: Final = ("topic", "queueId", "queueOffset", "msgId")
LONG: Final = "%" * 127
"""Each of its characters has three bytes in the name of a folder."""
AS_NULL: Final = "__HIVE_DEFAULT_PARTITION__"
DAY: Final = {"delta": "date=", "iceberg": "storeTimestamp_day="}

Id = tuple[str, int, int, str]


class Lake:
    """The steps, in their order; each leaves store and table as the next one wants them."""

    def __init__(self, spark: SparkSession, kind: str, folder: Path) -> None:
        self._spark = spark
        self._kind = kind
        self._store = folder / "broker-a" / "store"
        self._path = folder / "lake" / "messages"
        self._other = folder / "lake" / "batch"
        self._count = 0

    def each_message_is_there_once(self) -> None:
        """Run after run, also those of a topic that is new."""
        self._append("ORDERS", 200)
        self._append("RETURNS", 50)
        assert self._archived(self._path) == 250
        assert self._archived(self._path) == 0
        self._append("NEW%TOPIC", 30)
        self._append("ORDERS", 70)
        assert self._archived(self._path) == 100
        self._same(self._path)

    def partitioned_by_day_and_topic_and_sorted_by_queue_and_offset(self) -> None:
        """Of each file; all columns are there."""
        files = [file for file in self._path.rglob("*.parquet") if "_delta_log" not in file.parts]
        assert files
        for file in files:
            day, topic = file.parts[-3:-1]
            assert day.startswith(DAY[self._kind]), file
            assert topic in {"topic=ORDERS", "topic=RETURNS", "topic=NEW%25TOPIC"}, file
            found = pq.ParquetFile(file).read(columns=["queueId", "queueOffset"])
            places = list(zip(*(column.to_pylist() for column in found.columns), strict=True))
            assert places == sorted(places), file
        assert len({queue for queue, _ in places}) > 1
        full = self._spark.read.format("mqlog").option("columns", "full").load(str(self._store))
        assert set(full.columns) <= set(self._read(self._path).columns)

    def a_micro_batch_that_is_repeated_counts_once(self) -> None:
        """Killed between the commit of the table and that of the checkpoint."""
        self._append("ORDERS", 40)
        assert self._archived(self._path) == 40
        commits = self._path / "_checkpoint" / "commits"
        last = max((file for file in commits.iterdir() if file.name.isdecimal()), key=_number)
        last.unlink()
        (commits / f".{last.name}.crc").unlink(missing_ok=True)
        self._archived(self._path)
        self._same(self._path)

    def an_audit_says_that_it_is_the_same_and_honours_deletions(self) -> None:
        """The job by Spark's reader of the format, the command without Spark.

        Other files of the table do not count.
        """
        code, out, err = self._audited()
        assert (code, err) == (0, ""), err
        assert f"the same {self._count} messages" in out
        assert self._by_command() == []
        table = self._table(self._path)
        name = table.name
        wanted = "topic = 'RETURNS' AND queueId = 1 AND queueOffset = 7"
        (row,) = table.read().where(wanted).collect()
        if self._kind == "delta":  # As every tenth version has one by default.
            each = "'delta.checkpointInterval' = '1'"
            self._spark.sql(f"ALTER TABLE {name} SET TBLPROPERTIES ({each})")
        again = self._spark.createDataFrame([row], table.read().schema)
        table.append(again)
        assert self._by_command() == [("doubled", 7)]
        self._spark.sql(f"DELETE FROM {name} WHERE {wanted}")
        code, out, err = self._audited("--json")
        assert code == 1, err
        (found,) = (json.loads(line) for line in out.splitlines())
        place = found["firstTopic"], found["firstQueueId"], found["firstQueueOffset"]
        assert (found["difference"], *place) == ("missing", "RETURNS", 1, 7)
        assert self._by_command() == [("missing", 7)]
        assert self._kind != "delta" or [*self._path.glob("_delta_log/*.checkpoint.parquet")]
        table.append(again)
        assert self._audited()[0] == 0
        assert self._by_command() == []

    def a_batch_is_one_transaction_and_is_not_repeated_unasked(self) -> None:
        """With chosen columns; twice only if asked."""
        columns = ["--option", f"columns={','.join((*ID, 'storeTimestamp', 'body'))}"]
        assert self._archived(self._other, "--batch", *columns) == self._count
        self._same(self._other)
        assert "the table has rows" in self._refused(self._other, "--batch", *columns)
        self._same(self._other)
        again = self._archived(self._other, "--batch", "--mode", "append", *columns)
        assert again == self._count
        assert len(self._ids(self._other)) == 2 * self._count

    def columns_that_a_user_added_are_null_or_their_default(self) -> None:
        """Also for the audits, of which one reads without Spark."""
        name = self._table(self._path).name
        self._spark.sql(f"ALTER TABLE {name} ADD COLUMNS (note STRING, seen TIMESTAMP)")
        self._append("ORDERS", 20)
        assert self._archived(self._path) == 20
        self._same(self._path)
        found = self._read(self._path)
        assert found.where("note IS NULL AND seen IS NULL").count() == self._count
        if self._kind == "delta":  # The tried builds of Iceberg refuse a default by SQL.
            feature = "'delta.feature.allowColumnDefaults' = 'supported'"
            self._spark.sql(f"ALTER TABLE {name} SET TBLPROPERTIES ({feature})")
            self._spark.sql(f"ALTER TABLE {name} ALTER COLUMN note SET DEFAULT 'none'")
            self._append("ORDERS", 5)
            assert self._archived(self._path) == 5
            assert self._read(self._path).where("note = 'none'").count() == 5
        assert self._audited()[0] == 0
        assert self._by_command() == []

    def columns_that_differ_are_refused_with_the_statements_that_help(self) -> None:
        """One is missing, one has another type, one of the user's may not be null."""
        told = self._refused(self._path, "--option", "columns=body,topic")
        assert "need queueId and queueOffset and storeTimestamp too" in told
        target = self._path.with_name("other_columns")
        table = self._table(target)
        types = {
            field.name: field.dataType.simpleString()
            for field in table.shaped(self._stored()).schema
            if field.name != "tags"
        }
        declared = ", ".join(f"`{n}` {t}" for n, t in {**types, "queueId": "bigint"}.items())
        self._spark.sql(
            f"CREATE TABLE {table.name} ({declared}, must STRING NOT NULL) USING {self._kind} "
            "PARTITIONED BY (topic)"
        )
        told = self._refused(target, "--batch")
        assert "the table lacks tags: " in told
        assert "the table has queueId as bigint, the messages as int: " in told
        assert "the column must of the table is NOT NULL and has no default" in told
        for statement in re.findall(r"ALTER TABLE (?:(?!; |, or choose).)+", told.strip()):
            self._spark.sql(statement)
        assert self._archived(target, "--batch") == self._count
        self._same(target)
        assert self._read(target).where("must IS NOT NULL OR queueId_before IS NOT NULL").isEmpty()

    def a_topic_that_no_folder_can_name_is_refused(self) -> None:
        """By name, in a batch and in a stream; without it the others are archived."""
        odd = self._store.parent.parent / "broker-b" / "store"
        for topic in ("PLAIN", LONG, AS_NULL):
            mqlog.write(pa.table({"body": [b"1"]}), odd, topic=topic, create_store=True)
        target = self._path.with_name("odd")
        only = "subscribe={}".format
        for topic in (LONG, AS_NULL) if self._kind == "delta" else (LONG,):
            how = () if topic == LONG else ("--batch",)
            told = self._refused(target, *how, "--option", only(topic), store=odd)
            assert f"the topic {topic} " in told
            assert told.rstrip().endswith(
                "leave it out by --option subscribe=… or subscribePattern=…"
            )
        others = "PLAIN" if self._kind == "delta" else f"PLAIN,{AS_NULL}"
        count = self._archived(target, "--batch", "--option", only(others), store=odd)
        assert sorted(row[0] for row in self._read(target).select("topic").collect()) == sorted(
            others.split(",")
        )
        assert count == len(others.split(","))

    def a_checkpoint_and_a_table_that_are_strangers_are_refused(self) -> None:
        """A new checkpoint would double rows; one whose table is gone would leave some out."""
        other = str(self._path.parent / "progress")
        told = self._refused(self._path, "--checkpoint", other)
        assert "they would be archived twice" in told
        self._same(self._path)
        shutil.copytree(self._path / "_checkpoint", other)
        gone = self._path.with_name("gone")
        assert "a table that is gone" in self._refused(gone, "--checkpoint", other)

    def a_topic_that_is_not_there_is_named(self) -> None:
        """Before any work."""
        nowhere = self._path.with_name("nowhere")
        told = self._refused(nowhere, "--option", "subscribe=NOBODY_HAS_THIS")
        assert "MQLOG_UNKNOWN_TOPIC" in told
        assert "NOBODY_HAS_THIS" in told

    def _append(self, topic: str, count: int) -> None:
        rows = pa.table(
            {
                "body": [b"%d" % (self._count + i) for i in range(count)],
                "queueId": pa.array([i % QUEUES for i in range(count)], pa.int32()),
            }
        )
        mqlog.write(rows, self._store, topic=topic, create_store=True, queue_nums=QUEUES)
        self._count += count

    def _archived(self, target: Path, *more: str, store: Path | None = None) -> int:
        """Archive, and return the number of messages that the job says."""
        code, out, err = self._run(target, *more, store=store)
        assert code == 0, err
        return int(out.split()[0].replace(",", ""))

    def _refused(self, target: Path, *more: str, store: Path | None = None) -> str:
        code, out, err = self._run(target, *more, store=store)
        assert (code, out) == (2, ""), err
        assert err.count("\n") == 1, err
        return err

    def _run(self, target: Path, *more: str, store: Path | None = None) -> tuple[int, str, str]:
        out, err = io.StringIO(), io.StringIO()
        places = ["--from", str(store or self._store), "--to", f"{self._kind}:{target}"]
        with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
            code = archive.main([*places, *more])
        return code, out.getvalue(), err.getvalue()

    def _audited(self, *more: str) -> tuple[int, str, str]:
        out, err = io.StringIO(), io.StringIO()
        places = ["--from", str(self._store), "--against", f"{self._kind}:{self._path}"]
        with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
            code = audit.main([*places, *more])
        return code, out.getvalue(), err.getvalue()

    def _by_command(self) -> list[tuple[str, int]]:
        """What the command finds: each difference, and the queue offset of its message."""
        out = io.StringIO()
        wanted = Audited((str(self._store), f"{self._kind}:{self._path}"))
        with contextlib.redirect_stdout(out):
            differ = audited_by_command(wanted, Form(as_json=True))
        rows = [json.loads(line) for line in out.getvalue().splitlines()]
        assert differ == bool(rows)
        places = [
            row["secondQueueOffset"] if row["firstQueueOffset"] is None else row["firstQueueOffset"]
            for row in rows
        ]
        return [(row["difference"], place) for row, place in zip(rows, places, strict=True)]

    def _table(self, target: Path) -> LakeTable:
        return LAKE_TABLES[self._kind](self._spark, str(target))

    def _read(self, target: Path) -> DataFrame:
        return self._table(target).read()

    def _stored(self) -> DataFrame:
        return self._spark.read.format("mqlog").option("columns", "full").load(str(self._store))

    def _ids(self, target: Path) -> list[Id]:
        return ids(self._spark, self._kind, target)

    def _same(self, target: Path) -> None:
        stored = self._spark.read.format("mqlog").load(str(self._store)).select(*ID).collect()
        assert len(stored) == self._count
        assert self._ids(target) == sorted(tuple(row) for row in stored)


def ids(spark: SparkSession, kind: str, target: Path) -> list[Id]:
    """Return topic, queue, offset and id of each row of a table."""
    read = LAKE_TABLES[kind](spark, str(target)).read()
    return sorted(tuple(row) for row in read.select(*ID).collect())


def _judged(spark: SparkSession, kind: str, target: Path, store: str, checkpoint: str) -> None:
    """Archive what the store has, audit the table, and print its rows: what a test compares.

    In two runs: before Spark 4.2, the first one may repeat the batch of a killed run alone.
    """
    place = f"{kind}:{target}"
    for _ in range(2):
        assert archive.main(["--from", store, "--to", place, "--checkpoint", checkpoint]) == 0
    assert audit.main(["--from", store, "--against", place]) == 0
    for topic, queue, offset, msg_id in ids(spark, kind, target):
        sys.stdout.write(f"{topic} {queue} {offset} {msg_id}\n")


def _number(file: Path) -> int:
    return int(file.name)


def main(kind: str, folder: str, *names: str) -> None:
    """Run the steps, those named or all; an AssertionError is what did not hold.

    With the names ``judged STORE CHECKPOINT``: judge the archive in the table at FOLDER instead.
    """
    own = {**QUIET, **LOOPBACK, "spark.master": "local[2]", "spark.sql.shuffle.partitions": "2"}
    own["spark.databricks.delta.snapshotPartitions"] = "2"
    needed = settings(PACKAGES[kind], INSTALLED) if kind in PACKAGES else {}
    spark = session("lake", own, needed)
    try:
        if names[:1] == ("judged",):
            _judged(spark, kind, Path(folder), *names[1:])
            return
        steps = Lake(spark, kind, Path(folder))
        every: dict[str, Callable[[], None]] = {
            name: partial(step, steps)
            for name, step in vars(Lake).items()
            if not name.startswith("_")
        }
        for name in names or every:
            began = time.monotonic()
            every[name]()
            sys.stdout.write(f"{spark.version} {name} {time.monotonic() - began:.1f} s\n")
            sys.stdout.flush()
    finally:
        spark.stop()


if __name__ == "__main__":
    main(*sys.argv[1:])
