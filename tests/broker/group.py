"""A DLedger group on loopback: three brokers with logs of their own, one of them the leader."""

import threading
import time
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager, ExitStack
from pathlib import Path
from typing import Any, Final, Self

from broker.harness import BROKER_NAME, LOOPBACK, Broker, Cluster
from broker.jvm import JvmError
from broker.ports import free_ports

PEERS: Final = ("n0", "n1", "n2")
ELECTION_SECONDS: Final = 60


def dledger_settings(self_id: str, peers: Mapping[str, int]) -> dict[str, str]:
    """Return what makes a broker one of a group; ``peers`` has DLedger's port of each."""
    listed = ";".join(f"{peer}-{LOOPBACK}:{port}" for peer, port in peers.items())
    return {
        "enableDLegerCommitLog": "true",
        "dLegerGroup": BROKER_NAME,
        "dLegerPeers": listed,
        "dLegerSelfId": self_id,
    }


class Group:
    """Three brokers of one group, with their stores in ``folder/n0`` to ``n2``.

    A context manager: leaving it kills those that still run.
    """

    def __init__(self, cluster: Cluster, folder: Path, settings: Mapping[str, str]) -> None:
        self._cluster = cluster
        self._settings = settings
        self._stack = ExitStack()
        self._ports = {peer: free_ports(0) for peer in PEERS}
        self.roots = {peer: folder / peer / "store" for peer in PEERS}
        self.brokers: dict[str, Broker] = {}

    def __enter__(self) -> Self:
        with ExitStack() as stack:
            for peer in PEERS:
                self.roots[peer].mkdir(parents=True)
            with ThreadPoolExecutor(len(PEERS)) as pool:
                started = pool.map(lambda peer: stack.enter_context(self._booted(peer)), PEERS)
                self.brokers = dict(zip(PEERS, started, strict=True))
            self.brokers[PEERS[0]].connect()
            self._stack = stack.pop_all()
        return self

    def __exit__(self, *error: Any) -> None:
        self._stack.__exit__(*error)

    def leader(self, *, other_than: str = "") -> str:
        """Return the peer that leads, once there is one; the clients turn to it."""
        end, pause = time.monotonic() + ELECTION_SECONDS, threading.Event()
        by_address = {broker.address: peer for peer, broker in self.brokers.items()}
        while time.monotonic() < end:
            for line in self._listed():
                fields = line.split()
                found = by_address.get(fields[3], "") if len(fields) > 3 else ""
                if found and fields[2] == "0" and found != other_than:
                    self.brokers[found].connect()
                    return found
            pause.wait(0.2)
        raise JvmError(f"no leader of {BROKER_NAME} in {ELECTION_SECONDS} s")

    def _booted(self, peer: str) -> AbstractContextManager[Broker]:
        settings = dict(self._settings) | dledger_settings(peer, self._ports)
        return self._cluster.booted(self.roots[peer], settings)

    def _listed(self) -> list[str]:
        """Return the lines of clusterList: cluster, broker, id (0: the leader's), address."""
        server = self._cluster.name_server
        return str(self._cluster.ask("mqadmin", "clusterList", "-n", server)).splitlines()
