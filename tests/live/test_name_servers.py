"""What several name servers, or proxies, know: the union of it, and no wait for one that is silent.

Each name server here is a ``FakeCluster`` that knows some brokers; where a broker listens does not
matter, as both answer for all.
"""

import logging
import socket
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager

import pytest

from jobs.command import Run
from jobs.conftest import run
from live.conftest import PATIENT
from live.loopback import FakeCluster, json_answer, listening, read_request
from live.proxied import FakeProxy
from live.test_cluster import dead_address
from mqstore.errors import UnknownTopicError
from mqstore.live.origin.bounds import bounds
from mqstore.live.remoting import advice, asking
from mqstore.live.remoting.cluster import Cluster
from mqstore.live.remoting.errors import NoMasterError
from mqstore.live.remoting.requests import GET_TOPIC_STATS_INFO
from mqstore.live.remoting.routes import merge_addresses
from mqstore.live.remoting.settings import ClusterSettings, Limits

__all__ = ["run"]
COUNTS = {"broker-a": 3, "broker-b": 5}


@contextmanager
def two(kind: type[FakeCluster] = FakeCluster) -> Iterator[tuple[FakeCluster, FakeCluster]]:
    """Two servers: the first lost sight of broker-b, which runs; the other knows both."""
    with ExitStack() as stack:
        first, second = (stack.enter_context(kind().running()) for _ in range(2))
        for broker, count in COUNTS.items():
            queue = second.fill("T", count, broker=broker)
            if kind is FakeCluster:
                apart = stack.enter_context(FakeCluster().running())
                apart.queues = {(broker, "T", 0): queue}
                second.addresses[broker] = {0: apart.address}
        first.queues = {key: queue for key, queue in second.queues.items() if "broker-a" in key}
        first.addresses = {b: at for b, at in second.addresses.items() if b == "broker-a"}
        yield first, second


def settings_of(*addresses: str, **more: object) -> ClusterSettings:
    given = {"limits": PATIENT, "retry_timeout_ms": 2_000, **more}
    return ClusterSettings(name_servers=addresses, **given)  # type: ignore[arg-type]


@pytest.mark.parametrize("kind", [FakeCluster, FakeProxy])
@pytest.mark.parametrize("order", [(0, 1), (1, 0)])
def test_a_broker_that_one_of_them_knows_is_read(
    kind: type[FakeCluster], order: tuple[int, int], run: Run
) -> None:
    with two(kind) as servers:
        addresses = [servers[number].address for number in order]
        with Cluster(settings_of(*addresses)) as cluster:
            found = bounds(cluster, [cluster.known_route("T")])
            assert {queue.broker: queue.high for queue in found} == COUNTS
            if kind is FakeCluster:
                assert sorted(cluster.brokers()) == sorted(COUNTS)
                assert cluster.topic_names() == ["T"]
        rows = run("cat", f"rocketmq://{','.join(addresses)}", "T", "--json").rows
        assert len(rows) == sum(COUNTS.values())


def test_a_name_server_that_knows_nothing_yet_hides_no_topic() -> None:
    with FakeCluster().running() as started, FakeCluster().running() as other:
        other.fill("T", 3)
        with Cluster(settings_of(started.address, other.address)) as cluster:
            assert list(cluster.known_route("T").each()) == [("broker-a", 0)]
            with pytest.raises(UnknownTopicError, match="did you mean T"):
                cluster.known_route("TT")


def silent(peer: socket.socket) -> None:
    """Accept, read, and never answer."""
    while read_request(peer) is not None:
        pass


@pytest.mark.parametrize("first", [True, False])
def test_a_name_server_that_is_silent_costs_one_wait_and_a_warning(
    fake: FakeCluster,
    first: bool,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    """With a time-out of minutes: 20 asks that each waited for it would not end."""
    fake.fill("T", 3)
    monkeypatch.setattr(asking, "LATE_S", 0.1)
    monkeypatch.setattr(advice, "_SILENT", set())
    with ExitStack() as stack:
        address = stack.enter_context(listening(silent))
        names = (address, fake.address) if first else (fake.address, address)
        patient = Limits(connect_timeout_ms=300_000, request_timeout_ms=300_000)
        cluster = stack.enter_context(Cluster(settings_of(*names, limits=patient)))
        with caplog.at_level(logging.WARNING):
            for _ in range(20):
                assert cluster.route("T", fresh=True) is not None
    told = [record.getMessage() for record in caplog.records]
    assert len(told) == 1
    assert f"name server {address} is passed over" in told[0]
    assert "it is late" in told[0]


def test_a_name_server_that_answers_again_is_asked_again(
    fake: FakeCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Frozen, and thawed: what it alone knows is there again."""
    fake.fill("T", 3)
    monkeypatch.setattr(asking, "LATE_S", 0.05)
    thawed = threading.Event()
    with FakeCluster().running() as other:
        other.fill("T", 5, broker="broker-b")

        def freeze(_: object) -> None:
            assert thawed.wait(60)

        other.fault = freeze
        with Cluster(settings_of(fake.address, other.address)) as cluster:
            assert [broker for broker, _ in cluster.known_route("T").each()] == ["broker-a"]
            thawed.set()
            end = time.monotonic() + 60
            while len(list(cluster.known_route("T").each())) < 2:
                assert time.monotonic() < end
                threading.Event().wait(0.01)
                cluster.route("T", fresh=True)


def test_all_that_are_silent_are_waited_for(
    fake: FakeCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each was late while another answered; now no other one does."""
    fake.fill("T", 3)
    monkeypatch.setattr(asking, "LATE_S", 0.05)
    slow = threading.Event()
    with FakeCluster().running() as other:
        other.fill("T", 3)
        other.fault = lambda _: None if slow.wait(60) else b""
        with Cluster(settings_of(fake.address, other.address)) as cluster:
            assert cluster.route("T") is not None
            fake.fault = lambda _: b""
            threading.Timer(0.2, slow.set).start()
            assert cluster.route("T", fresh=True) is not None


def test_one_that_lies_or_refuses_is_passed_over(fake: FakeCluster) -> None:
    fake.fill("T", 3)
    with FakeCluster().running() as other:
        other.fault = lambda request: json_answer(request["opaque"], 1, remark="no such luck")
        with Cluster(settings_of(other.address, fake.address, endpoint="nameServer")) as cluster:
            assert cluster.route("T") is not None


def test_an_address_that_cannot_be_reached_gives_way_to_what_another_one_knows(
    fake: FakeCluster,
) -> None:
    """A broker came back at another address, and one name server still has the old one."""
    fake.fill("T", 3)
    with FakeCluster().running() as stale:
        stale.queues = fake.queues
        stale.addresses = {"broker-a": {0: dead_address()}}
        with Cluster(settings_of(stale.address, fake.address)) as cluster:
            assert cluster.ask("broker-a", GET_TOPIC_STATS_INFO(topic="T"))[1] == fake.address
    told = [{"b": {0: "old:1", 1: "s:1"}}, {"b": {1: "s:1"}}]
    assert merge_addresses(told, {"old:1"}) == {"b": {1: "s:1"}}
    assert merge_addresses(told, set()) == {"b": {0: "old:1", 1: "s:1"}}
    assert merge_addresses(told[:1], {"old:1"}) == {"b": {0: "old:1", 1: "s:1"}}


def test_a_master_that_was_seen_is_waited_for_and_one_that_never_was_is_not(
    fake: FakeCluster,
) -> None:
    fake.fill("T", 3)
    request = GET_TOPIC_STATS_INFO(topic="T")
    fake.addresses = {"broker-a": {1: fake.address}}
    with Cluster(settings_of(fake.address, retry_timeout_ms=3_600_000)) as cluster:
        with pytest.raises(NoMasterError):
            cluster.ask("broker-a", request)
        fake.addresses = {}
        cluster.forget("broker-a")
        cluster.ask("broker-a", request)
        fake.addresses = {"broker-a": {1: fake.address}}
        cluster.forget("broker-a")
        left = [None] * 3

        def register(asked: dict[str, object]) -> None:
            if asked["code"] == 106 and left:
                left.pop()
                fake.addresses = {} if not left else fake.addresses

        fake.fault = register
        cluster.ask("broker-a", request)
        assert not left


def test_a_broker_that_is_not_registered_and_that_something_names_is_told(
    fake: FakeCluster, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    advice.warn_of_unregistered.cache_clear()
    fake.fill("T", 3)
    fake.route_more = {"orderTopicConf": "broker-a:1;broker-gone:1"}
    with Cluster(settings_of(fake.address)) as cluster, caplog.at_level(logging.WARNING):
        for _ in range(2):
            cluster.route("T", fresh=True)
    (told,) = [record.getMessage() for record in caplog.records]
    assert "broker broker-gone is not registered" in told
    assert "the order of topic T names it" in told
