"""Two real brokers behind one real proxy: rows go to both, once, and come from both."""

from collections import Counter
from functools import partial
from pathlib import Path

import pytest

from broker import proxies
from broker.harness import BROKER_NAME, Broker, Cluster
from broker.toolchain import Toolchain
from deliver.test_sends_through_proxies import part_of, published, wanted
from live.real import READING, full_rows, slices
from live.test_through_proxy import cluster, only
from mqstore.deliver.prepare import prepare
from mqstore.deliver.settings import SendSettings
from mqstore.live.origin.bounds import bounds
from mqstore.live.origin.pull import PullReader
from mqstore.live.origin.records import PullSettings, read
from mqstore.live.remoting.cluster import Cluster as Client
from mqstore.live.remoting.settings import ClusterSettings
from mqstore.read.directory import take
from mqstore.read.scan import scan
from mqstore.read.settings import ScanSettings
from mqstore.read.source import slices_of
from support.processes import until

__all__ = ["cluster"]

pytestmark = pytest.mark.broker
TOPIC = "OfBoth"
OTHER = "broker-b"
CONTROL = "MQLOG_CONTROL"


def make_topics(first: Broker, second: Broker, name_server: str) -> None:
    """Make the topics on both brokers, and return when the name server's routes name both.

    A broker registers a new topic after it has answered; a proxy keeps a route for 20 s.
    """
    for broker in (first, second):
        for topic in (TOPIC, CONTROL):
            where = ("-b", broker.address, "-t", topic)
            first.mqadmin("updateTopic", *where, "-r", "1", "-w", "1")
    for topic in (TOPIC, CONTROL):
        until(partial(is_on_both, topic, name_server))


def is_on_both(topic: str, name_server: str) -> bool:
    """Tell whether the name server's route of a topic names both brokers."""
    with Client(ClusterSettings(name_servers=(name_server,), limits=READING)) as client:
        route = client.route(topic)
    return route is not None and set(route.write_queues) == {BROKER_NAME, OTHER}


def stored(root: Path) -> list[bytes]:
    held = take(root, topics=lambda name: name == TOPIC)
    parts = scan(slices_of(held), ScanSettings(columns=("body",)))
    return [row["body"] for part in parts for row in part.to_pylist()]


def test_rows_are_once_on_two_brokers_behind_a_proxy_and_are_read_from_both(
    cluster: Cluster, toolchain: Toolchain, tmp_path: Path
) -> None:
    roots = [tmp_path / name / "store" for name in (BROKER_NAME, OTHER)]
    for root in roots:
        root.mkdir(parents=True)
    with (
        cluster.broker(roots[0]) as first,
        cluster.booted(roots[1], {"brokerName": OTHER}) as second,
        proxies.running(toolchain, cluster.name_server, tmp_path) as proxy,
    ):
        make_topics(first, second, cluster.name_server)
        settings = ClusterSettings(
            name_servers=(proxy.address,), limits=READING, retry_timeout_ms=60_000
        )
        bodies = wanted(600)
        with only(proxy.port):
            given = SendSettings(
                cluster=settings,
                topic=TOPIC,
                batch_max_messages=50,
                delivery="exactlyOnce",
                txn_app_id=TOPIC,
                txn_version=1,
            )
            job = prepare(given, part_of(bodies).schema)
            assert published(job, bodies) == published(job, bodies) == len(bodies)
            with Client(settings) as client:
                queues = bounds(client, [client.known_route(TOPIC)])
                parts = read(PullReader(client, slices(queues)), PullSettings())
                found = Counter((row["brokerName"], row["body"]) for row in full_rows(list(parts)))
        on_disks = Counter(
            (name, body)
            for name, root in zip((BROKER_NAME, OTHER), roots, strict=True)
            for body in stored(root)
        )
    assert found == on_disks
    assert Counter(body for _, body in found.elements()) == Counter(bodies)
    assert {name for name, _ in found} == {BROKER_NAME, OTHER}
