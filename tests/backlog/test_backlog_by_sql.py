"""Backlogs of groups that subscribe by SQL92: counted by the properties of each message."""

import logging
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from backlog.counted import measured
from mqstore.backlog import BacklogRequest
from mqstore.errors import InvalidOptionError
from mqstore.options import grammar
from mqstore.options.grammar import Sql92
from support.oracle import Message, join_properties
from support.stores import Laid, Layout, MakeStore, lay_out, write_json

GROUPS = ("above", "below", "tagged", "whole")
SUBSCRIBED: Mapping[str, Mapping[str, str]] = {
    "above": {"T": Sql92("a > 5")},
    "below": {"T": Sql92("NOT (a > 5) OR a IS NULL")},
    "tagged": {"T": "A"},
}


def properties(number: int) -> dict[str, str]:
    """A third of the messages have a number, a third a word, and a third nothing as ``a``."""
    its = {"TAGS": "AB"[number % 2]}
    if number % 3:
        its["a"] = "five" if number % 3 == 1 else str(number % 10)
    return its


# Each group has consumed another number of messages.
LAYOUT = Layout(
    commit_log_bytes=65_536,
    group_offsets={("T", group): {0: 3 * n, 1: 0} for n, group in enumerate(GROUPS)},
)


def messages() -> list[Message]:
    """Two queues of 40 messages, some larger than a page."""
    return [
        Message(
            topic="T",
            queue_id=number % 2,
            body=bytes(9_000 if number % 7 == 0 else number),
            properties=join_properties(properties(number // 2)),
        )
        for number in range(80)
    ]


@pytest.fixture
def laid(store: MakeStore) -> Laid:
    return store(messages(), LAYOUT)


def passes(group: str, its: Mapping[str, str]) -> bool:
    if group in {"above", "below"}:
        a = its.get("a")
        above = a is not None and a.isdigit() and int(a) > 5
        return above if group == "above" else a is None or (a.isdigit() and int(a) <= 5)
    return group == "whole" or its["TAGS"] == "A"


def counted(laid: Laid, group: str, queue_id: int, tag: str | None = None) -> dict[str, Any]:
    """The row of a group's queue, or of one tag in it, message by message."""
    committed = laid.layout.group_offsets["T", group][queue_id]
    behind = [
        (m, properties(m.queue_offset))
        for m in laid.queues["T", queue_id][committed:]
        if tag in (None, properties(m.queue_offset)["TAGS"])
    ]
    matching = [m for m, its in behind if passes(group, its)]
    return {
        "lag": len(behind),
        "bytesBehind": sum(m.size for m, _ in behind),
        "lagMatching": len(matching),
        "bytesMatching": sum(m.size for m in matching),
    }


def test_groups_by_sql_by_tag_and_without_a_subscription_stand_side_by_side(laid: Laid) -> None:
    rows = measured(laid.root, BacklogRequest(subscriptions=SUBSCRIBED))
    assert [(row["group"], row["queueId"]) for row in rows] == [
        (g, q) for g in GROUPS for q in (0, 1)
    ]
    for row in rows:
        expected = counted(laid, row["group"], row["queueId"])
        assert {name: row[name] for name in expected} == expected
    kinds = {row["group"]: (row["subscription"], row["expressionType"]) for row in rows}
    assert kinds["above"] == ("a > 5", "SQL92")
    assert kinds["tagged"] == ("A", "TAG")


def test_by_tag_has_the_messages_of_each_tag_that_pass(laid: Laid) -> None:
    rows = measured(laid.root, BacklogRequest(subscriptions=SUBSCRIBED, by_tag=True))
    assert len(rows) == 2 * 2 * len(GROUPS)
    for row in rows:
        expected = counted(laid, row["group"], row["queueId"], row["tag"])
        assert {name: row[name] for name in expected} == expected


@pytest.mark.parametrize("mode", ["hash", "offset"])
def test_other_modes_let_every_message_pass_as_brokers_do(laid: Laid, mode: str) -> None:
    for row in measured(laid.root, BacklogRequest(subscriptions=SUBSCRIBED, lag_mode=mode)):
        if row["expressionType"] == "SQL92":
            assert row["lagMatching"] == row["lag"]
            assert row["bytesMatching"] == row["bytesBehind"]


def test_the_first_message_that_passes_has_its_time(laid: Laid) -> None:
    rows = measured(laid.root, BacklogRequest(subscriptions=SUBSCRIBED))
    for row in rows:
        group, queue_id = row["group"], row["queueId"]
        committed = laid.layout.group_offsets["T", group][queue_id]
        first = next(
            m
            for m in laid.queues["T", queue_id][committed:]
            if passes(group, properties(m.queue_offset))
        )
        assert row["firstUnconsumedStoreTimestamp"] == first.store_timestamp_ms * 1_000


def subscribe(root: Path, **expressions: str) -> None:
    """Write consumerFilter.json as a broker does."""
    data = {
        group: {"expression": text, "expressionType": "SQL92"}
        for group, text in expressions.items()
    }
    document = {"filterDataByTopic": {"T": {"groupFilterData": data}}}
    write_json(root / "config" / "consumerFilter.json", document)


def test_what_the_broker_has_in_its_configuration_is_evaluated(
    laid: Laid, caplog: pytest.LogCaptureFixture
) -> None:
    # As there: what stands behind a complete expression is ignored.
    subscribe(laid.root, above="a > 5 really", below="a >")
    with caplog.at_level(logging.WARNING):
        rows = {(row["group"], row["queueId"]): row for row in measured(laid.root)}
    expected = counted(laid, "above", 1)
    assert rows["above", 1]["lagMatching"] == expected["lagMatching"] > 0
    assert rows["above", 1]["expressionType"] == "SQL92"
    # Which no broker evaluates either.
    assert rows["below", 1]["lagMatching"] == rows["below", 1]["lag"]
    assert "the SQL92 of group below for topic T is not valid" in caplog.text


def test_records_that_cannot_be_read_pass_nothing(tmp_path: Path) -> None:
    laid = lay_out(tmp_path / "store", messages(), LAYOUT)
    m = laid.queues["T", 1][8]
    assert passes("above", properties(8))
    path, position = laid.file_of(m)
    data = bytearray(path.read_bytes())
    data[position + 4 : position + 8] = b"\xff" * 4
    path.write_bytes(data)
    rows = measured(laid.root, BacklogRequest(groups="above", subscriptions=SUBSCRIBED))
    expected = counted(laid, "above", 1)
    assert rows[1]["lag"] == expected["lag"]
    assert rows[1]["lagMatching"] == expected["lagMatching"] - 1


def test_the_option_has_sql_in_an_object() -> None:
    found = grammar.expressions("subscriptions", '{"g":{"T":{"sql":"a > 5"},"U":"a > 5"}}')
    assert found == {"g": {"T": "a > 5", "U": "a > 5"}}
    assert isinstance(found["g"]["T"], Sql92)
    assert not isinstance(found["g"]["U"], Sql92)
    for text in ('{"g":{"T":{"sql":5}}}', '{"g":{"T":{"sqll":"a"}}}', '{"g":{"T":{}}}'):
        with pytest.raises(InvalidOptionError, match="group g must have"):
            grammar.expressions("subscriptions", text)
    with pytest.raises(InvalidOptionError, match="option subscriptions='a >': at the end"):
        BacklogRequest(subscriptions={"g": {"T": Sql92("a >")}})
