"""Streams as Spark 4.0 and 4.1 ask for them: no start, no limit, one batch of an AvailableNow."""

import json
import logging
from typing import Any

import pytest
from pyspark.sql.types import StructType

from mqstore.errors import StoreError
from pyspark_mqlog.datasource import MqlogDataSource
from pyspark_mqlog.options import parse_stream
from pyspark_mqlog.schema import check_projection
from pyspark_mqlog.start_keeping import StartKeepingReader
from pyspark_mqlog.stream_reader import MqlogStreamReader
from support.growing import grow
from support.oracle import Message
from support.stores import Laid, MakeStore

SCHEMA = StructType().add("topic", "string").add("queueId", "integer").add("queueOffset", "long")
Place = tuple[str, int, int]


def messages(count: int, topic: str = "T") -> list[Message]:
    return [Message(topic=topic, queue_id=i % 2, body=b"%d" % i) for i in range(count)]


def inner(laid: Laid, **given: str) -> MqlogStreamReader:
    options = parse_stream({"path": str(laid.root), **given})
    return MqlogStreamReader(options, SCHEMA, check_projection(SCHEMA, options.read))


def asked(laid: Laid, **given: str) -> StartKeepingReader:
    return StartKeepingReader(inner(laid, **given))


def told(document: Any) -> Any:
    return json.loads(json.dumps(document))  # As it comes back from Spark.


def places(reader: Any, start: Any, end: Any) -> list[Place]:
    found: list[Place] = []
    for part in reader.partitions(told(start), told(end)):
        for batch in reader.read(part):
            found += [tuple(row.values()) for row in batch.to_pylist()]
    return sorted(found)


def expected(first: int, end: int) -> list[Place]:
    return sorted(("T", i % 2, i // 2) for i in range(first, end))


def test_batches_of_a_limit_follow_each_other_to_the_end(store: MakeStore) -> None:
    reader = asked(store(messages(10)), startingOffsets="earliest", maxOffsetsPerTrigger="4")
    start, found, sizes = None, [], []
    for _ in range(5):
        end = reader.latestOffset()
        if end == start:
            break
        rows = places(reader, reader.initialOffset() if start is None else start, end)
        start, found, sizes = end, found + rows, [*sizes, len(rows)]
    assert sizes == [4, 4, 2]
    assert sorted(found) == expected(0, 10)
    assert reader.latestOffset() == start  # Spark would run an empty batch otherwise.


def test_a_batch_whose_plan_spark_drops_is_not_given_again(store: MakeStore) -> None:
    """Without its partitions asked for: a filter that lets nothing through takes the scan away."""
    reader = asked(store(messages(10)), startingOffsets="earliest", maxOffsetsPerTrigger="4")
    first = reader.latestOffset()
    assert places(reader, first, reader.latestOffset()) != places(reader, {}, first)


def test_a_restarted_query_goes_on_where_its_last_batch_ended(store: MakeStore) -> None:
    laid = store(messages(10))
    end = asked(laid, startingOffsets="earliest", maxOffsetsPerTrigger="4").latestOffset()
    again = asked(laid, startingOffsets="earliest")
    assert places(again, end, end) == []  # How Spark 4.0 and 4.1 tell where the query stands.
    assert len(places(again, end, again.latestOffset())) == 6


@pytest.mark.parametrize("start", ["latest", "timestamp"])
def test_a_first_batch_that_was_not_done_is_read_again_from_the_start_it_had(
    store: MakeStore, start: str
) -> None:
    laid = store(messages(10))
    moving = {"startingTimestamp": "2000-01-01T00:00:00Z"} if start != "latest" else {}
    end = asked(laid, **moving).latestOffset()
    laid = grow(laid, messages(16))
    again = asked(laid)  # A start of its own would be behind the 16.
    first = places(again, end, end)
    assert first == places(again, again.initialOffset(), end)
    assert first == ([] if start == "latest" else expected(0, 10))
    assert places(again, end, again.latestOffset()) == expected(10, 16)


def test_a_checkpoint_is_read_on_by_a_newer_spark(store: MakeStore) -> None:
    laid = store(messages(10))
    end = asked(laid, startingTimestamp="2000-01-01T00:00:00Z").latestOffset()
    laid = grow(laid, messages(16))
    newer = inner(laid)
    assert places(newer, newer.initialOffset(), end) == expected(0, 10)
    latest = newer.latestOffset(told(end), newer.getDefaultReadLimit())
    assert places(newer, end, latest) == expected(10, 16)


def test_a_limit_that_leaves_messages_is_told_once(
    store: MakeStore, caplog: pytest.LogCaptureFixture
) -> None:
    laid = store(messages(10))
    with caplog.at_level(logging.WARNING):
        asked(laid, startingOffsets="earliest", maxOffsetsPerTrigger="10").latestOffset()
        asked(laid, startingOffsets="earliest").latestOffset()
        assert caplog.records == []
        reader = asked(laid, startingOffsets="earliest", maxBytesPerTrigger="300")
        reader.latestOffset()
        reader.latestOffset()
    (record,) = caplog.records
    assert "start such a query again until it reads nothing" in record.getMessage()


def test_a_wrong_option_is_the_answer_to_the_first_question() -> None:
    source = MqlogDataSource({"path": "/data/store", "subscrib": "T"})
    reader: Any = source.streamReader(SCHEMA)
    for ask in (reader.initialOffset, reader.latestOffset, lambda: reader.partitions({}, {})):
        with pytest.raises(StoreError, match="did you mean subscribe"):
            ask()
