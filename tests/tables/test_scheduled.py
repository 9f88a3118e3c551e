"""The table of scheduled messages against what brokers delivered and what was laid out."""

import struct
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from mqstore.read.directory import take
from mqstore.tables import scheduled
from mqstore.tables.choice import RowChoice, Window
from support import goldens, oracle, parts
from support.opened import opened, source_of
from support.oracle import Message
from support.stores import Laid, MakeStore, write_json

TIMERS = "rmq_sys_wheel_timer"


def read(
    root: Path, choice: RowChoice | None = None, window: Window | None = None
) -> list[dict[str, Any]]:
    snapshot = take(root, broker_name="b")
    planned = scheduled.plan(source_of(snapshot), snapshot, window or Window(), choice, "fail")
    return parts.rows("scheduled", planned)


def delayed(level: int, number: int, *, store_ms: int = 1_000_000) -> Message:
    properties = {
        "REAL_TOPIC": "T",
        "REAL_QID": str(number),
        "DELAY": str(level),
        "UNIQ_KEY": f"{level}-{number}",
        "TAGS": "late",
    }
    return Message(
        topic=oracle.SCHEDULE_TOPIC,
        queue_id=level - 1,
        properties=oracle.join_properties(properties),
        store_timestamp_ms=store_ms,
    )


def timer(properties: Mapping[str, str]) -> Message:
    own = {"REAL_TOPIC": "T", "REAL_QID": "3", **properties}
    return Message(topic=TIMERS, properties=oracle.join_properties(own))


def delivered_to(laid: Laid, table: Mapping[int, int]) -> None:
    write_json(laid.root / "config" / "delayOffset.json", {"offsetTable": dict(table)})


@pytest.mark.parametrize("version", goldens.VERSIONS)
def test_golden_messages_are_delivered_if_the_real_topic_has_them(
    version: str, request: pytest.FixtureRequest
) -> None:
    root = request.getfixturevalue(f"golden_{version.replace('.', '')}")
    messages = goldens.expected(version)
    arrived = {(m["topic"], m["msgId"]) for m in messages}
    waiting = {m["physicalOffset"]: m for m in messages if m["topic"] == oracle.SCHEDULE_TOPIC}
    found = {row["physicalOffset"]: row for row in read(root)}
    assert waiting.keys() <= found.keys()
    for place, message in waiting.items():
        row, properties = found[place], message["properties"]
        assert row["realTopic"] == properties["REAL_TOPIC"]
        assert row["realQueueId"] == int(properties["REAL_QID"])
        assert row["level"] == int(properties["DELAY"])
        due = message["store"] + 1000 * oracle.LEVELS_S[row["level"] - 1]
        assert row["deliverTimestamp"] == due * 1000
        there = (row["realTopic"], row["msgId"]) in arrived
        assert row["state"] == ("DELIVERED" if there else "PENDING")
    assert {row["state"] for row in found.values()} == {"DELIVERED", "PENDING"}


def test_a_level_is_delivered_up_to_its_offset_and_no_offset_is_none(store: MakeStore) -> None:
    laid = store([delayed(level, n) for level in (1, 2) for n in range(3)])
    delivered_to(laid, {1: 2})
    states = {row["msgId"]: row["state"] for row in read(laid.root)}
    assert states == {
        "1-0": "DELIVERED",
        "1-1": "DELIVERED",
        "1-2": "PENDING",
        "2-0": "PENDING",
        "2-1": "PENDING",
        "2-2": "PENDING",
    }


def test_rows_are_chosen_by_real_queue_and_by_store_time(store: MakeStore) -> None:
    laid = store([delayed(3, n, store_ms=1000 * n) for n in range(1, 6)])
    choice = RowChoice(frozenset({"T"}), {"T": (2, 4)})
    assert [row["realQueueId"] for row in read(laid.root, choice)] == [2, 4]
    assert read(laid.root, RowChoice(frozenset({"Other"}))) == []
    window = Window(2000, 4000)
    assert [row["realQueueId"] for row in read(laid.root, window=window)] == [2, 3]


def test_a_timer_is_due_when_it_says_and_delivered_before_the_wheels_time(
    store: MakeStore,
) -> None:
    messages = [
        timer({"TIMER_OUT_MS": "5000", "UNIQ_KEY": "early"}),
        timer({"TIMER_OUT_MS": "9000", "UNIQ_KEY": "late", "TIMER_ROLL_TIMES": "2"}),
        timer({"TIMER_OUT_MS": "9000", "TIMER_DEL_UNIQKEY": "late", "UNIQ_KEY": "cancel"}),
        timer({"TIMER_OUT_MS": "soon", "UNIQ_KEY": "broken"}),
    ]
    laid = store(messages)
    assert {row["state"] for row in read(laid.root)} == {"PENDING", "CANCEL"}
    (laid.root / "config" / "timercheck").write_bytes(struct.pack(">q", 6000).ljust(4096, b"\0"))
    found = [
        (row["msgId"], row["state"], row["deliverTimestamp"], row["rollTimes"], row["level"])
        for row in read(laid.root)
    ]
    assert found == [
        ("early", "DELIVERED", 5_000_000, 0, None),
        ("late", "PENDING", 9_000_000, 2, None),
        ("cancel", "CANCEL", 9_000_000, 0, None),
        ("broken", "PENDING", None, 0, None),
    ]


def test_what_is_not_asked_for_is_not_read(store: MakeStore) -> None:
    laid = store([delayed(1, 0)])
    (part,) = scheduled.plan(*opened(laid.root), Window(), None, "fail")
    (batch,) = part.batches(["state", "deliverTimestamp"])
    assert batch["state"].to_pylist() == ["PENDING"]
    assert batch["realTopic"].null_count == batch["msgId"].null_count == 1
