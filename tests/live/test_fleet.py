"""A fleet of simulated brokers: every row is judged by the model that the brokers serve."""

from collections.abc import Iterator
from contextlib import closing, contextmanager

import pytest

from live.fleet import Fleet, Size, running
from mqstore.backlog import BacklogRequest, plan_all
from mqstore.backlog.request import group_test
from mqstore.backlog.standing import Standing
from mqstore.read.message_query import snapshots_of
from mqstore.read.selection import OpenStores, Selection
from mqstore.request.places import open_all, places
from support import soak

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


def look(stores: OpenStores) -> Rows:
    """Broker, group, topic, queueId, brokerOffset, consumerOffset, minOffset, lag, status."""
    snapshots = snapshots_of(stores, held=True, groups=group_test(None))
    items = plan_all(stores.sources, snapshots, BacklogRequest())
    standing = Standing.of(items)
    columns = zip(items, standing.lag.tolist(), standing.status.to_pylist(), strict=True)
    return [
        (i.broker_name, i.group, i.topic, i.queue_id, i.high, i.consumer_offset, i.low, lag, word)
        for i, lag, word in columns
    ]


def in_order(rows: Iterator[tuple[object, ...]] | Rows) -> Rows:
    return sorted(rows, key=lambda row: row[:4])


@pytest.mark.soak
def test_every_row_of_a_look_is_the_models(fleet: Fleet) -> None:
    with opened(fleet) as stores:
        assert in_order(look(stores)) == in_order(fleet.model.rows())
        for seed in range(2):
            fleet.move(seed, max(1, BROKERS // 10))
            assert in_order(look(stores)) == in_order(fleet.model.rows())
