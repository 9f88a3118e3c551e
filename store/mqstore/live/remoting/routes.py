"""The route of a topic from name servers: brokers, their addresses, numbers of queues.

Reference: org.apache.rocketmq.remoting.protocol.route.TopicRouteData, QueueData, BrokerData
(#selectBrokerAddr); PermName; MixAll.MASTER_ID; TopicRouteData#topicQueueMappingByBroker.
"""

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Final

from mqstore.errors import UnsupportedTopicError
from mqstore.format.config import CLEANUP_POLICY, COMPACTION_POLICY
from mqstore.format.names import MAX_QUEUE_ID
from mqstore.live.remoting.answers import number, rows, table, text
from mqstore.live.remoting.errors import BrokenAnswerError

MASTER_ID: Final = 0
READABLE: Final = 4  # PermName.PERM_READ
WRITABLE: Final = 2  # PermName.PERM_WRITE
MAX_QUEUES: Final = 10_000
_MOST_BROKERS: Final = 10_000

Addresses = Mapping[int, str]
"""A broker's addresses by broker id; MASTER_ID is its master."""


@dataclass(frozen=True, slots=True)
class Route:
    """The readable queues of a topic: ids 0 to ``queues[broker]`` - 1 of each broker.

    ``write_queues`` are those that producers send to, likewise; ``clusters`` the names of the
    clusters that the brokers are of.
    """

    topic: str
    queues: Mapping[str, int]
    brokers: Mapping[str, Addresses]
    is_static: bool = False
    write_queues: Mapping[str, int] = field(default_factory=dict)
    clusters: frozenset[str] = frozenset()
    ordered: frozenset[str] = frozenset()
    """The brokers that the configuration of an ordered topic names, registered or not."""

    def without(self, brokers: Collection[str]) -> "Route":
        """Return the route without the queues of those brokers."""
        queues = {name: count for name, count in self.queues.items() if name not in brokers}
        write_queues = {
            name: count for name, count in self.write_queues.items() if name not in brokers
        }
        return replace(self, queues=queues, write_queues=write_queues)

    def each(self) -> Iterator[tuple[str, int]]:
        """Yield (broker, queueId) of every readable queue."""
        for broker, count in sorted(self.queues.items()):
            for queue_id in range(count):
                yield broker, queue_id


def parse_route(address: str, topic: str, found: Any) -> Route:
    """Return the route in an answer of the name server at ``address``.

    Raises BrokenAnswerError for what is no route, more than MAX_QUEUES queues or 10,000 brokers.
    """
    brokers, clusters = {}, set()
    named = rows(address, found, "brokerDatas")
    if len(named) > _MOST_BROKERS:
        raise BrokenAnswerError(address, f"the route of {topic} has {len(named)} brokers")
    for broker in named:
        brokers[text(address, broker, "brokerName")] = parse_addresses(address, broker)
        clusters.add(str(broker.get("cluster") or ""))
    queues: dict[str, int] = {}
    write_queues: dict[str, int] = {}
    for queue in rows(address, found, "queueDatas"):
        name, perm = text(address, queue, "brokerName"), number(address, queue, "perm")
        for field_name, bit, kept in (
            ("readQueueNums", READABLE, queues),
            ("writeQueueNums", WRITABLE, write_queues),
        ):
            count = number(address, queue, field_name)
            if not 0 <= count <= MAX_QUEUE_ID + 1:
                raise BrokenAnswerError(address, f"the route of {topic} has {count} queues")
            if perm & bit and name in brokers:
                kept[name] = count
    if max(sum(queues.values()), sum(write_queues.values())) > MAX_QUEUES:
        reason = f"the route of {topic} has more than {MAX_QUEUES} queues"
        raise BrokenAnswerError(address, reason)
    is_static = bool(table(address, found, "topicQueueMappingByBroker"))
    ordered = _ordered_brokers(found.get("orderTopicConf"))
    clusters.discard("")
    return Route(topic, queues, brokers, is_static, write_queues, frozenset(clusters), ordered)


def _ordered_brokers(configured: Any) -> frozenset[str]:
    """Return the brokers of ``broker-a:4;broker-b:4``: NAMESPACE_ORDER_TOPIC_CONFIG."""
    pieces = configured.split(";") if isinstance(configured, str) else []
    return frozenset(name for piece in pieces if (name := piece.rpartition(":")[0].strip()))


def merge_routes(routes: Sequence[Route], unreached: Collection[str]) -> Route:
    """Return the union of what servers say of one topic; of two numbers of queues the larger.

    ``unreached`` as in ``merge_addresses``.
    """
    first, queues, write_queues = routes[0], dict[str, int](), dict[str, int]()
    for route in routes:
        for merged, counts in ((queues, route.queues), (write_queues, route.write_queues)):
            for broker, count in counts.items():
                merged[broker] = max(count, merged.get(broker, 0))
    return Route(
        first.topic,
        queues,
        merge_addresses([route.brokers for route in routes], unreached),
        any(route.is_static for route in routes),
        write_queues,
        frozenset().union(*(route.clusters for route in routes)),
        frozenset().union(*(route.ordered for route in routes)),
    )


def merge_addresses(
    told: Sequence[Mapping[str, Addresses]], unreached: Collection[str]
) -> dict[str, Addresses]:
    """Return the union of the brokers that servers know; of two addresses the first one.

    An ``unreached`` address gives way to what a server says that knows the broker otherwise: it
    is what a server remembers of a broker that it lost sight of.
    """
    merged: dict[str, Addresses] = {}
    for broker in dict.fromkeys(name for brokers in told for name in brokers):
        views = [brokers[broker] for brokers in told if broker in brokers]
        merged[broker] = addresses = dict[int, str]()
        for id_ in sorted({id_ for view in views for id_ in view}):
            reached = [v[id_] for v in views if id_ in v and v[id_] not in unreached]
            if reached:
                addresses[id_] = reached[0]
            elif all(id_ in view for view in views):
                addresses[id_] = views[0][id_]
    return merged


def parse_brokers(address: str, found: Any) -> dict[str, Addresses]:
    """Return the brokers of an answer to GET_BROKER_CLUSTER_INFO; raises BrokenAnswerError."""
    named = table(address, found, "brokerAddrTable")
    if len(named) > _MOST_BROKERS or not all(isinstance(name, str) for name in named):
        raise BrokenAnswerError(address, "brokerAddrTable has no brokers, or too many")
    return {name: parse_addresses(address, broker) for name, broker in named.items()}


def parse_addresses(address: str, broker: Any) -> Addresses:
    """Return a BrokerData's addresses by broker id; raises BrokenAnswerError."""
    found: dict[int, str] = {}
    for key, host in table(address, broker, "brokerAddrs").items():
        # An id stands in quotes or not, as the standard wants it or as fastjson writes it.
        digits = str(key)
        if not (digits.isascii() and digits.isdigit() and len(digits) < 20) or not isinstance(
            host, str
        ):
            raise BrokenAnswerError(address, "brokerAddrs are no addresses by number")
        found[int(digits)] = host
    return found


def refuse_static(route: Route) -> None:
    """Raise UnsupportedTopicError for a static topic, whose queues move between brokers."""
    if route.is_static:
        reason = (
            "is a static topic (logical queues): its queues move between brokers and its stored "
            "offsets are not those of consumers. Read the brokers' store directories instead"
        )
        raise UnsupportedTopicError(f"topic {route.topic}", "STATIC", reason)


def is_compacted(attributes: Mapping[str, str]) -> bool:
    """Tell whether the queues of a topic of those attributes have holes: TopicAttributes."""
    return attributes.get(CLEANUP_POLICY) == COMPACTION_POLICY


def refuse_attributes(topic: str, attributes: Mapping[str, str]) -> None:
    """Raise UnsupportedTopicError for a topic whose messages do not come as plain records.

    ``attributes`` are a topic's, of 5.x: TopicAttributes.
    """
    if is_compacted(attributes):
        reason = (
            "is compacted: each message needs a key, and replaces the one before it of that key"
        )
        raise UnsupportedTopicError(f"topic {topic}", "COMPACTION", reason)
    if attributes.get("queue.type") == "BatchCQ":
        reason = (
            "has batch queues: an entry of a queue is a batch, and offsets skip. Read the brokers' "
            "store directories instead"
        )
        raise UnsupportedTopicError(f"topic {topic}", "BATCH_QUEUE", reason)
