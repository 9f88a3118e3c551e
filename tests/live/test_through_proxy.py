"""The live room through a real RocketMQ 5 proxy: what it reads is what the broker's disk holds.

The ports of the broker and of the name server are closed to our client. The tests of
``test_reads_of_brokers`` run again, as far as a proxy serves what they ask for.
"""

from collections.abc import Iterator
from contextlib import closing, contextmanager
from typing import Any

import pytest

from broker import proxies
from broker.harness import BROKER_NAME, LOOPBACK
from broker.harness import Cluster as Servers
from broker.ports import free_ports
from broker.reading import by_queue, columns
from broker.toolchain import Toolchain
from live import test_reads_of_brokers as direct
from live.real import ALL_COLUMNS, NAMES, Live, full_rows, recorded
from mqstore.errors import UnknownTopicError
from mqstore.live.origin.groups import committed_by
from mqstore.live.origin.state import SOURCE
from mqstore.live.remoting import connection
from mqstore.live.remoting.errors import NotServedError
from mqstore.live.remoting.sockets import connected
from mqstore.live.remoting.topics import broker_infos
from mqstore.read.scan import scan
from mqstore.read.selection import Selection
from mqstore.read.settings import ScanSettings
from mqstore.read.source import slices_of
from mqstore.request.places import open_all

pytestmark = [
    pytest.mark.broker,
    pytest.mark.parametrize("cluster", ["5.5.0"], indirect=True, scope="session"),
]


@contextmanager
def only(*ports: int) -> Iterator[None]:
    """Let our client connect to no other ports of this machine than these."""

    def guarded(host: str, port: int, deadline: float) -> Any:
        assert port in ports, f"a connection to {host}:{port}, which is closed to the client"
        return connected(host, port, deadline)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(connection, "connected", guarded)
        yield


@pytest.fixture(scope="module")
def live(
    cluster: Servers, toolchain: Toolchain, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Live]:
    """A broker with messages of every kind, and a client that has the proxy's address only."""
    folder, port = tmp_path_factory.mktemp("proxied-"), free_ports(0)
    proxy = proxies.running(toolchain, cluster.name_server, folder, port)
    with only(1, port), recorded(cluster, folder, f"{LOOPBACK}:{port}", proxy) as found:
        yield found


test_every_field = direct.test_every_field_of_every_message_is_what_the_brokers_directory_gives
test_bytes = direct.test_the_records_pulled_are_those_of_the_log_byte_for_byte
test_bounds = direct.test_bounds_are_those_that_topic_status_tells
test_times = direct.test_the_first_message_at_a_time_is_what_a_walk_over_all_finds
test_weights = direct.test_a_weight_is_near_what_the_records_have


def test_the_address_is_found_to_be_a_proxys(live: Live) -> None:
    assert live.cluster.is_proxy
    assert live.cluster.settings.endpoint == "proxy"
    assert live.cluster.master(BROKER_NAME) == live.name_servers[1]


def test_tags_give_what_the_broker_gives_its_own_consumer(live: Live) -> None:
    queues = [queue for queue in live.bounds() if queue.topic == NAMES.topic]
    tag = NAMES.tags[0]
    every = full_rows(live.pulled(queues, with_tags_codes=True))
    expected = [(r["queueId"], r["queueOffset"]) for r in every if r["tags"] == tag]
    chosen = full_rows(live.pulled(queues, tags=f"{tag} || nobody"))
    assert [(row["queueId"], row["queueOffset"]) for row in chosen] == expected
    assert 50 < len(expected) < len(every) / 2


def test_groups_are_where_consumer_progress_says(live: Live) -> None:
    queues = [(queue.topic, queue.queue_id) for queue in live.bounds()]
    for group in (NAMES.push_group, NAMES.pull_group):
        ours = committed_by(live.cluster, BROKER_NAME, group, queues)
        told = {
            (row["topic"], row["queueId"]): row["consumerOffset"]
            for row in live.broker.consumer_progress(group)
        }
        assert {queue: told[queue] for queue in ours} == ours
        assert {queue for queue, at in told.items() if at} <= ours.keys()
    assert committed_by(live.cluster, BROKER_NAME, "NobodysGroup", queues) == {}


def test_what_a_proxy_does_not_serve_is_refused_by_name(live: Live) -> None:
    with pytest.raises(NotServedError, match="GET_BROKER_RUNTIME_INFO"):
        broker_infos(live.cluster, [BROKER_NAME])
    with pytest.raises(UnknownTopicError, match=NAMES.topic):
        live.cluster.known_route(NAMES.topic + "x")


def test_a_planned_read_of_named_topics_and_groups_is_that_of_the_directory(live: Live) -> None:
    chosen = Selection(roots=(), subscribe=(NAMES.topic, NAMES.batch), groups=(NAMES.push_group,))
    with closing(open_all(chosen, [live.cluster.settings])) as stores:
        parts = [piece for snapshot in stores.snapshots for piece in slices_of(snapshot)]
        found = [row for b in scan(parts, ScanSettings(("topic", "body"))) for row in b.to_pylist()]
        (source,) = stores.sources
        committed = source.config.committed()
    theirs = by_queue(columns(live.root, ALL_COLUMNS))
    expected = [
        (topic, row["body"])
        for (topic, _), rows in sorted(theirs.items())
        if topic in {NAMES.topic, NAMES.batch}
        for row in rows
    ]
    assert sorted((row["topic"], row["body"]) for row in found) == sorted(expected)
    assert {one.source for one in committed.values()} == {SOURCE}
    assert (NAMES.topic, NAMES.push_group) in committed
