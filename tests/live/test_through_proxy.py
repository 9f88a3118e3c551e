"""The live room through a real RocketMQ 5 proxy: what it reads is what the broker's disk holds.

The ports of the broker and of the name server are closed to our client. The tests of
``test_reads_of_brokers`` run again, as far as a proxy serves what they ask for.
"""

import time
from collections.abc import Iterator
from contextlib import AbstractContextManager, closing, contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from broker import proxies
from broker.harness import BROKER_NAME, LOOPBACK, SETTINGS, SMALL_FILES
from broker.harness import Cluster as Servers
from broker.ports import free_ports
from broker.reading import by_queue, columns
from broker.toolchain import Toolchain
from jobs.command import Run
from jobs.conftest import doctor_of_stores, run
from jobs.test_sending import typed
from live import test_reads_of_brokers as direct
from live.real import ALL_COLUMNS, NAMES, QUIET, Live, recorded, slices
from live.secure import FILES, TRUSTED
from mqstore.check.cluster import examine_cluster
from mqstore.errors import UnknownTopicError
from mqstore.live.origin.bounds import bounds
from mqstore.live.origin.groups import committed_by
from mqstore.live.origin.pull import PullReader
from mqstore.live.origin.state import SOURCE
from mqstore.live.remoting import connection, speech
from mqstore.live.remoting.cluster import Cluster
from mqstore.live.remoting.errors import (
    BrokerUnavailableError,
    LocalModeError,
    NotServedError,
)
from mqstore.live.remoting.local_mode import PROBE_MS
from mqstore.live.remoting.requests import Request
from mqstore.live.remoting.settings import ClusterSettings, Limits
from mqstore.live.remoting.sockets import connected
from mqstore.live.remoting.tls import Tls
from mqstore.live.remoting.topics import broker_infos
from mqstore.read.scan import scan
from mqstore.read.selection import Selection
from mqstore.read.settings import ScanSettings
from mqstore.read.source import slices_of
from mqstore.request.places import open_all
from support import soak
from support.processes import until

__all__ = ["doctor_of_stores", "run", "typed"]

pytestmark = pytest.mark.broker


PATIENT = Limits(connect_timeout_ms=10_000, request_timeout_ms=120_000)
"""A busy machine is slower than a test's patience with what never comes needs to be."""
TLS_FILES = {
    "tlsTestModeEnable": False,
    "tlsKeyPath": str(FILES / "server.key"),
    "tlsCertPath": str(FILES / "server.pem"),
}


@contextmanager
def only(*ports: int) -> Iterator[None]:
    """Let our client connect to no other ports of this machine than these."""

    def guarded(host: str, port: int, deadline: float) -> Any:
        assert port in ports, f"a connection to {host}:{port}, which is closed to the client"
        return connected(host, port, deadline)

    with pytest.MonkeyPatch.context() as patch:
        for room in (connection, speech):
            patch.setattr(room, "connected", guarded)
        yield


@pytest.fixture(scope="module")
def cluster(toolchain: Toolchain, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Servers]:
    """A name server of its own: that of all tests may know another broker of the same name."""
    with Servers(toolchain, proxies.PROXY_VERSION, tmp_path_factory.mktemp("servers-")) as found:
        yield found


@pytest.fixture(scope="module")
def live(
    cluster: Servers, toolchain: Toolchain, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Live]:
    """A broker with messages of every kind, and a client that has the proxy's address only."""
    folder, port = tmp_path_factory.mktemp("proxied-"), free_ports(0)
    proxy = proxies.running(toolchain, cluster.name_server, folder, port, more=TLS_FILES)
    address, timers = f"{LOOPBACK}:{port}", {**QUIET, "timerWheelEnable": "true"}
    with only(1, port), recorded(cluster, folder, address, proxy, timers) as found:
        yield found


test_every_field = direct.test_every_field_of_every_message_is_what_the_brokers_directory_gives
test_bytes = direct.test_the_records_pulled_are_those_of_the_log_byte_for_byte
test_bounds = direct.test_bounds_are_those_that_topic_status_tells
test_times = direct.test_the_first_message_at_a_time_is_what_a_walk_over_all_finds
test_weights = direct.test_a_weight_is_near_what_the_records_have
test_tags = direct.test_tags_give_what_the_broker_gives_its_own_consumer


def test_the_address_is_found_to_be_a_proxys(live: Live) -> None:
    assert live.cluster.is_proxy
    assert live.cluster.settings.endpoint == "proxy"
    assert live.cluster.master(BROKER_NAME) == live.name_servers[1]


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


def test_a_proxy_in_local_mode_is_named_within_five_seconds(
    cluster: Servers, toolchain: Toolchain, tmp_path: Path
) -> None:
    """Its own broker is in its process, under another name. Requests would be waited for longer."""
    assert PROBE_MS < 5_000
    store, port = tmp_path / "store", free_ports(-2, 0, 1)
    settings = SETTINGS | SMALL_FILES | {"brokerName": "broker-local", "listenPort": str(port)}
    settings |= {"storePathRootDir": str(store), "storePathCommitLog": str(store / "commitlog")}
    local = proxies.running(toolchain, cluster.name_server, tmp_path, broker=settings)
    with local as proxy, only(proxy.port, int(proxy.grpc_address.rpartition(":")[2])):
        address = ClusterSettings(
            name_servers=(proxy.address,), limits=PATIENT, retry_timeout_ms=600_000
        )
        with Cluster(address) as client:
            begin = time.monotonic()
            with pytest.raises(
                LocalModeError, match=r"local mode, whose route names its gRPC port"
            ):
                bounds(client, [client.known_route("BenchmarkTest")])
            assert time.monotonic() - begin < PATIENT.request_timeout_ms / 1000
        subjects = [(one.severity, one.subject) for one in examine_cluster(address)]
    assert subjects[-1] == ("error", "Mode")


def test_the_doctor_is_content_with_a_proxy_and_its_broker(live: Live) -> None:
    found = [(one.severity, one.subject) for one in examine_cluster(live.cluster.settings)]
    assert ("OK", "Proxy") in found
    assert ("OK", f"Broker {BROKER_NAME}") in found
    assert not [one for one in found if one[0] == "error"]


def ports_of_brokers(live: Live, cluster: Servers) -> AbstractContextManager[None]:
    """Let our client connect to the name server and the broker only."""
    addresses = (cluster.name_server, live.broker.address)
    return only(*(int(one.rpartition(":")[2]) for one in addresses))


ORIGINS = ("originQueueId", "originQueueOffset", "originPhysicalOffset", "originStoreTimestamp")
UNEQUAL = (
    *("asOf", "lagMs", "bytesBehindEstimate", "bytesMatchingEstimate", "bytesEstimate", "bytes"),
    *(*ORIGINS, "pullOffset"),
)
"""Columns that depend on the moment, or are estimated, or that a proxy cannot tell."""


def rows_of_command(run: Run, address: str, *words: str) -> list[dict[str, Any]]:
    """Return the rows that the command prints."""
    command, *options = words
    done = run(command, f"rocketmq://{address}", *options, "--json")
    assert done.code == 0, done.err
    found: list[dict[str, Any]] = done.rows
    return found


def comparable(found: list[dict[str, Any]]) -> list[str]:
    """Return the rows without columns that differ, sorted.

    A proxy knows its own clients; brokers do not know those of proxies, so they tell of none.
    """
    told = [{k: v for k, v in row.items() if k not in UNEQUAL} for row in found]
    for row in told:
        if row.get("status") == "NO_CONSUMERS" and not row["consumers"]:
            row["status"] = "OK"
        row["consumers"] = row.get("consumers") or None
    return sorted(map(str, told))


def popped(cluster: Servers, group: str, topic: str, queue_id: int) -> None:
    """Pop eight messages of a queue at the broker itself, and acknowledge the first."""
    own = {"consumerGroup": group, "topic": topic, "queueId": str(queue_id)}
    more = {"maxMsgNums": "8", "invisibleTime": "600000", "pollTime": "60000", "initMode": "0"}
    more |= {"bornTime": str(time.time_ns() // 1_000_000), "expType": "TAG", "exp": "*"}
    with Cluster(ClusterSettings(name_servers=(cluster.name_server,))) as client:
        answer, _ = client.ask(BROKER_NAME, Request("POP_MESSAGE", 200050, own | more))
        told, first = answer.fields, answer.fields["msgOffsetInfo"].split()[2].split(",")[0]
        extra = f"{first} {told['popTime']} {told['invisibleTime']} {told['reviveQid']} 0 "
        extra += f"{BROKER_NAME} {queue_id} {first}"
        ack = own | {"extraInfo": extra, "offset": first}
        client.ask(BROKER_NAME, Request("ACK_MESSAGE", 200051, ack))


def test_tables_of_named_groups_are_those_that_brokers_give(
    live: Live, cluster: Servers, run: Run
) -> None:
    """Also what a group popped and did not acknowledge, and half messages."""
    proxy, group = live.name_servers[1], "Popping"
    live.broker.mqadmin("updateSubGroup", "-b", live.broker.address, "-g", group)
    with ports_of_brokers(live, cluster):
        popped(cluster, group, NAMES.topic, 0)
    by_topic = ("--topic", NAMES.topic)
    asked = [
        ("backlog", *by_topic, "--group", f"{NAMES.push_group},{NAMES.pull_group},{group}"),
        ("retries", "--group", NAMES.push_group),
        ("offsets", *by_topic, "--group", NAMES.push_group),
        ("halfmessages", "--topic", NAMES.transaction),
        ("queues", *by_topic),
        ("tags", *by_topic),
    ]
    found: list[dict[str, Any]] = []

    def is_settled() -> bool:  # A broker stores an acknowledgement some moments later.
        with ports_of_brokers(live, cluster):
            found[:] = rows_of_command(run, cluster.name_server, *asked[0])
        return any(row["inflight"] == 7 for row in found)

    until(is_settled)
    for words in asked:
        with ports_of_brokers(live, cluster):
            theirs = rows_of_command(run, cluster.name_server, *words)
        assert theirs, words
        assert comparable(rows_of_command(run, proxy, *words)) == comparable(theirs), words
    assert {row["mode"] for row in found} == {"PULL", "POP"}


def test_columns_that_a_proxy_cannot_tell_are_null(live: Live, cluster: Servers, run: Run) -> None:
    """What a group pulled; the places of a retried message's origin, which are those of the log."""
    proxy, by_group = live.name_servers[1], ("--group", NAMES.push_group)
    for words, columns_ in (
        (("offsets", "--topic", NAMES.topic, *by_group), ("pullOffset",)),
        (("retries", *by_group), ORIGINS),
    ):
        ours = rows_of_command(run, proxy, *words)
        with ports_of_brokers(live, cluster):
            theirs = rows_of_command(run, cluster.name_server, *words)
        for column in columns_:
            assert {row[column] for row in theirs} - {None}, column
            assert {row[column] for row in ours} == {None}, column


def test_messages_are_looked_at_and_sent_by_the_command(
    live: Live, cluster: Servers, run: Run, typed: Any
) -> None:
    """With cat, top and send: what was sent is what the official client gets."""
    address, topic = live.name_servers[1], "Typed"
    looks = [
        ("cat", NAMES.topic, "-n", "7"),
        ("cat", f"{NAMES.topic}/0", "-n", "3", "--tag", NAMES.tags[0]),
        ("top", "--topic", NAMES.topic, "--group", NAMES.push_group, "--interval", "1"),
    ]
    for words in looks:
        ours = rows_of_command(run, address, *words)
        with ports_of_brokers(live, cluster):
            theirs = rows_of_command(run, cluster.name_server, *words)
        assert ours, words
        assert comparable(ours) == comparable(theirs), words
    live.broker.mqadmin("updateTopic", "-b", live.broker.address, "-t", topic)
    typed(b"one\ntwo\nthree")
    (told,) = rows_of_command(run, address, "send", topic, "--tag", "t")
    assert told["messages"] == 3
    live.broker.wait_for(topic, 3)
    stored = columns(live.root, ("topic", "body", "tags"))
    sent = [(bytes(row["body"]), row["tags"]) for row in stored if row["topic"] == topic]
    assert sorted(sent) == [(b"one", "t"), (b"three", "t"), (b"two", "t")]
    assert {row["properties"]["TAGS"] for row in live.broker.dump(topic).rows} == {"t"}


@pytest.mark.usefixtures("doctor_of_stores")
def test_the_command_doctor_says_what_the_address_is_and_how_to_speak_to_it(
    live: Live, run: Run
) -> None:
    done = run("doctor", f"rocketmq://{live.name_servers[1]}", "--json")
    subjects = {str(row["subject"]): row["severity"] for row in done.rows}
    assert {subjects[one] for one in ("Proxy", "Serves", f"Broker {BROKER_NAME}")} == {"OK"}
    assert done.code == 0


def test_a_proxy_speaks_tls_at_the_same_port(live: Live) -> None:
    """And its certificate is checked, as those of brokers are."""
    settings = replace(live.cluster.settings, name_servers=live.name_servers[1:], tls=TRUSTED)
    with Cluster(settings) as client:
        assert client.is_proxy
        queues = bounds(client, [client.known_route(NAMES.topic)])
        answers = PullReader(client, slices(queues)).answers()
        expected = [queue for queue in live.bounds() if queue.topic == NAMES.topic]
        assert [(one.low, one.high) for one in queues] == [(q.low, q.high) for q in expected]
        assert sum(one.end - one.start for one in answers) == sum(q.high - q.low for q in queues)
        assert client.connection(live.name_servers[1]).tls_version
    stranger = Tls(str(FILES / "stranger.pem"), verify_host_name=False)
    with (
        Cluster(replace(settings, tls=stranger)) as client,
        pytest.raises(BrokerUnavailableError, match="not trusted"),
    ):
        client.known_route(NAMES.topic)


PULLS = soak.size("proxy_pulls", check=400, test=400, whole=10_000)


def test_no_answer_is_lost_by_pulls_side_by_side(
    live: Live, caplog: pytest.LogCaptureFixture
) -> None:
    """A proxy drops answers while 64 KiB wait for a connection; these have about 200 KB each."""
    live.broker.mqadmin("updateTopic", "-b", live.broker.address, "-t", "Heavy")
    live.broker.send_all("Heavy", 640, 6_000, 20)
    live.broker.wait_for("Heavy", 640)
    settings = replace(live.cluster.settings, limits=PATIENT, pulls_in_flight=8, retry_timeout_ms=0)
    pulls = 0
    with Cluster(settings) as client:  # The first answer that is missing would be an error.
        queues = bounds(client, [client.known_route("Heavy")])
        while pulls < PULLS:
            answers = list(PullReader(client, slices(queues)).answers())
            assert sum(answer.end - answer.start for answer in answers) == 640
            pulls += len(answers)
    assert "no answer" not in caplog.text
