"""The dialect of RocketMQ 5 proxies, against a proxy that does as it is told."""

import logging
import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing
from dataclasses import replace
from typing import Any

import pytest

from jobs.command import Run
from jobs.conftest import run
from live.conftest import PATIENT, QUICK
from live.loopback import FakeCluster, json_answer, listening
from live.proxied import FakeProxy
from live.real import slices
from mqstore.backlog import BacklogRequest, plan_all
from mqstore.check.cluster import examine_cluster
from mqstore.errors import InvalidOptionError, StoreError, UnknownGroupError, UnknownTopicError
from mqstore.live.origin.bounds import bounds, first_at, weigh
from mqstore.live.origin.cluster_origin import ClusterBrokers
from mqstore.live.origin.pull import PullReader
from mqstore.live.origin.records import PullSettings, read
from mqstore.live.remoting.cluster import Cluster
from mqstore.live.remoting.connection import Connection
from mqstore.live.remoting.errors import (
    AccessDeniedError,
    BrokenAnswerError,
    BrokerTimeoutError,
    BrokerUnavailableError,
    LocalModeError,
    NotServedError,
    RequestRefusedError,
)
from mqstore.live.remoting.requests import (
    GET_BROKER_RUNTIME_INFO,
    GET_MAX_OFFSET,
    Request,
    pull,
)
from mqstore.live.remoting.settings import TOOLS_CONSUMER, ClusterSettings
from mqstore.read.capabilities import COMMIT_GROUP
from mqstore.read.scan import scan
from mqstore.read.selection import Selection
from mqstore.read.settings import ScanSettings
from mqstore.read.source import slices_of
from mqstore.request.places import open_all

__all__ = ["run"]
Connect = Callable[..., Cluster]
TOPIC = "T"
SOON_SECONDS = 5.0


@pytest.fixture
def proxy() -> Iterator[FakeProxy]:
    with FakeProxy().running() as found:
        yield found


@pytest.fixture
def connect(proxy: FakeProxy) -> Iterator[Connect]:
    with ExitStack() as stack:

        def make(**more: Any) -> Cluster:
            return stack.enter_context(Cluster(settings_of(proxy, **more)))

        yield make


def settings_of(proxy: FakeCluster, **more: Any) -> ClusterSettings:
    limits = {"name_servers": (proxy.address,), "limits": PATIENT, "retry_timeout_ms": 2_000}
    return ClusterSettings(**(limits | more))


def bodies(cluster: Cluster, topic: str = TOPIC, **more: Any) -> list[bytes]:
    route = cluster.known_route(topic)
    reader = PullReader(cluster, slices(bounds(cluster, [route])), **more)
    return [
        part.headers.body(row).tobytes()
        for part in read(reader, PullSettings(tags=more.get("tags", "*")))
        for row in range(len(part.headers))
    ]


@pytest.mark.parametrize("first", ["route", "brokers", "is_proxy"])
def test_a_proxy_is_told_from_a_name_server_by_what_it_answers(
    proxy: FakeProxy, connect: Connect, fake: FakeCluster, first: str
) -> None:
    for server, expected in ((proxy, "proxy"), (fake, "nameServer")):
        server.fill(TOPIC, 3)
        cluster = connect(name_servers=(server.address,))
        if first == "route":
            assert cluster.route(TOPIC) is not None
        elif first == "brokers":
            cluster.brokers()
        assert cluster.is_proxy == (expected == "proxy")
        assert cluster.settings.endpoint == expected
        assert bodies(cluster) == [b"0", b"1", b"2"]


def test_a_name_server_is_asked_no_more_than_before(fake: FakeCluster, connect: Connect) -> None:
    fake.fill(TOPIC, 3)
    bodies(connect(name_servers=(fake.address,)))
    codes = [request["code"] for request in fake.requests]
    assert codes == [105, 202, 11]


def test_the_option_says_what_the_address_is(proxy: FakeProxy, connect: Connect) -> None:
    proxy.fill(TOPIC, 3)
    assert bodies(connect(endpoint="proxy")) == [b"0", b"1", b"2"]
    assert 106 not in {request["code"] for request in proxy.requests}
    proxy.route_port = "1"
    with pytest.raises(BrokerUnavailableError, match=r"192\.0\.2\.7:1"):
        bodies(connect(endpoint="nameServer", limits=QUICK, retry_timeout_ms=0))


def test_a_broker_is_neither_and_the_error_says_so(fake: FakeCluster, connect: Connect) -> None:
    fake.fill(TOPIC, 3)
    fake.refusals = {105: (3, "not supported"), 106: (3, "not supported")}
    for ask in (Cluster.brokers, lambda cluster: cluster.route(TOPIC)):
        with pytest.raises(RequestRefusedError, match="the address of a broker"):
            ask(connect(name_servers=(fake.address,)))


@pytest.mark.parametrize(
    "more", [{"read_from": "any"}, {"read_from": "slave"}, {"broker_addresses": {"b": "h:1"}}]
)
def test_what_a_proxy_cannot_do_is_refused_by_the_options_name(
    proxy: FakeProxy, connect: Connect, more: dict[str, Any]
) -> None:
    proxy.fill(TOPIC, 3)
    name = "readFrom" if "read_from" in more else "brokerAddresses"
    with pytest.raises(InvalidOptionError, match=name):
        connect(**more).route(TOPIC)
    with pytest.raises(InvalidOptionError, match=name):
        connect(**more, endpoint="proxy")


def test_only_the_address_that_was_given_is_used_and_every_request_names_its_broker(
    proxy: FakeProxy, connect: Connect
) -> None:
    """The route has 192.0.2.7, which nobody reaches."""
    for broker in ("broker-a", "broker-b"):
        for queue_id in range(2):
            proxy.fill(TOPIC, 5, broker=broker, queue_id=queue_id)
    for (broker, _, queue_id), queue in proxy.queues.items():
        body = f"{broker}/{queue_id}".encode()
        queue.messages = [replace(message, body=body) for message in queue.messages if message]
    cluster = connect()
    found = bodies(cluster)
    expected = [f"broker-{b}/{q}".encode() for b in "ab" for q in range(2) for _ in range(5)]
    assert found == expected
    assert cluster.master("broker-b") == proxy.address
    told = {r["extFields"].get("bname") for r in proxy.requests if r["code"] in {11, 30, 31}}
    assert told == {"broker-a", "broker-b"}


@pytest.mark.parametrize("in_flight", [1, 3, 8])
def test_one_pull_is_under_way_on_a_connection(
    proxy: FakeProxy, connect: Connect, in_flight: int
) -> None:
    for queue_id in range(4):
        proxy.fill(TOPIC, 1_000, queue_id=queue_id)
    proxy.most = 16
    cluster = connect(pulls_in_flight=in_flight)
    assert len(bodies(cluster)) == 4_000
    first_at(cluster, bounds(cluster, [cluster.known_route(TOPIC)]), [1_700_000_000_500] * 4)
    assert proxy.crowded == 0
    assert len(proxy.pulls()) > 4_000 // 16


def test_a_connection_to_a_proxy_has_its_next_pull_as_soon_as_its_answer_was_taken(
    proxy: FakeProxy, connect: Connect, monkeypatch: pytest.MonkeyPatch
) -> None:
    proxy.fill(TOPIC, 320)
    sent: list[str] = []
    send = Connection.send

    def counted(own: Connection, request: Request) -> int:
        sent.append(request.name)
        return send(own, request)

    cluster = connect(pulls_in_flight=4)
    queues = bounds(cluster, [cluster.known_route(TOPIC)])
    monkeypatch.setattr(Connection, "send", counted)
    answers = PullReader(cluster, slices(queues)).answers()
    under_way = [sent.count("PULL_MESSAGE") - taken for taken, _ in enumerate(answers, 1)]
    assert under_way == [0, 3, 3, 3, 3, 3, 3, 2, 1, 0]


def test_with_tags_one_pull_is_under_way_on_a_connection_too(
    proxy: FakeProxy, connect: Connect
) -> None:
    for queue_id in range(3):
        proxy.fill(TOPIC, 3_000, queue_id=queue_id, tags=lambda i: "AB"[i % 50 == 0])
    cluster = connect(pulls_in_flight=4, pull_batch_size=40)
    assert bodies(cluster, tags="B") == [b"%d" % n for _ in range(3) for n in range(0, 3_000, 50)]
    assert proxy.crowded == 0


def test_bounds_come_queue_by_queue_and_times_by_bisection(
    proxy: FakeProxy, connect: Connect
) -> None:
    proxy.fill(TOPIC, 90, low=7)
    proxy.fill(TOPIC, 0, queue_id=1)
    proxy.fill(TOPIC, 40, queue_id=2, broker="broker-b")
    for queue_id in range(2):
        proxy.fill(TOPIC, 0, queue_id=queue_id, broker="broker-b")
    cluster = connect()
    found = bounds(cluster, [cluster.known_route(TOPIC)])
    assert [(q.broker, q.queue_id, q.low, q.high) for q in found] == [
        ("broker-a", 0, 7, 97),
        ("broker-a", 1, 0, 0),
        ("broker-b", 0, 0, 0),
        ("broker-b", 1, 0, 0),
        ("broker-b", 2, 0, 40),
    ]
    assert first_at(cluster, found, [1_700_000_000_000 + 295] * 5) == [37, 0, 0, 0, 30]
    exact = sum(len(proxy.queues["broker-a", TOPIC, 0].record(7 + n) or b"") for n in range(90))
    assert 0.8 * exact < weigh(cluster, slices(found[:1]))[0] < 1.2 * exact


def test_an_answer_that_never_comes_is_asked_for_again_by_a_new_connection(
    proxy: FakeProxy, connect: Connect
) -> None:
    proxy.fill(TOPIC, 500)
    dropped: list[dict[str, Any]] = []

    def drops_every_seventh(request: dict[str, Any]) -> bool:
        if request["code"] == 11 and len(proxy.pulls()) % 7 == 3 and len(dropped) < 3:
            dropped.append(request)
            return True
        return False

    proxy.is_silent = drops_every_seventh
    cluster = connect(limits=QUICK, retry_timeout_ms=30_000)
    assert bodies(cluster) == [b"%d" % n for n in range(500)]
    assert len(dropped) == 3


@pytest.mark.parametrize("code", [30, 31, 11])
def test_silence_that_does_not_end_is_an_error_by_name_in_time(
    proxy: FakeProxy, connect: Connect, code: int
) -> None:
    proxy.fill(TOPIC, 500)
    proxy.is_silent = lambda request: request["code"] == code
    before = time.monotonic()
    with pytest.raises(BrokerTimeoutError, match=r"broker-a through 127.*no answer in the time"):
        bodies(connect(limits=QUICK, retry_timeout_ms=1_000))
    assert time.monotonic() - before < 30


def test_all_that_is_asked_of_silent_brokers_at_once_costs_one_time_out(
    proxy: FakeProxy, connect: Connect
) -> None:
    """Pulls go by four connections to each broker: one after the other they took 64 s here."""
    for number in range(32):
        proxy.fill(TOPIC, 5, broker=f"broker-{number // 4}", queue_id=number % 4)
    cluster = connect(limits=replace(QUICK, request_timeout_ms=2_000), retry_timeout_ms=0)
    queues = bounds(cluster, [cluster.known_route(TOPIC)])
    assert len(queues) == 32
    proxy.is_silent = lambda request: request["code"] == 11
    proxy.requests.clear()
    before = time.monotonic()
    with pytest.raises(BrokerTimeoutError, match="no answer in 2 s"):
        first_at(cluster, queues, [1] * len(queues))
    assert time.monotonic() - before < 30
    assert sum(request["code"] == 11 for request in proxy.requests) == 32


def test_what_is_here_is_taken_though_others_had_used_up_the_time(
    proxy: FakeProxy, connect: Connect
) -> None:
    """A broker's answer lies in its socket while another one is waited for."""
    for broker in ("broker-a", "broker-b"):
        proxy.fill(TOPIC, 5, broker=broker)
    cluster = connect(limits=QUICK, retry_timeout_ms=0)
    queues = bounds(cluster, [cluster.known_route(TOPIC)])
    proxy.is_silent = lambda r: (r["code"], r["extFields"].get("bname")) == (11, "broker-a")
    answers: dict[int, Any] = {}
    asked = [(q.broker, pull(TOOLS_CONSUMER, (TOPIC, 0), 0, 1)) for q in queues]
    failure = cluster._ask_open(asked, answers, is_first=True)
    assert isinstance(failure, BrokerTimeoutError)
    assert list(answers) == [1]


def speaks_grpc(peer: socket.socket) -> None:
    """Answer a client of HTTP/2 with SETTINGS, and close for all else."""
    if peer.recv(1_000).startswith(b"PRI * HTTP/2.0"):
        peer.sendall(bytes([0, 0, 0, 4, 0, 0, 0, 0, 0]))
        peer.recv(1)


@pytest.fixture
def grpc() -> Iterator[str]:
    """The port of gRPC, as text."""
    with listening(speaks_grpc) as address:
        yield address.rpartition(":")[2]


def test_local_mode_is_named_soon_and_not_tried_again(
    proxy: FakeProxy, connect: Connect, grpc: str
) -> None:
    proxy.fill(TOPIC, 5)
    proxy.is_local, proxy.route_port = True, grpc
    before = time.monotonic()
    cluster = connect(retry_timeout_ms=60_000)
    with pytest.raises(LocalModeError, match=rf"MQLOG_PROXY_LOCAL_MODE.*gRPC port {grpc}"):
        bodies(cluster)
    assert time.monotonic() - before < SOON_SECONDS
    with pytest.raises(LocalModeError):
        bodies(cluster)


def test_another_port_in_the_route_is_no_local_mode_where_queues_are_answered(
    proxy: FakeProxy, connect: Connect
) -> None:
    """As behind a load balancer."""
    proxy.fill(TOPIC, 5)
    proxy.route_port = "8443"
    cluster = connect()
    assert len(bodies(cluster)) == 5
    assert len(bodies(cluster)) == 5
    assert [r["code"] for r in proxy.requests].count(30) == 3  # One was the probe.


@pytest.mark.parametrize("other_port", ["nobody", "remoting"])
def test_brokers_that_are_frozen_behind_a_mapped_port_are_no_local_mode(
    proxy: FakeProxy, connect: Connect, other_port: str
) -> None:
    """One is waited for; while all are silent, the error says what it may be, in its time."""
    proxy.fill(TOPIC, 5)
    proxy.fill(TOPIC, 5, broker="broker-b")
    frozen = {"broker-a"}
    proxy.is_silent = lambda request: request.get("extFields", {}).get("bname") in frozen
    with FakeProxy().running() as mapped:
        port = mapped.address.rpartition(":")[2] if other_port == "remoting" else "1"
        proxy.route_port = port
        cluster = connect(limits=QUICK, retry_timeout_ms=3_600_000)
        assert sorted(cluster.known_route(TOPIC).queues) == ["broker-a", "broker-b"]
        frozen.add("broker-b")
        cluster = connect(limits=QUICK, retry_timeout_ms=500)
        with pytest.raises(BrokerTimeoutError, match=f"or the proxy is in local mode.*port {port}"):
            bodies(cluster)
        thawing = threading.Timer(1.0, frozen.clear)
        thawing.start()
        assert len(bodies(connect(limits=QUICK, retry_timeout_ms=3_600_000))) == 10
        thawing.join()


def test_the_next_proxy_is_asked_when_one_fails(proxy: FakeProxy, connect: Connect) -> None:
    proxy.fill(TOPIC, 300)
    with FakeProxy().running() as other:
        other.queues = proxy.queues
        cluster = connect(
            name_servers=("127.0.0.1:1", other.address, proxy.address),
            limits=QUICK,
            retry_timeout_ms=30_000,
        )
        assert len(bodies(cluster)) == 300
        assert {request["code"] for request in proxy.requests} == {105}  # It has routes as well.
        other.is_silent = lambda request: request["code"] != 105
        assert len(bodies(cluster)) == 300
        assert {request["code"] for request in proxy.requests} == {105, 11, 30, 31}


def test_a_request_that_no_proxy_serves_is_refused_before_it_is_sent(
    proxy: FakeProxy, connect: Connect
) -> None:
    proxy.fill(TOPIC, 5)
    cluster = connect()
    cluster.known_route(TOPIC)
    before = len(proxy.requests)
    with pytest.raises(
        NotServedError, match=r"GET_BROKER_RUNTIME_INFO.*rocketmq://NAMESERVER:9876"
    ):
        cluster.ask("broker-a", GET_BROKER_RUNTIME_INFO())
    with pytest.raises(NotServedError, match="GET_ALL_TOPIC_LIST"):
        cluster.topic_names()
    assert len(proxy.requests) == before


@pytest.mark.parametrize(
    "remark",
    [
        "username cannot be null.",
        "check signature failed.",
        "User:sparku has no permission to access Topic:T from 127.0.0.1, no matched policies.",
        "User:sparku is not found.",
        "User:sparku not found.",
        "User:sparku is disabled.",
        "Authentication failed. Please verify the credentials and try again.",
    ],
)
def test_a_refusal_of_acl_2_with_code_1_is_access_denied(
    proxy: FakeProxy, connect: Connect, remark: str
) -> None:
    proxy.fill(TOPIC, 5)
    for code in (30, 11, 105):
        proxy.refusals = {code: (1, remark)}
        with pytest.raises(AccessDeniedError, match=r"MQLOG_ACCESS_DENIED.*code 1"):
            bodies(connect())


@pytest.mark.parametrize(
    ("code", "fields"),
    [
        (30, {}),
        (30, {"offset": "many"}),
        (31, {"offset": "-5"}),
        (30, {"offset": str(2**70)}),
        (11, {}),
        (11, {"nextBeginOffset": "0", "minOffset": "0", "maxOffset": "9"}),
    ],
)
def test_a_proxy_that_lies_is_a_broken_answer(
    proxy: FakeProxy, connect: Connect, code: int, fields: dict[str, str]
) -> None:
    proxy.fill(TOPIC, 9)
    proxy.fault = lambda request: (
        json_answer(request["opaque"], 0, **fields) if request["code"] == code else None
    )
    with pytest.raises(BrokenAnswerError):
        bodies(connect())


def test_a_proxy_that_turns_into_something_else_is_a_named_error(
    proxy: FakeProxy, connect: Connect
) -> None:
    proxy.fill(TOPIC, 9)
    cluster = connect(retry_timeout_ms=0)
    cluster.known_route(TOPIC)
    proxy.fault = lambda request: json_answer(request["opaque"], 3, remark="not supported")
    with pytest.raises(RequestRefusedError, match="GET_MIN_OFFSET"):
        bodies(cluster)


def test_topics_must_be_named_and_be_there(proxy: FakeProxy) -> None:
    proxy.fill(TOPIC, 5)
    with pytest.raises(InvalidOptionError, match=r"lists no topics and no groups.*name the topics"):
        open_all(Selection(roots=()), [settings_of(proxy)])
    with pytest.raises(InvalidOptionError, match="lists no topics"):
        open_all(Selection(roots=(), subscribe_pattern="T.*"), [settings_of(proxy)])
    with pytest.raises(UnknownTopicError, match="no broker has a topic Other"):
        open_all(Selection(roots=(), subscribe=("Other",)), [settings_of(proxy)])
    both = Selection(roots=(), subscribe=(TOPIC, "Other"))
    opened = closing(open_all(both, [settings_of(proxy)]))
    with opened as stores, pytest.raises(UnknownTopicError, match="Other"):
        assert stores.snapshots


def test_a_named_topic_is_read_by_tasks_that_ask_nothing_twice(proxy: FakeProxy) -> None:
    proxy.fill(TOPIC, 50)
    with closing(open_all(Selection(roots=(), subscribe=(TOPIC,)), [settings_of(proxy)])) as stores:
        parts = [piece for snapshot in stores.snapshots for piece in slices_of(snapshot)]
    before = len(proxy.requests)
    found = [one.as_py() for b in scan(parts, ScanSettings(("body",))) for one in b["body"]]
    assert found == [b"%d" % n for n in range(50)]
    assert {request["code"] for request in proxy.requests[before:]} == {11}


def test_keys_are_scanned_for_with_a_warning(
    proxy: FakeProxy, caplog: pytest.LogCaptureFixture
) -> None:
    proxy.fill(TOPIC, 50)
    finder = ClusterBrokers(settings_of(proxy), (TOPIC,))
    with closing(finder):
        (broker,) = finder.brokers()
        with closing(finder.source(broker)) as source, caplog.at_level(logging.WARNING):
            pieces = slices_of(source.snapshot())
            assert source.narrow(pieces, ["k"], []) == pieces
    assert "all messages are read" in caplog.text


def test_named_groups_have_their_offsets_and_their_retry_topics(proxy: FakeProxy) -> None:
    proxy.fill(TOPIC, 50)
    proxy.fill(TOPIC, 20, queue_id=1)
    proxy.fill("%RETRY%G", 3)
    proxy.committed = {(TOPIC, "G", 0): 20, ("%RETRY%G", "G", 0): 1, (TOPIC, "H", 0): 9}
    finder = ClusterBrokers(settings_of(proxy), (TOPIC,), ("G", "Nobody"))
    with closing(finder), closing(finder.source(*finder.brokers())) as source:
        assert source.topics() == {TOPIC, "%RETRY%G"}
        offsets = source.config.consumer_offsets()
        assert offsets == {(TOPIC, "G"): {0: 20}, ("%RETRY%G", "G"): {0: 1}}
        assert source.config.groups() == {"G"}
        assert source.config.topics()[TOPIC].read_queue_nums == 2
        with pytest.raises(NotServedError, match="GET_ALL_DELAY_OFFSET"):
            source.config.delay_offsets()


def test_a_backlog_of_named_groups_asks_for_nothing_that_a_proxy_does_not_serve(
    proxy: FakeProxy,
) -> None:
    proxy.fill(TOPIC, 50)
    proxy.committed = {(TOPIC, "G", 0): 20}
    finder = ClusterBrokers(settings_of(proxy), (TOPIC,), ("G",))
    with closing(finder), closing(finder.source(*finder.brokers())) as source:
        items = plan_all([source], [source.held()], BacklogRequest("G"))
    first = items[0]
    assert (first.queue_id, first.high - first.consumed, first.mode) == (0, 30, "PULL")


def test_a_group_that_nothing_is_known_of_is_unknown(proxy: FakeProxy) -> None:
    proxy.fill(TOPIC, 50)
    proxy.committed = {(TOPIC, "G", 0): 20}
    chosen = Selection(roots=(), subscribe=(TOPIC,), groups=("G", "Gg"))
    with closing(open_all(chosen, [settings_of(proxy)])) as stores:
        assert stores.committed("G") == [{(TOPIC, 0): 20}]
        with pytest.raises(UnknownGroupError, match="Gg"):
            stores.committed("Gg")


def test_a_streams_progress_goes_to_a_group_that_is_there(proxy: FakeProxy) -> None:
    proxy.fill(TOPIC, 50)
    finder = ClusterBrokers(settings_of(proxy), (TOPIC,))
    with closing(finder), closing(finder.source(*finder.brokers())) as source:
        with pytest.raises(InvalidOptionError, match=f"{COMMIT_GROUP}.*a proxy makes none"):
            source.publish_group("G", {(TOPIC, 0): 20})
        proxy.groups["G"] = 0
        assert source.publish_group("G", {(TOPIC, 0): 20})
        assert proxy.committed == {(TOPIC, "G", 0): 20}
        proxy.groups["H"] = 2
        with pytest.raises(InvalidOptionError, match="2 consumers"):
            source.claim_group("H")


def test_a_tail_goes_away_with_its_proxy_and_comes_back(proxy: FakeProxy) -> None:
    proxy.fill(TOPIC, 50)
    chosen = Selection(roots=(), subscribe=(TOPIC,))
    with closing(open_all(chosen, [settings_of(proxy, limits=QUICK)])) as stores:
        (tail,) = stores.tails()
        with closing(tail):
            assert dict(tail.look()) == {(TOPIC, 0): (0, 50)}
            proxy.is_silent = lambda request: request["code"] != 105
            tail.look(at_once=True)
            assert tail.away is not None
            assert dict(tail.look()) == {(TOPIC, 0): (0, 50)}


def test_the_command_shows_named_topics_and_groups(proxy: FakeProxy, run: Run) -> None:
    proxy.fill(TOPIC, 50)
    proxy.fill("%RETRY%G", 3)
    proxy.committed = {(TOPIC, "G", 0): 20}
    place = f"rocketmq://{proxy.address}"
    rows = run("backlog", place, "--topic", TOPIC, "--group", "G", "--json").rows
    assert [(row["topic"], row["lag"], row["consumerOffset"]) for row in rows] == [(TOPIC, 30, 20)]
    rows = run("top", place, "--topic", TOPIC, "--group", "G", "--json", "--interval", "1").rows
    assert [(row["group"], row["topic"], row["lag"]) for row in rows] == [("G", TOPIC, 30)]
    rows = run("cat", place, TOPIC, "-n", "2", "--json").rows
    assert len(rows) == 2
    rows = run("retries", place, "--group", "G", "--json").rows
    assert len(rows) == 3
    for command in ("backlog", "why", "forecast", "offsets"):
        done = run(command, place, "--group", "G", "--json")
        assert (done.code, done.out) == (2, "")
        assert "lists no topics: name those that the groups consume" in done.err
        assert "-t of a command" in done.err
    rows = run("sql", place, f"SELECT count(*) AS n FROM {TOPIC} WHERE queueId = 0", "--json").rows
    assert rows == [{"n": 50}]
    done = run("sql", f"{place}/{TOPIC}", f"FROM {TOPIC}")
    assert "the query names its topics" in done.err
    done = run("sql", place, "SELECT 1")
    assert "lists no topics" in done.err
    for words in (
        ("groups", place),
        ("backlog", place, "--topic", TOPIC),
        ("backlog", place, "--topic", TOPIC, "--group", "/G.*/"),
        ("top", place, "--topic", TOPIC),
        ("retries", place, "--topic", TOPIC),
    ):
        done = run(*words, "--json")
        assert done.code != 0
        assert "lists no groups: give names, no regex" in done.err
    done = run("scheduled", place, "--topic", TOPIC, "--json")
    assert "MQLOG_NOT_SERVED_BY_PROXY" in done.err


def test_errors_cross_processes(proxy: FakeProxy) -> None:
    for error in (LocalModeError("h:1", "why"), NotServedError("h:1", "X", 3, "no")):
        assert isinstance(error, StoreError)
        assert replace(settings_of(proxy), endpoint="proxy").endpoint == "proxy"
    assert GET_MAX_OFFSET(topic="T", queueId=0).fields == {"topic": "T", "queueId": "0"}


def examined(proxy: FakeProxy, **more: Any) -> list[tuple[str, str, str]]:
    found = examine_cluster(settings_of(proxy, **more))
    return [(one.severity, one.subject, one.found) for one in found]


def test_the_doctor_says_what_a_proxy_serves_and_which_brokers_answer(proxy: FakeProxy) -> None:
    proxy.fill("TBW102", 0)
    proxy.fill("TBW102", 0, broker="broker-b")
    found = examined(proxy, name_servers=(proxy.address, "127.0.0.1:1"), limits=QUICK)
    assert [one[:2] for one in found] == [
        ("OK", "Proxy"),
        ("warning", "Proxy"),
        ("OK", "TLS"),
        ("OK", "Serves"),
        ("OK", "Broker broker-a"),
        ("OK", "Broker broker-b"),
    ]
    assert "no lists, keys, ids" in found[3][2]
    proxy.is_silent = lambda request: request.get("extFields", {}).get("bname") == "broker-b"
    found = examined(proxy, limits=QUICK, retry_timeout_ms=500)
    assert [one[:2] for one in found[-2:]] == [
        ("OK", "Broker broker-a"),
        ("error", "Broker broker-b"),
    ]


def test_the_doctor_names_local_mode_and_a_refusal_of_acl(proxy: FakeProxy, grpc: str) -> None:
    proxy.fill("TBW102", 0)
    proxy.is_local, proxy.route_port = True, grpc
    before = time.monotonic()
    severity, subject, told = examined(proxy)[-1]
    assert (severity, subject) == ("error", "Mode")
    assert "local mode" in told
    assert time.monotonic() - before < SOON_SECONDS
    proxy.is_local = False
    proxy.refusals = {105: (1, "username cannot be null.")}
    severity, subject, told = examined(proxy)[-1]
    assert (severity, subject) == ("error", "Credentials")
    assert "MQLOG_ACCESS_DENIED" in told
    remark = "User:u has no permission to access Topic:TBW102 from 127.0.0.1, no matched policies."
    proxy.refusals = {105: (1, remark)}
    assert examined(proxy)[-1] == (
        "warning",
        "Credentials",
        "accepted; this user may not see TBW102: the brokers were not asked",
    )
    proxy.refusals = {}
    proxy.queues.clear()
    assert examined(proxy)[-1][:2] == ("warning", "Routes")
