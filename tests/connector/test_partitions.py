"""What a partition carries to its task: a row of its own, and nothing that all tasks share."""

import pickle
from dataclasses import replace
from typing import Any

import pyarrow as pa
import pytest
from pyspark.serializers import CPickleSerializer
from pyspark.sql.datasource import InputPartition

from mqstore.read.settings import ScanSettings
from mqstore.read.source import QueueSlice
from mqstore.read.store_bounds import StoreOrigin
from mqstore.request.plan import MessageWork, plan_read, read_schema
from mqstore.request.sharing import PackedWork, SharedWork, shared
from pyspark_mqlog import stream_reader
from pyspark_mqlog.batch_reader import MqlogReader
from pyspark_mqlog.compat import ReadAllAvailable
from pyspark_mqlog.options import parse_read, parse_stream
from pyspark_mqlog.schema import to_struct
from pyspark_mqlog.stream_reader import MqlogStreamReader
from support.oracle import Message
from support.stores import MakeStore

SPARKS: Any = CPickleSerializer()
MESSAGES = [Message(topic="SHOP_ORDERS_PAID", queue_id=n % 4, body=b"%d" % n) for n in range(80)]
FAR = 10**12


def reader(path: str, **options: str) -> MqlogReader:
    parsed = parse_read({"path": path, **options})
    schema = read_schema(parsed)
    return MqlogReader(to_struct(schema), plan_read(parsed, schema.names))


def rows_of(reader: Any, partitions: list[InputPartition]) -> list[dict[str, Any]]:
    """Return what tasks read that have the reader and each one partition by Spark's pickles."""
    batches: list[pa.RecordBatch] = []
    for one in partitions:
        sent = SPARKS.loads(SPARKS.dumps(reader))
        batches += sent.read(SPARKS.loads(SPARKS.dumps(one)))
    return [row for batch in batches for row in batch.to_pylist()]


def test_a_partition_of_one_queue_is_at_most_150_bytes_in_sparks_pickle(store: MakeStore) -> None:
    ours = reader(str(store(MESSAGES).root), maxRecordsPerPartition="1")
    partitions = ours.partitions()
    assert len(partitions) == len(MESSAGES)
    (_, topic, queue_id, start, _) = partitions[-1].value
    far = InputPartition((0, topic, queue_id + 10_000, start + FAR, start + FAR + 1))

    assert max(len(SPARKS.dumps(one)) for one in [*partitions, far]) <= 150


def test_tasks_read_by_the_shared_part_what_the_plan_reads(store: MakeStore) -> None:
    ours = reader(str(store(MESSAGES).root), maxRecordsPerPartition="3", columns="queueId,body")

    rows = rows_of(ours, ours.partitions())
    assert sorted(row["body"] for row in rows) == sorted(m.body for m in MESSAGES)


def test_the_reader_in_a_task_has_no_partitions(store: MakeStore) -> None:
    root = str(store(MESSAGES).root)
    few, many = (reader(root, maxRecordsPerPartition=n) for n in ("80", "1"))

    assert len(SPARKS.dumps(few)) == len(SPARKS.dumps(many))


def test_an_empty_read_has_a_partition_of_spark_that_gives_nothing(store: MakeStore) -> None:
    empty = reader(str(store(MESSAGES).root), startingTimestamp="2100-01-01T00:00:00Z")

    assert empty.partitions() == []
    assert rows_of(empty, [InputPartition(None)]) == []


def test_a_tables_parts_share_columns(golden_550: Any) -> None:
    ours = reader(f"{golden_550}#queues", columns="topic,queueId")

    rows = rows_of(ours, ours.partitions())
    assert {"topic", "queueId"} == set(rows[0])
    assert any(row["topic"] == "GTopic" for row in rows)


@pytest.mark.parametrize("options", [{}, {"columns": "queueId,body,tags", "tags": "A || B"}])
def test_a_partition_of_a_stream_has_its_place_and_no_settings(
    store: MakeStore, options: dict[str, str]
) -> None:
    root = str(store(MESSAGES).root)
    parsed = parse_stream({"path": root, "startingOffsets": "earliest", **options})
    schema = read_schema(parsed.read)
    ours = MqlogStreamReader(parsed, to_struct(schema), tuple(schema.names))
    try:
        start = ours.initialOffset()
        end = ours.latestOffset(start, ours.getDefaultReadLimit())
        partitions = ours.partitions(start, end)
        rows = rows_of(ours, partitions)
    finally:
        ours.stop()

    passing = [] if options else MESSAGES
    assert sorted(row["body"] for row in rows) == sorted(m.body for m in passing)
    for one in partitions:
        places, row = one.value
        of_places = len(SPARKS.dumps(places))
        assert len(SPARKS.dumps(one)) - of_places <= 120 + 10 * len(row)


def work_of(count: int) -> list[MessageWork]:
    origin = StoreOrigin.at("/data/broker-a/store")
    settings = ScanSettings(columns=("topic", "body"))
    return [
        MessageWork(
            (QueueSlice(origin, "broker-a", "SHOP_ORDERS", n % 8, FAR + n, FAR + n + 1),), settings
        )
        for n in range(count)
    ]


def test_work_for_a_function_is_one_pickle_of_few_bytes_a_task() -> None:
    works = work_of(1_000)
    packed = PackedWork.of(works)

    assert [packed.work(n) for n in (0, 1, 999)] == [works[n] for n in (0, 1, 999)]
    assert len(pickle.dumps(packed)) < 1_000 * 80 + 1_000


def test_a_task_of_a_function_unpickles_its_own_row_alone(monkeypatch: Any) -> None:
    packed = PackedWork.of(work_of(50))
    made: list[object] = []
    whole = SharedWork.of
    monkeypatch.setattr(SharedWork, "of", lambda self, row: made.append(row) or whole(self, row))

    packed.work(7)
    assert len(made) == 1
    assert len(made[0]) == 5  # type: ignore[arg-type]


def test_origins_that_are_equal_and_carry_other_facts_stay_apart() -> None:
    (first,) = work_of(1)
    twin = replace(first.slices[0], origin=StoreOrigin.at("/data/broker-a/store"))
    both = replace(first, slices=(*first.slices, twin))
    common, rows = shared([both])

    assert common is not None
    assert len(common.places) == 2
    assert common.of(rows[0]) == both


def stream_of(root: str, **options: str) -> MqlogStreamReader:
    parsed = parse_stream({"path": root, "startingOffsets": "earliest", **options})
    schema = read_schema(parsed.read)
    return MqlogStreamReader(parsed, to_struct(schema), tuple(schema.names))


def test_offsets_of_very_many_queues_are_packed_and_read_on_from(
    store: MakeStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    root = str(store(MESSAGES).root)
    plain = stream_of(root, maxOffsetsPerTrigger="20")
    limit = plain.getDefaultReadLimit()
    start = plain.initialOffset()
    middle = plain.latestOffset(start, limit)
    monkeypatch.setattr(stream_reader, "_PACKED_FROM", 3)
    later = stream_of(root, maxOffsetsPerTrigger="20")

    end = later.latestOffset(middle, limit)  # From a checkpoint that was written before.
    assert list(middle) == ["SHOP_ORDERS_PAID"]
    assert list(end) == ["/packed"]
    assert later.reportLatestOffset() is None
    last = stream_of(root).latestOffset(end, ReadAllAvailable())
    steps = [(start, middle), (middle, end), (end, last)]
    rows = [row for a, b in steps for row in rows_of(later, later.partitions(a, b))]
    assert sorted(row["body"] for row in rows) == sorted(m.body for m in MESSAGES)
    assert later.latestOffset(last, limit) is last


@pytest.mark.parametrize(
    ("spent_s", "rest_s"), [(0.0004, 0.0), (0.001, 0.019), (0.01, 0.19), (2.0, 1.0)]
)
def test_an_idle_query_rests_by_what_its_looks_cost(
    store: MakeStore, monkeypatch: pytest.MonkeyPatch, spent_s: float, rest_s: float
) -> None:
    ours = stream_of(str(store(MESSAGES).root))
    end = ours.latestOffset(ours.initialOffset(), ReadAllAvailable())
    rested: list[float] = []
    spent = iter(spent_s * n for n in range(100))
    monkeypatch.setattr(stream_reader.time, "process_time", lambda: next(spent))
    monkeypatch.setattr(stream_reader.time, "sleep", rested.append)

    ours.latestOffset(end, ReadAllAvailable())
    assert rested == []  # The first idle look of a query may be its last.
    ours.latestOffset(end, ReadAllAvailable())
    assert rested == pytest.approx([rest_s] if rest_s else [])


def test_a_query_that_ends_does_not_rest(store: MakeStore, monkeypatch: pytest.MonkeyPatch) -> None:
    ours = stream_of(str(store(MESSAGES).root))
    ours.prepareForTriggerAvailableNow()
    end = ours.latestOffset(ours.initialOffset(), ReadAllAvailable())
    spent = iter(range(100))
    monkeypatch.setattr(stream_reader.time, "process_time", lambda: next(spent))
    monkeypatch.setattr(stream_reader.time, "sleep", lambda _: pytest.fail("it rests"))

    for _ in range(3):
        assert ours.latestOffset(end, ReadAllAvailable()) is end
