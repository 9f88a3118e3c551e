"""Brokers that join a cluster while something that runs for long reads it."""

import logging
import time
from collections.abc import Sequence
from typing import Final, TypeAlias

from mqstore.errors import StoreError
from mqstore.read.background import Background
from mqstore.read.capabilities import BrokerFinder
from mqstore.read.source import BoundsSource

_LOG = logging.getLogger(__name__)
JOIN_S: Final = 10.0
Joined: TypeAlias = list[tuple[BrokerFinder, list[str], str]]


def registered(cluster: BrokerFinder) -> set[str]:
    """Return the brokers that a cluster has now: none, with a warning, where no server answers."""
    try:
        return set(cluster.registered())
    except StoreError as error:
        _LOG.warning("brokers that may be new are not known: %s", error)
        return set()


class Joining:
    """Looks for brokers that joined, every ten seconds, in the background."""

    def __init__(self, brokers: Sequence[tuple[BrokerFinder, list[str]]]) -> None:
        """``brokers`` are those that are read, by cluster; ``poll`` adds to them."""
        self._brokers = brokers
        self._next_s = time.monotonic() + JOIN_S
        self._looking: Background[Joined] | None = None

    def poll(self) -> list[BoundsSource]:
        """Return the sources of brokers that joined since the last call."""
        if self._looking is None and time.monotonic() >= self._next_s:
            self._looking = Background(self._joined)
        if self._looking is None or not self._looking.is_done:
            return []
        done, self._looking = self._looking, None
        self._next_s = time.monotonic() + JOIN_S
        sources: list[BoundsSource] = []
        for cluster, names, name in done.result():
            names.append(name)
            sources.append(cluster.source(name))
        return sources

    def _joined(self) -> Joined:
        return [
            (cluster, names, name)
            for cluster, names in self._brokers
            for name in sorted(registered(cluster).difference(names))
        ]
