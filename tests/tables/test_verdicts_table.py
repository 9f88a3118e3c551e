"""Verdicts about groups of stores that were laid out with a fault, and of stores without one."""

import json
import os
import time
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from mqstore.errors import UnknownGroupError
from mqstore.format.names import SCHEDULE_TOPIC
from mqstore.tables.samples import SAMPLE_SCHEMA
from pop.test_look import checkpoint
from pop.test_look import message as of_topic
from support import goldens, parts
from support.oracle import Message, join_properties
from support.stores import Layout, MakeStore

Row = dict[str, Any]
START = 1_700_000_000_000
MINUTE = 60_000


def read(root: Path, **options: str) -> list[Row]:
    return parts.rows(
        "verdicts", [work.part for work in parts.planned(root, "verdicts", **options)]
    )


def words(root: Path, **options: str) -> list[tuple[str, str | None, int | None]]:
    return [(row["verdict"], row["topic"], row["queueId"]) for row in read(root, **options)]


def message(minute: float, queue_id: int = 0, **more: Any) -> Message:
    at = START + int(minute * MINUTE)
    values: dict[str, Any] = {"topic": "T", "store_timestamp_ms": at, "queue_id": queue_id}
    return Message(**(values | more))


def store_of(store: MakeStore, messages: list[Message], **offsets: dict[int, int]) -> Path:
    committed = {("T", group): queues for group, queues in offsets.items()}
    messages.sort(key=lambda m: m.store_timestamp_ms)
    return store(messages, Layout(commit_log_bytes=1 << 20, group_offsets=committed)).root


def test_a_queue_that_stood_between_two_looks_while_others_moved_is_stuck(
    store: MakeStore, tmp_path: Path
) -> None:
    messages = [message(minute, queue) for minute in range(10) for queue in range(3)]
    root = store_of(store, messages, g={0: 10, 1: 2, 2: 10}, even={0: 2, 1: 2, 2: 3})
    # One look shows uneven queues, which are no evidence of what moves.
    assert words(root) == []
    earlier = {("g", 0): 4, ("g", 1): 2, ("g", 2): 10} | {("even", n): 2 for n in range(3)}
    file = samples(tmp_path / "s.parquet", earlier)
    assert words(root, samples=file, groups="g") == [("STUCK_QUEUE", "T", 1)]
    (row,) = read(root, samples=file, groups="g")
    assert (row["group"], row["brokerName"], row["next"]) == (
        "g",
        "broker-1",
        "mqlog cat PLACE T/1@2 -n 1",
    )
    numbers = json.loads(row["numbers"])
    assert (numbers["lag"], numbers["consumerOffset"], numbers["consumed"]) == (8, 2, 0)
    assert numbers["consumedOfOthers"] == 6
    with pytest.raises(UnknownGroupError):
        read(root, groups="gg")


def test_a_group_that_came_while_looks_were_taken_is_compared_from_where_it_is_known(
    store: MakeStore, tmp_path: Path
) -> None:
    """Before it committed an offset in each of its queues, nothing of it could stand."""
    messages = [message(minute, queue) for minute in range(10) for queue in range(3)]
    root = store_of(store, messages, g={0: 10, 1: 2, 2: 10})
    first = {("other", 0): 0, ("other", 1): 0, ("other", 2): 0, ("g", 0): 1}
    second = {("g", 0): 4, ("g", 1): 2, ("g", 2): 10}
    files = [
        samples(tmp_path / "first.parquet", first, minutes=5),
        samples(tmp_path / "second.parquet", second, minutes=2),
    ]
    both = tmp_path / "both.parquet"
    pq.write_table(pa.concat_tables(map(pq.read_table, files)), both)
    (row,) = read(root, samples=str(both), groups="g")
    assert (row["verdict"], row["queueId"]) == ("STUCK_QUEUE", 1)
    assert json.loads(row["numbers"])["consumedOfOthers"] == 6
    assert "for 2 m" in row["evidence"]


def samples(path: Path, offsets: dict[tuple[str, int], int], minutes: int = 1) -> str:
    """A file of one sample of a while ago, with the offsets of groups in queues of T."""
    at = datetime.now(UTC) - timedelta(minutes=minutes)
    rows = [
        {
            "asOf": at, "brokerName": "broker-1", "group": group, "topic": "T", "queueId": queue_id,
            "minOffset": 0, "brokerOffset": 10, "consumerOffset": done, "lag": 10 - done,
        }
        for (group, queue_id), done in offsets.items()
    ]  # fmt: skip
    pq.write_table(pa.Table.from_pylist(rows, SAMPLE_SCHEMA), path)
    return str(path)


def test_the_queue_that_receives_most_is_hot_and_not_stuck(store: MakeStore) -> None:
    many = [message(minute / 20, 0) for minute in range(300)]
    few = [message(minute, queue) for minute in range(15) for queue in (1, 2)]
    root = store_of(store, many + few, g={0: 20, 1: 15, 2: 15})
    assert words(root) == [("HOT_QUEUE", "T", 0)]
    (row,) = read(root)
    # Of the ten minutes before the last message of all.
    assert row["evidence"].startswith(
        "this queue, one of 3, received 201 of the 221 messages of the last 10 min"
    )


def test_a_filter_that_nothing_passes(store: MakeStore) -> None:
    tagged = [message(n, properties=join_properties({"TAGS": "B"})) for n in range(5)]
    root = store_of(store, tagged, g={0: 1})
    assert words(root, subscriptions='{"g":{"T":"A"}}') == [("FILTER_ONLY", "T", None)]
    assert words(root, subscriptions='{"g":{"T":"B"}}') == []


def test_offsets_beyond_the_end_and_none_at_all(store: MakeStore) -> None:
    root = store_of(store, [message(0), message(1, 1)], g={0: 9}, whole={0: 1, 1: 1})
    assert sorted(words(root)) == [("AHEAD", "T", 0), ("NEVER_COMMITTED", "T", None)]


def test_messages_that_were_deleted_before_they_were_consumed(store: MakeStore) -> None:
    messages = [message(n, body=bytes(900)) for n in range(8)]
    layout = Layout(commit_log_bytes=2048, expired_files=2, group_offsets={("T", "g"): {0: 1}})
    root = store(messages, layout).root
    assert words(root) == [("EXPIRING", "T", 0)]
    assert json.loads(read(root)[0]["numbers"]) == {"expired": 3, "minOffset": 4, "lag": 4}


def retry(topic: str, times: int, key: str, **more: Any) -> Message:
    properties = {"UNIQ_KEY": key, "KEYS": "order", "RETRY_TOPIC": "T"}
    if topic == SCHEDULE_TOPIC:
        properties |= {"REAL_TOPIC": "%RETRY%g", "REAL_QID": "0"}
    text = join_properties(properties)
    return message(5, topic=topic, properties=text, reconsume_times=times, **more)


def test_a_message_that_fails_again_and_again_is_found_waiting_and_ready(store: MakeStore) -> None:
    messages = [
        message(0),
        retry(SCHEDULE_TOPIC, 4, "waits", queue_id=5),
        retry(SCHEDULE_TOPIC, 1, "young", queue_id=2),
        retry("%RETRY%g", 3, "ready"),
        retry("%DLQ%g", 16, "dead"),
    ]
    root = store_of(store, messages, g={0: 1})
    found = {(row["verdict"], row["topic"]): row for row in read(root)}
    evidence = [row["evidence"] for row in read(root)]
    assert [row["verdict"] for row in read(root)] == ["POISON", "POISON", "DEAD_LETTERS"]
    assert "message waits (keys order) was consumed 4 times without" in evidence[0]
    assert "message ready (keys order) was consumed 3 times without" in evidence[1]
    assert found["POISON", "T"]["next"] == "mqlog find PLACE --id ready"
    assert evidence[2].startswith("1 messages are in the dead-letter topic")
    assert "; the newest came at 2023-11-14" in evidence[2]


def test_two_looks_at_a_store_that_nobody_writes_show_nothing_new(store: MakeStore) -> None:
    root = store_of(store, [message(0), message(1, 1)], g={0: 0, 1: 0})
    assert words(root, lookAgain="1ms") == []


@pytest.mark.parametrize("version", goldens.VERSIONS)
def test_golden_groups_have_no_verdict(version: str, request: pytest.FixtureRequest) -> None:
    root = request.getfixturevalue(f"golden_{version.replace('.', '')}")
    assert words(root) == []


def test_what_the_broker_will_delete_within_a_day_is_told_by_its_files_and_its_settings(
    store: MakeStore, tmp_path: Path
) -> None:
    messages = [message(n, body=bytes(900)) for n in range(8)]
    committed = {("T", "g"): {0: 1}, ("T", "last"): {0: 7}}
    root = store(messages, Layout(commit_log_bytes=2048, group_offsets=committed)).root
    files = sorted((root / "commitlog").iterdir())
    now = time.time()
    for file in files:
        os.utime(file, (now, now - 5 * 3600))
    conf = tmp_path / "broker.conf"
    hours = ";".join(f"{hour:02}" for hour in range(24))
    conf.write_text(f"deleteWhen={hours}\ncleanFileForciblyEnable=false\n")
    options = {"brokerConf": str(conf)}
    assert words(root) == []  # A store does not say how long its broker keeps files.
    assert words(root, **options) == []
    # The last file is never deleted.
    assert words(root, **options, fileReservedTime="6h") == [("EXPIRING", "T", 0)]
    (row,) = read(root, **options, fileReservedTime="6h")
    assert row["group"] == "g"
    assert abs(json.loads(row["numbers"])["etaLossMs"] / 1000 - (now + 3600)) < 1


def test_a_retry_that_is_popped_and_not_acknowledged_is_poison_too(store: MakeStore) -> None:
    """What a POP group has in flight lies before its offset; what it acknowledged does as well."""
    now = int(time.time() * 1000)
    retry = "%RETRY%G_T"
    retries = [
        replace(of_topic(retry, at=now, key=f"r{number}"), reconsume_times=4) for number in range(3)
    ]
    pops = [
        checkpoint(0, 1, at=now, invisible=600_000),
        checkpoint(0, 2, at=now, invisible=600_000, topic=retry),
    ]
    groups = {("T", "G"): {0: 1}, (retry, "G"): {0: 3}}
    layout = Layout(commit_log_bytes=1 << 20, group_offsets=groups)
    root = store([of_topic(key="id0", at=now), *retries, *pops], layout).root
    found = [(row["verdict"], row["next"]) for row in read(root)]
    assert found == [("POISON", f"mqlog find PLACE --id r{number}") for number in range(2)]
