"""What a read of any kind of place does: the same claims for all."""

import json
import logging
import pickle
from collections.abc import Mapping, Sequence
from typing import Any

import pytest
from pyspark.sql.streaming.datasource import ReadAllAvailable
from pyspark.sql.types import StructType

from mqstore.errors import CorruptStoreError, DataLossError, InvalidOptionError
from mqstore.request.plan import Work, plan_read, read_schema
from places.kinds import AT_REST, KINDS, START_MS, TOGETHER, TOPIC, Place
from pyspark_mqlog.options import parse_read, parse_stream
from pyspark_mqlog.stream_reader import MqlogStreamReader
from support.oracle import Message

Rows = list[dict[str, Any]]

PARTS = [4, 2]
"""One of so many parts of the log expires: a quarter ends within the first file of each queue."""


def planned(place: Place, **options: str | None) -> Sequence[Work]:
    """The work of a read's tasks."""
    texts = {**place.options, "subscribe": TOPIC, **options}
    parsed = parse_read({name: text for name, text in texts.items() if text is not None})
    return plan_read(parsed, read_schema(parsed).names).work()


def given(work: Sequence[Work]) -> Rows:
    """What tasks give; each gets its work from a pickle."""
    found: Rows = []
    for share in work:
        for batch in pickle.loads(pickle.dumps(share)).batches():
            found += batch.to_pylist()
    return found


def rows(work: Sequence[Work]) -> Rows:
    return sorted(given(work), key=lambda row: (row["queueId"], row["queueOffset"]))


def shown(found: Rows) -> list[tuple[object, ...]]:
    names = ("queueId", "queueOffset", "body", "tags")
    times = [int(row["storeTimestamp"].timestamp() * 1000) for row in found]
    return [(*(row[name] for name in names), ms) for row, ms in zip(found, times, strict=True)]


def expected(messages: Sequence[Message]) -> list[tuple[object, ...]]:
    return [
        (m.queue_id, m.queue_offset, m.body, m.properties_map["TAGS"], m.store_timestamp_ms)
        for m in messages
    ]


def places_of(messages: Sequence[Message]) -> list[tuple[int, int]]:
    return [(m.queue_id, m.queue_offset) for m in messages]


def found_places(found: Rows) -> list[tuple[int, int]]:
    return [(row["queueId"], row["queueOffset"]) for row in found]


def edges(messages: Sequence[Message]) -> dict[int, tuple[int, int]]:
    found: dict[int, tuple[int, int]] = {}
    for m in messages:
        low, _ = found.get(m.queue_id, (m.queue_offset, 0))
        found[m.queue_id] = low, m.queue_offset + 1
    return found


def bounds(place: Place) -> dict[int, tuple[int, int]]:
    return {
        row["queueId"]: (row["minOffset"], row["maxOffset"])
        for row in given(planned(place, table="queues"))
    }


def test_every_message_is_read_once_as_it_was_sent(place: Place) -> None:
    assert len(place.held) == 96
    assert shown(rows(planned(place))) == expected(place.held)


def test_each_message_is_a_row_of_changes_that_names_its_place_and_has_its_bytes(
    place: Place,
) -> None:
    found = rows(planned(place, changes="auto", tags="A"))
    of_tag = [m for m in place.held if m.properties_map["TAGS"] == "A"]
    assert found_places(found) == places_of(of_tag)
    assert [(row["op"], row["_corruptBody"], row["topic"]) for row in found] == [
        (None, m.body, TOPIC)
        for m in of_tag  # The bodies of these places are no changes.
    ]
    assert {row["rowInMessage"] for row in found} == {0}
    assert {row["brokerName"] for row in found} == {rows(planned(place))[0]["brokerName"]}


def test_what_expired_before_the_plan_is_no_loss(
    place: Place, caplog: pytest.LogCaptureFixture
) -> None:
    place.expire(2)
    assert 0 < len(place.held) < 96
    with caplog.at_level(logging.WARNING):
        assert shown(rows(planned(place))) == expected(place.held)
    assert not caplog.records


@pytest.mark.parametrize("part", [None, *PARTS])
def test_bounds_are_the_first_message_held_and_the_end(place: Place, part: int | None) -> None:
    if part is not None:
        place.expire(part)
    assert bounds(place) == edges(place.held)


def test_partitions_have_no_more_messages_than_asked_for(place: Place) -> None:
    work = planned(place, maxRecordsPerPartition="10")
    assert len(work) >= 10
    assert all(len(rows([share])) <= 10 for share in work)
    assert shown(rows(work)) == expected(place.held)


@pytest.mark.parametrize("ms", [-1, 0, 35, 70, 230])
def test_a_read_starts_at_the_first_message_of_a_time(place: Place, ms: int) -> None:
    after = START_MS + ms
    found = rows(planned(place, startingTimestamp=str(after)))
    assert shown(found) == expected([m for m in place.held if m.store_timestamp_ms >= after])


def test_tags_choose_messages(place: Place) -> None:
    tagged = [m for m in place.held if m.properties_map["TAGS"] == "B"]
    assert shown(rows(planned(place, tags="B"))) == expected(tagged)


@pytest.mark.parametrize("part", PARTS)
def test_what_expires_after_the_plan_is_a_data_loss(place: Place, part: int) -> None:
    work = planned(place)
    place.expire(part)
    with pytest.raises(DataLossError, match=r"@1/[01].*failOnDataLoss=false"):
        rows(work)


@pytest.mark.parametrize("part", PARTS)
def test_without_fail_on_data_loss_a_warning_names_what_is_lost(
    place: Place, part: int, caplog: pytest.LogCaptureFixture
) -> None:
    work = planned(place, failOnDataLoss="false")
    before = edges(place.held)
    place.expire(part)
    with caplog.at_level(logging.WARNING):
        found = rows(work)
    assert shown(found) == expected(place.held)
    for queue_id, (low, _) in edges(place.held).items():
        first = before[queue_id][0]
        assert f"{TOPIC}/{queue_id}" in caplog.text
        assert f"[{first}, " in caplog.text
        assert f"holds [{low}, " in caplog.text


@pytest.mark.parametrize("part", ["of the loss", "behind it"])
def test_only_the_task_that_had_the_messages_fails(place: Place, part: str) -> None:
    work = planned(place, maxRecordsPerPartition="8")
    of_share = [found_places(rows([share])) for share in work]
    place.expire(2)
    held = set(places_of(place.held))
    assert {True, False} <= {held.issuperset(mine) for mine in of_share}
    for share, mine in zip(work, of_share, strict=True):
        if held.issuperset(mine) and part == "behind it":
            assert found_places(rows([share])) == mine
        elif not held.issuperset(mine) and part == "of the loss":
            with pytest.raises(DataLossError):
                rows([share])


def test_a_damaged_record_is_an_error_that_names_it(place: Place) -> None:
    work = planned(place)
    place.damage(place.held[30])
    with pytest.raises(CorruptStoreError):
        rows(work)
    with pytest.raises(CorruptStoreError):
        rows(planned(place))


def test_the_messages_before_a_damaged_record_are_given_first(place: Place) -> None:
    broken = place.held[30]
    work = planned(place, assign=json.dumps({TOPIC: [broken.queue_id]}), subscribe=None)
    first = place.damage(broken)[0]
    before = [m for m in place.held if m.queue_id == broken.queue_id]
    before = [m for m in before if m.queue_offset < first.queue_offset]
    found: Rows = []
    assert len(work) == 1
    with pytest.raises(CorruptStoreError):
        found.extend(row for batch in work[0].batches() for row in batch.to_pylist())
    if place.options.get("queues") == "log":  # A task that walks again stops at the damage.
        before = before[: len(found)]
    assert shown(found) == expected(before)


def test_a_damaged_record_costs_its_own_messages_only(
    place: Place, caplog: pytest.LogCaptureFixture
) -> None:
    lost = place.damage(place.held[30])
    assert len(lost) in (1, TOGETHER)
    with caplog.at_level(logging.WARNING):
        found = rows(planned(place, onCorrupt="skip"))
    assert shown(found) == expected([m for m in place.held if m not in lost])
    assert caplog.records


def stream(place: Place, **options: str) -> MqlogStreamReader:
    asked = {**place.options, "subscribe": TOPIC, "startingOffsets": "earliest", **options}
    names = ("queueId", "queueOffset")
    return MqlogStreamReader(parse_stream(asked), StructType(), names)


def taken(reader: MqlogStreamReader, start: Mapping[str, Any], end: Mapping[str, Any]) -> Rows:
    return rows([reader.work(partition) for partition in reader.partitions(dict(start), dict(end))])


@pytest.mark.parametrize("place", sorted(AT_REST), indirect=True)
def test_a_stream_of_what_cannot_grow_is_refused(place: Place) -> None:
    with pytest.raises(InvalidOptionError, match=r"spark\.read"):
        stream(place).initialOffset()


followed = pytest.mark.parametrize("place", [k for k in KINDS if k not in AT_REST], indirect=True)


@followed
def test_a_stream_gives_every_message(place: Place) -> None:
    reader = stream(place)
    start = reader.initialOffset()
    end = reader.latestOffset(start, ReadAllAvailable())
    assert found_places(taken(reader, start, end)) == places_of(place.held)
    reader.stop()


@followed
@pytest.mark.parametrize("part", PARTS)
@pytest.mark.parametrize("expires", ["before its tasks are planned", "before its tasks run"])
def test_what_expires_in_a_micro_batch_is_a_data_loss(
    place: Place, part: int, expires: str
) -> None:
    reader = stream(place)
    start = reader.initialOffset()
    end = reader.latestOffset(start, ReadAllAvailable())
    if expires == "before its tasks are planned":
        place.expire(part)
        with pytest.raises(DataLossError):
            taken(reader, start, end)
    else:
        work = [reader.work(partition) for partition in reader.partitions(start, end)]
        place.expire(part)
        with pytest.raises(DataLossError):
            rows(work)
    reader.stop()


@followed
@pytest.mark.parametrize("part", PARTS)
def test_a_stream_that_accepts_losses_goes_on_with_what_is_held(
    place: Place, part: int, caplog: pytest.LogCaptureFixture
) -> None:
    reader = stream(place, failOnDataLoss="false")
    start = reader.initialOffset()
    end = reader.latestOffset(start, ReadAllAvailable())
    place.expire(part)
    with caplog.at_level(logging.WARNING):
        found = taken(reader, start, end)
    assert found_places(found) == places_of(place.held)
    assert f"{TOPIC}/0" in caplog.text
    assert f"{TOPIC}/1" in caplog.text
    reader.stop()
