"""The topics and groups of one broker behind a proxy: those that are named.

A proxy lists neither topics nor groups. Of a topic that is named it tells the route, of a group the
offset that it committed in a queue, and the consumers that this proxy or its neighbours serve.

Reference: GetTopicRouteActivity, ConsumerManagerActivity (org.apache.rocketmq.proxy.remoting).
"""

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Final

from mqstore.errors import InvalidOptionError
from mqstore.files.config.broker_config import TopicConfig
from mqstore.files.config.pop_files import PopFacts
from mqstore.format.names import (
    DLQ_PREFIX,
    RETRY_PREFIX,
    TIMER_TOPIC,
    TRANSACTION_GROUP,
    TRANSACTION_TOPICS,
)
from mqstore.format.pop import REVIVE_GROUP, REVIVE_PREFIX, retry_topics
from mqstore.live.origin.groups import committed_by
from mqstore.live.origin.state import ClusterState
from mqstore.live.remoting.cluster import Cluster
from mqstore.live.remoting.errors import NotServedError
from mqstore.live.remoting.requests import REQUEST_CODE_NOT_SUPPORTED
from mqstore.live.remoting.routes import READABLE, WRITABLE, Route

_OWN_CLIENTS: Final = (
    "a proxy knows the clients of proxies alone, and not those that are connected to brokers: ask "
    "the name servers, rocketmq://HOST:9876"
)

_NO_GROUPS: Final = (
    "{address} is a RocketMQ proxy, which lists no groups: give names, no regex, or ask the name "
    "servers, rocketmq://HOST:9876"
)
_NO_TOPICS: Final = (
    "{address} is a RocketMQ proxy, which lists no topics: name those that the groups consume "
    "(rocketmq://{address}/TOPIC, subscribe, or -t of a command), or ask the name servers, "
    "rocketmq://HOST:9876"
)
_IN_NO_ROUTE: Final = (
    "has no topic of retries and none of dead letters that {address} knows, a RocketMQ proxy, and "
    "nothing else tells which brokers it is on: ask the name servers, rocketmq://HOST:9876"
)
_NO_LISTS: Final = (
    "{address} is a RocketMQ proxy, which lists no topics and no groups: name the topics "
    "(rocketmq://{address}/TOPIC, or subscribe), or ask the name servers, rocketmq://HOST:9876"
)


@dataclass(frozen=True, slots=True)
class NamedTopics:
    """The topics and groups that the user named: a proxy tells of no others."""

    topics: frozenset[str] = frozenset()
    groups: frozenset[str] = frozenset()
    with_state: bool = False
    """Half messages are looked at too, and of the groups what was popped."""

    def routes(self, cluster: Cluster, *, fresh: bool = False) -> list[Route]:
        """Return the routes of these topics, and of those that have the state of the groups.

        The latter are their retries and dead letters, and ``with_state`` checkpoints of messages
        that they popped.
        Raises as Cluster#fresh_routes.
        """
        names = self.topics | topics_of_groups(self.groups)
        if self.with_state:
            names |= TRANSACTION_TOPICS
        if self.with_state and self.groups:
            pairs = ((group, topic) for group in self.groups for topic in self.topics)
            names = names.union({TIMER_TOPIC}, *(retry_topics(*pair) for pair in pairs))
        found = self._routes(cluster, names, fresh=fresh)
        if self.with_state and self.groups:
            named = {f"{REVIVE_PREFIX}{name}" for route in found for name in route.clusters}
            found += self._routes(cluster, named, fresh=fresh)
        return found

    def _routes(self, cluster: Cluster, names: Iterable[str], *, fresh: bool) -> list[Route]:
        ordered = sorted(names)
        found = cluster.fresh_routes(ordered) if fresh else map(cluster.route, ordered)
        return [route for route in found if route is not None]


def topics_of_groups(groups: frozenset[str]) -> set[str]:
    """Return the names of the topics that groups have for retries and dead letters."""
    return {f"{prefix}{group}" for group in groups for prefix in (RETRY_PREFIX, DLQ_PREFIX)}


@dataclass(frozen=True, slots=True)
class AskedOfBrokers:
    """What a read asks of brokers beside the messages of the named topics.

    ``with_state`` as in NamedTopics. ``by_group``: it is about groups in topics. ``beside`` are
    topics that need not be there. ``not_served`` is a request that it needs and no proxy serves.
    """

    with_state: bool = False
    by_group: bool = False
    beside: Collection[str] = ()
    not_served: str = ""


OF_MESSAGES: Final = AskedOfBrokers()


@dataclass(frozen=True, slots=True)
class NamedOfProxy:
    """What was named of a proxy, and what is missing: it lists nothing.

    ``not_served`` is a request that is needed and no proxy serves; "": none. ``lacks_groups``: no
    group is named of what is about groups, ``lacks_topics``: no topic of what is about these.
    """

    told: NamedTopics
    not_served: str = ""
    lacks_groups: bool = False
    lacks_topics: bool = False

    def brokers(self, cluster: Cluster) -> list[str]:
        """Return the brokers that have the named topics; raises as ClusterBrokers#brokers."""
        names = sorted(self.told.topics | topics_of_groups(self.told.groups))
        address = ",".join(cluster.settings.name_servers)
        if self.not_served:
            code = REQUEST_CODE_NOT_SUPPORTED
            raise NotServedError(address, self.not_served, code, "not supported")
        if self.lacks_groups:
            raise InvalidOptionError("groups", "", _NO_GROUPS.format(address=address))
        if self.lacks_topics:
            raise InvalidOptionError("subscribe", "", _NO_TOPICS.format(address=address))
        if not names:
            raise InvalidOptionError("subscribe", "", _NO_LISTS.format(address=address))
        routes = [route for route in cluster.fresh_routes(names) if route is not None]
        if not routes and not self.told.topics:
            groups = ",".join(sorted(self.told.groups))
            raise InvalidOptionError("groups", groups, _IN_NO_ROUTE.format(address=address))
        if not routes:
            cluster.known_route(names[-1])
        return sorted({broker for route in routes for broker in route.brokers})


class ProxyState(ClusterState):
    """A BrokerState of named topics and groups. Raises as Cluster#ask_all, and NotServedError."""

    lists_groups = False

    def __init__(self, broker: str, cluster: Cluster, named: NamedTopics) -> None:
        super().__init__(broker, cluster)
        self._named = named
        self._groups = named.groups

    def topics(self) -> dict[str, TopicConfig]:
        """Return the named topics that the broker has, by their routes."""
        found = {}
        for route in self._routes:
            read = route.queues.get(self._broker, 0)
            write = route.write_queues.get(self._broker, 0)
            perm = (READABLE if read else 0) | (WRITABLE if write else 0)
            found[route.topic] = TopicConfig(read, write, perm, order=None)
        return found

    def groups(self) -> set[str]:
        """Return the named groups of which something is there: offsets, a topic, consumers."""
        known = {group for _, group in self.consumer_offsets()} & self._groups
        there = {route.topic for route in self._routes}
        known |= {group for group in self._groups if f"{RETRY_PREFIX}{group}" in there}
        return known | set(self.online(self._groups - known))

    def consumer_offsets(self) -> Mapping[tuple[str, str], Mapping[int, int]]:
        """Return what the named groups committed in the named topics, by queueId.

        And how far the broker worked off half messages, and checkpoints of popped ones.
        """
        found: dict[tuple[str, str], dict[int, int]] = {}
        for group in sorted({*self._groups, REVIVE_GROUP, TRANSACTION_GROUP}):
            queues = [
                (route.topic, queue_id)
                for route in self._routes
                for queue_id in range(route.queues.get(self._broker, 0))
                if _is_of(route.topic, group)
            ]
            committed = committed_by(self._cluster, self._broker, group, queues)
            for (topic, queue_id), at in committed.items():
                found.setdefault((topic, group), {})[queue_id] = at
        return found

    def hidden_consumers(self) -> str:
        """Return that a group may have consumers at its brokers."""
        return _OWN_CLIENTS

    def pop_facts(self) -> PopFacts:
        """Return what is known without the broker's files and settings: those are the defaults."""
        return PopFacts(None)

    def timers_delivered_ms(self) -> int:
        """Return 0: a proxy does not tell how far timers were delivered."""
        return 0

    def pull_offsets(self) -> Mapping[tuple[str, str], Mapping[int, int]]:
        """Return nothing: a proxy does not tell what groups pulled."""
        return {}

    def pulled(
        self, pairs: Collection[tuple[str, str]]
    ) -> Mapping[tuple[str, str], Mapping[int, int]]:
        """Return nothing, as above."""
        del pairs
        return {}

    @cached_property
    def _routes(self) -> list[Route]:
        found = self._named.routes(self._cluster)
        return [route for route in found if self._broker in route.brokers]


def _is_of(topic: str, group: str) -> bool:
    """Tell whether a group may have offsets in a topic: those of brokers have them in their own."""
    if topic.startswith(REVIVE_PREFIX):
        return group == REVIVE_GROUP
    if topic in TRANSACTION_TOPICS:
        return group == TRANSACTION_GROUP
    return group not in {REVIVE_GROUP, TRANSACTION_GROUP} and topic != TIMER_TOPIC
