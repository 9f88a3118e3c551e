"""What POP groups have not acknowledged: of a real broker, running, killed, stopped and live."""

from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest

from broker.harness import BROKER_NAME, Cluster
from broker.pop_client import PopClient, Popped, pop_client
from mqstore.backlog import BacklogRequest, measure, plan
from mqstore.backlog.plan import BacklogItem
from mqstore.pop.state import PopStanding
from mqstore.read.directory import take

pytestmark = pytest.mark.broker

WITH_TIMERS = {"timerWheelEnable": "true"}
QUEUES = 4
Place = tuple[str, int, int]


@pytest.fixture(autouse=True)
def _of_this_version(cluster: Cluster) -> None:
    if cluster.version != "5.5.0":
        pytest.skip("POP is new in 5.x")


def backlog_of(root: Path, group: str) -> tuple[list[BacklogItem], list[dict[str, Any]]]:
    request = BacklogRequest(groups=group)
    snapshot = take(root, broker_name=BROKER_NAME)
    items = plan(snapshot, request)
    return items, measure(items, request, snapshot.taken_ms).to_pylist()


def places(items: Iterable[BacklogItem]) -> set[Place]:
    """What the backlog says is not acknowledged: id by id."""
    found: set[Place] = set()
    for item in items:
        assert isinstance(item.popped, PopStanding), item
        here = [*item.popped.open.tolist(), *range(item.popped.begin, item.high)]
        found |= {(item.topic, item.queue_id, place) for place in here}
    return found


def consume(client: PopClient, topic: str, group: str, **pop: Any) -> list[Popped]:
    """Pop until nothing comes; acks, changes and messages left alone follow each other."""
    left: list[Popped] = []
    idle = number = 0
    while idle < 4:
        found = client.pop(topic, group, **pop)
        idle = 0 if found else idle + 1
        for message in found:
            number += 1
            if number % 3 == 0:
                client.ack(message)
                continue
            left.append(message)
            if number % 5 == 0:
                client.change(message, 200_000)
    return left


def sent(client: PopClient, topic: str, count: int) -> set[Place]:
    for number in range(count):
        client.send(topic, f"{topic}-{number}", number % QUEUES, QUEUES)
    return {(topic, n % QUEUES, n // QUEUES) for n in range(count)}


def test_unacknowledged_is_every_message_that_no_consumer_acknowledged(
    cluster: Cluster, tmp_path: Path
) -> None:
    root = tmp_path / "broker" / "store"
    root.mkdir(parents=True)
    with cluster.broker(root, WITH_TIMERS) as broker, pop_client(broker.address) as client:
        every = sent(client, "PopA", 80)
        popped = []
        for _ in range(3):
            popped += client.pop("PopA", "GroupA", most=10, invisible=300_000)
        for message in popped[::4]:
            client.ack(message)
        for message in popped[1::4]:
            client.change(message, 600_000)
        expected = every - {message.place for message in popped[::4]}
        inflight = len(popped) - len(popped[::4])
        running, rows = backlog_of(root, "GroupA")
        broker.copy_store(root, tmp_path / "killed")
        killed, killed_rows = backlog_of(tmp_path / "killed", "GroupA")
        broker.stop()
    stopped, stopped_rows = backlog_of(root, "GroupA")
    for items in (running, killed, stopped):
        assert places(items) == expected
    for found in (rows, killed_rows, stopped_rows):
        assert {row["mode"] for row in found} == {"POP"}
        assert sum(row["unacknowledged"] for row in found) == len(expected)
        assert sum(row["lag"] for row in found) == len(expected)
        assert sum(row["inflight"] for row in found) == inflight
        assert sum(row["due"] for row in found) == 0
    assert sum(row["redelivered"] for row in stopped_rows) == 0
