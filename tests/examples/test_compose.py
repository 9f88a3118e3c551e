"""The cluster of examples/compose.yaml: its form, and its commands without containers.

The programs of RocketMQ's image are scripts in its folder ``bin``, where a container starts. Here
scripts of the same names start the same classes of RocketMQ's jars.
"""

import json
import os
import re
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import yaml  # type: ignore[import-untyped]

from broker.harness import LOOPBACK
from broker.jvm import OPEN_MODULES, SMALL
from broker.ports import free_ports
from broker.toolchain import VERSIONS, Toolchain

EXAMPLES = Path(__file__).parents[2] / "examples"
PAGE = (EXAMPLES / "README.md").read_text(encoding="utf-8")
SERVICES: dict[str, dict[str, Any]] = yaml.safe_load((EXAMPLES / "compose.yaml").read_text())[
    "services"
]
SHOWN = re.findall(r"^((?:seq \d+ \| )?mqlog \w.*)$", PAGE, re.MULTILINE)
ENDLESS = ("--follow", "mqlog top", "mqlog record")
SECONDS = 300
MAIN = {
    "mqnamesrv": "org.apache.rocketmq.namesrv.NamesrvStartup",
    "mqbroker": "org.apache.rocketmq.broker.BrokerStartup",
    "mqadmin": "org.apache.rocketmq.tools.command.MQAdminStartup",
    "tools.sh": "",
}
LIGHT = """bindAddress=127.0.0.1
diskMaxUsedSpaceRatio=95
timerWheelEnable=false
transactionMetricFlushInterval=200
mappedFileSizeConsumeQueue=20000
"""


def script(service: str) -> str:
    """The shell script of a service, as its shell gets it from Compose."""
    command = SERVICES[service]["command"]
    if isinstance(command, list) and command[:2] == ["sh", "-c"]:
        command = command[2]
    text = command if isinstance(command, str) else " ".join(command)
    assert not re.search(r"(?<!\$)\$(?!\$)", text), "Compose would replace it"
    return text.replace("$$", "$")


def test_every_port_is_open_to_this_machine_alone() -> None:
    ports = [port for service in SERVICES.values() for port in service.get("ports", [])]

    assert {port.rpartition(":")[2] for port in ports} == {"9876", "10911"}
    assert all(re.fullmatch(r"127\.0\.0\.1:(\d+):\1", port) for port in ports)


def test_every_address_that_a_broker_gives_leads_there_from_each_container() -> None:
    for name in ("orders", "warehouse"):
        assert SERVICES[name]["network_mode"] == "service:broker"
        assert "ports" not in SERVICES[name]
    assert "brokerIP1=127.0.0.1" in script("broker")
    assert len({service["image"] for service in SERVICES.values()}) == 1


@pytest.mark.parametrize("service", SERVICES)
def test_every_script_is_one_for_a_shell_and_starts_a_program_of_the_image(service: str) -> None:
    subprocess.run(["sh", "-n", "-c", script(service)], check=True)
    assert set(re.findall(r"\bsh (\S+)", script(service))) <= set(MAIN)


def test_every_service_that_the_page_names_is_there() -> None:
    named = re.findall(r"compose.yaml (?:start|stop) (\w+)", PAGE)

    assert named
    assert set(named) <= set(SERVICES)


class Image:
    """The folder of RocketMQ's programs, and the ports of a cluster whose commands run in it."""

    def __init__(self, home: Path, java: str, classpath: str) -> None:
        self.home = home
        self.name_server = f"{LOOPBACK}:{free_ports(0)}"
        self.broker_port = free_ports(-2, 0, 1)
        listen = f"listenPort={self.name_server.rpartition(':')[2]}\nbindAddress={LOOPBACK}\n"
        (home / "bin").mkdir(parents=True)
        (home / "namesrv.conf").write_text(listen)
        started = f"exec {java} {' '.join([*SMALL, *OPEN_MODULES])} -Xmx512m -Duser.home={home}"
        for name, main in MAIN.items():
            own = f"-c {home}/namesrv.conf" if name == "mqnamesrv" else ""
            line = f'{started} -cp "{classpath}" {main} {own} "$@"\n'
            (home / "bin" / name).write_text(line)

    @contextmanager
    def running(self, service: str) -> Iterator[None]:
        """Run the command of a service. All of its processes end with the context."""
        text = script(service).replace("namesrv:9876", self.name_server)
        text = text.replace("/tmp/broker.conf", f"{self.home}/broker.conf")
        text = text.replace("listenPort=10911\n", f"listenPort={self.broker_port}\n{LIGHT}")
        known = {
            "PATH": os.environ["PATH"],
            "HOME": str(self.home),
            "ROCKETMQ_HOME": str(self.home),
        }
        with (self.home / f"{service}.log").open("wb") as log:
            process = subprocess.Popen(
                ["sh", "-c", text],
                cwd=self.home / "bin",
                env=known,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )
            try:
                yield
            finally:
                os.killpg(process.pid, signal.SIGKILL)
                process.wait(SECONDS)

    def logs(self) -> str:
        """The ends of what the services printed."""
        told = []
        for log in sorted(self.home.glob("*.log")):
            lines = log.read_text(errors="replace").splitlines()
            told += [f"--- {log.name}", *[line for line in lines if " |-" not in line][-30:]]
        return "\n".join(told)


def rows(*arguments: str) -> list[Mapping[str, Any]]:
    """What the command prints with --json; nothing while the cluster is not there yet."""
    done = subprocess.run(
        [sys.executable, "-m", "mqlog_jobs", *arguments, "--json"],
        capture_output=True,
        timeout=SECONDS,
        check=False,
    )
    return [json.loads(line) for line in done.stdout.splitlines()] if done.returncode == 0 else []


@pytest.mark.broker
def test_the_commands_of_the_containers_and_those_of_the_page_work(
    toolchain: Toolchain, tmp_path: Path
) -> None:
    classpath = replace(toolchain, room=Path(__file__).parent).classpath(VERSIONS[-1])
    image = Image(tmp_path / "home", toolchain.java, classpath)
    address, pause = f"rocketmq://{image.name_server}", threading.Event()
    try:
        with ExitStack() as stack:
            for service in SERVICES:
                stack.enter_context(image.running(service))
            end = time.monotonic() + SECONDS
            while not rows("find", address, "--key", "order-3") or not rows(
                "backlog", address, "-g", "CG_WAREHOUSE"
            ):
                assert time.monotonic() < end, "no orders, or nobody consumes them"
                pause.wait(1)
            found = rows("find", address, "--key", "order-3")  # Again in the group's retry topic.
            assert {(row["tags"], row["body"]) for row in found} == {
                ("cancelled", '{"order":3,"amount":21}')
            }
            for line in SHOWN:
                if not any(word in line for word in ENDLESS):
                    command = line.replace("rocketmq://127.0.0.1:9876", address)
                    command = command.replace("mqlog ", f"{sys.executable} -m mqlog_jobs ")
                    command = command.replace("/var/lib/node_exporter", str(tmp_path))
                    subprocess.run(["sh", "-c", command], cwd=tmp_path, check=True, timeout=SECONDS)
            assert (tmp_path / "report.html").stat().st_size > 0
            (topic,) = [row for row in rows("topics", address) if row["topic"] == "SHOP_ORDERS"]
            assert topic["messageCount"] >= 1000
    except (AssertionError, subprocess.SubprocessError, ValueError) as error:
        error.add_note(image.logs())
        raise
