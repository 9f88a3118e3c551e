"""The peers that need Java: RocketMQ's message store, and a Kafka broker. Loopback only.

Their jars come from Maven, as those of tests/broker do. Where Maven or the JDK is missing, or
a jar is not to be had, PeerMissingError says so and the benchmark goes on without that peer.
"""

import json
import os
import re
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

from benchmarks.rounds import Timed
from broker import proxies
from broker.harness import LOOPBACK, Cluster, write_properties
from broker.jvm import OPEN_MODULES, Jvm, JvmError
from broker.ports import free_ports
from broker.toolchain import Toolchain, ToolchainError

HERE = Path(__file__).parent
ROCKETMQ = "5.5.0"
KAFKA = "3.9.1"
CONNECTOR = "connector"
CLUSTER = "bXFsb2cgYmVuY2htYXJrcw"  # 16 bytes in base64, as Kafka wants its clusters called
BOOT_SECONDS = 60
ANSWER_SECONDS = 600
PAUSE_SECONDS = 0.1


class PeerMissingError(Exception):
    """A peer is not to be had here; the message is the reason."""


class StorePeer:
    """RocketMQ's DefaultMessageStore in a JVM of its own, on both cores, default heap and GC."""

    def __init__(self, jvm: Jvm) -> None:
        self._jvm = jvm

    def open(self, root: Path, log_bytes: int) -> None:
        """Load a store, as a broker does when it starts."""
        self._ask("open", root, log_bytes)

    def close(self) -> None:
        """Shut the store down."""
        self._ask("close")

    def read(self, topic: str, queues: int) -> dict[str, Any]:
        """Get and decode all messages of a topic; returns seconds, rows, and sums."""
        return self._ask("read", topic, queues)

    def write(self, root: Path, messages: int, body_bytes: int, queues: int) -> Timed:
        """Put messages into a new store, in batches, until they are dispatched."""
        found = self._ask("write", root, messages, body_bytes, queues)
        return Timed(found["rows"], found["seconds"])

    def _ask(self, *words: object) -> dict[str, Any]:
        found: dict[str, Any] = json.loads(
            self._jvm.ask("\t".join(map(str, words)), ANSWER_SECONDS)
        )
        return found


@contextmanager
def store_peer() -> Iterator[StorePeer | None]:
    """Run the JVM; None, with the reason on standard error, when it is not to be had."""
    try:
        java, classpath = _java("rocketmq", ROCKETMQ)
    except PeerMissingError as missing:
        skip("rocketmq", str(missing))
        yield None
        return
    with tempfile.TemporaryDirectory() as directory:
        home = Path(directory)
        command = [java, "-Xmx2g", *OPEN_MODULES, f"-Duser.home={home}", "-cp", classpath]
        with Jvm([*command, "StorePeer"], home, "store", talks=True) as jvm:
            yield StorePeer(jvm)


@contextmanager
def rocketmq_servers(home: Path) -> Iterator[Cluster]:
    """Run a name server and official clients with default flags; raises PeerMissingError."""
    try:
        servers = Cluster(_toolchain(), ROCKETMQ, home, flags=())
    except ToolchainError as error:
        raise PeerMissingError(str(error).splitlines()[-1]) from error
    with servers:
        yield servers


@contextmanager
def proxy_of(servers: Cluster, home: Path) -> Iterator[proxies.Proxy]:
    """Run a proxy in cluster mode with default flags before the brokers of these servers."""
    with proxies.running(_toolchain(), servers.name_server, home, flags=()) as proxy:
        yield proxy


@contextmanager
def kafka_broker(home: Path, partitions: int) -> Iterator[str]:
    """Run a broker in KRaft mode and yield its address; raises PeerMissingError."""
    java, classpath = _java("kafka", KAFKA)
    port = free_ports(0, 1)
    listeners = f"PLAINTEXT://{LOOPBACK}:{port},CONTROLLER://{LOOPBACK}:{port + 1}"
    settings = {
        "process.roles": "broker,controller",
        "node.id": "1",
        "controller.quorum.voters": f"1@{LOOPBACK}:{port + 1}",
        "controller.listener.names": "CONTROLLER",
        "listeners": listeners,
        "advertised.listeners": f"PLAINTEXT://{LOOPBACK}:{port}",
        "log.dirs": str(home / "logs"),
        "num.partitions": str(partitions),
        "offsets.topic.replication.factor": "1",
        "transaction.state.log.replication.factor": "1",
        "transaction.state.log.min.isr": "1",
    }
    conf = write_properties(home / "server.properties", settings)
    run = [java, "-Xmx1g", "-cp", classpath]
    tool = [*run, "kafka.tools.StorageTool", "format", "-t", CLUSTER, "-c", str(conf)]
    subprocess.run(tool, stdout=subprocess.DEVNULL, timeout=BOOT_SECONDS, check=True)
    with Jvm([*run, "kafka.Kafka", str(conf)], home, "kafka", talks=False) as jvm:
        _wait_for_port(port)
        yield f"{LOOPBACK}:{port}"
        jvm.stop()


def connector_jars() -> list[str]:
    """Return the jars of Spark's Kafka connector; raises PeerMissingError."""
    _, classpath = _java("kafka", CONNECTOR)
    return classpath.split(os.pathsep)[:-1]


def connector_version() -> str:
    """Return the version of the connector, as its pom names it."""
    pom = (HERE / "kafka" / f"pom-{CONNECTOR}.xml").read_text()
    found = re.search(r"<artifactId>connector-([\d.]+)<", pom)
    assert found
    return found[1]


def skip(peer: str, reason: str) -> None:
    """Say which peer is left out, and why."""
    sys.stderr.write(f"{peer} is left out: {reason}\n")


def _toolchain() -> Toolchain:
    found = Toolchain.find()
    if found is None:
        raise PeerMissingError("needs Maven (mvn) and a JDK (java, javac) on PATH")
    return found


def _java(room: str, version: str) -> tuple[str, str]:
    toolchain = _toolchain()
    try:
        return toolchain.java, replace(toolchain, room=HERE / room).classpath(version)
    except ToolchainError as error:
        raise PeerMissingError(str(error).splitlines()[-1]) from error


def _wait_for_port(port: int) -> None:
    end = time.monotonic() + BOOT_SECONDS
    pause = threading.Event()
    while time.monotonic() < end:
        with socket.socket() as probe:
            if probe.connect_ex((LOOPBACK, port)) == 0:
                return
        pause.wait(PAUSE_SECONDS)
    raise JvmError(f"nobody listens on port {port} after {BOOT_SECONDS} s")
