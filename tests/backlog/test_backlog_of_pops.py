"""Backlogs of POP groups, whose messages have holes: counted message by message."""

import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from backlog.counted import AS_OF_MS, message
from mqstore.backlog import (
    BacklogItem,
    BacklogRequest,
    Listed,
    PackedItems,
    compare,
    measure,
    split,
)
from mqstore.backlog.unseen import without_popping
from mqstore.options.grammar import Sql92
from mqstore.pop.state import POP, POP_FIFO, PULL, PopStanding
from mqstore.read.directory import open_origin
from support.expectations import rows
from support.oracle import Message
from support.stores import Laid, Layout, MakeStore

MESSAGES = 60
TAGS = ("A", "B", None, "Aa", "BB")  # The last two have one hash.
NOTHING = np.empty(0, np.int64)


def standing(begin: int, open_: list[int], high: int = MESSAGES, due: int = 0) -> PopStanding:
    places = np.array(sorted(open_), np.int64)
    return PopStanding(begin, high - begin, len(places) - due, due, 3, 0, places)


@pytest.fixture
def laid(store: MakeStore) -> Laid:
    messages = [
        message(TAGS[number % 5], topic="T", queue_id=0, body=bytes(50 + 13 * number))
        for number in range(MESSAGES)
    ]
    return store(messages, Layout(commit_log_bytes=8_192, queue_units=20))


def items(laid: Laid, popped: list[PopStanding | None], *expressions: Any) -> list[BacklogItem]:
    origin = open_origin(laid.root)
    kinds = [None if e is None else "SQL92" if isinstance(e, Sql92) else "TAG" for e in expressions]
    return [
        BacklogItem(
            origin, "b", f"g{number}", "T", 0, 0, MESSAGES, 7, expression, False, kind, None,
            PULL if one is None else POP, one,
        )
        for number, (one, expression, kind) in enumerate(
            zip(popped, expressions, kinds, strict=True)
        )
    ]  # fmt: skip


def passes(m: Message, expression: str | None, *, by_hash: bool) -> bool:
    if expression is None or expression == "*":
        return True
    if isinstance(expression, Sql92):
        return by_hash or m.tags == "A"
    wanted = {tag.strip() for tag in expression.split("||")}
    if by_hash and wanted & {"Aa", "BB"}:
        wanted |= {"Aa", "BB"}
    return m.tags in wanted


def behind(laid: Laid, item: BacklogItem) -> list[Message]:
    if item.popped is None:
        return [m for m in laid.messages if m.queue_offset >= item.consumed]
    begin, open_ = item.popped.begin, set(item.popped.open.tolist())
    return [m for m in laid.messages if m.queue_offset >= begin or m.queue_offset in open_]


def numbers(messages: list[Message], expression: str | None, *, by_hash: bool) -> dict[str, Any]:
    found = [m for m in messages if passes(m, expression, by_hash=by_hash)]
    first = found[0].store_timestamp_ms * 1000 if found else None
    return {
        "lag": len(messages),
        "bytesBehind": sum(m.size for m in messages),
        "lagMatching": len(found),
        "bytesMatching": sum(m.size for m in found),
        "firstUnconsumedStoreTimestamp": first,
    }


EXPRESSIONS = st.sampled_from([None, "*", "A", "A || B", "BB", Sql92("TAGS = 'A'")])
STANDINGS = st.none() | st.builds(
    lambda begin, open_: standing(begin, [place for place in open_ if place < begin]),
    st.integers(0, MESSAGES),
    st.sets(st.integers(0, MESSAGES - 1), max_size=12),
)


@pytest.mark.parametrize("lag_mode", ["exact", "hash"])
@given(data=st.data())
def test_messages_with_holes_are_counted_as_one_by_one(
    laid: Laid, lag_mode: str, data: st.DataObject
) -> None:
    found = data.draw(st.lists(st.tuples(STANDINGS, EXPRESSIONS), min_size=1, max_size=5))
    asked = items(laid, [one for one, _ in found], *(expression for _, expression in found))
    measured = rows(measure(asked, BacklogRequest(lag_mode=lag_mode), AS_OF_MS))
    for item, row in zip(asked, measured, strict=True):
        wanted = numbers(behind(laid, item), item.subscription, by_hash=lag_mode == "hash")
        assert {name: row[name] for name in wanted} == wanted


@given(data=st.data())
def test_messages_with_holes_are_counted_by_tag(laid: Laid, data: st.DataObject) -> None:
    found = data.draw(st.lists(st.tuples(STANDINGS, EXPRESSIONS), min_size=1, max_size=4))
    asked = items(laid, [one for one, _ in found], *(expression for _, expression in found))
    measured = rows(measure(asked, BacklogRequest(by_tag=True), AS_OF_MS))
    for item in asked:
        its = {row["tag"]: row for row in measured if row["group"] == item.group}
        messages = behind(laid, item)
        assert its.keys() == ({m.tags for m in messages} or {None})
        for tag, row in its.items():
            of_tag = [m for m in messages if m.tags == tag]
            wanted = numbers(of_tag, item.subscription, by_hash=False)
            assert {name: row[name] for name in wanted} == wanted
            assert row["unacknowledged"] is None


def test_a_pop_group_has_its_numbers_and_a_group_that_pulls_has_none(laid: Laid) -> None:
    popped = standing(40, [3, 8, 39], due=1)
    pop, pull = rows(measure(items(laid, [popped, None], None, None), BacklogRequest(), AS_OF_MS))
    names = ("mode", "ready", "inflight", "due", "unacknowledged", "redelivered", "lag", "diff")
    assert tuple(pop[name] for name in names) == (POP, 20, 2, 1, 23, 3, 23, 53)
    assert tuple(pull[name] for name in names) == (PULL, None, None, None, None, None, 53, 53)


def test_open_messages_whose_units_are_gone_count_and_have_no_bytes(
    laid: Laid, tmp_path: Path
) -> None:
    root = tmp_path / "cut"
    shutil.copytree(laid.root, root)
    (root / "consumequeue" / "T" / "0" / f"{0:020d}").unlink()
    item = replace(items(laid, [standing(50, [3, 30])], None)[0], origin=open_origin(root))
    (row,) = rows(measure([item], BacklogRequest(), AS_OF_MS))
    size = laid.messages[30].size + sum(m.size for m in laid.messages[50:])
    assert (row["lag"], row["lagMatching"], row["bytesBehind"]) == (12, 12, size)


def test_items_of_pop_groups_travel_as_they_are(laid: Laid) -> None:
    asked = items(laid, [standing(40, [3, 8]), None, standing(9, [])], "A", None, "*")
    asked[2] = replace(asked[2], mode=POP_FIFO)
    unpacked = PackedItems.of(asked).items()
    for before, after in zip(asked, unpacked, strict=True):
        assert replace(before, popped=None) == replace(after, popped=None)
        if before.popped is None:
            assert after.popped is None
            continue
        assert after.popped is not None
        assert after.popped.open.tolist() == before.popped.open.tolist()
        assert replace(after.popped, open=NOTHING).unacknowledged == before.popped.unacknowledged
        assert (after.popped.begin, after.popped.redelivered) == (before.popped.begin, 3)


def test_a_share_of_work_weighs_what_is_open(laid: Laid) -> None:
    asked = items(laid, [standing(40, [3, 8]), None], None, None)
    (share,) = split(asked, 4)
    assert [item.group for item in share] == ["g0", "g1"]


@pytest.mark.parametrize(
    ("mode", "popped", "expected"),
    [
        (POP, standing(40, [3, 8, 39]), (53, 23, "POPPED")),
        (POP, standing(7, []), (53, 53, "SAME")),
        (POP_FIFO, standing(20, [7, 9]), (53, 53, "FIFO")),
        (PULL, None, (53, 53, "SAME")),
    ],
)
def test_rocketmqs_numbers_of_a_group_that_pops_differ_for_a_reason(
    laid: Laid, mode: str, popped: PopStanding | None, expected: tuple[int, int, str]
) -> None:
    item = replace(items(laid, [popped], None)[0], mode=mode)
    listed = Listed({"T": (1, 1, 6)}, frozenset({"g0"}), frozenset({("T", "g0")}), frozenset(), {})
    (row,) = rows(next(compare([item], BacklogRequest(), {item.origin: listed}, AS_OF_MS)))
    assert (row["progressDiff"], row["metricLag"], row["difference"]) == expected


def test_a_group_with_messages_in_flight_popped_them_though_no_broker_knows_a_consumer(
    laid: Laid,
) -> None:
    nothing = np.empty(0, np.int64)
    inflight = PopStanding(7, 3, 2, 0, None, 0, nothing)
    due = PopStanding(7, 3, 0, 2, None, 0, nothing)
    found = [replace(one, consumers=0) for one in items(laid, [inflight, due, None], *[None] * 3)]
    elsewhere = replace(found[0], queue_id=1, popped=due)
    told = without_popping([*found, elsewhere])
    assert [one.consumers for one in told] == [None, 0, 0, None]
