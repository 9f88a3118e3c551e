"""A fleet of simulated brokers: every row is judged by the model that the brokers serve."""

import logging
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from typing import Any

import pytest

from live.fleet import BROKEN, LIES, SILENT, SLOW, Fleet, Model, Size, running
from mqstore.backlog import BacklogRequest, Planner
from mqstore.backlog.request import group_test
from mqstore.backlog.standing import Standing
from mqstore.errors import StoreError
from mqstore.live.origin import fleet_look
from mqstore.live.origin.state import ClusterState
from mqstore.live.remoting.errors import BrokerUnavailableError
from mqstore.read.capabilities import check_here
from mqstore.read.message_query import snapshots_of
from mqstore.read.selection import OpenStores, Selection
from mqstore.request.places import open_all, places
from mqstore.request.plan import plan_read, read_schema
from pyspark_mqlog.options import parse_read
from support import soak
from support.expectations import rows as rows_of

BROKERS = soak.size("fleet_brokers", check=6, test=20, whole=500)
Rows = list[tuple[object, ...]]


@pytest.fixture(scope="module")
def fleet() -> Iterator[Fleet]:
    with running(Size(BROKERS, 20 * BROKERS, 100 * BROKERS)) as found:
        yield found


@contextmanager
def opened(fleet: Fleet, **options: str) -> Iterator[OpenStores]:
    found = places([f"rocketmq://{fleet.address}"], options)
    selection = Selection(roots=(), include_system_topics=True, groups=(), with_state=True)
    with closing(open_all(selection, found.clusters)) as stores:
        yield stores


def look(stores: OpenStores, planner: Planner | None = None) -> Rows:
    """Broker, group, topic, queueId, brokerOffset, consumerOffset, minOffset, lag, status."""
    snapshots = snapshots_of(stores, held=True, groups=group_test(None, system=True))
    items = (planner or Planner(BacklogRequest())).plan(stores.sources, snapshots)
    standing = Standing.of(items)
    columns = zip(items, standing.lag.tolist(), standing.status.to_pylist(), strict=True)
    return [
        (i.broker_name, i.group, i.topic, i.queue_id, i.high, i.consumer_offset, i.low, lag, word)
        for i, lag, word in columns
    ]


def in_order(rows: Iterator[tuple[object, ...]] | Rows) -> Rows:
    return sorted(rows, key=lambda row: row[:4])


def asked_of_brokers(fleet: Fleet) -> dict[str, Counter[int]]:
    """What was asked since the last call, by broker and code."""
    return {name: codes for name, codes in fleet.asked().items() if name != "name server"}


def without(model: Model, *brokers: str) -> Rows:
    return in_order([row for row in model.rows() if row[0] not in brokers])


def table(fleet: Fleet, name: str, columns: str, **options: str) -> list[dict[str, Any]]:
    """The rows of a table with some columns, as Spark would plan and read them."""
    given = {"path": f"rocketmq://{fleet.address}#{name}", "columns": columns, **options}
    parsed = parse_read(given)
    work = plan_read(parsed, read_schema(parsed).names).work()
    return [row for part in work for batch in part.batches() for row in rows_of(batch)]


@pytest.mark.soak
def test_every_row_of_a_look_is_the_models(fleet: Fleet) -> None:
    planner = Planner(BacklogRequest())
    with opened(fleet) as stores:
        assert in_order(look(stores, planner)) == in_order(fleet.model.rows())
        for seed in range(2):
            fleet.move(seed, max(1, BROKERS // 10))
            assert in_order(look(stores, planner)) == in_order(fleet.model.rows())


def test_a_later_look_asks_a_broker_that_did_not_move_four_things(fleet: Fleet) -> None:
    with opened(fleet) as stores:
        look(stores)
        fleet.asked()
        assert in_order(look(stores)) == in_order(fleet.model.rows())
        still = asked_of_brokers(fleet)
        fleet.move(11, 1)
        assert in_order(look(stores)) == in_order(fleet.model.rows())
        moved = asked_of_brokers(fleet)

    each = Counter({28: 1, 43: 1, 21: 1, 402: 1})
    brokers = fleet.model.brokers
    assert still == dict.fromkeys(brokers, each)
    assert [name for name in brokers if moved[name] != each] == [
        name for name in brokers if moved[name][202]
    ]
    assert sum(1 for name in brokers if moved[name][202]) == 1


def moves(fleet: Fleet) -> set[str]:
    before = fleet.model.log
    fleet.move(23, 1)
    return {name for name, at in fleet.model.log.items() if at != before[name]}


def consumers_leave(fleet: Fleet) -> set[str]:
    group = min(fleet.model.online)
    fleet.leave(group)
    return {
        name for name, pairs in fleet.model.groups.items() if group in {one for _, one in pairs}
    }


def a_topic_is_made(fleet: Fleet) -> set[str]:
    broker = fleet.model.brokers[-1]
    fleet.create(broker, "Made", "OfMade")
    return {broker}


def nothing_changes(_: Fleet) -> set[str]:
    return set()


@pytest.mark.parametrize("change", [moves, consumers_leave, a_topic_is_made, nothing_changes])
def test_a_later_look_plans_those_brokers_anew_where_something_changed(
    fleet: Fleet, change: Callable[[Fleet], set[str]], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(fleet_look, "MEMBERS_S", -1.0)
    planned: list[str] = []
    offsets = ClusterState.consumer_offsets

    def noting(state: ClusterState) -> Any:
        planned.append(state._broker)
        return offsets(state)

    monkeypatch.setattr(ClusterState, "consumer_offsets", noting)
    planner = Planner(BacklogRequest())
    with opened(fleet) as stores:
        look(stores, planner)
        assert sorted(planned) == fleet.model.brokers
        planned.clear()
        expected = change(fleet)
        assert in_order(look(stores, planner)) == in_order(fleet.model.rows())
    assert set(planned) == expected


def test_a_backlog_by_offsets_asks_for_no_group_and_no_message(fleet: Fleet) -> None:
    names = "brokerName,group,topic,queueId,brokerOffset,consumerOffset,minOffset,lag"
    fleet.asked()
    found = [tuple(row[n] for n in names.split(",")) for row in table(fleet, "backlog", names)]
    asked = asked_of_brokers(fleet)

    assert in_order(found) == in_order([row[:8] for row in fleet.model.rows()])
    assert set().union(*asked.values()) == {21, 26, 28, 43, 202, 402}
    for name, topics in fleet.model.topics.items():
        assert asked[name] == {21: 1, 26: 1, 28: 1, 43: 1, 402: 1, 202: len(topics)}


@pytest.mark.parametrize("mode", [SILENT, BROKEN, LIES])
def test_a_broker_that_is_away_or_lies_costs_its_own_rows_until_it_is_back(
    fleet: Fleet, mode: str, caplog: pytest.LogCaptureFixture
) -> None:
    lost = fleet.model.brokers[2]
    with opened(fleet, requestTimeout="500ms") as stores:
        assert in_order(look(stores)) == in_order(fleet.model.rows())
        fleet.make(lost, mode)
        with caplog.at_level(logging.WARNING):
            assert in_order(look(stores)) == without(fleet.model, lost)
            assert in_order(look(stores)) == without(fleet.model, lost)
        with pytest.raises(StoreError):
            check_here(stores.sources)
        fleet.make(lost, "")
        assert in_order(look(stores)) == in_order(fleet.model.rows())
    told = [record.getMessage() for record in caplog.records]
    assert len([text for text in told if f"broker {lost} is left out" in text]) == 1


def test_an_audit_leaves_no_broker_out_that_is_away(
    fleet: Fleet, caplog: pytest.LogCaptureFixture
) -> None:
    """Its messages would be on neither side, and the places the same."""
    lost = fleet.model.brokers[0]
    given = {"subscribe": fleet.model.topics[lost][0], "requestTimeout": "500ms"}
    given |= {"retryTimeout": "0s"}
    fleet.make(lost, BROKEN)
    try:
        for name, more in (
            ("digests", {}),
            ("audit", {"against": f"rocketmq://{fleet.address}"}),
        ):
            with pytest.raises(BrokerUnavailableError, match="closed the connection"):
                table(fleet, name, "brokerName", **given, **more)
    finally:
        fleet.make(lost, "")
    assert "is left out" not in caplog.text


def test_a_slow_broker_has_its_rows(fleet: Fleet) -> None:
    fleet.make(fleet.model.brokers[1], SLOW)
    try:
        with opened(fleet, requestTimeout="20s") as stores:
            stores.held_of(lambda _: True)
            assert sum(bool(one.queues) for one in stores.held_of(lambda _: True)) == BROKERS
    finally:
        fleet.make(fleet.model.brokers[1], "")


def test_a_row_of_the_table_of_brokers_says_why_one_is_away(fleet: Fleet) -> None:
    lost = fleet.model.brokers[0]
    fleet.make(lost, SILENT)
    try:
        names = "brokerName,version,topics,away"
        found = {
            row["brokerName"]: row for row in table(fleet, "brokers", names, requestTimeout="500ms")
        }
    finally:
        fleet.make(lost, "")
    away = found.pop(lost)
    assert away["version"] is None
    assert away["topics"] is None
    assert "no answer in 0.5 s; requestTimeout" in away["away"]
    assert {row["away"] for row in found.values()} == {None}
    assert len(found) == BROKERS - 1


def test_a_fleet_that_is_away_as_a_whole_is_an_error(fleet: Fleet) -> None:
    for broker in fleet.model.brokers:
        fleet.make(broker, BROKEN)
    try:
        with (
            opened(fleet, retryTimeout="0s") as stores,
            pytest.raises(StoreError, match=r"closed the connection"),
        ):
            look(stores)
    finally:
        for broker in fleet.model.brokers:
            fleet.make(broker, "")
