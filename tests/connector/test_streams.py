"""Streams through Spark: triggers, limits, checkpoints and restarts, options, named errors."""

import json
import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from pyspark.errors import AnalysisException, StreamingQueryException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming import StreamingQuery
from pyspark.sql.streaming.datasource import ReadAllAvailable
from pyspark.sql.types import StructType

from mqstore.errors import DataLossError, InvalidOptionError, UnknownTopicError
from mqstore.files.base.store_dir import StoreDir
from mqstore.files.config.broker_config import BrokerConfig
from mqstore.format.names import TRACE_TOPIC
from pyspark_mqlog.datasource import MqlogDataSource
from pyspark_mqlog.options import parse_stream
from pyspark_mqlog.stream_reader import MqlogStreamReader
from support import oracle
from support.growing import grow
from support.oracle import Message
from support.stores import Layout, MakeStore

Place = tuple[str, int, int]
PATH = {"path": "/data/broker-a/store"}
COLUMNS = "topic string, queueId int, queueOffset bigint"


def messages(count: int, *, topics: Sequence[str] = ("T",), queues: int = 3) -> list[Message]:
    return [
        Message(topic=topics[i % len(topics)], queue_id=i % queues, body=b"%d" % i)
        for i in range(count)
    ]


def stream(spark: SparkSession, root: Path | str, **options: str) -> DataFrame:
    return spark.readStream.schema(COLUMNS).format("mqlog").options(**options).load(str(root))


class Job:
    """A query into Parquet, run again and again from one checkpoint."""

    def __init__(self, spark: SparkSession, directory: Path) -> None:
        self._spark = spark
        self.checkpoint = directory / "checkpoint"
        self.output = directory / "rows"

    def run(self, rows: DataFrame) -> list[dict[str, Any]]:
        """Read what there is; return the progress of the batches."""
        writer = rows.writeStream.format("parquet").option("path", str(self.output))
        query = writer.option("checkpointLocation", str(self.checkpoint)).trigger(availableNow=True)
        started = query.start()
        assert started.awaitTermination(120)
        return [json.loads(progress.json) for progress in started.recentProgress]

    def places(self) -> list[Place]:
        return sorted(tuple(row) for row in self._spark.read.parquet(str(self.output)).collect())


@pytest.fixture
def job(spark: SparkSession, tmp_path: Path) -> Job:
    return Job(spark, tmp_path / "job")


def expected(count: int, topic: str = "T", queues: int = 3) -> list[Place]:
    return sorted((topic, i % queues, i // queues) for i in range(count))


@pytest.mark.spark
def test_available_now_reads_in_limited_batches_and_a_second_run_adds_what_is_new(
    spark: SparkSession, store: MakeStore, job: Job
) -> None:
    laid = store(messages(25))
    limited = stream(spark, laid.root, startingOffsets="earliest", maxOffsetsPerTrigger="10")
    progress = job.run(limited)
    assert [p["numInputRows"] for p in progress if p["numInputRows"]] == [10, 10, 5]
    source = progress[0]["sources"][0]
    assert source["endOffset"] == {"T": {"0": 4, "1": 3, "2": 3}}
    assert source["latestOffset"] == {"T": {"0": 9, "1": 8, "2": 8}}
    assert sum(p["numInputRows"] for p in job.run(limited)) == 0
    laid = grow(laid, [*messages(25), Message(topic="New"), *messages(30)[25:]])
    assert sum(p["numInputRows"] for p in job.run(limited)) == 6
    assert job.places() == sorted([*expected(30), ("New", 0, 0)])


@pytest.mark.spark
def test_a_batch_that_was_not_done_is_read_again_the_same(
    spark: SparkSession, store: MakeStore, job: Job
) -> None:
    """Also where the start moves: between the crash and the restart the store grew."""
    laid = store(messages(20))
    job.run(stream(spark, laid.root))
    laid = grow(laid, messages(40))
    job.run(stream(spark, laid.root, maxOffsetsPerTrigger="15"))
    for commit in (job.checkpoint / "commits").glob("*"):  # None of the batches was done.
        commit.unlink()
    for offsets in (job.checkpoint / "offsets").glob("*"):
        if offsets.name not in {"0", ".0.crc"}:
            offsets.unlink()
    shutil.rmtree(job.output)
    grow(laid, messages(45))
    job.run(stream(spark, laid.root))
    assert job.places() == sorted(set(expected(45)) - set(expected(20)))


@pytest.mark.spark
def test_a_running_query_follows_the_store(
    spark: SparkSession, store: MakeStore, tmp_path: Path
) -> None:
    laid = store(messages(10))
    rows = stream(spark, laid.root, subscribePattern="T|U", tags="*")
    query = rows.writeStream.format("memory").queryName("followed").start()
    try:
        query.processAllAvailable()
        assert spark.table("followed").count() == 0  # The default starts at the latest.
        grow(laid, messages(16))
        query.processAllAvailable()
        assert sorted(map(tuple, spark.table("followed").collect())) == sorted(
            set(expected(16)) - set(expected(10))
        )
        offsets = [json.loads(p.json)["sources"][0]["endOffset"] for p in query.recentProgress]
        assert offsets[-1] == {"T": {"0": 6, "1": 5, "2": 5}}
    finally:
        query.stop()


@pytest.mark.spark
def test_a_checkpoint_of_a_store_that_was_rebuilt_is_an_error(
    spark: SparkSession, store: MakeStore, job: Job
) -> None:
    earliest = {"startingOffsets": "earliest"}
    job.run(stream(spark, store(messages(25)).root, **earliest))
    rebuilt = store(messages(12))
    told = failure(lambda: job.run(stream(spark, rebuilt.root, **earliest)))
    assert "[MQLOG_DATA_LOSS.STORE_REPLACED] T/0 of " in told
    assert "ends at queue offset 4, but was read up to 9" in told
    assert "start it with a new checkpointLocation" in told
    going_on = stream(spark, rebuilt.root, **earliest, failOnDataLoss="false")
    assert sum(p["numInputRows"] for p in job.run(going_on)) == 0
    grow(rebuilt, messages(13))
    assert sum(p["numInputRows"] for p in job.run(going_on)) == 1


@pytest.mark.spark
def test_what_only_a_batch_has_is_refused_when_the_query_starts(
    spark: SparkSession, store: MakeStore
) -> None:
    laid = store(messages(1))
    told = failure(lambda: noop(stream(spark, laid.root, endingOffsets="latest")))
    assert "[MQLOG_INVALID_OPTION] option endingOffsets='latest': is for spark.read" in told
    with pytest.raises(AnalysisException, match="maxOffsetsPerTrigger='0': must be a whole"):
        spark.readStream.format("mqlog").option("maxOffsetsPerTrigger", "0").load(str(laid.root))
    batch = spark.read.format("mqlog").option("maxOffsetsPerTrigger", "5").load(str(laid.root))
    with pytest.raises(AnalysisException, match="is for streaming reads"):
        batch.collect()


def noop(rows: DataFrame) -> StreamingQuery:
    query = rows.writeStream.format("noop").trigger(availableNow=True).start()
    query.awaitTermination(60)
    return query


def failure(fails: Any) -> str:
    with pytest.raises(StreamingQueryException) as caught:
        fails()
    return str(caught.value)


def test_a_streams_options_are_a_batchs_and_its_own() -> None:
    found = parse_stream({**PATH, "startingOffsets": "-5", "maxBytesPerTrigger": "1m", "tags": "A"})
    assert found.read.starting_offsets.last_count == 5
    assert (found.read.tags, found.max_bytes, found.max_delay_ms) == ("A", 2**20, 900_000)
    assert not found.has_fixed_start
    assert parse_stream({**PATH, "startingOffsets": "earliest"}).has_fixed_start


@pytest.mark.parametrize(
    ("name", "text", "told"),
    [
        ("endingOffsets", "latest", "is for spark.read: a stream has no end"),
        ("endingTimestamp", "1", "is for spark.read: a stream has no end"),
        ("table", "queues", "a stream reads messages"),
        ("path", "/s#backlog", "a stream reads messages or traces: other tables are for a batch"),
        ("traceTopic", "T", "is for table=latency|traces, not messages"),
        ("checkpointLocation", "/c", "is for writeStream: a read has none"),
        ("groups", "g", "is for tables"),
        ("minOffsetsPerTrigger", "x", "must be a whole number"),
        ("maxTriggerDelay", "soon", "must be a duration"),
        ("maxOfsetsPerTrigger", "1", "did you mean maxOffsetsPerTrigger?"),
        ("maxRecordsPerTrigger", "1", "unknown option; did you mean maxOffsetsPerTrigger?"),
        ("topic", "A", "in a read use subscribe"),
    ],
)
def test_an_option_of_a_stream_is_refused_in_words_that_help(
    name: str, text: str, told: str
) -> None:
    with pytest.raises(InvalidOptionError) as caught:
        parse_stream({**PATH, name: text})
    assert told in str(caught.value)


def test_a_stream_may_say_that_it_reads_messages() -> None:
    both = {"path": "/s#messages", "table": "Messages"}
    assert parse_stream(both).read.places.paths == ("/s",)
    with pytest.raises(InvalidOptionError, match="table='queues': the path has #messages"):
        parse_stream(both | {"table": "queues"})


@pytest.mark.parametrize(
    ("name", "text", "told"),
    [
        ("tags", "a", "is for table=latency|messages|tags, not traces"),
        ("subscribe", "a", "not traces"),
        ("path", "rocketmq://h:1/T", "its topic is RMQ_SYS_TRACE_TOPIC, or that of traceTopic"),
        ("interval", "1m", "is for tables"),
        ("endingTimestamp", "1", "is for spark.read: a stream has no end"),
    ],
)
def test_an_option_of_a_stream_of_traces_is_refused_in_words_that_help(
    name: str, text: str, told: str
) -> None:
    with pytest.raises(InvalidOptionError) as caught:
        parse_stream({**PATH, "table": "traces", name: text})
    assert told in str(caught.value)


def traced(count: int) -> list[Message]:
    """Trace messages, each with a delivery's start and end."""
    before = "SubBefore\x01%d\x01r\x01g\x01q%d\x01ID%d\x010\x01k\x02"
    after = "SubAfter\x01q%d\x01ID%d\x013\x01true\x01k\x010\x01%d\x01g\x02"
    return [
        Message(topic=TRACE_TOPIC, body=(before % (i, i, i) + after % (i, i, i)).encode())
        for i in range(count)
    ]


@pytest.mark.spark
def test_a_stream_of_traces_has_each_event_once_also_after_a_batch_that_was_not_done(
    spark: SparkSession, store: MakeStore, job: Job
) -> None:
    def followed(**options: str) -> DataFrame:
        source = spark.readStream.format("mqlog").options(startingOffsets="earliest", **options)
        return source.load(f"{laid.root}#traces").select("event", "msgId", "queueOffset")

    laid = store(traced(10))
    job.run(followed(maxOffsetsPerTrigger="4"))
    laid = grow(laid, traced(15))
    job.run(followed())
    last = max(int(one.name) for one in (job.checkpoint / "commits").glob("[0-9]*"))
    (job.checkpoint / "commits" / str(last)).unlink()
    (job.checkpoint / "commits" / f".{last}.crc").unlink(missing_ok=True)
    laid = grow(laid, traced(18))
    job.run(followed())

    batch = spark.read.format("mqlog").option("table", "traces").load(str(laid.root))
    read = sorted(tuple(row) for row in batch.select("event", "msgId", "queueOffset").collect())
    assert len(read) == 36
    assert job.places() == read


def test_a_minimum_above_the_maximum_is_refused() -> None:
    with pytest.raises(InvalidOptionError, match="is more than maxOffsetsPerTrigger=3"):
        parse_stream({**PATH, "minOffsetsPerTrigger": "4", "maxOffsetsPerTrigger": "3"})


def test_progress_is_published_as_a_group_once_it_is_done(store: MakeStore) -> None:
    laid = store(messages(9))
    options = parse_stream(
        {"path": str(laid.root), "startingOffsets": "earliest", "commitGroup": "audit"}
    )
    reader = MqlogStreamReader(options, StructType(), ("queueOffset",))
    start = reader.initialOffset()
    end = reader.latestOffset(start, reader.getDefaultReadLimit())
    assert BrokerConfig(StoreDir.at(laid.root)).consumer_offsets() == {
        ("T", "audit"): {0: 0, 1: 0, 2: 0}
    }
    reader.commit(end)
    assert BrokerConfig(StoreDir.at(laid.root)).consumer_offsets() == {
        ("T", "audit"): {0: 3, 1: 3, 2: 3}
    }
    assert reader.latestOffset(end, reader.getDefaultReadLimit()) is end
    reader.stop()


def reader_of(root: Path, **options: str) -> MqlogStreamReader:
    return MqlogStreamReader(
        parse_stream({"path": str(root), **options}), StructType(), ("queueOffset",)
    )


def all_now(reader: MqlogStreamReader, start: dict[str, Any]) -> dict[str, Any]:
    """Return where a stream from ``start`` ends, as a trigger of available-now asks for it."""
    reader.prepareForTriggerAvailableNow()
    limit, end = reader.getDefaultReadLimit(), start
    for _ in range(2):  # A start that moves is marked by a batch of its own.
        end = reader.latestOffset(end, limit)
    return end


def test_a_stream_from_a_group_follows_the_topics_of_the_group(store: MakeStore) -> None:
    committed = {("T", "g"): {0: 1, 1: 9}, ("Later", "g"): {0: 4}, ("U", "other"): {0: 0}}
    laid = store(messages(8, topics=("T", "U"), queues=2), Layout(group_offsets=committed))
    reader = reader_of(laid.root, startingGroup="g")
    start = reader.initialOffset()
    assert start == {"Later": {"0": 0}, "T": {"0": 1}}
    assert all_now(reader, start) == {"Later": {"0": 0}, "T": {"0": 4}}
    assert reader.reportLatestOffset() == {"T": {"0": 4}}
    reader.stop()
    with pytest.raises(InvalidOptionError, match="startingGroup='idle': the group has committed"):
        reader_of(idle_group(laid.root), startingGroup="idle").initialOffset()


@pytest.mark.parametrize("choice", [{"subscribe": "T,U"}, {"assign": '{"T":[0],"U":[0]}'}])
def test_a_topic_that_was_deleted_stops_a_stream_unless_it_accepts_losses(
    store: MakeStore, choice: dict[str, str]
) -> None:
    laid = store([Message(topic=topic) for topic in "TTU"])
    earliest = choice | {"startingOffsets": "earliest"}
    first = reader_of(laid.root, **earliest)
    end = first.latestOffset(first.initialOffset(), ReadAllAvailable())
    first.stop()
    assert end == {"T": {"0": 2}, "U": {"0": 1}}
    rest = grow(store([]), [Message(topic="T") for _ in range(3)])
    going_on = earliest | {"failOnDataLoss": "false"}
    for options in (earliest, going_on):
        with pytest.raises(UnknownTopicError, match="no topic U; the topics are T"):
            reader_of(rest.root, **options).initialOffset()
    with pytest.raises(UnknownTopicError, match="no topic U; the topics are T"):
        reader_of(rest.root, **earliest).latestOffset(end, ReadAllAvailable())
    again = reader_of(rest.root, **going_on)
    assert again.latestOffset(end, ReadAllAvailable()) == {"T": {"0": 3}, "U": {"0": 1}}
    again.stop()
    schema = MqlogDataSource({"path": str(rest.root), **going_on}).schema()
    with pytest.raises(UnknownTopicError, match="no topic U"):
        MqlogDataSource({"path": str(rest.root), **going_on}).reader(schema)
    with pytest.raises(UnknownTopicError, match="no topic U"):
        MqlogDataSource({"path": str(rest.root), **earliest}).schema()


def idle_group(root: Path) -> Path:
    table = json.dumps({"subscriptionGroupTable": {"idle": {"groupName": "idle"}}})
    (root / "config" / "subscriptionGroup.json").write_text(table)
    return root


def test_a_position_in_a_queue_that_is_not_there_is_an_error(store: MakeStore) -> None:
    laid = store(messages(9))
    topics = {"topicConfigTable": {"T": {"readQueueNums": 8, "writeQueueNums": 8}}}
    (laid.root / "config" / "topics.json").write_text(json.dumps(topics))
    options = {"path": str(laid.root), "startingOffsets": '{"T":{"7":5}}'}
    reader = MqlogStreamReader(parse_stream(options), StructType(), ("queueOffset",))
    with pytest.raises(DataLossError, match=r"T/7: queue offsets \[5, 5\) were requested"):
        reader.initialOffset()


def test_offsets_of_several_stores_have_a_broker_level(store: MakeStore) -> None:
    roots = [str(store(messages(count)).root) for count in (5, 7)]
    options = parse_stream({"paths": json.dumps(roots), "startingOffsets": "earliest"})
    reader = MqlogStreamReader(options, StructType(), ("queueOffset",))
    limit = reader.getDefaultReadLimit()
    end = reader.latestOffset(reader.initialOffset(), limit)
    counts = {"broker-1": {"0": 2, "1": 2, "2": 1}, "broker-2": {"0": 3, "1": 2, "2": 2}}
    assert end == reader.reportLatestOffset() == {"T": counts}
    (partition,) = reader.partitions(reader.initialOffset(), end)
    places, row = partition.value
    assert [broker for _, broker in places] == ["broker-1", "broker-2"]
    assert len(row) == 6 * 5  # Of each slice its place, topic, queueId, start and end.
    reader.stop()


def test_a_stream_selects_by_sql_and_goes_on_behind_what_it_left_out(store: MakeStore) -> None:
    properties = [oracle.join_properties({"a": str(number)}) for number in range(8)]
    laid = store([Message(topic="T", properties=each) for each in properties])
    options = parse_stream(
        {"path": str(laid.root), "startingOffsets": "earliest", "sql": "a BETWEEN 2 AND 3"}
    )
    schema = StructType().add("queueOffset", "long")
    reader = MqlogStreamReader(options, schema, ("queueOffset",))
    start = reader.initialOffset()
    end = reader.latestOffset(start, reader.getDefaultReadLimit())
    assert end == {"T": {"0": 8}}
    found = [
        row["queueOffset"]
        for part in reader.partitions(start, end)
        for batch in reader.read(part)
        for row in batch.to_pylist()
    ]
    assert found == [2, 3]
    reader.stop()
