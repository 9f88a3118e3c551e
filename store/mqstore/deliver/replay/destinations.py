"""The destinations of replayed messages: the topic of each, and the queue of each source queue.

All messages of a source queue that go to one topic go to one queue of it, so that they keep their
order. Queue n goes to queue n of the broker of the same name; else to queue n of one of the brokers
that have it; else to the n-th of the topic's queues, counted round. Messages that failed
(``%RETRY%``, ``%DLQ%``) go to all queues of a topic in turn: their own queueId is that of the topic
of failures.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Final

from mqstore.errors import InvalidOptionError, shown
from mqstore.format.names import DLQ_PREFIX, RETRY_PREFIX, is_system_topic
from mqstore.live.origin.cluster_origin import ClusterOrigin
from mqstore.live.remoting.cluster import Cluster
from mqstore.live.remoting.settings import PROXY, ClusterSettings
from mqstore.live.send.requests import Queue
from mqstore.read.source import Origin

_NAMED: Final = 5
_OF_FAILURES: Final = (RETRY_PREFIX, DLQ_PREFIX)


@dataclass(frozen=True, slots=True)
class TopicMap:
    """The topic that messages of a topic go to: ``to``, or as ``renamed`` says, or the same.

    With ``to_origin`` messages of retry topics and dead letters go where they were sent first.
    """

    to: str | None = None
    renamed: tuple[tuple[str, str], ...] = ()
    to_origin: bool = False

    def of(self, topic: str) -> str | None:
        """Return where messages of ``topic`` go; None: each where it was sent first."""
        if self.goes_back(topic):
            return None
        return self.to if self.to is not None else dict(self.renamed).get(topic, topic)

    def goes_back(self, topic: str) -> bool:
        """Tell whether messages of ``topic`` go where they were sent first."""
        return self.to_origin and holds_failures(topic)

    def check(self, topics: Iterable[str]) -> None:
        """Raise InvalidOptionError for topics whose messages have no place to go, or no sense."""
        named = sorted(set(topics))
        for topic in named:
            if is_system_topic(topic) and not holds_failures(topic):
                expected = "is RocketMQ's own, and its messages mean something to its broker only"
                raise InvalidOptionError("--topic", topic, expected)
            if holds_failures(topic) and self.of(topic) == topic:
                expected = (
                    "has messages that failed: send them back to their topics with --to-origin, or "
                    "to one topic with --to"
                )
                raise InvalidOptionError("--topic", topic, expected)
        for topic, target in self.renamed:
            if topic not in named:
                expected = f"no message of {shown(topic)} is replayed"
                raise InvalidOptionError("--map", f"{topic}={target}", expected)
        if self.to_origin and not any(map(holds_failures, named)):
            expected = f"is for topics that begin with {' or '.join(_OF_FAILURES)}"
            raise InvalidOptionError("--to-origin", ", ".join(named), expected)


def check_not_doubled(
    origins: Iterable[Origin], topics: Iterable[str], target: ClusterSettings
) -> None:
    """Raise InvalidOptionError if the messages of ``topics`` would be there twice.

    ``topics`` are those whose messages keep their topic; they would, if a broker of the target is
    one of ``origins``: of the same name, at an address that it registered. Raises as Cluster.
    """
    kept = sorted(set(topics))
    sources = [origin for origin in origins if isinstance(origin, ClusterOrigin)]
    if not kept or not sources:
        return
    if _is_there(sources, kept, target):
        named = ", ".join(map(shown, kept[:_NAMED])) + (" …" if len(kept) > _NAMED else "")
        expected = (
            f"is the cluster that the messages come from: {named} would have each of them twice. "
            "Name another topic with --to or --map; --same-topic sends them all the same"
        )
        raise InvalidOptionError("ADDRESS", ",".join(target.name_servers), expected)


def _is_there(
    sources: Sequence[ClusterOrigin], topics: Sequence[str], target: ClusterSettings
) -> bool:
    """Tell whether a source is a broker of the target.

    A proxy tells names of brokers and not their addresses: then those of one name are the same.
    """
    with Cluster(target) as cluster:
        by_name = cluster.is_proxy
        routes = filter(None, map(cluster.route, topics)) if by_name else ()
        named = {broker for route in routes for broker in route.brokers}
        settled = cluster.settings
    if by_name or any(origin.settings.endpoint == PROXY for origin in sources):
        named |= {name for name, _ in _registered(settled)}
        return not named.isdisjoint(origin.broker for origin in sources)
    there = _registered(settled)
    here = {one for origin in sources for one in _registered(origin.settings, origin.broker)}
    return bool(here & there)


def _registered(settings: ClusterSettings, broker: str | None = None) -> set[tuple[str, str]]:
    """Return name and addresses of the brokers of a cluster, or of one of them."""
    with Cluster(settings) as cluster:
        return {
            (name, address)
            for name, addresses in cluster.brokers().items()
            for address in addresses.values()
            if broker in (None, name)
        }


def holds_failures(topic: str) -> bool:
    """Tell whether a topic has messages that consumers failed on: of retries, or dead letters."""
    return topic.startswith(_OF_FAILURES)


def queue_for(queues: Sequence[Queue], broker: str, queue_id: int, rank: int) -> Queue:
    """Return where messages of a queue of a broker go, of the queues of the topic they go to.

    ``rank`` is the broker's place among those of the source.
    """
    same = [queue for queue in queues if queue.queue_id == queue_id]
    named = [queue for queue in same if queue.broker == broker]
    if named:
        return named[0]
    return same[rank % len(same)] if same else queues[(queue_id + rank) % len(queues)]
