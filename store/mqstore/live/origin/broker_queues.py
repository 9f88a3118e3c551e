"""The readable queues of one broker of a cluster, and what they hold.

A topic is listed by the name servers with the brokers that have registered it; one that is
compacted, static or has batch queues is refused by name.

Reference: RouteInfoManager#pickupTopicRouteData; PermName; TopicConfigManager.
"""

import logging
from collections.abc import Callable, Collection, Iterable
from dataclasses import replace

from mqstore.errors import StoreError, UnsupportedTopicError
from mqstore.format.names import SYNC_MEMBER_PREFIX
from mqstore.live.origin.bounds import LiveBounds, bounds, denied_pulls, held, without_expired
from mqstore.live.origin.fleet_look import FleetLook
from mqstore.live.origin.proxy_state import NamedTopics
from mqstore.live.remoting.cluster import Cluster
from mqstore.live.remoting.errors import NoMasterError
from mqstore.live.remoting.routes import Route
from mqstore.live.remoting.topics import check_readable, topic_names
from mqstore.read.broker_state import note_left_out

_LOG = logging.getLogger(__name__)
TopicTest = Callable[[str], bool]


class BrokerQueues:
    """The queues of one broker, by a cluster's connections. Raises as Cluster#ask_all."""

    def __init__(
        self,
        cluster: Cluster,
        broker: str,
        named: Collection[str] = (),
        told: NamedTopics | None = None,
        fleet: FleetLook | None = None,
    ) -> None:
        """``named`` are topics that the user named: not being able to read one is an error.

        Others that cannot be read are left out, with a warning when that is first found. A proxy
        lists no topics: there are those that were ``told``. ``fleet``: what the last look at the
        whole cluster found.
        """
        self._fleet = fleet
        self.cluster = cluster
        self.broker = broker
        self.refused: dict[str, StoreError] = {}
        """The topics that the last look left out for want of rights, and the refusals."""
        self.compacted: set[str] = set()
        """Those of the topics looked at whose queues have holes (cleanup.policy=COMPACTION)."""
        self._named = set(named)
        self._told = told or NamedTopics(frozenset(named))
        self._checked: set[str] = set()
        self._left_out: set[str] = set()
        self._pulls: dict[str, StoreError | None] = {}
        """Topics whose messages were asked for: None if this user may pull them."""

    def topics(self) -> set[str]:
        """Return the topics of the cluster, also those of other brokers.

        Through a proxy, of those that were named.
        """
        if self.cluster.is_proxy:
            return {route.topic for route in self._told.routes(self.cluster)}
        return set(self.cluster.ahead.made("topics", self._all_topics))

    def _all_topics(self) -> list[str]:
        return topic_names(self.cluster, include_system_topics=True)

    def check_registered(self) -> None:
        """Raise NoMasterError where no name server knows the broker now.

        Nor a proxy, which names it in the routes of topics.
        """
        if self.cluster.is_proxy:
            routes = self._told.routes(self.cluster, fresh=True)
            if not any(self.broker in route.brokers for route in routes):
                raise NoMasterError(f"broker {self.broker} is in no route of the named topics")
            return
        if self.broker not in self.cluster.brokers():
            servers = ", ".join(self.cluster.settings.name_servers)
            reason = f"broker {self.broker} is not registered at the name servers ({servers})"
            raise NoMasterError(reason)

    def routes(self, topics: TopicTest | None = None, *, fresh: bool = False) -> list[Route]:
        """Return the routes of those topics (all if None), with the queues of this broker alone.

        Raises UnsupportedTopicError for one that cannot be read. ``fresh`` asks again, also for
        rights that were refused.
        """
        if fresh:
            self._pulls = {name: error for name, error in self._pulls.items() if error is None}
        found = []
        names = sorted(self.topics() if topics is None else filter(topics, self.topics()))
        if fresh:
            told = self.cluster.fresh_routes(names)
        else:
            told = [self.cluster.route(topic) for topic in names]
        for topic, route in zip(names, told, strict=True):
            if route is None:
                continue
            if self.broker in route.queues:
                queues = {self.broker: route.queues[self.broker]}
                found.append(replace(route, queues=queues))
            elif self.broker in route.brokers:
                self._leave_out(topic)
        unchecked = [route for route in found if route.topic not in self._checked]
        if unchecked:
            check_readable(self.cluster, unchecked, self.compacted)
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
        """Return what the queues of those routes hold now, by topic and queueId.

        Without the topics that this user may not see, or whose messages he may not pull. Raises
        AccessDeniedError for one that is ``expected``.
        """
        refused: dict[str, StoreError] = {}
        found = bounds(self.cluster, routes, refused.__setitem__)
        # A broker tells what the ordinary queue has; of the compacted log older messages are held.
        found = [replace(q, low=0) if q.topic in self.compacted else q for q in found]
        self._refuse(refused | self.denied_pulls(found))
        return [queue for queue in found if queue.topic not in self.refused]

    def held(self, topics: Iterable[str]) -> list[LiveBounds]:
        """Return what all queues of those topics hold, readable or not, by topic and queueId.

        Without the topics that this user may not see. Raises as ``bounds``.
        """
        topics = list(topics)
        known = None if self._fleet is None else self._fleet.held(self.broker, topics)
        if known is not None:
            found, refused = known
            found = without_expired(self.cluster, list(found))
        else:
            refused = {}
            found = held(self.cluster, self.broker, topics, refused.__setitem__)
        self._refuse(refused)
        return found

    def denied_pulls(self, queues: Iterable[LiveBounds]) -> dict[str, StoreError]:
        """Return the topics of queues whose messages this user may not pull, and the refusals.

        Who gives no credentials has all rights, or none.
        """
        if self.cluster.settings.credentials is None:
            return {}
        queues = list(queues)
        new = [queue for queue in queues if queue.topic not in self._pulls]
        denied = denied_pulls(self.cluster, new)
        self._pulls |= {queue.topic: denied.get(queue.topic) for queue in new}
        found = {queue.topic: self._pulls[queue.topic] for queue in queues}
        return {topic: error for topic, error in found.items() if error is not None}

    def unreadable(self, queues: Iterable[LiveBounds]) -> dict[str, StoreError]:
        """Return ``denied_pulls``; raises as ``bounds``."""
        denied = self.denied_pulls(queues)
        self._refuse(denied)
        return denied

    def expect(self, topics: Iterable[str]) -> None:
        """Have it be an error from now on if one of those topics cannot be read."""
        self._named |= set(topics)

    def _refuse(self, refused: dict[str, StoreError]) -> None:
        known = self._left_out - self._named
        note_left_out({t: error for t, error in refused.items() if t not in known}, self._named)
        self._left_out |= refused.keys()
        self.refused = refused


def _unreadable(topic: str, broker: str) -> UnsupportedTopicError:
    reason = (
        f"{broker} lets no client read it (perm has no R; a topic of dead letters is made so): "
        "mqadmin updateTopicPerm -p 6 lets it be read"
    )
    return UnsupportedTopicError(f"topic {topic}", "NO_READ_PERMISSION", reason)
