"""A real RocketMQ 5 proxy on loopback, before the brokers of a harness Cluster or with its own."""

import json
import os
import signal
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from broker.harness import BOOT_SECONDS, LOGBACK, LOOPBACK, write_properties
from broker.jvm import OPEN_MODULES, SMALL, Jvm
from broker.ports import free_ports
from broker.toolchain import Toolchain

PROXY_VERSION: Final = "5.5.0"
READY: Final = "rocketmq-proxy startup successfully"


class Proxy:
    """A running proxy: the address of its remoting port, and what may happen to its process."""

    def __init__(self, jvm: Jvm, address: str, grpc_address: str) -> None:
        self.address = address
        self.grpc_address = grpc_address
        self._jvm = jvm

    @property
    def port(self) -> int:
        """Its remoting port."""
        return int(self.address.rpartition(":")[2])

    def kill(self) -> None:
        """Kill -9."""
        self._jvm.kill()

    def freeze(self) -> None:
        """Let none of its threads do anything, until ``thaw`` or the end."""
        os.kill(self._jvm.pid, signal.SIGSTOP)

    def thaw(self) -> None:
        """Let it go on."""
        os.kill(self._jvm.pid, signal.SIGCONT)

    def log_tail(self) -> str:
        """Return the end of what it logged."""
        return self._jvm.log_tail()


@contextmanager
def running(
    toolchain: Toolchain,
    name_server: str,
    home: Path,
    port: int | None = None,
    broker: Mapping[str, str] | None = None,
    flags: Sequence[str] = SMALL,
    *,
    more: Mapping[str, object] | None = None,
    tools: str = "",
) -> Iterator[Proxy]:
    """Run a proxy for a name server; it is killed if the body left it running.

    In cluster mode, or in local mode with a ``broker`` of these settings (broker.conf's keys) in
    its process. ``more`` are settings of rmq-proxy.json; ``tools`` is the text of tools.yml, with
    the proxy's own credentials. A JvmError carries its log when it does not boot.
    """
    port = port or free_ports(0)
    name = f"proxy-{port}-{time.monotonic_ns()}"
    home = home / name
    (home / "conf").mkdir(parents=True)
    for server in ("proxy", "broker", "namesrv", "tools"):
        (home / "conf" / f"logback_{server}.xml").write_text(LOGBACK)
        (home / "conf" / f"rmq.{server}.logback.xml").write_text(LOGBACK)
    grpc_port = free_ports(0)
    settings = {
        "rocketMQClusterName": "DefaultCluster",
        "namesrvAddr": name_server,
        "remotingListenPort": port,
        "grpcServerPort": grpc_port,
        "proxyMode": "cluster" if broker is None else "local",
        "remotingAccessAddr": LOOPBACK,
        "localServeAddr": LOOPBACK,
        **(more or {}),
    }
    (home / "conf" / "tools.yml").write_text(tools)
    conf = home / "conf" / "rmq-proxy.json"
    conf.write_text(json.dumps(settings))
    command = [
        toolchain.java,
        "-Xms64m",
        "-Xmx512m",
        *flags,
        *OPEN_MODULES,
        f"-Duser.home={home}",
        "-Duser.timezone=UTC",
        "-Dfile.encoding=UTF-8",
        "-cp",
        toolchain.classpath(f"proxy-{PROXY_VERSION}"),
        "org.apache.rocketmq.proxy.ProxyStartup",
        "-pc",
        str(conf),
    ]
    if broker is not None:
        path = write_properties(
            home / "conf" / "broker.conf", {"namesrvAddr": name_server, **broker}
        )
        command += ["-bc", str(path)]
    with Jvm(command, home, name, talks=False) as jvm:
        jvm.wait_for(READY, BOOT_SECONDS)
        yield Proxy(jvm, f"{LOOPBACK}:{port}", f"{LOOPBACK}:{grpc_port}")
