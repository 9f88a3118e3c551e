"""The topics and groups of one broker behind a proxy: those that are named.

A proxy lists neither topics nor groups. Of a topic that is named it tells the route, of a group the
offset that it committed in a queue, and the consumers that this proxy or its neighbours serve.

Reference: GetTopicRouteActivity, ConsumerManagerActivity (org.apache.rocketmq.proxy.remoting).
"""

from collections.abc import Mapping
from functools import cached_property

from mqstore.files.config.broker_config import TopicConfig
from mqstore.files.config.pop_files import PopFacts
from mqstore.format.names import DLQ_PREFIX, RETRY_PREFIX
from mqstore.live.origin.groups import committed_by
from mqstore.live.origin.state import ClusterState
from mqstore.live.remoting.cluster import Cluster
from mqstore.live.remoting.routes import READABLE, WRITABLE, Route


def topics_of_groups(groups: frozenset[str]) -> set[str]:
    """Return the names of the topics that groups have for retries and dead letters."""
    return {f"{prefix}{group}" for group in groups for prefix in (RETRY_PREFIX, DLQ_PREFIX)}


class ProxyState(ClusterState):
    """A BrokerState of named topics and groups. Raises as Cluster#ask_all, and NotServedError."""

    def __init__(
        self, broker: str, cluster: Cluster, topics: frozenset[str], groups: frozenset[str]
    ) -> None:
        super().__init__(broker, cluster)
        self._topics = topics | topics_of_groups(groups)
        self._groups = groups

    def topics(self) -> dict[str, TopicConfig]:
        """Return the named topics that the broker has, by their routes."""
        found = {}
        for route in self._routes:
            read = route.queues.get(self._broker, 0)
            write = route.write_queues.get(self._broker, 0)
            perm = (READABLE if read else 0) | (WRITABLE if write else 0)
            found[route.topic] = TopicConfig(read, write, perm)
        return found

    def groups(self) -> set[str]:
        """Return the named groups of which something is there: offsets, a topic, consumers."""
        known = {group for _, group in self.consumer_offsets()}
        there = {route.topic for route in self._routes}
        known |= {group for group in self._groups if f"{RETRY_PREFIX}{group}" in there}
        return known | set(self.online(self._groups - known))

    def consumer_offsets(self) -> Mapping[tuple[str, str], Mapping[int, int]]:
        """Return what the named groups committed in the named topics, by queueId."""
        found: dict[tuple[str, str], dict[int, int]] = {}
        queues = [
            (route.topic, queue_id)
            for route in self._routes
            for queue_id in range(route.queues.get(self._broker, 0))
        ]
        for group in sorted(self._groups):
            committed = committed_by(self._cluster, self._broker, group, queues)
            for (topic, queue_id), at in committed.items():
                found.setdefault((topic, group), {})[queue_id] = at
        return found

    def pull_offsets(self) -> Mapping[tuple[str, str], Mapping[int, int]]:
        """Return nothing: a proxy does not tell what groups pulled."""
        return {}

    def pop_facts(self) -> PopFacts:
        """Return nothing: a proxy tells neither modes nor settings of brokers."""
        return PopFacts(order_info=None)

    @cached_property
    def _routes(self) -> list[Route]:
        found = map(self._cluster.route, sorted(self._topics))
        return [route for route in found if route and self._broker in route.brokers]
