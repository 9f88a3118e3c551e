"""A container of 5.5.0, two brokers in one process: each root is the store of a broker alone.

Reference: org.apache.rocketmq.container.BrokerContainerStartup (brokerConfigPaths).
"""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import pytest

import mqlog
from broker.harness import (
    BOOT_SECONDS,
    LOGBACK,
    LOOPBACK,
    SETTINGS,
    SMALL_FILES,
    Broker,
    Cluster,
    Row,
    write_properties,
)
from broker.jvm import OPEN_MODULES, SMALL, Jvm
from broker.ports import free_ports
from broker.toolchain import Toolchain
from mqstore.check import check
from support import planned

pytestmark = pytest.mark.broker

NAMES: Final = ("broker-a", "broker-b")
MESSAGES: Final = 40


@contextmanager
def container(
    toolchain: Toolchain, cluster: Cluster, folder: Path
) -> Iterator[tuple[Jvm, dict[str, Broker]]]:
    """Run the brokers of NAMES in one process, on stores below a folder."""
    home = folder / "container"
    (home / "conf").mkdir(parents=True)
    for server in ("broker", "container", "brokercontainer"):
        (home / "conf" / f"rmq.{server}.logback.xml").write_text(LOGBACK)
    confs, paths = {}, []
    for name in NAMES:
        port = free_ports(-2, 0, 1)
        root = folder / name / "store"
        confs[name] = (
            SETTINGS
            | SMALL_FILES
            | {
                "brokerName": name,
                "namesrvAddr": cluster.name_server,
                "listenPort": str(port),
                "haListenPort": str(port + 1),
                "storePathRootDir": str(root),
                "storePathCommitLog": str(root / "commitlog"),
                "timerWheelEnable": "true",
            }
        )
        paths.append(write_properties(home / f"{name}.conf", confs[name]))
    own = {
        "namesrvAddr": cluster.name_server,
        "brokerContainerIP": LOOPBACK,
        "bindAddress": LOOPBACK,
        "listenPort": str(free_ports(-2, 0)),
        "brokerConfigPaths": ":".join(map(str, paths)),
    }
    conf = write_properties(home / "container.conf", own)
    command = [
        toolchain.java,
        *("-Xms256m", "-Xmx768m", "-XX:MaxDirectMemorySize=256m", *SMALL, *OPEN_MODULES),
        f"-Duser.home={home}",
        "-Duser.timezone=UTC",
        "-Dfile.encoding=UTF-8",
        "-Dtls.server.mode=disabled",
        *("-cp", toolchain.classpath("container-5.5.0")),
        *("org.apache.rocketmq.container.BrokerContainerStartup", "-c", str(conf)),
    ]
    with Jvm(command, home, "container", talks=False) as jvm:
        jvm.wait_for(f"[{NAMES[-1]}-0] boot success", BOOT_SECONDS)
        yield (
            jvm,
            {
                name: Broker(cluster, jvm, f"{LOOPBACK}:{own['listenPort']}", own)
                for name, own in confs.items()
            },
        )


@dataclass(frozen=True, slots=True)
class Contained:
    """What each broker of a container had, as the client was told, and what was seen of it."""

    sent: dict[str, list[Row]]
    live: list[Row]
    registered: list[str]
    roots: dict[str, Path]


@pytest.fixture(scope="module")
def contained(toolchain: Toolchain, tmp_path_factory: pytest.TempPathFactory) -> Contained:
    folder = tmp_path_factory.mktemp("container-")
    with (
        Cluster(toolchain, "5.5.0", folder / "programs") as cluster,
        container(toolchain, cluster, folder) as (jvm, brokers),
    ):
        sent = {}
        for name, broker in brokers.items():
            broker.connect()
            topic = f"Of{name[-1].upper()}"
            broker.mqadmin("updateTopic", "-b", broker.address, "-t", topic)
            # One client writes what it sent, to whichever broker, into one file.
            acknowledged = broker.produce(topic, "Single", MESSAGES)
            sent[name] = [row for row in acknowledged if row["topic"] == topic]
        address = f"rocketmq://{cluster.name_server}"
        live = planned.rows(address, columns="full")
        registered = mqlog.open(address).table("brokers").to_table()["brokerName"].to_pylist()
        jvm.stop()
    return Contained(sent, live, registered, {name: folder / name / "store" for name in NAMES})


def keys(rows: list[Row]) -> set[tuple[str, int, int, str]]:
    return {(r["topic"], r["queueId"], r["queueOffset"], r["msgId"]) for r in rows}


def test_each_root_of_a_container_is_the_store_of_its_broker(contained: Contained) -> None:
    for name, root in contained.roots.items():
        assert len(contained.sent[name]) == MESSAGES
        assert keys(planned.rows(str(root), columns="full")) == keys(contained.sent[name])
        assert [f for f in check(root) if f.severity == "error"] == []


def test_both_brokers_of_a_container_are_read_live(contained: Contained) -> None:
    assert sorted(set(contained.registered)) == [*NAMES]
    everything = [row for rows in contained.sent.values() for row in rows]
    assert keys(contained.live) == keys(everything)
