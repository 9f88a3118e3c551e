"""writeStream through Spark: each batch once, whatever is done again; nothing left behind."""

import errno
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pytest
from pyspark import TaskContext
from pyspark.errors import AnalysisException, StreamingQueryException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming import DataStreamWriter
from pyspark.sql.types import BinaryType, StringType, StructField, StructType

from mqstore.errors import NondeterministicWriteError, StoreError
from mqstore.files.base import durable
from mqstore.tables import commits
from mqstore.tables.choice import open_root
from mqstore.write import streams
from mqstore.write.errors import CommitInDoubtError
from mqstore.write.prepare import prepare
from mqstore.write.stage.settings import WriteSettings
from mqstore.write.stage.task import stage
from pyspark_mqlog.batch_writer import MqlogWriter
from pyspark_mqlog.options import parse_write
from pyspark_mqlog.stream_writer import MqlogStreamWriter, StagedBatch, StreamSettings
from support import goldens
from support.parts import rows as table_rows
from support.writing import SMALL, held, rows

NEW = {
    "topic": "T",
    "createStore": "true",
    "queueNums": "2",
    "mappedFileSizeCommitLog": "64k",
    "mappedFileSizeConsumeQueue": "2000",
    "maxHashSlotNum": "101",
    "maxIndexNum": "1000",
}
PER_BATCH = 20
PATIENCE_S = 300


@pytest.fixture
def root(tmp_path: Path, checked: Callable[[Path], Path]) -> Iterator[Path]:
    """Where a store may be made; it is checked if it was."""
    path = tmp_path / "broker-a" / "store"
    yield path
    if path.exists():
        checked(path)


def numbers(spark: SparkSession, start: int = 0) -> DataFrame:
    """PER_BATCH rows a batch, the same in a batch that is run again; a queue a partition."""
    source = spark.readStream.format("rate-micro-batch").option("rowsPerBatch", PER_BATCH)
    values = source.option("numPartitions", 2).load()
    return values.selectExpr(
        f"CAST(value + {start} AS STRING) AS body",
        "CAST(value % 2 AS INT) AS queueId",
        "CONCAT('k', value) AS keys",
    )


def sink(rows: DataFrame, checkpoint: Path, **options: str) -> DataStreamWriter:
    writer = rows.writeStream.format("mqlog").options(**{**NEW, **options})
    return writer.option("checkpointLocation", str(checkpoint))


def run(writer: DataStreamWriter, root: Path, batches: int) -> None:
    """Run the query until so many more batches are done."""
    query = writer.start(str(root))
    try:
        done = 0
        for _ in range(10 * PATIENCE_S):
            done = sum(p.numInputRows > 0 for p in query.recentProgress)
            if done >= batches or query.awaitTermination(0.1):  # type: ignore[arg-type]
                break
        assert done >= batches
    finally:
        query.stop()


def run_once(writer: DataStreamWriter, root: Path) -> None:
    """Run a query that ends by itself: no batch is planned that a stop would leave staged."""
    query = writer.trigger(availableNow=True).start(str(root))
    assert query.awaitTermination(PATIENCE_S)


def bodies(root: Path, queue_id: int) -> list[int]:
    return [int(m.body) for m in held(root) if m.queue_id == queue_id]


def ledger(root: Path) -> list[dict[str, object]]:
    return table_rows("commits", commits.plan(open_root(str(root))))


def staged(root: Path) -> list[Path]:
    return sorted((root / ".mqlog" / "staging").glob("*"))


@pytest.mark.spark
def test_every_batch_is_there_once_through_restarts_and_batches_that_are_run_again(
    spark: SparkSession, root: Path, tmp_path: Path
) -> None:
    checkpoint = tmp_path / "checkpoint"
    for _ in range(2):
        run(sink(numbers(spark), checkpoint), root, 2)
        # As after a kill between our commit and Spark's note of it.
        last = max(path for path in (checkpoint / "commits").glob("[0-9]*"))
        for path in (last, last.with_name(f".{last.name}.crc")):
            path.unlink()
    # One that ends by itself, and takes away what those that were stopped left half staged.
    last_run = sink(numbers(spark), checkpoint).trigger(availableNow=True).start(str(root))
    assert last_run.awaitTermination(PATIENCE_S)
    both = [bodies(root, queue_id) for queue_id in (0, 1)]
    assert [sorted(queue) for queue in both] == both, "out of order"
    found = sorted(both[0] + both[1])
    assert found == list(range(len(found)))
    assert len(found) >= 3 * PER_BATCH
    told = ledger(root)
    assert [row["batchId"] for row in told] == list(range(len(told)))
    assert {row["rows"] for row in told} == {PER_BATCH}
    assert {row["state"] for row in told} == {"done"}
    assert len({row["queryId"] for row in told}) == 1
    # One that is stopped before it says whose its folder is leaves it for a day.
    assert [folder for folder in staged(root) if (folder / "OWNER").exists()] == []


@pytest.mark.spark
def test_a_batch_without_rows_costs_no_file(
    spark: SparkSession, golden_550: Path, root: Path, tmp_path: Path
) -> None:
    source = spark.readStream.format("mqlog").option("startingOffsets", "earliest")
    none = source.option("tags", "NoSuchTag").load(str(golden_550)).select("body")
    query = sink(none, tmp_path / "checkpoint").trigger(availableNow=True).start(str(root))
    assert query.awaitTermination(PATIENCE_S)
    assert query.lastProgress is not None
    assert not root.exists()
    run_once(sink(numbers(spark), tmp_path / "other"), root)
    before = goldens.digest(root)
    run_once(sink(none, tmp_path / "again"), root)
    assert goldens.digest(root) == before


@pytest.mark.spark
def test_a_bad_row_ends_the_query_and_changes_nothing(
    spark: SparkSession, root: Path, tmp_path: Path
) -> None:
    run_once(sink(numbers(spark), tmp_path / "good"), root)
    before = goldens.digest(root)
    bad = numbers(spark).selectExpr("body", "IF(body = '7', 'a topic!', 'T') AS topic")
    writer = bad.writeStream.format("mqlog").option("checkpointLocation", str(tmp_path / "bad"))
    query = writer.trigger(availableNow=True).start(str(root))
    with pytest.raises(StreamingQueryException) as caught:
        query.awaitTermination(PATIENCE_S)
    assert "[MQLOG_INVALID_MESSAGE]" in str(caught.value)
    assert "a topic!" in str(caught.value)
    assert goldens.digest(root) == before


@pytest.mark.spark
@pytest.mark.parametrize(
    ("options", "told"),
    [
        ({"txnAppId": "a"}, "option txnAppId='a': is for df.write: a stream is exactly once witho"),
        ({"txnVersion": "1"}, "option txnVersion='1': is for df.write"),
        ({"maxOffsetsPerTrigger": "1"}, "is an option of streaming reads"),
        ({"topik": "T"}, "unknown option; did you mean topic?"),
        ({"createStore": "false"}, "[MQLOG_STORE_NOT_FOUND]"),
    ],
)
def test_a_mistake_is_told_before_a_task_runs(
    spark: SparkSession, root: Path, tmp_path: Path, options: dict[str, str], told: str
) -> None:
    writer = sink(numbers(spark), tmp_path / "checkpoint", **options)
    with pytest.raises((StreamingQueryException, AnalysisException)) as caught:
        writer.start(str(root)).awaitTermination(PATIENCE_S)
    assert told in str(caught.value)
    assert not root.exists()


@pytest.fixture
def counts(spark: SparkSession) -> DataFrame:
    return numbers(spark).groupBy("queueId").count().selectExpr("CAST(count AS STRING) AS body")


@pytest.mark.spark
@pytest.mark.parametrize(
    ("mode", "told"),
    [
        ("complete", "option outputMode='complete': a message store only grows: use append"),
        ("update", "does not support Update mode"),
    ],
)
def test_only_append_is_a_mode_of_output(
    counts: DataFrame, root: Path, tmp_path: Path, mode: str, told: str
) -> None:
    writer = sink(counts, tmp_path / "checkpoint").outputMode(mode)
    with pytest.raises(Exception, match=told):
        writer.start(str(root)).awaitTermination(PATIENCE_S)
    assert not root.exists()


SCHEMA = rows(1).schema


@pytest.fixture
def settings(root: Path) -> StreamSettings:
    return StreamSettings(WriteSettings(root=str(root), **SMALL), "file:/a/checkpoint")


def batch(settings: StreamSettings, number: int, *parts: pa.RecordBatch) -> list[StagedBatch]:
    """What the tasks of a batch say, told to another writer than they had."""
    job = prepare(settings.write, SCHEMA)
    assert settings.name is not None
    streams.claim(job, settings.name)
    keyed = streams.of_batch(job, "q-1", number)
    return [
        StagedBatch(keyed, stage(keyed, [part], partition=at, attempt=at))
        for at, part in enumerate(parts)
    ]


def test_a_batch_that_is_committed_again_is_there_once(
    settings: StreamSettings, root: Path
) -> None:
    messages = batch(settings, 0, rows(3), rows(2))
    for _ in range(2):
        MqlogStreamWriter(settings, None).commit(messages, 0)
    MqlogStreamWriter(settings, None).commit(batch(settings, 0, rows(2), rows(3)), 0)
    with pytest.raises(NondeterministicWriteError, match=r"5 rows were committed.* has 4 rows"):
        MqlogStreamWriter(settings, None).commit(batch(settings, 0, rows(4)), 0)
    assert len(held(root)) == 5
    MqlogStreamWriter(settings, None).commit(batch(settings, 1, rows(4)), 1)
    assert len(held(root)) == 9
    assert staged(root) == []


def test_an_abort_after_a_commit_changes_nothing(settings: StreamSettings, root: Path) -> None:
    messages = batch(settings, 0, rows(3))
    MqlogStreamWriter(settings, None).commit(messages, 0)
    before = goldens.digest(root)
    MqlogStreamWriter(settings, None).abort([*messages, None], 0)
    assert goldens.digest(root) == before
    assert len(held(root)) == 3


def test_a_batch_that_failed_leaves_no_staging_though_no_task_said_where(
    settings: StreamSettings, root: Path
) -> None:
    MqlogStreamWriter(settings, None).commit(batch(settings, 0, rows(3)), 0)
    batch(settings, 1, rows(3))  # Its driver was killed.
    batch(settings, 1)  # None of its tasks came to an end.
    other = StreamSettings(settings.write, "file:/another/checkpoint")
    kept = batch(other, 1, rows(3))
    assert len(staged(root)) == 3
    MqlogStreamWriter(settings, None).abort([None, None], 1)
    assert staged(root) == [Path(kept[0].job.target.staging)]
    MqlogStreamWriter(other, None).commit(kept, 1)
    assert staged(root) == []
    assert len(held(root)) == 3 + 3


def test_a_batch_of_which_all_rows_are_passed_over_is_no_commit(
    root: Path, settings: StreamSettings
) -> None:
    MqlogStreamWriter(settings, None).commit(batch(settings, 0, rows(3)), 0)
    before = goldens.digest(root)
    write = WriteSettings(root=str(root), on_invalid="skip")
    skipping = StreamSettings(write, settings.name)
    MqlogStreamWriter(skipping, None).commit(batch(skipping, 1, rows(2, topic="a topic!")), 1)
    assert goldens.digest(root) == before


@pytest.fixture
def task(monkeypatch: pytest.MonkeyPatch) -> dict[str, str]:
    """Be a task, partition 0, in this process; return its local properties."""
    monkeypatch.setattr(TaskContext, "_taskContext", None)
    context = TaskContext._getOrCreate()
    context._partitionId = context._taskAttemptId = 0
    context._localProperties = {}
    return context._localProperties


def batch_writer(root: Path, version: int) -> MqlogWriter:
    keyed = {"path": str(root), "createStore": "true", "txnAppId": "load"}
    options = parse_write({**keyed, "txnVersion": str(version)})
    schema = StructType([StructField("body", BinaryType()), StructField("topic", StringType())])
    return MqlogWriter(replace(options, **SMALL), schema, overwrite=False)


@pytest.mark.usefixtures("task")
def test_a_repeated_write_says_so(root: Path, caplog: pytest.LogCaptureFixture) -> None:
    for version in (1, 1, 0, 2):
        writer = batch_writer(root, version)
        writer.commit([writer.write(iter([rows(3)]))])
    assert len(held(root)) == 6
    assert warnings(caplog) == [
        "load version 1 was committed before: nothing was written",
        "load version 0 was committed before: nothing was written",
    ]


@pytest.mark.usefixtures("task")
def test_other_rows_of_a_committed_write_are_an_error(root: Path) -> None:
    for count in (3, 4):
        writer = batch_writer(root, 1)
        messages = [writer.write(iter([rows(count)]))]
        if count == 3:
            writer.commit(messages)
    with pytest.raises(NondeterministicWriteError, match=r"load version 1: 3 rows .* has 4 rows"):
        writer.commit(messages)
    assert len(held(root)) == 3


def warnings(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [r.message for r in caplog.records if r.levelname == "WARNING"]


@pytest.mark.usefixtures("task")
def test_a_commit_in_doubt_says_what_to_run_and_is_not_aborted(
    root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    batch_writer(root, 0).commit([])
    (row,) = ledger(root)
    assert (row["version"], row["rows"], row["firstPhysicalOffset"]) == (0, 0, None)
    writer = batch_writer(root, 1)
    messages = [writer.write(iter([rows(3)]))]
    replace_file, times = durable.replace, iter((True, False))

    def fail_once_decided(source: str, target: str) -> None:
        if target.endswith("pending.json") and not next(times):
            raise OSError(errno.EIO, "Input/output error")
        replace_file(source, target)

    with monkeypatch.context() as patched:
        patched.setattr(durable, "replace", fail_once_decided)
        with pytest.raises(CommitInDoubtError) as caught:
            writer.commit(messages)
    told = str(caught.value)
    assert "[MQLOG_COMMIT_IN_DOUBT]" in told
    assert f"mqlog recover {root}" in told
    writer.abort(messages)
    row = ledger(root)[-1]
    assert (row["version"], row["state"], row["committedAt"]) == (1, "decided", None)
    again = batch_writer(root, 1)
    again.commit([again.write(iter([rows(3)]))])
    assert len(held(root)) == 3
    assert [(row["version"], row["state"]) for row in ledger(root)] == [(0, "done"), (1, "done")]


def test_a_task_that_is_told_its_query_and_batch_says_them(
    settings: StreamSettings, root: Path, task: dict[str, str]
) -> None:
    job = prepare(settings.write, SCHEMA)
    with pytest.raises(StoreError, match=r"did not give the task sql\.streaming\.queryId"):
        MqlogStreamWriter(settings, job).write(iter([rows(3)]))
    with pytest.raises(StoreError, match="the writer of the commit"):
        MqlogStreamWriter(settings, None).write(iter([rows(3)]))
    task |= {"sql.streaming.queryId": "q-7", "streaming.sql.batchId": "12"}
    message = MqlogStreamWriter(settings, job).write(iter([rows(3)]))
    MqlogStreamWriter(settings, None).commit([message], 12)
    (row,) = ledger(root)
    assert (row["appId"], row["queryId"], row["batchId"]) == ("s:q-7", "q-7", 12)
