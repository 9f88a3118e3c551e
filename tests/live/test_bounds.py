"""Bounds, timestamps, weights, groups, topics and look-ups, as brokers tell them."""

import json
import logging
import socket
from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from live.conftest import PATIENT, Connect
from live.loopback import FakeCluster, json_answer, listening, read_request
from mqstore.live.origin.bounds import LiveBounds, bounds, first_at, weigh
from mqstore.live.origin.groups import (
    OnlineGroup,
    Subscription,
    committed,
    online,
)
from mqstore.live.origin.lookup import by_id, by_key
from mqstore.live.origin.pull import LiveSlice
from mqstore.live.origin.units import BrokerUnits
from mqstore.live.remoting.cluster import Cluster
from mqstore.live.remoting.errors import (
    AccessDeniedError,
    BrokenAnswerError,
    RequestRefusedError,
)
from mqstore.live.remoting.settings import ClusterSettings
from mqstore.live.remoting.topics import (
    broker_infos,
    check_readable,
    reading_settings,
    topic_names,
    topics,
)
from support.oracle import Message


def test_bounds_are_of_all_readable_queues_of_all_brokers(
    fake: FakeCluster, connect: Connect
) -> None:
    fake.fill("T", 10, low=5)
    fake.fill("T", 0, queue_id=1)
    fake.fill("T", 3, broker="broker-b")
    fake.fill("U", 1)
    cluster = connect()
    found = bounds(cluster, [cluster.known_route(topic) for topic in ("U", "T")])
    assert found == [
        LiveBounds("broker-a", "T", 0, 5, 15, 7),
        LiveBounds("broker-a", "T", 1, 0, 0, 7),
        LiveBounds("broker-b", "T", 0, 0, 3, 7),
        LiveBounds("broker-a", "U", 0, 0, 1, 7),
    ]
    assert sum(request["code"] == 202 for request in fake.requests) == 3


@given(
    gaps=st.lists(st.integers(0, 2), max_size=40),
    low=st.integers(0, 9),
    moment=st.integers(-3, 60),
)
def test_the_first_offset_at_a_time_is_what_a_walk_over_all_finds(
    gaps: list[int], low: int, moment: int
) -> None:
    times, now = [], 0
    for gap in gaps:  # Many messages have the same time.
        now += gap
        times.append(1_000 + now)
    with FakeCluster().running() as fake:
        queue = fake.fill("T", 0, low=low)
        queue.messages += [
            Message(topic="T", queue_offset=low + i, store_timestamp_ms=ms)
            for i, ms in enumerate(times)
        ]
        settings = ClusterSettings(name_servers=(fake.address,), limits=PATIENT)
        with Cluster(settings) as cluster:
            held = LiveBounds("broker-a", "T", 0, low, queue.high)
            found = first_at(cluster, [held, held], [1_000 + moment, 0])
    expected = next((i for i, ms in enumerate(times) if ms >= 1_000 + moment), len(times))
    assert found == [low + expected, low]


def test_times_of_many_queues_are_found_side_by_side(fake: FakeCluster, connect: Connect) -> None:
    held = []
    for queue_id in range(20):
        fake.fill("T", 500, queue_id=queue_id)
        held.append(LiveBounds("broker-a", "T", queue_id, 0, 500))
    found = first_at(connect(), held, [1_700_000_000_000 + 10 * 123] * 20)
    assert found == [123] * 20
    assert len(fake.pulls()) <= 20 * 10


def test_a_queue_that_loses_its_head_meanwhile_is_still_searched(
    fake: FakeCluster, connect: Connect
) -> None:
    queue = fake.fill("T", 100)
    held = LiveBounds("broker-a", "T", 0, 0, 100)
    queue.low, queue.messages = 70, queue.messages[70:]
    assert first_at(connect(), [held], [0]) == [70]
    assert first_at(connect(), [held], [1_700_000_000_000 + 10 * 80]) == [80]


def test_a_weight_is_by_the_sizes_at_both_ends(fake: FakeCluster, connect: Connect) -> None:
    queue = fake.fill("T", 100, body=lambda _: b"x" * 100)
    record = queue.record(0)
    assert record is not None
    slices = [
        LiveSlice("broker-a", "T", 0, low, high) for low, high in ((0, 100), (7, 7), (98, 100))
    ]
    assert weigh(connect(), slices) == [100 * len(record), 0, 2 * len(record)]


def test_times_are_looked_for_in_64_queues_at_once_because_messages_may_be_large(
    fake: FakeCluster, connect: Connect, monkeypatch: pytest.MonkeyPatch
) -> None:
    for queue_id in range(150):
        fake.fill("T", 5, queue_id=queue_id)
    asked: list[int] = []
    ask_all = Cluster.ask_all

    def counted(cluster: Cluster, requests: Any) -> Any:
        asked.append(len(requests))
        return ask_all(cluster, requests)

    monkeypatch.setattr(Cluster, "ask_all", counted)
    held = [LiveBounds("broker-a", "T", queue_id, 0, 5) for queue_id in range(150)]
    times = [1_700_000_000_000 + 10 * (queue_id % 5) for queue_id in range(150)]
    assert first_at(connect(), held, times) == [queue_id % 5 for queue_id in range(150)]
    assert max(asked) == 64


KEY = '{"brokerName":"broker-a","queueId":0,"topic":"T"}'


@pytest.mark.parametrize(
    "text",
    [
        "[]",
        "{}",
        '{"offsetTable":[]}',
        '{"offsetTable":{"x":{"minOffset":0,"maxOffset":1,"lastUpdateTimestamp":0}}}',
        '{"offsetTable":{{"topic":"T"}:{"minOffset":0,"maxOffset":1,"lastUpdateTimestamp":0}}}',
        f'{{"offsetTable":{{{KEY}:{{"minOffset":-4,"maxOffset":1,"lastUpdateTimestamp":0}}}}}}',
        f'{{"offsetTable":{{{KEY}:{{"minOffset":0,"maxOffset":"1","lastUpdateTimestamp":0}}}}}}',
        f'{{"offsetTable":{{{KEY}:7}}}}',
        "{" * 90,
    ],
)
def test_bounds_that_are_none_are_a_broken_answer(
    fake: FakeCluster, connect: Connect, text: str
) -> None:
    fake.fill("T", 1)
    answering(fake, 202, text.encode())
    cluster = connect()
    with pytest.raises(BrokenAnswerError):
        bounds(cluster, [cluster.known_route("T")])


@pytest.fixture
def half_deleted(fake: FakeCluster) -> Iterator[FakeCluster]:
    """Topic T on two brokers, as the name server tells; broker-b does not have it any more."""
    with FakeCluster().running() as other:
        fake.fill("T", 3)
        fake.fill("T", 5, broker="broker-b")
        for cluster in (fake, other):
            cluster.fill("U", 2, broker="broker-b")
        fake.addresses["broker-b"] = {0: other.address}
        yield fake


def test_a_broker_that_lacks_a_topic_which_its_route_shows_has_no_queue_of_it(
    half_deleted: FakeCluster, connect: Connect, caplog: pytest.LogCaptureFixture
) -> None:
    cluster = connect()
    routes = [cluster.known_route(topic) for topic in ("T", "U")]
    for _ in range(3):
        found = bounds(cluster, routes)
        assert [(q.broker, q.topic, q.high) for q in found] == [
            ("broker-a", "T", 3),
            ("broker-b", "U", 2),
        ]
    (told,) = [record.getMessage() for record in caplog.records]
    assert "show topic T on broker-b, which does not have it" in told
    assert check_readable(cluster, routes) == {("broker-b", "T")}


def test_a_slave_that_lacks_a_topic_is_an_error(
    half_deleted: FakeCluster, connect: Connect
) -> None:
    half_deleted.addresses["broker-b"] = {1: half_deleted.addresses["broker-b"][0]}
    cluster = connect(read_from="any")
    with pytest.raises(RequestRefusedError, match="code 17"):
        bounds(cluster, [cluster.known_route("T")])


OFFSETS = (
    b'{"dataVersion":{},"offsetTable":{"T@G":{0:4,1:9},"U@G":{"0":1},"%RETRY%G@G":{0:2},'
    b'"T@H":{0:99}}}'
)


def answering(fake: FakeCluster, code: int, body: bytes, status: int = 0) -> None:
    fake.fault = lambda r: json_answer(r["opaque"], status, body) if r["code"] == code else None


def test_offsets_of_groups_are_read_with_keys_in_quotes_or_not(
    fake: FakeCluster, connect: Connect
) -> None:
    fake.fill("T", 10)
    answering(fake, 43, OFFSETS)
    found = committed(connect(), ["broker-a"])
    assert found == {
        "broker-a": {
            ("T", "G"): {0: 4, 1: 9},
            ("U", "G"): {0: 1},
            ("%RETRY%G", "G"): {0: 2},
            ("T", "H"): {0: 99},
        }
    }


@pytest.mark.parametrize(
    "body", [b'{"offsetTable":{"T":{0:4}}}', b'{"offsetTable":{"T@G":[4]}}',
             b'{"offsetTable":{"T@G":{"x":4}}}', b'{"offsetTable":{"T@G":{0:"4"}}}'],
)  # fmt: skip
def test_offsets_that_are_none_are_a_broken_answer(
    fake: FakeCluster, connect: Connect, body: bytes
) -> None:
    fake.fill("T", 1)
    answering(fake, 43, body)
    with pytest.raises(BrokenAnswerError):
        committed(connect(), ["broker-a"])


def test_online_groups_tell_their_subscriptions_and_offline_ones_nothing(
    fake: FakeCluster, connect: Connect
) -> None:
    fake.fill("T", 1)
    entry = {"topic": "T", "subString": "A || B", "expressionType": "TAG", "tagsSet": ["A", "B"]}
    body = {"connectionSet": [{}, {}], "messageModel": "CLUSTERING", "consumeType": "X"}
    body |= {"subscriptionTable": {"T": entry}}

    def fault(request: dict[str, Any]) -> bytes | None:
        if request["code"] != 203:
            return None
        if request["extFields"]["consumerGroup"] == "G":
            return json_answer(request["opaque"], 0, json.dumps(body).encode())
        return json_answer(request["opaque"], 206, remark="not online")

    fake.fault = fault
    found = online(connect(), ["broker-a"], ["G", "H"])
    subscription = Subscription("T", "A || B", "TAG")
    assert found == {("broker-a", "G"): OnlineGroup("G", 2, "CLUSTERING", (subscription,))}


def test_topics_are_named_without_brokers_clusters_and_the_brokers_own(
    fake: FakeCluster, connect: Connect
) -> None:
    for name in ("T", "%RETRY%G", "TBW102", "broker-a", "C"):
        fake.fill(name, 1)
    fake.attributes["T"] = {"message.type": "FIFO"}
    cluster = connect()
    assert topic_names(cluster) == ["T"]
    assert topic_names(cluster, include_system_topics=True) == ["%RETRY%G", "T", "TBW102"]
    assert topics(cluster, ["broker-a"])["broker-a"]["T"].attributes == {"message.type": "FIFO"}


def test_a_broker_tells_its_version_and_the_ends_of_its_log(
    fake: FakeCluster, connect: Connect
) -> None:
    fake.fill("T", 1)
    table = {"brokerVersionDesc": "V5_5_0", "commitLogMinOffset": "3", "commitLogMaxOffset": "99"}
    answering(fake, 28, json.dumps({"table": table}).encode())
    (info,) = broker_infos(connect(), ["broker-a"])
    assert (info.version, info.low, info.high, info.dispatched) == ("5.5.0", 3, 99, 0)
    table["dispatchBehindBytes"] = "40"
    answering(fake, 28, json.dumps({"table": table}).encode())
    assert broker_infos(connect(), ["broker-a"])[0].dispatched == 59
    answering(fake, 28, b'{"table":{"commitLogMinOffset":"' + b"9" * 99 + b'"}}')
    (info,) = broker_infos(connect(), ["broker-a"])
    assert (info.version, info.low, info.high) == ("", 0, 0)


def test_of_a_brokers_settings_only_those_of_reading_are_told(
    fake: FakeCluster, connect: Connect, caplog: pytest.LogCaptureFixture
) -> None:
    fake.fill("T", 1)
    text = b"# comment\ninitAuthenticationUser={password=hush}\nslaveReadEnable=false\nodd\n"
    answering(fake, 26, text)
    with caplog.at_level(logging.DEBUG):
        assert reading_settings(connect(), "broker-a") == {"slaveReadEnable": "false"}
    assert "hush" not in caplog.text


def test_keys_are_compared_for_a_broker_finds_them_by_hash(
    fake: FakeCluster, connect: Connect
) -> None:
    queue = fake.fill("T", 0)
    for i, keys in enumerate(("k1", "k1 k2", "k12", "", "k2")):
        queue.messages.append(
            Message(topic="T", queue_offset=i, properties=f"KEYS\x01{keys}\x02".encode())
        )
    cluster = connect()
    routes = [cluster.known_route("T")]

    def found(*keys: str) -> list[int]:
        return [piece.start for piece in by_key(cluster, routes, keys)]

    assert found("k1") == [0, 1]
    assert found("k1", "k2") == [0, 1, 4]
    assert found("nobody") == []


def test_an_id_is_asked_by_its_place_in_the_log(fake: FakeCluster, connect: Connect) -> None:
    queue = fake.fill("T", 3)
    messages = [m for m in queue.messages if m is not None]
    places = {str(m.physical_offset): queue.record(m.queue_offset) for m in messages}

    served: list[int] = []

    def view(request: dict[str, Any]) -> bytes | None:
        if request["code"] != 33:
            return None
        record = places.get(request["extFields"]["offset"])
        if record is None:  # A broker takes any four bytes for a size, and gives as many.
            return json_answer(request["opaque"], *((0, b"xyz") if served else (1,)))
        served.append(1)
        return json_answer(request["opaque"], 0, record)

    fake.fault = view
    cluster = connect()
    routes = [cluster.known_route("T")]
    ids = [messages[2].offset_msg_id.lower(), messages[0].offset_msg_id[:-1] + "1", "F" * 32, "x"]
    assert by_id(cluster, routes, ids) == [LiveSlice("broker-a", "T", 0, 2, 3)]


def test_an_id_is_asked_without_a_topic_and_with_those_that_a_user_has_rights_on(
    fake: FakeCluster, connect: Connect
) -> None:
    """A broker of 5.5.1 refuses a topic that is not the record's; one with ACL may refuse none."""
    filled = [fake.fill("T", 2), fake.fill("U", 2, low=10)]
    messages = [m for queue in filled for m in queue.messages if m is not None]
    ids = [message.offset_msg_id for message in messages]
    cluster = connect()
    routes = [cluster.known_route(topic) for topic in "TU"]
    queues = ("T", 0), ("T", 1), ("U", 10), ("U", 11)
    every = [LiveSlice("broker-a", topic, 0, at, at + 1) for topic, at in queues]
    assert by_id(cluster, routes, ids) == every
    asked: list[str] = []

    def guarded(request: dict[str, Any]) -> bytes | None:
        topic = request["extFields"].get("topic", "")
        asked.append(topic)
        if request["code"] != 33 or topic == "T":
            return None
        remark = "User:u has no permission to access Topic:U from 127.0.0.1, no matched policies."
        return json_answer(request["opaque"], 1, remark=remark)

    fake.fault = guarded
    with pytest.raises(AccessDeniedError, match="Topic:U"):
        by_id(cluster, routes, ids)
    assert by_id(cluster, routes[:1], ids[:2]) == every[:2]
    units = BrokerUnits("broker-a", cluster)
    assert list(units.locate({1_000: "T", 11_000: "U"})) == [1_000]
    assert {"", "T", "U"} <= set(asked)


def test_a_refused_look_up_is_no_empty_answer(fake: FakeCluster, connect: Connect) -> None:
    fake.fill("T", 1)
    fake.fault = lambda r: json_answer(r["opaque"], 17) if r["code"] == 12 else None
    cluster = connect()
    with pytest.raises(RequestRefusedError):
        by_key(cluster, [cluster.known_route("T")], ["k"])


def test_a_connection_that_was_idle_too_long_is_made_again(connect: Connect) -> None:
    served: list[int] = []

    def once(peer: socket.socket) -> None:
        request = read_request(peer)
        assert request is not None
        served.append(1)
        peer.sendall(json_answer(request["opaque"], 0, b'{"topicList":["T"]}'))

    with listening(once) as address:
        cluster = connect(name_servers=(address,))
        assert [cluster.topic_names() for _ in range(3)] == [["T"]] * 3
    assert len(served) == 3
