"""Consumers that are connected to the proxies of a cluster, and so to none of its brokers.

The option ``proxies`` names them: each is asked for the groups that it serves, once in ``KEPT_S``.
Proxies in cluster mode tell each other of their clients, and a client is counted once.

Reference: HeartbeatSyncer, ConsumerManagerActivity (org.apache.rocketmq.proxy).
"""

import logging
import time
from collections.abc import Callable, Collection
from dataclasses import replace
from functools import lru_cache
from typing import Final

from mqstore.errors import InvalidOptionError, StoreError, shown
from mqstore.format.names import HEARTBEAT_TOPIC
from mqstore.live.origin.groups import OnlineGroup, connections_request, online_of
from mqstore.live.remoting.cluster import Cluster
from mqstore.live.remoting.requests import SUCCESS
from mqstore.live.remoting.settings import PROXY

_LOG = logging.getLogger(__name__)
KEPT_S: Final = 30.0
"""So long stands which groups have consumers at proxies."""
_HIDDEN: Final = (
    "the cluster has RocketMQ proxies in cluster mode, whose clients are connected to no broker "
    "(its topic DefaultHeartBeatSyncerTopic shows it): name these proxies by the option proxies, "
    "and their clients are counted too"
)
_NO_ANSWER: Final = "the proxies that the option proxies names do not tell: {error}"


class ProxiedGroups:
    """The groups that have consumers at the proxies of a cluster; asks when it is asked."""

    def __init__(self, cluster: Cluster, clock: Callable[[], float] = time.monotonic) -> None:
        """``cluster`` is the one of the name servers and brokers."""
        self._cluster = cluster
        self._clock = clock
        self._proxies: Cluster | None = None
        self._groups: dict[str, tuple[float, OnlineGroup | None]] = {}
        self._failure: StoreError | None = None

    def close(self) -> None:
        """Close the connections."""
        if self._proxies is not None:
            self._proxies.close()

    def of(self, groups: Collection[str]) -> dict[str, OnlineGroup]:
        """Return those that have consumers at the proxies; none where no proxy answers."""
        settings = self._cluster.settings
        if not settings.proxies:
            return {}
        now = self._clock()
        due = [g for g in groups if g not in self._groups or self._groups[g][0] + KEPT_S < now]
        if due:
            try:
                self._ask(due, now)
                self._failure = None
            except StoreError as error:
                self._failure = error
        known = ((group, self._groups.get(group)) for group in groups)
        return {group: kept[1] for group, kept in known if kept is not None and kept[1] is not None}

    def hidden(self) -> str:
        """Return why groups may have consumers that are not known; empty: there are none."""
        if self._failure is not None:
            return _NO_ANSWER.format(error=self._failure)
        if self._cluster.settings.proxies:
            return ""
        return self._cluster.ahead.made("proxies", self._hidden)

    def check_idle(self, group: str, option: str, advice: str) -> None:
        """Raise InvalidOptionError for a group with consumers at the proxies that are named.

        Warns, once in a process, where it cannot be known whether it has some. ``option`` names the
        group.
        """
        online = self.of([group]).get(group)
        if online is not None and online.clients:
            expected = f"{online.clients} consumers of the proxies are in this group: {advice}"
            raise InvalidOptionError(option, group, expected)
        reason = "" if self._cluster.is_proxy else self.hidden()
        if reason:
            _warn(option, group, reason)

    def _hidden(self) -> str:
        return "" if self._cluster.route(HEARTBEAT_TOPIC, fresh=True) is None else _HIDDEN

    def _ask(self, groups: Collection[str], now: float) -> None:
        if self._proxies is None:
            settings = self._cluster.settings
            self._proxies = Cluster(
                replace(
                    settings,
                    name_servers=settings.proxies or (),
                    proxies=None,
                    endpoint=PROXY,
                    read_from="master",
                    broker_addresses={},
                )
            )
        requests = [connections_request(group, is_deniable=False) for group in groups]
        online: dict[str, OnlineGroup] = {}
        for answers, address in self._proxies.ask_name_servers(requests):
            for group, request, answer in zip(groups, requests, answers, strict=True):
                if answer.code == SUCCESS:
                    group_at_proxy = online_of(address, request, answer)
                    online[group] = group_at_proxy.merged(online.get(group))
        self._groups |= {group: (now, online.get(group)) for group in groups}


@lru_cache(maxsize=1024)
def _warn(option: str, group: str, reason: str) -> None:
    """Warn, once in a process."""
    text = "option %s: whether group %s has consumers at proxies is not known: %s"
    _LOG.warning(text, option, shown(group), reason)
