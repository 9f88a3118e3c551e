"""The readable queues of one broker of a cluster, and what they hold.

A topic is listed by the name servers with the brokers that have registered it; one that is
compacted, static or has batch queues is refused by name.

Reference: RouteInfoManager#pickupTopicRouteData; PermName; TopicConfigManager.
"""

import logging
from collections.abc import Callable, Collection
from dataclasses import replace

from mqstore.errors import UnsupportedTopicError
from mqstore.format.names import SYNC_MEMBER_PREFIX
from mqstore.live.origin.bounds import LiveBounds, bounds
from mqstore.live.remoting.cluster import Cluster
from mqstore.live.remoting.errors import NoMasterError
from mqstore.live.remoting.routes import Route
from mqstore.live.remoting.topics import check_readable, topic_names

_LOG = logging.getLogger(__name__)
TopicTest = Callable[[str], bool]


class BrokerQueues:
    """The queues of one broker, by a cluster's connections. Raises as Cluster#ask_all."""

    def __init__(self, cluster: Cluster, broker: str, named: Collection[str] = ()) -> None:
        """``named`` are topics that the user named: not being able to read one is an error."""
        self.cluster = cluster
        self.broker = broker
        self._named = frozenset(named)
        self._checked: set[str] = set()
        self._left_out: set[str] = set()

    def topics(self) -> set[str]:
        """Return the topics of the cluster, also those of other brokers."""
        return set(topic_names(self.cluster, include_system_topics=True))

    def check_registered(self) -> None:
        """Raise NoMasterError where no name server knows the broker now."""
        if self.broker not in self.cluster.brokers():
            servers = ", ".join(self.cluster.settings.name_servers)
            reason = f"broker {self.broker} is not registered at the name servers ({servers})"
            raise NoMasterError(reason)

    def routes(self, topics: TopicTest | None = None, *, fresh: bool = False) -> list[Route]:
        """Return the routes of those topics (all if None), with the queues of this broker alone.

        Raises UnsupportedTopicError for one that cannot be read.
        """
        found = []
        for topic in sorted(self.topics() if topics is None else filter(topics, self.topics())):
            route = self.cluster.route(topic, fresh=fresh)
            if route is None:
                continue
            if self.broker in route.queues:
                queues = {self.broker: route.queues[self.broker]}
                found.append(replace(route, queues=queues))
            elif self.broker in route.brokers:
                self._leave_out(topic)
        unchecked = [route for route in found if route.topic not in self._checked]
        if unchecked:
            check_readable(self.cluster, unchecked)
            self._checked |= {route.topic for route in unchecked}
        return found

    def _leave_out(self, topic: str) -> None:
        error = _unreadable(topic, self.broker)
        if topic in self._named:
            raise error
        if topic not in self._left_out:
            self._left_out.add(topic)
            level = logging.DEBUG if topic.startswith(SYNC_MEMBER_PREFIX) else logging.WARNING
            _LOG.log(level, "left out: %s", error)

    def bounds(self, routes: list[Route]) -> list[LiveBounds]:
        """Return what the queues of those routes hold now, by topic and queueId."""
        return bounds(self.cluster, routes)


def _unreadable(topic: str, broker: str) -> UnsupportedTopicError:
    reason = (
        f"{broker} lets no client read it (perm has no R; a topic of dead letters is made so): "
        "mqadmin updateTopicPerm -p 6 lets it be read"
    )
    return UnsupportedTopicError(f"topic {topic}", "NO_READ_PERMISSION", reason)
