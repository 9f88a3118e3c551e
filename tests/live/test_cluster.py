"""Name servers with fail-over, routes, masters, and requests that are sent again."""

import json
import socket
import time
from collections.abc import Sequence
from typing import Any

import pytest

from live.conftest import PATIENT, QUICK, Connect
from live.loopback import FakeCluster, json_answer, listening, read_request
from live.test_tls import serving
from mqstore.errors import UnknownTopicError, UnsupportedTopicError
from mqstore.live.origin.pull import LiveSlice, PullReader
from mqstore.live.remoting import requests
from mqstore.live.remoting.cluster import Cluster
from mqstore.live.remoting.connection import Connection, NotUnderstoodError
from mqstore.live.remoting.errors import (
    AccessDeniedError,
    BrokenAnswerError,
    BrokerTimeoutError,
    BrokerUnavailableError,
    NoMasterError,
    RequestRefusedError,
)
from mqstore.live.remoting.frame import Frame
from mqstore.live.remoting.requests import GET_TOPIC_STATS_INFO, Kind
from mqstore.live.remoting.settings import ClusterSettings
from mqstore.live.remoting.topics import check_readable

PIECE = LiveSlice("broker-a", "T", 0, 0, 40)


def dead_address() -> str:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        return f"127.0.0.1:{taken.getsockname()[1]}"


def kinds() -> list[Kind]:
    return [value for value in vars(requests).values() if isinstance(value, Kind)]


def test_each_kind_of_request_has_its_own_name_and_code() -> None:
    assert len({kind.code for kind in kinds()}) == len(kinds())
    assert len({kind.name for kind in kinds()}) == len(kinds())


def test_a_request_has_exactly_its_fields() -> None:
    assert GET_TOPIC_STATS_INFO(topic="T").fields == {"topic": "T"}
    for wrong in ({}, {"topik": "T"}, {"topic": "T", "queueId": 0}):
        with pytest.raises(TypeError):
            GET_TOPIC_STATS_INFO(**wrong)


def test_no_kind_of_request_changes_a_broker() -> None:
    # RequestCode: sends, commits, creations and deletions, heart beats, offset resets.
    changing = {10, 15, 17, 25, 34, 35, 37, 39, 200, 207, 215, 216, 222, 310, 320}
    assert not changing & {kind.code for kind in kinds()}


def test_pipelined_answers_may_come_in_any_order() -> None:
    def play(peer: socket.socket) -> None:
        asked = [read_request(peer) for _ in range(3)]
        for request in reversed(asked):
            assert request is not None
            name = request["extFields"]["topic"]
            peer.sendall(json_answer(request["opaque"], body=name.encode()))
        read_request(peer)

    with listening(play) as address, Connection(address, PATIENT) as connection:
        numbers = [connection.send(GET_TOPIC_STATS_INFO(topic=name)) for name in "ABC"]
        assert [bytes(connection.receive(number).body) for number in numbers] == [b"A", b"B", b"C"]


def test_the_first_name_server_may_be_dead(fake: FakeCluster) -> None:
    fake.fill("T", 3)
    settings = ClusterSettings(name_servers=(dead_address(), fake.address), limits=PATIENT)
    with Cluster(settings) as cluster:
        assert list(cluster.known_route("T").each()) == [("broker-a", 0)]


def test_the_first_name_server_may_be_frozen(fake: FakeCluster) -> None:
    fake.fill("T", 3)

    def freeze(peer: socket.socket) -> None:
        read_request(peer)
        read_request(peer)

    with listening(freeze) as frozen:
        settings = ClusterSettings(name_servers=(frozen, fake.address), limits=QUICK)
        with Cluster(settings) as cluster:
            before = time.monotonic()
            assert list(cluster.known_route("T").each()) == [("broker-a", 0)]
            assert cluster.topic_names() == ["T"]  # of the server that answered
            assert time.monotonic() - before < 30


def test_name_servers_that_are_all_dead_are_told_at_once_each_with_its_reason() -> None:
    dead = (dead_address(), dead_address())
    before = time.monotonic()
    settings = ClusterSettings(name_servers=dead, limits=PATIENT, retry_timeout_ms=60_000)
    with Cluster(settings) as cluster, pytest.raises(BrokerUnavailableError) as caught:
        cluster.route("T")
    assert all(address in str(caught.value) for address in dead)
    assert time.monotonic() - before < 30


def test_a_wrong_topic_names_the_nearest(fake: FakeCluster, connect: Connect) -> None:
    fake.fill("SHOP_ORDERS", 1)
    with pytest.raises(UnknownTopicError, match="did you mean SHOP_ORDERS"):
        connect().known_route("SHOP_ORDER")


def test_a_topic_whose_brokers_are_away_has_no_route_for_the_moment(
    fake: FakeCluster, connect: Connect
) -> None:
    queue = fake.fill("T", 1)
    cluster = connect()
    assert cluster.route("T") is not None
    fake.queues.clear()
    assert cluster.route("T", fresh=True) is None
    fake.queues["broker-a", "T", 0] = queue
    assert cluster.route("T") is not None


def test_routes_of_many_topics_are_asked_together(
    fake: FakeCluster, connect: Connect, monkeypatch: pytest.MonkeyPatch
) -> None:
    names = [f"T{n}" for n in range(100)]
    for name in names[1:]:
        fake.fill(name, 1)
    calls: list[str] = []
    send_all, receive = Connection.send_all, Connection.receive

    def sent(own: Connection, asked: Sequence[requests.Request]) -> list[int]:
        calls.append("s" * len(asked))
        return send_all(own, asked)

    def received(own: Connection, opaque: int) -> Frame:
        calls.append("r")
        return receive(own, opaque)

    monkeypatch.setattr(Connection, "send_all", sent)
    monkeypatch.setattr(Connection, "receive", received)
    routes = connect().fresh_routes(names)
    assert [route and route.topic for route in routes] == [None, *names[1:]]
    assert "".join(calls) == "s" * 64 + "r" * 64 + "s" * 36 + "r" * 36


def test_a_static_topic_is_refused_by_name(fake: FakeCluster, connect: Connect) -> None:
    fake.fill("T", 1)
    fake.route_more = {"topicQueueMappingByBroker": {"broker-a": {"totalQueues": 4}}}
    with pytest.raises(UnsupportedTopicError, match=r"UNSUPPORTED_TOPIC.STATIC\] topic T"):
        connect().route("T")


@pytest.mark.parametrize(
    ("attributes", "kind"),
    [({"cleanup.policy": "COMPACTION"}, "COMPACTION"), ({"queue.type": "BatchCQ"}, "BATCH_QUEUE")],
)
def test_topics_that_give_no_plain_records_are_refused_by_name(
    fake: FakeCluster, connect: Connect, attributes: dict[str, str], kind: str
) -> None:
    fake.fill("T", 1)
    fake.fill("Plain", 1)
    fake.attributes["T"] = attributes
    cluster = connect()
    check_readable(cluster, [cluster.known_route("Plain")])
    with pytest.raises(UnsupportedTopicError, match=kind):
        check_readable(cluster, [cluster.known_route("T")])


def test_who_reads_compaction_topics_is_told_them(fake: FakeCluster, connect: Connect) -> None:
    fake.fill("T", 1)
    fake.fill("Plain", 1)
    fake.attributes["T"] = {"cleanup.policy": "COMPACTION"}
    cluster, compacted = connect(), set[str]()
    routes = [cluster.known_route("T"), cluster.known_route("Plain")]
    assert check_readable(cluster, routes, compacted) == set()
    assert compacted == {"T"}


def test_a_broker_without_a_master_is_refused_unless_slaves_may_be_read(
    fake: FakeCluster, connect: Connect
) -> None:
    fake.fill("T", 1)
    fake.addresses["broker-a"] = {1: fake.address}
    with pytest.raises(NoMasterError, match=r"broker-a has no master.*set readFrom=any"):
        connect().reading_address("broker-a")
    assert connect(read_from="any").reading_address("broker-a") == fake.address


@pytest.mark.parametrize(
    ("read_from", "number"), [("master", 0), ("slave", 1), ("any", 0)], ids=str
)
def test_where_is_read_from(
    fake: FakeCluster, connect: Connect, read_from: str, number: int
) -> None:
    fake.fill("T", 1)
    hosts = {0: "h0:1", 1: "h1:1", 2: "h2:1"}
    fake.addresses["broker-a"] = hosts
    assert connect(read_from=read_from).reading_address("broker-a") == hosts[number]


def test_an_address_that_cannot_be_reached_is_told_with_what_overrides_it(
    fake: FakeCluster, connect: Connect
) -> None:
    fake.fill("T", 1)
    fake.addresses["broker-a"] = {0: dead_address()}
    request = GET_TOPIC_STATS_INFO(topic="T")
    with pytest.raises(BrokerUnavailableError, match="brokerAddresses=") as caught:
        connect(retry_timeout_ms=0).ask("broker-a", request)
    assert fake.addresses["broker-a"][0] in str(caught.value)
    connect(broker_addresses={"broker-a": fake.address}).ask("broker-a", request)


@pytest.mark.parametrize(
    ("registered", "advice"),
    [({"broker-a"}, "did you mean broker-a?"), ({"shop", "mail"}, "the brokers are mail, shop")],
)
def test_an_address_for_a_broker_that_is_not_registered_is_a_warning(
    fake: FakeCluster,
    connect: Connect,
    caplog: pytest.LogCaptureFixture,
    registered: set[str],
    advice: str,
) -> None:
    """Once in a process: each task has a cluster of its own."""
    name = f"brokr-{len(registered)}"
    for broker in registered:
        fake.addresses[broker] = {0: fake.address}
    for _ in range(2):
        cluster = connect(broker_addresses={name: "h:1"})
        assert {cluster.master(broker) for broker in registered} == {fake.address}
    told = f"option brokerAddresses: no broker {name} is registered, and a read leaves it out"
    assert [record.getMessage() for record in caplog.records] == [f"{told}; {advice}"]


def test_what_a_broken_connection_left_open_is_asked_again(
    fake: FakeCluster, connect: Connect
) -> None:
    fake.fill("T", 1)
    closed: list[int] = []

    def close_twice(request: dict[str, Any]) -> bytes | None:
        if request["code"] == 202 and len(closed) < 2 and request["opaque"] % 3 == 2:
            closed.append(request["opaque"])
            return b""
        return None

    fake.fault = close_twice
    asked = [("broker-a", GET_TOPIC_STATS_INFO(topic="T"))] * 200
    answers = connect().ask_all(asked)
    assert len(closed) == 2
    assert [bytes(answer.body) for answer, _ in answers] == [bytes(answers[0][0].body)] * 200


def test_a_busy_broker_is_asked_again_on_the_same_connection(
    fake: FakeCluster, connect: Connect
) -> None:
    fake.fill("T", 1)
    busy: list[int] = []

    def be_busy(request: dict[str, Any]) -> bytes | None:
        if request["code"] == 202 and len(busy) < 2:
            busy.append(1)
            return json_answer(request["opaque"], 2, remark="[REJECTREQUEST]system busy")
        return None

    fake.fault = be_busy
    answer, _ = connect().ask("broker-a", GET_TOPIC_STATS_INFO(topic="T"))
    assert answer.code == 0
    assert len(busy) == 2


def test_a_broker_that_says_go_away_is_asked_again_on_a_new_connection(
    fake: FakeCluster, connect: Connect
) -> None:
    fake.fill("T", 1)
    told: list[int] = []

    def go_away(request: dict[str, Any]) -> bytes | None:
        if request["code"] == 202 and not told:
            told.append(request["opaque"])
            return json_answer(request["opaque"], 1500, remark="the server is going away")
        return None

    fake.fault = go_away
    cluster = connect()
    first = cluster.connection(fake.address)
    answer, _ = cluster.ask("broker-a", GET_TOPIC_STATS_INFO(topic="T"))
    assert answer.code == 0
    assert told
    assert not first.is_open


def test_a_frozen_broker_is_a_timeout_within_retry_timeout(
    fake: FakeCluster, connect: Connect
) -> None:
    fake.fill("T", 1)

    def freeze(peer: socket.socket) -> None:
        while read_request(peer) is not None:
            pass

    with listening(freeze) as frozen:
        fake.addresses["broker-a"] = {0: frozen}
        before = time.monotonic()
        impatient = connect(limits=QUICK, retry_timeout_ms=1_000)
        with pytest.raises(BrokerTimeoutError, match="requestTimeout"):
            impatient.ask("broker-a", GET_TOPIC_STATS_INFO(topic="T"))
        assert time.monotonic() - before < 30


def test_a_broker_behind_something_that_accepts_connections_is_waited_for(
    fake: FakeCluster, connect: Connect
) -> None:
    """The first connections to it end without an answer, as those that try TLS meanwhile."""
    fake.fill("T", 40)
    with FakeCluster().running() as broker:
        broker.queues = fake.queues
        fake.addresses["broker-a"] = {0: broker.address}
        patient = {"retry_timeout_ms": 60_000}
        for ask in (
            lambda: connect(**patient).ask("broker-a", GET_TOPIC_STATS_INFO(topic="T")),
            lambda: list(PullReader(connect(**patient), [PIECE]).answers()),
        ):
            left = [b""] * 4
            broker.fault = lambda _, left=left: left.pop() if left else None
            assert ask()
            assert not left


def test_a_broker_of_tls_only_is_told_at_once(fake: FakeCluster, connect: Connect) -> None:
    fake.fill("T", 1)
    with listening(serving("server")) as address:
        fake.addresses["broker-a"] = {0: address}
        with pytest.raises(NotUnderstoodError, match="tls=true"):
            connect(retry_timeout_ms=3_600_000).ask("broker-a", GET_TOPIC_STATS_INFO(topic="T"))


@pytest.mark.parametrize(
    ("code", "remark", "error"),
    [
        (16, "User:u has no permission", AccessDeniedError),
        (1, "org.apache.rocketmq.acl.common.AclException: Check signature", AccessDeniedError),
        (1, "java.lang.NullPointerException", RequestRefusedError),
        (17, "topic[T] not exist", RequestRefusedError),
        (3, "not supported", RequestRefusedError),
    ],
)
def test_a_refusal_is_an_error_by_name_and_not_asked_again(
    fake: FakeCluster, connect: Connect, code: int, remark: str, error: type[Exception]
) -> None:
    fake.fill("T", 1)
    fake.fault = lambda request: (
        json_answer(request["opaque"], code, remark=f"{remark}\n\tat java.Stack")
        if request["code"] == 202
        else None
    )
    with pytest.raises(error, match=f"GET_TOPIC_STATS_INFO with code {code}") as caught:
        connect().ask("broker-a", GET_TOPIC_STATS_INFO(topic="T"))
    assert "java.Stack" not in str(caught.value)
    assert type(caught.value) is error
    assert ("the right Topic:Get on T" in str(caught.value)) is (error is AccessDeniedError)
    assert sum(request["code"] == 202 for request in fake.requests) == 1


ROUTE = {
    "queueDatas": [{"brokerName": "b", "readQueueNums": 4, "writeQueueNums": 4, "perm": 6}],
    "brokerDatas": [{"brokerName": "b", "cluster": "C", "brokerAddrs": {"0": "h:1"}}],
}


@pytest.mark.parametrize(
    "changed",
    [
        [],
        {"queueDatas": {}},
        {"queueDatas": [1]},
        {"queueDatas": [{"brokerName": "b", "readQueueNums": "4", "perm": 6}]},
        {"queueDatas": [{"brokerName": "b", "readQueueNums": -1, "perm": 6}]},
        {"queueDatas": [{"brokerName": "b", "readQueueNums": 60_000, "perm": 6}]},
        {"queueDatas": [{"brokerName": "b", "readQueueNums": 4, "perm": None}]},
        {"brokerDatas": [{"brokerName": 7, "brokerAddrs": {}}]},
        {"brokerDatas": [{"brokerName": "b", "brokerAddrs": {"x": "h:1"}}]},
        {"brokerDatas": [{"brokerName": "b", "brokerAddrs": {"0": 1}}]},
    ],
)
def test_a_route_that_is_none_is_a_broken_answer(connect: Connect, changed: Any) -> None:
    body = json.dumps(ROUTE | changed if isinstance(changed, dict) else changed).encode()

    def play(peer: socket.socket) -> None:
        while (request := read_request(peer)) is not None:
            peer.sendall(json_answer(request["opaque"], 0, body))

    with listening(play) as address, pytest.raises(BrokenAnswerError, match=address):
        connect(name_servers=(address,)).route("T")


def test_queues_that_cannot_be_read_are_in_no_route(fake: FakeCluster, connect: Connect) -> None:
    fake.fill("T", 1)
    writable_only = {"brokerName": "broker-a", "readQueueNums": 1, "writeQueueNums": 1, "perm": 2}
    fake.route_more = {"queueDatas": [writable_only]}
    assert list(connect().known_route("T").each()) == []
