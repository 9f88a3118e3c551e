"""A RocketMQ 5 proxy that lies: each time a named error, soon, and without much memory.

Whatever is asked through a proxy is asked of one that says anything in place of the answer. What
it may not lead to is a connection to another address, a wait without end, or a crash.
"""

import json
import socket
import time
import tracemalloc
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager, suppress
from dataclasses import replace
from functools import partial
from itertools import islice
from typing import Any

import pytest

from live import lies
from live.lies import Lie
from live.loopback import json_answer, listening
from live.proxied import FakeProxy
from live.real import slices
from live.taking import TakingCluster
from mqstore.backlog import BacklogRequest, plan_all
from mqstore.check.cluster import examine_cluster
from mqstore.errors import DataLossError, StoreError
from mqstore.live.origin.bounds import LiveBounds, bounds, first_at, weigh
from mqstore.live.origin.cluster_origin import ClusterBrokers
from mqstore.live.origin.group_publish import commit_offset
from mqstore.live.origin.groups import committed_by, online
from mqstore.live.origin.proxy_state import NamedTopics
from mqstore.live.origin.pull import PullReader
from mqstore.live.origin.records import PullSettings, read
from mqstore.live.remoting.cluster import Cluster
from mqstore.live.remoting.errors import (
    BrokenAnswerError,
    BrokerTimeoutError,
    BrokerUnavailableError,
)
from mqstore.live.remoting.settings import ClusterSettings, Limits
from mqstore.live.send.requests import Parcel, Queue
from mqstore.live.send.sender import Sender, SenderSettings
from support import oracle, soak
from support.oracle import Message

TOPIC, BROKER = "T", "broker-a"
COUNT = 40
BATCHES = 3
LIMITS = Limits(connect_timeout_ms=30_000, request_timeout_ms=30_000, max_frame_bytes=1 << 20)
SOON = Limits(connect_timeout_ms=30_000, request_timeout_ms=300, max_frame_bytes=1 << 20)
"""For what only a time-out ends."""
RETRY_MS = 300
MOST_SECONDS = 120
MOST_BYTES = 8 << 20
FAR = 2**62
"""The end of a queue, as a proxy may tell it."""


class LyingProxy(TakingCluster, FakeProxy):
    """A proxy that also takes messages, and lies in answers to the requests of one code."""

    def lie_about(self, code: int, lie: Lie) -> None:
        def says(peer: socket.socket, request: dict[str, Any]) -> bool:
            if request["code"] != code:
                return False
            lie(peer, request)
            return True

        self.lie = says

    def give(self, code: int, answer: Callable[[dict[str, Any]], bytes]) -> None:
        """Answer requests of that code with these bytes."""
        self.fault = lambda request: answer(request) if request["code"] == code else None


@pytest.fixture
def proxy() -> Iterator[LyingProxy]:
    with LyingProxy().running() as found:
        assert isinstance(found, LyingProxy)
        found.fill(TOPIC, COUNT)
        found.groups = {"G": 1}
        yield found


def settings_of(proxy: LyingProxy, limits: Limits = LIMITS, **more: Any) -> ClusterSettings:
    given = {"name_servers": (proxy.address,), "limits": limits, "retry_timeout_ms": RETRY_MS}
    return ClusterSettings(**given | more)


@contextmanager
def client(proxy: LyingProxy, limits: Limits = LIMITS, **more: Any) -> Iterator[Cluster]:
    with Cluster(settings_of(proxy, limits, **{"endpoint": "proxy"} | more)) as found:
        yield found


def held(cluster: Cluster) -> list[LiveBounds]:
    return bounds(cluster, [cluster.known_route(TOPIC)])


def bodies(cluster: Cluster, tags: str = "*") -> list[bytes]:
    """The bodies of the first batches: a proxy may tell of messages without end."""
    reader = PullReader(cluster, slices(held(cluster)), tags=tags)
    parts = read(reader, PullSettings(tags=tags, batch_rows=COUNT, first_rows=COUNT))
    with closing(parts):
        return [
            part.headers.body(row).tobytes()
            for part in islice(parts, BATCHES)
            for row in range(len(part.headers))
        ]


def some_bodies(cluster: Cluster, tags: str) -> list[bytes]:
    """The same; none where a named error ended it."""
    with suppress(StoreError):
        return bodies(cluster, tags)
    return []


def send(cluster: Cluster) -> None:
    sender = Sender(cluster, SenderSettings(producer_group="P", send_timeout_ms=RETRY_MS))
    sender.send(
        Parcel(
            queue=Queue(TOPIC, BROKER, 0),
            count=1,
            body=b"x",
            born_timestamp_ms=7,
            properties="A\x01b\x02",
        )
    )
    sender.flush()


ACTS: dict[str, tuple[int, Callable[[Cluster], object]]] = {
    "a route": (105, lambda cluster: cluster.known_route(TOPIC)),
    "begins of queues": (31, held),
    "ends of queues": (30, held),
    "messages": (11, bodies),
    "messages of a tag": (11, partial(bodies, tags="A")),
    "times": (11, lambda cluster: first_at(cluster, held(cluster), [1])),
    "weights": (11, lambda cluster: weigh(cluster, slices(held(cluster)))),
    "offsets": (14, lambda cluster: committed_by(cluster, BROKER, "G", [(TOPIC, 0)])),
    "consumers": (203, lambda cluster: online(cluster, [BROKER], ["G"])),
    "a commit": (
        15,
        lambda cluster: commit_offset(cluster, BROKER, "G", (TOPIC, 0), 5, option="commitGroup"),
    ),
    "a send": (310, send),
}
"""What is asked for, by the code of the request that is answered with a lie."""


@contextmanager
def bounded(most_bytes: int = MOST_BYTES) -> Iterator[None]:
    """Fail if the block takes long, or much memory."""
    tracemalloc.start()
    before = time.monotonic()
    try:
        yield
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert time.monotonic() - before < MOST_SECONDS
    assert peak < most_bytes


SAID = lies.GARBAGE | lies.CODES
PAIRS = [
    (act, lie)
    for act in ACTS
    for lie in SAID
    # It is what a proxy answers where there are no fields to tell.
    if (act, lie) != ("a commit", "2,000 fields")
]


@pytest.mark.soak
@pytest.mark.parametrize(("act", "lie"), soak.sample(PAIRS, check=15, test=90))
def test_whatever_is_said_in_place_of_an_answer_is_a_named_error(
    proxy: LyingProxy, act: str, lie: str
) -> None:
    code, work = ACTS[act]
    proxy.lie_about(code, SAID[lie])
    with client(proxy) as cluster, bounded(), pytest.raises(StoreError) as caught:
        work(cluster)
    told = str(caught.value)
    assert told.startswith("[MQLOG_")
    assert len(told) < 1_000
    assert not set(told) & set("\x1b\x07\u202e\r\n")


SLOW_PAIRS = [(act, lie) for act in ACTS for lie in lies.ENDLESS]


@pytest.mark.soak
@pytest.mark.parametrize(("act", "lie"), soak.sample(SLOW_PAIRS, check=2, test=11))
def test_what_never_becomes_an_answer_is_a_named_error_in_time(
    proxy: LyingProxy, act: str, lie: str
) -> None:
    code, work = ACTS[act]
    proxy.lie_about(code, lies.ENDLESS[lie])
    expected = StoreError if act == "a send" else BrokerTimeoutError
    with client(proxy, SOON) as cluster, bounded(), pytest.raises(expected) as caught:
        work(cluster)
    assert proxy.address in str(caught.value)
    assert len(proxy.requests) < 100


def a_route(*queues: Any, brokers: Any = None, **more: Any) -> bytes:
    """A route's body: queues as (broker, how many to read)."""
    data = [
        {"brokerName": name, "readQueueNums": count, "writeQueueNums": count, "perm": 6}
        for name, count in queues
    ]
    own = [
        {"brokerName": name, "cluster": "C", "brokerAddrs": {"0": "192.0.2.7:8080"}}
        for name, _ in queues
    ]
    return json.dumps({"queueDatas": data, "brokerDatas": brokers or own} | more).encode()


ROUTES = {
    "2^31 queues": a_route((BROKER, 2**31 - 1)),
    "fewer than no queues": a_route((BROKER, -1)),
    "too many queues in all": a_route(*((f"b{n}", 60) for n in range(200))),
    "too many brokers": a_route(*((f"b{n}", 0) for n in range(10_001))),
    "queues that are text": a_route((BROKER, "4")),
    "queues without end": a_route((BROKER, 2**70)),
    "a broker without a name": a_route((None, 1)),
    "brokers that are a number": a_route((BROKER, 1), brokers=5),
    "a list for addresses": a_route(brokers=[{"brokerName": BROKER, "brokerAddrs": ["h:1"]}]),
    "a broker by no number": a_route(brokers=[{"brokerName": BROKER, "brokerAddrs": {"x": "h:1"}}]),
    "an address that is none": a_route(brokers=[{"brokerName": BROKER, "brokerAddrs": {"0": 5}}]),
    "a static topic": a_route((BROKER, 1), topicQueueMappingByBroker={BROKER: {"x": 1}}),
    "a list": b"[]",
    "half of it": a_route((BROKER, 1))[:50],
    "nothing": b"",
    "depth without end": b'{"queueDatas":' + b"[" * 100_000,
}


@pytest.mark.parametrize("name", ROUTES)
def test_a_route_that_cannot_be_is_a_named_error(proxy: LyingProxy, name: str) -> None:
    proxy.lie_about(105, lies.answers(0, ROUTES[name]))
    limits = replace(LIMITS, max_frame_bytes=4 << 20)
    with client(proxy, limits) as cluster, bounded(64 << 20), pytest.raises(StoreError) as caught:
        held(cluster)
    assert str(caught.value).startswith("[MQLOG_")
    assert "maxFrameBytes" not in str(caught.value)
    assert len(proxy.requests) <= 2  # The second is the probe for local mode.


def test_no_address_of_a_route_is_connected_to(proxy: LyingProxy) -> None:
    reached: list[str] = []

    def trap(peer: socket.socket) -> None:
        reached.append(str(peer.getpeername()))

    with listening(trap) as address:
        proxy.addresses[BROKER] = {0: address, 1: address}
        more = {"filterServerTable": {address: [address]}}
        proxy.route_more = more
        with client(proxy, endpoint="auto") as cluster:
            assert len(bodies(cluster)) == COUNT
            assert cluster.master(BROKER) == proxy.address
            weigh(cluster, slices(held(cluster)))
            send(cluster)
        examine_cluster(settings_of(proxy, SOON))
    assert reached == []


def test_a_name_of_a_broker_is_no_more_than_a_name(proxy: LyingProxy) -> None:
    for name in (
        "../../etc/passwd",
        "\x1b[31mred\r\n",
        "n" * 100_000,
        "broker-a:80/x?y#z",
        "\ud800",
    ):
        proxy.lie_about(105, lies.answers(0, a_route((name, 1))))
        proxy.is_silent = lambda request: request["code"] in {30, 31}
        with client(proxy, SOON) as cluster, pytest.raises(StoreError) as caught:
            held(cluster)
        assert len(str(caught.value)) < 1_000
        assert not set(str(caught.value)) & set("\x1b\r\n")


def test_clusters_by_the_thousand_cost_one_route_each(proxy: LyingProxy) -> None:
    """Checkpoints of popped messages are in a topic of each cluster's name."""
    brokers = [
        {"brokerName": f"b{n}", "cluster": f"../{n}", "brokerAddrs": {}} for n in range(2_000)
    ]
    body = a_route(*((f"b{n}", 1) for n in range(2_000)), brokers=brokers)
    proxy.give(
        105,
        lambda request: json_answer(
            request["opaque"], 0 if request["extFields"]["topic"] == TOPIC else 17, body
        ),
    )
    named = NamedTopics(frozenset({TOPIC}), frozenset({"G"}), with_state=True)
    with client(proxy) as cluster, bounded():
        assert [route.topic for route in named.routes(cluster)] == [TOPIC]
    assert len(proxy.requests) < 2_020


def test_a_proxy_whose_routes_change_all_the_time_is_asked_a_few_times(proxy: LyingProxy) -> None:
    def other(request: dict[str, Any]) -> bytes:
        name = f"broker-{len(proxy.requests)}"
        brokers = [{"brokerName": name, "brokerAddrs": {"0": proxy.address}}]
        return json_answer(request["opaque"], 0, a_route((name, 1), brokers=brokers))

    proxy.give(105, other)
    with client(proxy) as cluster, bounded():
        for _ in range(5):
            cluster.route(TOPIC, fresh=True)
    assert len(proxy.requests) <= 10


Record = Callable[[int], bytes]
"""Of a queue offset: the record that is there."""
Body = Callable[[Record, int], bytes]


def changed(record: bytes, at: int, value: bytes) -> bytes:
    return record[:at] + value + record[at + len(value) :]


def foreign(**more: Any) -> Body:
    def give(_: Record, at: int) -> bytes:
        message = Message(topic=TOPIC, queue_id=0, queue_offset=at, body=b"x", properties=b"")
        return oracle.encode(oracle.replace(message, **more))

    return give


BODIES: dict[str, Body] = {
    "nothing": lambda _record, _at: b"",
    "the same again and again": lambda record, _: record(0),
    "messages from behind": lambda record, at: record(at + 1) + record(at),
    "a message twice": lambda record, at: record(at) * 2,
    "of another topic": foreign(topic="Other"),
    "of another queue": foreign(queue_id=7),
    "of queue offset -1": foreign(queue_offset=-1),
    "of queue offset 2^63 - 1": foreign(queue_offset=2**63 - 1),
    "half a record": lambda record, at: record(at)[:50],
    "a size of 2 GiB": lambda record, at: changed(record(at), 0, b"\x7f\xff\xff\xff"),
    "a size of 0": lambda record, at: changed(record(at), 0, bytes(4)),
    "a negative size": lambda record, at: changed(record(at), 0, b"\xff" * 4),
    "another magic": lambda record, at: changed(record(at), 4, b"MAGI"),
    "a body of 2 GiB": lambda record, at: changed(record(at), 84, b"\x7f\xff\xff\xff"),
    "noise": lambda _record, at: bytes((at * 7 + n * n) % 251 for n in range(500)),
    "zeros": lambda _record, _at: bytes(1_000),
}
"""Records that a pull gives, by what is there."""
ENDS: dict[str, Callable[[int], int]] = {
    "the next offset": lambda at: at + 1,
    "an offset far behind": lambda at: at + 2**40,
    "the last offset of all": lambda _: 2**63 - 1,
    "the same offset": lambda at: at,
    "an offset before": lambda at: at - 5,
}


@pytest.mark.soak
@pytest.mark.parametrize("tags", ["*", "A"])
@pytest.mark.parametrize(
    ("body", "end"),
    soak.sample([(body, end) for body in BODIES for end in ENDS], check=5, test=30),
)
def test_records_that_cannot_be_are_named_errors_or_left_out(
    proxy: LyingProxy, body: str, end: str, tags: str
) -> None:
    """Also in a queue that reaches 2^62, as the proxy tells it."""
    queue = proxy.queues[BROKER, TOPIC, 0]

    def record(at: int) -> bytes:
        return queue.record(at % COUNT) or b""

    def answer(request: dict[str, Any]) -> bytes | None:
        at = int(request.get("extFields", {}).get("queueOffset", 0))
        if request["code"] == 30:
            return json_answer(request["opaque"], 0, offset=FAR)
        if request["code"] != 11:
            return None
        edges = {"nextBeginOffset": ENDS[end](at), "minOffset": 0, "maxOffset": FAR}
        return json_answer(request["opaque"], 0, BODIES[body](record, at), **edges)

    proxy.fault = answer
    with client(proxy, pulls_in_flight=2) as cluster, bounded():
        found = some_bodies(cluster, tags)
    # With tags, what is behind the range of an answer is left out: a proxy may go on like that.
    assert not found or (tags != "*" and len(found) <= BATCHES * COUNT)
    assert len(proxy.requests) < 1_000


def test_broken_records_are_asked_for_again_up_to_a_limit_of_bytes(proxy: LyingProxy) -> None:
    """Messages that cannot be read come again one by one, each as large as it likes."""
    noise = bytes(n * n % 251 for n in range(100_000))
    proxy.give(
        11,
        lambda request: json_answer(
            request["opaque"],
            0,
            noise,
            nextBeginOffset=int(request["extFields"]["queueOffset"]) + 60_000,
        ),
    )
    proxy.lie_about(30, lies.answers(0, offset=FAR))
    with (
        client(proxy, pulls_in_flight=2) as cluster,
        bounded(6 * LIMITS.max_frame_bytes),
        pytest.raises(BrokenAnswerError, match="raise maxFrameBytes"),
    ):
        bodies(cluster)
    assert len(proxy.requests) < 60


@pytest.mark.parametrize("low", [0, 5, FAR])
def test_messages_that_are_gone_everywhere_are_passed_over_in_few_pulls(
    proxy: LyingProxy, low: int
) -> None:
    proxy.lie_about(30, lies.answers(0, offset=FAR))
    proxy.give(
        11,
        lambda request: json_answer(
            request["opaque"], 21, nextBeginOffset=low, minOffset=low, maxOffset=low
        ),
    )
    with client(proxy) as cluster, bounded():
        with pytest.raises(DataLossError):
            bodies(cluster)
        reader = PullReader(cluster, slices(held(cluster)), fail_on_data_loss=False)
        assert list(reader.answers()) == []
    assert len(proxy.pulls()) <= 12


@pytest.mark.parametrize("offset", [-5, -(2**63), 2**63 - 1, COUNT + 9])
def test_an_offset_that_no_queue_has_makes_no_lag_that_cannot_be(
    proxy: LyingProxy, offset: int
) -> None:
    proxy.lie_about(14, lies.answers(0, offset=offset))
    finder = ClusterBrokers(settings_of(proxy), (TOPIC,), ("G",))
    with closing(finder), closing(finder.source(*finder.brokers())) as source, bounded():
        items = plan_all([source], [source.held()], BacklogRequest("G"))
    (item,) = [one for one in items if one.topic == TOPIC]
    assert 0 <= item.high - min(max(item.consumed, item.low), item.high) <= COUNT


@pytest.mark.parametrize("lie", ["it shuts down, always", "the end"])
def test_two_proxies_that_both_lie_end_in_one_error(proxy: LyingProxy, lie: str) -> None:
    with LyingProxy().running() as other:
        assert isinstance(other, LyingProxy)
        other.queues = proxy.queues
        for one in (proxy, other):
            one.lie_about(11, SAID[lie])
        both = (proxy.address, other.address)
        with (
            client(proxy, name_servers=both, retry_timeout_ms=1_000) as cluster,
            bounded(),
            pytest.raises(BrokerUnavailableError),
        ):
            bodies(cluster)
    assert proxy.pulls()
    assert other.pulls()


@pytest.mark.parametrize("code", [105, 106, 30])
def test_the_doctor_has_a_diagnosis_for_every_lie(proxy: LyingProxy, code: int) -> None:
    proxy.fill("TBW102", 0)
    for name, lie in (SAID | lies.ENDLESS).items():
        proxy.lie_about(code, lie)
        with bounded():
            found = examine_cluster(settings_of(proxy, SOON))
        assert found, name
        assert all(not set(one.found) & set("\x1b\x07\u202e\r\n") for one in found), name
