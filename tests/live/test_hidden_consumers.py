"""Consumers that the server which is asked does not know: a broker those of proxies, and back."""

import logging
from collections.abc import Callable, Iterator
from contextlib import closing
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pyarrow as pa
import pytest

from live.loopback import FakeCluster
from live.proxied import FakeProxy
from live.test_cluster_tables import table
from mqstore.backlog import unseen
from mqstore.carry.groups import check_target
from mqstore.errors import InvalidOptionError
from mqstore.live.origin import proxied_groups
from mqstore.live.origin.broker_queues import BrokerQueues
from mqstore.live.origin.group_publish import GroupPublisher
from mqstore.live.remoting.cluster import Cluster
from mqstore.live.remoting.settings import ClusterSettings
from mqstore.tables.samples import SAMPLE_SCHEMA, Recording

HEARTBEATS = "DefaultHeartBeatSyncerTopic"
GROUP = "G"


@pytest.fixture(autouse=True)
def _warned_of_nothing() -> None:
    unseen._warn.cache_clear()
    proxied_groups._warn.cache_clear()


@pytest.fixture
def proxy() -> Iterator[FakeProxy]:
    with FakeProxy().running() as found:
        yield found


def fill(fake: FakeCluster, broker: str = "broker-a") -> None:
    """Let ten messages wait for a group, which the server knows no consumer of."""
    fake.fill("T", 60, broker=broker)
    fake.committed["T", GROUP, 0] = 50


def consumers(fake: FakeCluster, **options: str) -> set[tuple[int | None, str]]:
    found = table(fake, "backlog", groups=GROUP, subscribe="T", lateAfter="9999999h", **options)
    assert {row["group"] for row in found} == {GROUP}
    return {(row["consumers"], row["status"]) for row in found}


def words(fake: FakeCluster, **options: str) -> set[str]:
    return {row["verdict"] for row in table(fake, "verdicts", groups=GROUP, **options)}


def test_a_proxy_counts_its_own_clients_and_does_not_say_that_there_are_none(
    proxy: FakeProxy, caplog: pytest.LogCaptureFixture
) -> None:
    fill(proxy)
    with caplog.at_level(logging.WARNING):
        assert consumers(proxy) == {(None, "OK")}
    (line,) = [one for one in caplog.messages if "consumers" in one]
    assert f"of {GROUP}: a proxy knows the clients of proxies alone" in line
    assert "NO_MEMBERS" not in words(proxy, subscribe="T")
    proxy.groups[GROUP] = 2
    assert consumers(proxy) == {(2, "OK")}


def test_groups_of_a_cluster_with_proxies_may_have_consumers_that_no_broker_knows(
    fake: FakeCluster, caplog: pytest.LogCaptureFixture
) -> None:
    """Also at a broker that joined after the proxies started, and lacks their topic."""
    fill(fake)
    assert consumers(fake) == {(0, "NO_CONSUMERS")}
    assert "NO_MEMBERS" in words(fake)
    fake.fill(HEARTBEATS, 1, broker="broker-b")
    with caplog.at_level(logging.WARNING):
        assert (None, "OK") in consumers(fake)
    assert {count for count, _ in consumers(fake)} == {None}
    assert any("by the option proxies" in one for one in caplog.messages)
    assert "NO_MEMBERS" not in words(fake)
    told = {(row["brokerName"], row["consumers"]) for row in table(fake, "groups", groups=GROUP)}
    assert told == {("broker-a", None), ("broker-b", None)}


def test_proxies_that_are_named_are_asked_and_a_client_counts_once(
    fake: FakeCluster, proxy: FakeProxy
) -> None:
    fill(fake)
    fake.fill(HEARTBEATS, 1)
    with FakeProxy().running() as other:
        named = f"{proxy.address},{other.address}"
        assert consumers(fake, proxies=named) == {(0, "NO_CONSUMERS")}
        assert "NO_MEMBERS" in words(fake, proxies=named)
        proxy.groups[GROUP], other.groups[GROUP] = 2, 3  # Two of the three are the same.
        assert consumers(fake, proxies=named) == {(3, "OK")}
        fake.groups[GROUP] = 1
        assert consumers(fake, proxies=named) == {(3, "OK")}
        assert {row["consumers"] for row in table(fake, "groups", proxies=named)} == {3}
    assert {request["code"] for request in proxy.requests} == {203}


def test_proxies_that_do_not_answer_hide_consumers(
    fake: FakeCluster, proxy: FakeProxy, caplog: pytest.LogCaptureFixture
) -> None:
    fill(fake)
    proxy.lie = lambda peer, _request: bool(peer.close()) or True
    assert consumers(fake, proxies=proxy.address) == {(None, "OK")}
    assert any("the option proxies names do not tell" in one for one in caplog.messages)


def test_proxies_stand_beside_name_servers_alone(proxy: FakeProxy) -> None:
    fill(proxy)
    with pytest.raises(InvalidOptionError, match="stands beside name servers"):
        consumers(proxy, proxies=proxy.address)


def claim(settings: ClusterSettings) -> None:
    """Begin to commit offsets of the group, as a stream does."""
    queues = BrokerQueues(Cluster(settings), "broker-a", frozenset())
    with closing(GroupPublisher(queues)) as publisher:
        publisher.claim(GROUP)


def carry(settings: ClusterSettings) -> None:
    """Have the group go on in the cluster, as a replay with its offsets does."""
    check_target(settings, [GROUP])


@pytest.mark.parametrize("take", [claim, carry])
def test_a_group_with_consumers_at_a_proxy_is_not_taken(
    fake: FakeCluster,
    proxy: FakeProxy,
    caplog: pytest.LogCaptureFixture,
    take: Callable[[ClusterSettings], None],
) -> None:
    fill(fake)
    fake.fill(HEARTBEATS, 1)
    settings = ClusterSettings(name_servers=(fake.address,), proxies=(proxy.address,))
    take(settings)
    assert caplog.messages == []
    proxy.groups[GROUP] = 2
    with pytest.raises(InvalidOptionError, match="2 consumers of the proxies are in this group"):
        take(settings)
    take(ClusterSettings(name_servers=(fake.address,)))
    (line,) = caplog.messages
    assert f"whether group {GROUP} has consumers at proxies is not known" in line
    assert "by the option proxies" in line


@pytest.mark.parametrize(("before", "status"), [(40, "LATE"), (50, "NO_CONSUMERS")])
def test_a_group_whose_offsets_moved_between_looks_has_consumers(
    fake: FakeCluster, tmp_path: Path, before: int, status: str
) -> None:
    """Which the broker does not know: those of a stream that commits, or of a proxy."""
    fill(fake)
    at = datetime.now(UTC) - timedelta(minutes=20)
    row = {"asOf": at, "brokerName": "broker-a", "group": GROUP, "topic": "T", "queueId": 0}
    row |= {"minOffset": 0, "brokerOffset": 60, "consumerOffset": before, "lag": 60 - before}
    with closing(Recording(str(tmp_path / "samples"), 1 << 20)) as recording:
        rows = pa.Table.from_pylist([row], SAMPLE_SCHEMA)
        recording.add(rows, int(at.timestamp() * 1000))
    options = {"subscribe": "T", "groups": GROUP, "samples": str(tmp_path / "samples")}
    assert {one["status"] for one in table(fake, "forecast", **options)} == {status}
