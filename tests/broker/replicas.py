"""A group of three replicas on loopback, whose controller elects the master: auto-switch HA."""

import shutil
from collections.abc import Mapping
from contextlib import ExitStack
from pathlib import Path
from typing import Any, Final, Self

from broker.harness import LOOPBACK, Broker, Cluster
from broker.ports import free_ports
from support.processes import until

REPLICAS: Final = ("r0", "r1", "r2")
_SETTINGS: Final = {
    "enableControllerMode": "true",
    "brokerRole": "SYNC_MASTER",
    "syncBrokerMetadataPeriod": "1000",
    "checkSyncStateSetPeriod": "1000",
    "syncControllerMetadataPeriod": "2000",
    "controllerHeartBeatTimeoutMills": "4000",
    "sendHeartbeatTimeoutMillis": "1000",
    "brokerHeartbeatInterval": "500",
    # A replica that hangs stays in the set, so that what waits for it is not confirmed without it.
    "haMaxTimeSlaveNotCatchup": "600000",
    "haHousekeepingInterval": "600000",
    "slaveTimeout": "2000",
    "syncFlushTimeout": "2000",
    "flushConsumeQueueThoroughInterval": "3000",
}
_LOOK_S: Final = 0.1
"""Between two questions to the controller, whose answers take CPU time that elections need."""


class Replicas:
    """Three brokers and a controller, with stores in ``folder/r0`` to ``r2``. A context manager."""

    def __init__(self, cluster: Cluster, folder: Path, settings: Mapping[str, str]) -> None:
        self._cluster = cluster
        self._folder = folder
        self._controller = free_ports(0)
        self._ports = {name: free_ports(-2, 0, 1) for name in REPLICAS}
        self._settings = _SETTINGS | dict(settings)
        self._settings["controllerAddr"] = f"{LOOPBACK}:{self._controller}"
        self._stack = ExitStack()
        self.roots = {name: folder / name / "store" for name in REPLICAS}
        self.brokers: dict[str, Broker] = {}

    def __enter__(self) -> Self:
        with ExitStack() as stack:
            stack.enter_context(
                self._cluster.controller(self._folder / "controller", self._controller)
            )
            self._stack = stack
            for name in REPLICAS:
                self.roots[name].mkdir(parents=True)
                self.start(name)
                if len(self.brokers) == 1:  # The first one is elected; its clients ask who leads.
                    self.brokers[name].connect()
            self._stack = stack.pop_all()
        return self

    def __exit__(self, *error: Any) -> None:
        self._stack.__exit__(*error)

    def start(self, name: str) -> None:
        """Start a replica on its store, for the first time or again."""
        booted = self._cluster.booted(self.roots[name], self._settings, self._ports[name])
        self.brokers[name] = self._stack.enter_context(booted)

    def anew(self, name: str) -> None:
        """Stop a replica and let it begin with an empty disk."""
        self.brokers[name].stop()
        shutil.rmtree(self.roots[name])
        self.roots[name].mkdir()
        self.start(name)

    def master(self, *, other_than: str = "") -> str:
        """Return the master, once there is one; the clients turn to it."""
        by_address = {broker.address: name for name, broker in self.brokers.items()}
        found = ""

        def is_elected() -> bool:
            nonlocal found
            for line in self._listed():
                fields = line.split()
                if len(fields) > 3 and fields[2] == "0":
                    found = by_address.get(fields[3], "")
            return found not in ("", other_than)

        until(is_elected, pause_s=_LOOK_S)
        self.brokers[found].connect()
        return found

    def in_sync(self, count: int) -> None:
        """Return when the set of replicas in sync has that many."""

        def has() -> bool:
            told = self._cluster.ask(
                "mqadmin",
                "getSyncStateSet",
                "-a",
                f"{LOOPBACK}:{self._controller}",
                "-b",
                "broker-a",
            )
            lines = str(told).splitlines()  # Others are listed as NotInSyncReplica.
            return sum(line.startswith("InSyncReplica:") for line in lines) >= count

        until(has, pause_s=_LOOK_S)

    def _listed(self) -> list[str]:
        """Return the lines of clusterList: cluster, broker, id (0: the master's), address."""
        server = self._cluster.name_server
        return str(self._cluster.ask("mqadmin", "clusterList", "-n", server)).splitlines()
