"""The gRPC client of RocketMQ 5 through a proxy: what it sends is read, what it leaves is told."""

import json
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest

from broker import proxies
from broker.harness import Broker, Cluster
from broker.jvm import OPEN_MODULES, SMALL, Jvm
from broker.test_pop_groups import ids, table
from broker.toolchain import HERE, Toolchain
from support.processes import until

pytestmark = pytest.mark.broker

CLIENT_VERSION = "5.0.8"
KINDS = ("NORMAL", "DELAY", "FIFO", "TRANSACTION")
COUNT = 40
LONG_MS = 600_000
SECONDS = 120


@dataclass(frozen=True)
class Ground:
    """A broker with a proxy before it, and the gRPC client."""

    cluster: Cluster
    broker: Broker
    proxy: proxies.Proxy
    root: Path
    jvm: Jvm

    def ask(self, command: str, *fields: object) -> Any:
        answer = json.loads(self.jvm.ask("\t".join([command, *map(str, fields)]), SECONDS))
        assert "error" not in answer, answer["error"]
        return answer["result"]

    def make(self, topic: str, kind: str) -> str:
        """Make a topic with two queues for messages of a kind."""
        where = ("-b", self.broker.address, "-t", topic, "-r", "2", "-w", "2")
        self.broker.mqadmin("updateTopic", *where, "-a", f"+message.type={kind}")
        return topic

    @property
    def places(self) -> list[str]:
        """The store, the cluster by its name server, and by the proxy."""
        return [str(self.root), *(f"rocketmq://{server}" for server in self.servers)]

    @property
    def servers(self) -> tuple[str, str]:
        """The addresses of the name server and of the proxy."""
        return self.cluster.name_server, self.proxy.address


@contextmanager
def client(toolchain: Toolchain, home: Path, address: str) -> Iterator[Jvm]:
    """Run the gRPC client."""
    own = replace(toolchain, room=HERE / "grpc")
    command = [own.java, "-Xmx256m", *SMALL, *OPEN_MODULES, f"-Duser.home={home}"]
    command += ["-cp", own.classpath(CLIENT_VERSION), "Grpc", address]
    with Jvm(command, home, "grpc", talks=True) as jvm:
        yield jvm


@pytest.fixture(scope="module")
def ground(toolchain: Toolchain, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Ground]:
    home = tmp_path_factory.mktemp("grpc-")
    root = home / "broker" / "store"
    root.mkdir(parents=True)
    with ExitStack() as stack:
        cluster = stack.enter_context(Cluster(toolchain, proxies.PROXY_VERSION, home))
        broker = stack.enter_context(cluster.broker(root, {"timerWheelEnable": "true"}))
        proxy = stack.enter_context(proxies.running(toolchain, cluster.name_server, home))
        jvm = stack.enter_context(client(toolchain, home, proxy.grpc_address))
        yield Ground(cluster, broker, proxy, root, jvm)


def row(found: dict[str, Any]) -> tuple[Any, ...]:
    properties = dict(found["properties"])
    own = {name: properties.get(name) for name in ("number", "__SHARDINGKEY")}
    return found["msgId"], bytes(found["body"]), found["keys"], found["tags"], *own.values()


@pytest.mark.parametrize("kind", KINDS)
def test_messages_of_the_grpc_client_are_read_as_it_sent_them(ground: Ground, kind: str) -> None:
    """From the store, from the broker and through the proxy; delayed ones when they came due."""
    topic = ground.make(f"Grpc{kind}", kind)
    sent = ground.ask("send", topic, kind, COUNT)
    expected = sorted(
        (one["id"], one["body"].encode(), one["keys"], one["tags"], one["keys"][1:], one["group"])
        for one in sent
        if not one["rolledBack"]
    )
    ground.broker.wait_for(topic, len(expected))
    for place in ground.places:
        assert sorted(map(row, table(place, "messages", subscribe=topic))) == expected, place


def test_unacknowledged_is_what_a_grpc_consumer_never_acknowledged(ground: Ground) -> None:
    """It acknowledged every third, and changed the invisible duration of others; id by id."""
    topic, group = ground.make("GrpcLeft", "NORMAL"), "GrpcGroup"
    ground.broker.mqadmin("updateSubGroup", "-b", ground.broker.address, "-g", group)
    every = {one["id"] for one in ground.ask("send", topic, "NORMAL", COUNT)}
    done = ground.ask("receive", topic, group, COUNT // 2, LONG_MS, 3, 2, 2 * LONG_MS)
    received, acknowledged = set(done["received"]), set(done["acknowledged"])
    assert len(received) == COUNT // 2
    assert len(acknowledged) == 7
    for place in ground.places:

        def is_told(place: str = place) -> bool:  # The broker stores acknowledgements later.
            return ids(place, group, "INFLIGHT", subscribe=topic) == received - acknowledged

        until(is_told)
        assert ids(place, group, subscribe=topic) == every - acknowledged, place
        told = table(place, "backlog", groups=group, subscribe=topic)
        assert {one["mode"] for one in told} == {"POP"}
        assert sum(one["unacknowledged"] for one in told) == len(every - acknowledged), place
