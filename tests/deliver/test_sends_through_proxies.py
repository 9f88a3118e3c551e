"""Writes through real RocketMQ 5 proxies: what official clients get is what was written.

The ports of the broker and of the name server are closed to our client. Proxies are killed, frozen
and started again meanwhile.
"""

import hashlib
import json
import os
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing, contextmanager
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from broker import proxies
from broker.harness import BROKER_NAME, FAST_DELAYS, LOOPBACK, Cluster
from broker.ports import free_ports
from broker.toolchain import Toolchain
from deliver import test_sent_to_brokers as direct
from deliver.failing_trial import is_whole
from live.real import READING, Live, full_rows, slices
from live.test_through_proxy import cluster, only
from mqstore.deliver.job import SendJob
from mqstore.deliver.once.commit import publish
from mqstore.deliver.once.errors import PublicationError
from mqstore.deliver.prepare import prepare
from mqstore.deliver.settings import PROXY_FENCE_MS, SendSettings
from mqstore.deliver.task import hand_on, send
from mqstore.errors import InvalidOptionError, UnknownTopicError
from mqstore.live.origin.bounds import bounds
from mqstore.live.origin.pull import PullReader
from mqstore.live.origin.records import PullSettings, read
from mqstore.live.remoting.cluster import Cluster as Client
from mqstore.live.remoting.errors import RequestRefusedError
from mqstore.live.remoting.settings import ClusterSettings, Limits
from mqstore.live.send.sender import Sender
from mqstore.read.directory import take
from mqstore.read.scan import scan
from mqstore.read.selection import Selection
from mqstore.read.settings import ScanSettings
from mqstore.read.source import slices_of
from mqstore.request.places import open_all
from support.processes import until
from support.writing import rows

__all__ = ["cluster"]

pytestmark = pytest.mark.broker
QUEUES = 3
SETTINGS = {**FAST_DELAYS, "enableMixedMessageType": "true"}
"""A proxy takes messages of several types for topics of the type MIXED only."""
QUICK = Limits(connect_timeout_ms=2_000, request_timeout_ms=3_000)


class Front:
    """A broker and two proxies before it, each of which may be killed and started again."""

    def __init__(self, servers: Cluster, toolchain: Toolchain, folder: Path) -> None:
        self._start = lambda port: proxies.running(toolchain, servers.name_server, folder, port)
        self.ports = (free_ports(0), free_ports(0))
        self.addresses = tuple(f"{LOOPBACK}:{port}" for port in self.ports)
        self.live = Live(servers, folder / "store", SETTINGS, proxy=self.addresses[0])
        self._stacks = [ExitStack(), ExitStack()]
        self.proxies: list[proxies.Proxy] = []
        for number, stack in enumerate(self._stacks):
            self.proxies.append(stack.enter_context(self._start(self.ports[number])))

    def kill(self, number: int) -> None:
        self.proxies[number].kill()
        self._stacks[number].close()

    def start(self, number: int) -> None:
        self.proxies[number] = self._stacks[number].enter_context(self._start(self.ports[number]))

    @contextmanager
    def frozen(self, number: int) -> Iterator[None]:
        self.proxies[number].freeze()
        try:
            yield
        finally:
            self.proxies[number].thaw()

    def make(self, topic: str, kind: str = "MIXED", queues: int = QUEUES) -> str:
        """Make a topic as an administrator does, at the name server, which we have no way to."""
        where = ("-b", self.live.broker.address, "-t", topic)
        count = ("-r", str(queues), "-w", str(queues))
        self.live.broker.mqadmin("updateTopic", *where, *count, "-a", f"+message.type={kind}")
        return topic

    def settings(self, **more: Any) -> ClusterSettings:
        given = {"name_servers": self.addresses, "limits": READING, "retry_timeout_ms": 240_000}
        return ClusterSettings(**(given | more))

    def close(self) -> None:
        for stack in self._stacks:
            stack.close()
        self.live.close()


@pytest.fixture(scope="module")
def front(
    cluster: Cluster, toolchain: Toolchain, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Front]:
    with closing(Front(cluster, toolchain, tmp_path_factory.mktemp("front-"))) as found:
        found.make("MQLOG_CONTROL", "NORMAL", 1)
        with only(1, *found.ports):
            yield found


@pytest.fixture
def live(front: Front, monkeypatch: pytest.MonkeyPatch) -> Live:
    """The broker; what the tests of direct writes send goes through the first proxy.

    An administrator makes the topics: a proxy makes none.
    """

    def settings_for(live: Live, **more: Any) -> SendSettings:
        front.make(more["topic"])
        return SendSettings(**{"cluster": live.cluster.settings, **more})

    monkeypatch.setattr(direct, "settings_for", settings_for)
    return front.live


test_official_clients = direct.test_official_clients_get_what_was_sent_in_its_order
test_every_kind = direct.test_every_kind_comes_out_of_a_push_consumer_and_our_reader_as_it_went_in
test_a_delayed_message = direct.test_a_delayed_message_comes_later_and_an_empty_one_comes


def test_a_large_message_goes_alone(front: Front) -> None:
    """A proxy does not tell how large one may be: the option maxMessageSize does."""
    topic, bodies = front.make("Large"), [b"a", b"b" * 200_000, b"c"]
    given = {"cluster": front.settings(), "topic": topic, "batch_max_bytes": 50_000}
    job = prepare(SendSettings(**given), part_of(bodies).schema)
    counts = send(job, [part_of(bodies)], partition=0, attempt=1).counts
    assert counts.requests - counts.repeats == len(bodies)
    front.live.broker.wait_for(topic, len(bodies))
    assert digests(bodies).keys() == {row["bodySha1"] for row in held(front, topic)}


def once(front: Front, topic: str, version: int, **more: Any) -> SendJob:
    given = {"cluster": front.settings(limits=QUICK), "topic": topic, "batch_max_messages": 100}
    given |= {"delivery": "exactlyOnce", "txn_app_id": topic, "txn_version": version}
    return prepare(SendSettings(**(given | more)), rows(1, topic=None).schema)


def wanted(count: int, version: int = 0) -> list[bytes]:
    return [b"%d of %d" % (n, version) for n in range(count)]


def part_of(bodies: list[bytes]) -> pa.RecordBatch:
    return rows(len(bodies), body=bodies, topic=None)


def published(job: SendJob, bodies: list[bytes]) -> int:
    return publish(job, [hand_on(job, [part_of(bodies)], partition=0, attempt=1)]).messages


def held(front: Front, topic: str) -> list[dict[str, Any]]:
    """What the official client pulls from the broker itself."""
    return [
        row
        for row in front.live.broker.dump(topic).rows
        if is_whole(row["properties"].get("UNIQ_KEY"))
    ]


def digests(bodies: list[bytes]) -> Counter[str]:
    return Counter(hashlib.sha1(body, usedforsecurity=False).hexdigest() for body in bodies)


def test_what_needs_an_administrator_is_refused_with_what_he_does(front: Front) -> None:
    cluster = front.settings()
    settings = {"cluster": cluster, "create_topic": True, "topic": "NotThere"}
    with pytest.raises(InvalidOptionError, match=r"createTopic.*no proxy makes topics: mqadmin"):
        prepare(SendSettings(**settings), rows(1, topic=None).schema)
    with pytest.raises(UnknownTopicError, match="NotThere"):
        prepare(SendSettings(cluster=cluster, topic="NotThere"), rows(1, topic=None).schema)
    topic = front.make("Fenced")
    with pytest.raises(InvalidOptionError, match=r"controlTopic.*MQLOG_OTHER.*mqadmin updateTopic"):
        once(front, topic, 1, control_topic="MQLOG_OTHER")
    with pytest.raises(InvalidOptionError, match=r"fenceWait.*10000 ms or more through a proxy"):
        once(front, topic, 1, fence_wait_ms=9_000)
    assert once(front, topic, 1).settings.fence_wait_ms == PROXY_FENCE_MS
    assert once(front, topic, 1, fence_wait_ms=12_000).settings.fence_wait_ms == 12_000


def test_a_message_of_another_type_than_its_topic_is_refused_by_name(front: Front) -> None:
    topic = front.make("Plain", "NORMAL")
    part = rows(2, topic=None, delayTimeLevel=[0, 1])
    job = prepare(SendSettings(cluster=front.settings(), topic=topic), part.schema)
    with pytest.raises(RequestRefusedError, match=r"expected type is NORMAL.*actual type is DELAY"):
        send(job, [part], partition=0, attempt=1)


def harms(front: Front, number: int, harm: str) -> Callable[[], None]:
    """Harm a proxy, or kill the broker behind it and start it again; return what ends the harm."""
    if harm == "frozen":
        front.proxies[number].freeze()
        return front.proxies[number].thaw
    if harm == "broker":
        front.live.kill()
        front.live.start()
        return lambda: None
    front.kill(number)
    return lambda: front.start(number)


@pytest.mark.parametrize("harm", ["killed", "frozen", "broker"])
def test_rows_are_there_at_least_once_though_a_proxy_or_its_broker_fails(
    front: Front, harm: str
) -> None:
    topic, bodies = front.make(f"AtLeast-{harm}"), wanted(4_000)
    cluster = front.settings(limits=QUICK)
    job = prepare(
        SendSettings(cluster=cluster, topic=topic, batch_max_messages=50), part_of(bodies).schema
    )
    ends: list[Callable[[], None]] = []

    def parts() -> Iterator[pa.RecordBatch]:
        for first in range(0, len(bodies), 500):
            if first == 1_500:
                ends.append(harms(front, 0, harm))
            yield part_of(bodies[first : first + 500])

    try:
        report = send(job, parts(), partition=0, attempt=1)
    finally:
        for end in ends:
            end()
    assert report.counts.messages == len(bodies)
    until(lambda: digests(bodies).keys() <= {row["bodySha1"] for row in held(front, topic)})
    found = held(front, topic)
    assert len({row["msgId"] for row in found}) == len(bodies)
    assert len(found) - len(bodies) <= 50 * report.counts.repeats


@pytest.mark.parametrize("harm", ["killed", "frozen", "broker"])
def test_rows_are_there_once_though_a_proxy_or_its_broker_fails(
    front: Front, harm: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A frozen proxy sends on what it holds when it goes on: nothing is sent again before that."""
    topic = front.make(f"Once-{harm}")
    published(once(front, topic, 0), wanted(600))
    bodies, ends = wanted(900, 1), list[Callable[[], None]]()
    sent = proxies_failing(monkeypatch, lambda: ends.append(harms(front, 0, harm)))
    try:
        if harm == "frozen":
            with pytest.raises(PublicationError, match="may hold messages of an earlier try"):
                published(once(front, topic, 1, send_timeout_ms=12_000), bodies)
            ends.pop()()
        done = published(once(front, topic, 1), bodies)
    finally:
        for end in ends:
            end()
    assert len(sent) > 5, "no proxy failed"
    assert done == len(bodies)
    assert digests(wanted(600) + bodies) == Counter(row["bodySha1"] for row in held(front, topic))
    assert published(once(front, topic, 1), bodies) == len(bodies)
    assert len(held(front, topic)) == 600 + len(bodies)


def proxies_failing(monkeypatch: pytest.MonkeyPatch, fail: Callable[[], None]) -> list[int]:
    """Have the fifth request that sends rows be the last before ``fail``; return who sent."""
    sent: list[int] = []
    real = Sender._start_first

    def start_first(self: Sender, *arguments: Any) -> None:
        real(self, *arguments)
        sent.append(1)
        if len(sent) == 5:
            fail()

    monkeypatch.setattr(Sender, "_start_first", start_first)
    return sent


@pytest.mark.parametrize("harm", ["killed", "frozen"])
def test_a_read_goes_on_by_the_other_proxy(front: Front, harm: str) -> None:
    topic, bodies = front.make(f"Read-{harm}"), wanted(3_000)
    job = prepare(SendSettings(cluster=front.settings(), topic=topic), part_of(bodies).schema)
    send(job, [part_of(bodies)], partition=0, attempt=1)
    front.live.broker.wait_for(topic, len(bodies))
    with Client(front.settings(limits=QUICK)) as client:
        queues = bounds(client, [client.known_route(topic)])
        parts = read(PullReader(client, slices(queues)), PullSettings(first_rows=20))
        found = full_rows([next(parts)])
        end = harms(front, 0, harm)
        try:
            found += full_rows(list(parts))
        finally:
            end()
    held = take(front.live.root, topics=lambda name: name == topic)
    settings = ScanSettings(columns=("body",))
    stored = [row["body"] for part in scan(slices_of(held), settings) for row in part.to_pylist()]
    # A busy proxy may answer late: then a batch is sent, and stored, again.
    assert Counter(row["body"] for row in found) == Counter(stored)
    assert set(stored) == set(bodies)
    assert [row["brokerName"] for row in found] == [BROKER_NAME] * len(found)


@pytest.mark.parametrize("words", [("cat",), ("why", "--group", "Nobody", "--topic")])
def test_a_frozen_broker_behind_proxies_is_named_in_the_time_of_one_ask(
    front: Front, words: tuple[str, ...]
) -> None:
    """However many requests an answer needs: retryTimeout is for all of them."""
    topic, bodies = front.make(f"Cold-{words[0]}"), wanted(300)
    job = prepare(SendSettings(cluster=front.settings(), topic=topic), part_of(bodies).schema)
    send(job, [part_of(bodies)], partition=0, attempt=1)
    front.live.broker.wait_for(topic, len(bodies))
    place = f"rocketmq://{','.join(front.addresses)}"
    limits = ("--option", "requestTimeout=3s", "--option", "retryTimeout=9s")
    os.kill(front.live.broker.pid, signal.SIGSTOP)
    try:
        before = time.monotonic()
        done = ran(words[0], place, *words[1:], topic, *limits)
        took = time.monotonic() - before
    finally:
        os.kill(front.live.broker.pid, signal.SIGCONT)
    assert done.returncode != 0
    assert "MQLOG_BROKER_UNAVAILABLE.TIMEOUT" in done.stderr
    assert BROKER_NAME in done.stderr
    assert 8 < took < 60


def test_the_only_proxy_is_waited_for_while_it_is_started_again(front: Front) -> None:
    """By a read under way, and by a stream, which goes on with what it had."""
    topic, bodies = front.make("Waited"), wanted(2_000)
    published(once(front, topic, 0), bodies)
    alone = front.settings(name_servers=front.addresses[1:], limits=QUICK, retry_timeout_ms=240_000)
    with (
        Client(alone) as client,
        closing(open_all(Selection(roots=(), subscribe=(topic,)), [alone])) as stores,
        closing(*stores.tails()) as tail,
    ):
        queues = bounds(client, [client.known_route(topic)])
        ends = {(topic, queue.queue_id): (queue.low, queue.high) for queue in queues}
        parts = read(PullReader(client, slices(queues)), PullSettings(first_rows=20))
        found = full_rows([next(parts)])
        assert dict(tail.look()) == ends
        front.kill(1)
        assert dict(tail.look(at_once=True)) == ends
        assert tail.away is not None
        front.start(1)
        found += full_rows(list(parts))
        published(once(front, topic, 1), bodies[:QUEUES])
        grown = sum(high for _, high in ends.values()) + QUEUES
        until(lambda: sum(high for _, high in tail.look().values()) == grown)
        assert tail.away is None
    assert Counter(row["body"] for row in found) == Counter(bodies)


def ran(*words: str) -> subprocess.CompletedProcess[str]:
    """Run mqlog."""
    return subprocess.run(
        [sys.executable, "-c", direct.CLI, *words, "--json"],
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
    )


def command(*words: str) -> dict[str, Any]:
    """Run mqlog, which prints an object."""
    done = ran(*words)
    assert done.returncode == 0, done.stderr
    found: dict[str, Any] = json.loads(done.stdout)
    return found


def test_the_command_replays_once_from_one_proxy_to_the_other(front: Front) -> None:
    source, target = front.make("Played"), front.make("Replayed")
    bodies, (here, there) = wanted(200), [f"rocketmq://{one}" for one in front.addresses]
    published(once(front, source, 0), bodies)
    words = ("replay", here, there, "--topic", source, "--to", target)
    assert command(*words)["messages"] == len(bodies)
    again = command(*words)
    assert (again["messages"], again["before"]) == (0, len(bodies))
    assert digests(bodies) == Counter(row["bodySha1"] for row in held(front, target))
    with pytest.raises(AssertionError, match=f"{source} would have each of them twice"):
        command("replay", here, there, "--topic", source)
