"""A running cluster as an origin of messages: each of its brokers is one.

``ClusterOrigin`` pickles into tasks with the keys that sign requests: a Secret shows as ``***``
and its pickle does not hold its text.
"""

import logging
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property

import numpy as np

from mqstore.errors import StoreError
from mqstore.files.config.broker_config import TopicConfig
from mqstore.format.arrays import TopicQueue
from mqstore.live.origin import lookup
from mqstore.live.origin.bounds import LiveBounds, first_at, weigh
from mqstore.live.origin.broker_queues import BrokerQueues
from mqstore.live.origin.fleet_look import FleetLook, GroupTest
from mqstore.live.origin.group_publish import GroupPublisher
from mqstore.live.origin.members import members
from mqstore.live.origin.proxied_groups import ProxiedGroups
from mqstore.live.origin.proxy_state import (
    OF_MESSAGES,
    AskedOfBrokers,
    NamedOfProxy,
    NamedTopics,
    ProxyState,
)
from mqstore.live.origin.pull import LiveSlice
from mqstore.live.origin.record_source import ClusterRecords
from mqstore.live.origin.state import AwayState, ClusterState
from mqstore.live.origin.tail import ClusterTail
from mqstore.live.remoting.cluster import Cluster
from mqstore.live.remoting.log_state import log_state, retention_settings
from mqstore.live.remoting.settings import ClusterSettings
from mqstore.live.remoting.topics import broker_infos
from mqstore.read.broker_state import BrokerFacts, GroupMember
from mqstore.read.queues import QueueBounds, QueueFilter
from mqstore.read.retention import LogState, RetentionPolicy
from mqstore.read.source import QueueSlice, Snapshot, Weighed

_LOG = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class ClusterOrigin:
    """One broker of a cluster; ``named`` are topics that must be readable. Pickles.

    ``told`` are topics and groups by name: behind a proxy there are no others.
    """

    settings: ClusterSettings
    broker: str
    named: frozenset[str] = frozenset()
    told: NamedTopics = field(default_factory=NamedTopics)
    compacted: frozenset[str] = field(default=frozenset(), compare=False)
    """Topics whose queues have holes, as the driver was told; it says nothing of what it is."""

    def __hash__(self) -> int:
        return hash((self.settings.name_servers, self.broker))

    @property
    def name(self) -> str:
        """The broker and the address of its cluster."""
        scheme = "rocketmq" if self.settings.tls is None else "rocketmqs"
        return f"{self.broker} of {scheme}://{','.join(self.settings.name_servers)}"

    @property
    def max_tasks(self) -> int | None:
        """How many tasks of a read may pull from the broker; None: any number."""
        return self.settings.max_tasks_per_broker

    def with_holes(self, topics: Collection[str]) -> "ClusterOrigin":
        """Return the same broker, of which those topics have queues with holes."""
        return replace(self, compacted=frozenset(topics))

    def bounds(self, broker_name: str | None = None) -> "ClusterBounds":
        """Return the broker's queues; connects when first asked. A broker has no other name."""
        assert broker_name in (None, self.broker)
        return ClusterBounds(self, Cluster(self.settings, was_reached=True))

    def records(self, read_mode: str = "pread") -> ClusterRecords:
        """Return the broker's records; connects when first asked."""
        cluster = Cluster(self.settings, was_reached=True)
        return ClusterRecords(self.name, self.broker, cluster, self.compacted)


class ClusterBrokers:
    """A cluster as the brokers that it has now: a BrokerFinder."""

    def __init__(
        self,
        settings: ClusterSettings,
        named: Collection[str] = (),
        groups: Collection[str] | None = None,
        asked: AskedOfBrokers = OF_MESSAGES,
    ) -> None:
        """Connect to nothing yet; raises InvalidOptionError for unusable TLS files.

        ``named`` are topics, and ``groups`` consumer groups, that the user named; None: it is not
        about groups.
        """
        self._named = frozenset(named)
        topics = self._named | frozenset(asked.beside)
        self._told = NamedTopics(topics, frozenset(groups or ()), asked.with_state)
        self._wanted = NamedOfProxy(
            self._told,
            asked.not_served,
            lacks_groups=groups is not None and not groups,
            lacks_topics=asked.by_group and not named,
        )
        self._cluster = Cluster(settings)
        self._fleet = FleetLook(self._cluster)
        self._apart: Cluster | None = None
        self._proxied = ProxiedGroups(self._cluster)

    @property
    def is_proxy(self) -> bool:
        """Whether proxies are at the addresses."""
        return self._cluster.is_proxy

    def look(
        self,
        brokers: Sequence[str],
        topics: Callable[[str], bool] | None = None,
        groups: GroupTest | None = None,
    ) -> None:
        """Look at all those brokers at once, for what is then asked of each; see FleetLook#take.

        Behind a proxy nothing is looked at ahead.
        """
        if not self._cluster.is_proxy:
            self._fleet.take(brokers, topics, groups)

    def close(self) -> None:
        """Close the connections."""
        self._cluster.close()
        self._proxied.close()
        if self._apart is not None:
            self._apart.close()

    def registered(self) -> list[str]:
        """Return ``brokers`` by connections of its own, which are not tried twice."""
        if self._apart is None:
            settings = replace(self._cluster.settings, retry_timeout_ms=0)
            self._apart = Cluster(settings, was_reached=True)
        return self._names(self._apart)

    def brokers(self) -> list[str]:
        """Return the names of the brokers that are registered now. Raises as Cluster.

        Of a proxy, those that have the named topics; raises InvalidOptionError where none is named,
        or no group for what is about groups, UnknownTopicError where there is none of them, and
        NotServedError for what no proxy serves.
        """
        return self._names(self._cluster)

    def _names(self, cluster: Cluster) -> list[str]:
        found = cluster.brokers()
        return self._wanted.brokers(cluster) if cluster.is_proxy else sorted(found)

    def source(self, broker_name: str) -> "ClusterBounds":
        """Return that broker, registered or not; sources of one finder share connections."""
        settings = self._cluster.settings_for(broker_name)
        origin = ClusterOrigin(settings, broker_name, self._named, self._told)
        return ClusterBounds(origin, self._cluster, self._fleet, self._proxied)


class ClusterBounds:
    """A BoundsSource over one broker. Raises as Cluster, all along."""

    def __init__(
        self,
        origin: ClusterOrigin,
        cluster: Cluster,
        fleet: FleetLook | None = None,
        proxied: ProxiedGroups | None = None,
    ) -> None:
        """``fleet``: what the last look at the whole cluster found."""
        self._fleet = fleet
        self._proxied = proxied
        self.origin = origin
        self.broker_name = origin.broker
        self._cluster = cluster
        self._queues = BrokerQueues(cluster, origin.broker, origin.named, origin.told, fleet)
        self._group: GroupPublisher | None = None

    @property
    def away(self) -> StoreError | None:
        """Why the last look at the cluster left the broker out; None: it did not."""
        return None if self._fleet is None else self._fleet.away.get(self.broker_name)

    @property
    def look(self) -> int | None:
        """The number of the look that last found a change of the broker; None: not known."""
        return None if self._fleet is None else self._fleet.changed_at(self.broker_name)

    @property
    def config(self) -> ClusterState | AwayState:
        """What the broker tells beside messages: nothing while it is ``away``."""
        return self._state if self.away is None else AwayState()

    @cached_property
    def _state(self) -> ClusterState:
        if self._cluster.is_proxy:
            return ProxyState(self.broker_name, self._cluster, self.origin.told)
        return ClusterState(self.broker_name, self._cluster, self._fleet, self._proxied)

    def close(self) -> None:
        """Close the connections."""
        self._cluster.close()
        if self._group is not None:
            self._group.close()

    def topics(self) -> set[str]:
        """Return the topics of the cluster, also those of its other brokers."""
        return self._queues.topics()

    def topic_configs(self) -> Mapping[str, TopicConfig]:
        """Return the topics that the broker is configured to have."""
        return self.config.topics()

    def broker(self, snapshot: Snapshot) -> BrokerFacts:
        """Return what the master tells of itself."""
        del snapshot
        if self.away is not None:
            return BrokerFacts(self.broker_name, None, 0, 0, self.away)
        (info,) = broker_infos(self._cluster, [self.broker_name])
        return BrokerFacts(info.address, info.version or None, info.low, info.high)

    def members(self, group: str) -> list[GroupMember] | None:
        """Ask each member of a group that is connected to the broker."""
        return members(self._cluster, self.origin.broker, group)

    def retention_policy(self) -> RetentionPolicy | None:
        """Return the broker's settings; None through a proxy, which does not tell them."""
        if self._cluster.is_proxy:
            return None
        return RetentionPolicy.of(retention_settings(self._cluster, self.broker_name))

    def log_state(self) -> LogState | None:
        """Return what the broker tells of its CommitLog; None through a proxy."""
        return None if self._cluster.is_proxy else log_state(self._cluster, self.broker_name)

    def file_written_ms(self, physical_offset: int) -> int | None:
        """Return None: a broker tells nothing of its files."""
        del physical_offset
        return None

    def timers_delivered_ms(self) -> int:
        """Return how far the broker delivered timers; 0 before 5.0."""
        return self.config.timers_delivered_ms()

    def snapshot(
        self, topics: Callable[[str], bool] | None = None, *, strict: bool = True
    ) -> Snapshot:
        """Return what the queues hold now; damage comes up in the scan, ``strict`` or not.

        Physical offsets are 0: a broker tells them to administrators only.
        """
        del strict
        taken_ms = time.time_ns() // 1_000_000
        if self.away is not None:
            return self._snapshot([], taken_ms)
        return self._snapshot(self._queues.bounds(self._queues.routes(topics)), taken_ms)

    def held(self, topics: Callable[[str], bool] | None = None, *, strict: bool = True) -> Snapshot:
        """Return what the queues of all topics hold that the broker is configured to have.

        Also of those without the permission to read, and of topics that give no plain records.
        """
        del strict
        taken_ms = time.time_ns() // 1_000_000
        return self._snapshot(self._queues.held(filter(topics, self.config.topics())), taken_ms)

    def unreadable(self, queues: Sequence[QueueBounds]) -> Mapping[str, StoreError]:
        """Return the topics of those queues whose messages this user may not pull, and why."""
        broker = self.broker_name
        return self._queues.unreadable(
            LiveBounds(broker, q.topic, q.queue_id, q.low, q.high) for q in queues
        )

    def _snapshot(self, found: Sequence[LiveBounds], taken_ms: int) -> Snapshot:
        queues = tuple(QueueBounds(q.topic, q.queue_id, q.low, q.high) for q in found)
        refused = tuple(self._queues.refused.items())
        origin = self.origin.with_holes(self._queues.compacted)
        broker = self.broker_name
        return Snapshot(origin, broker, 0, 0, queues, taken_ms, is_unclean=False, refused=refused)

    def first_at(self, queues: Sequence[QueueBounds], times_ms: Sequence[int]) -> list[int]:
        """Bisect with pulls of one message."""
        broker = self.broker_name
        asked = [LiveBounds(broker, q.topic, q.queue_id, q.low, q.high) for q in queues]
        return first_at(self._cluster, asked, times_ms)

    def weigh(self, slices: Sequence[QueueSlice], *, strict: bool = True) -> list[Weighed]:
        """Return about how many bytes slices have, by the sizes at their ends."""
        del strict
        sizes = weigh(self._cluster, [self._live(piece) for piece in slices])
        nowhere = np.zeros(2, np.int64)
        return [
            Weighed(piece, np.array([piece.start, piece.end]), np.array([0, size]), nowhere)
            for piece, size in zip(slices, sizes, strict=True)
        ]

    def narrow(
        self, slices: Sequence[QueueSlice], keys: Sequence[str], msg_ids: Sequence[str]
    ) -> list[QueueSlice]:
        """Return the messages that the broker's index finds, and the topics it has too many of.

        What no index of the broker covers is not found. A proxy gives no index: all is read.
        """
        if self._cluster.is_proxy:
            _LOG.warning(
                "%s is behind a proxy, which finds no keys and no ids: all messages are read. "
                "The name servers' address has the brokers' indexes",
                self.origin.name,
            )
            return list(slices)
        routes = self._queues.routes({piece.topic for piece in slices}.__contains__)
        found, more = lookup.search(self._cluster, routes, keys)
        by_id = lookup.by_id(self._cluster, routes, msg_ids) if msg_ids else []
        places = {(one.topic, one.queue_id, one.start) for one in (*found, *by_id)}
        kept = []
        for piece in slices:
            if (self.broker_name, piece.topic) in more:
                kept.append(piece)
                continue
            kept += [
                replace(piece, start=at, end=at + 1, weight=None)
                for topic, queue_id, at in places
                if (topic, queue_id) == (piece.topic, piece.queue_id)
                and piece.start <= at < piece.end
            ]
        if more:
            _LOG.warning(
                "%s finds no more messages of one key than it gave: topics %s are scanned",
                self.origin.name,
                ", ".join(sorted(topic for _, topic in more)),
            )
        return sorted(kept, key=lambda part: (part.topic, part.queue_id, part.start))

    def tail(
        self, chosen: QueueFilter, *, strict: bool = True, fail_on_data_loss: bool = True
    ) -> ClusterTail:
        """Return the broker's moving bounds; it may be away."""
        del strict, fail_on_data_loss
        patience_ms = self.origin.settings.retry_timeout_ms
        return ClusterTail(self.origin, self._impatient(), chosen, patience_ms=patience_ms)

    def claim_group(self, group: str) -> None:
        """Refuse a group that has consumers; raises InvalidOptionError."""
        self._publisher().claim(group)

    def publish_group(self, group: str, queues: Mapping[TopicQueue, int]) -> bool:
        """Commit offsets, clamped and never backwards; False where the broker is away."""
        return self._publisher().publish(group, queues)

    def _publisher(self) -> GroupPublisher:
        if self._group is None:
            # A slave takes a commit, and loses it.
            self._group = GroupPublisher(self._impatient(read_from="master"))
        return self._group

    def _impatient(self, read_from: str | None = None) -> BrokerQueues:
        """Return the queues by connections of their own that do not wait for a server."""
        wanted = read_from or self.origin.settings.read_from
        settings = replace(self.origin.settings, retry_timeout_ms=0, read_from=wanted)
        origin = self.origin
        return BrokerQueues(Cluster(settings), self.broker_name, origin.named, origin.told)

    def _live(self, piece: QueueSlice) -> LiveSlice:
        return LiveSlice(self.broker_name, piece.topic, piece.queue_id, piece.start, piece.end)
