"""The requests that reads of a cluster make: which of them its brokers grant this user.

Each is made as a read would make it, for one queue of each topic and for each group, and changes
nothing: a pull asks for one message at the start of a queue, in the name of a group that is there.

Reference: Permission (ACL 1.0), the RocketMQAction of each request's header (ACL 2.0).
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Final, TypeVar

from mqstore.diagnosis import ERROR, GOOD, WARNING, Diagnosis
from mqstore.errors import StoreError, UnknownGroupError, shown
from mqstore.live.origin.bounds import LiveBounds, bounds
from mqstore.live.origin.state import ClusterState
from mqstore.live.remoting import requests
from mqstore.live.remoting.cluster import Cluster
from mqstore.live.remoting.errors import AccessDeniedError
from mqstore.live.remoting.requests import Request
from mqstore.live.remoting.routes import Route
from mqstore.live.remoting.settings import TOOLS_CONSUMER

T = TypeVar("T")

_MOST_TOPICS: Final = 100
_MOST_GROUPS: Final = 100
_NAMED: Final = 5


@dataclass(slots=True)
class _Tried:
    """Of one kind of request: what was asked for, and what was refused or failed."""

    name: str
    serves: str
    granted: int = 0
    refused: list[str] = field(default_factory=list)
    error: StoreError | None = None

    def ask(self, what: str, work: Callable[..., T], *arguments: object) -> T | None:
        """Return what it gives; None if it is refused."""
        try:
            found = work(*arguments)
        except StoreError as error:
            self.refused.append(what)
            self.error = self.error or error
            return None
        self.granted += 1
        return found

    def diagnosis(self) -> Diagnosis | None:
        """Return the line about it; None if there was nothing to ask for."""
        subject, count = "Request", self.granted + len(self.refused)
        if not count:
            return None
        if self.error is None:
            return Diagnosis(GOOD, subject, f"{self.name} is granted ({self.serves})")
        named = ", ".join(map(shown, self.refused[:_NAMED]))
        more = f" and {len(self.refused) - _NAMED} more" if len(self.refused) > _NAMED else ""
        word = "is refused" if isinstance(self.error, AccessDeniedError) else "failed"
        found = f"{self.name} ({self.serves}) {word} for {named}{more}"
        return Diagnosis(WARNING if self.granted else ERROR, subject, found, str(self.error))


def allowed_requests(
    cluster: Cluster, brokers: Sequence[str], routes: Sequence[Route]
) -> Iterator[Diagnosis]:
    """Yield a line for each kind of request; raises no StoreError."""
    of_broker = (
        _Tried("GET_ALL_TOPIC_CONFIG", "tables of topics and queues"),
        _Tried("GET_ALL_CONSUMER_OFFSET", "backlog, startingGroup"),
        _Tried("GET_ALL_SUBSCRIPTIONGROUP_CONFIG", "names of groups"),
    )
    groups: dict[str, set[str]] = {}
    for broker in brokers:
        state = ClusterState(broker, cluster)
        of_broker[0].ask(broker, state.topics)
        committed = of_broker[1].ask(broker, state.consumer_offsets)
        groups[broker] = {group for _, group in committed or ()}
        of_broker[2].ask(broker, state.groups)
    yield from _lines(of_broker)
    yield from _lines(_of_topics(cluster, brokers, routes))
    online = _Tried("GET_CONSUMER_CONNECTION_LIST", "subscriptions in the backlog")
    for broker, names in groups.items():
        for group in sorted(names)[:_MOST_GROUPS]:
            request = requests.GET_CONSUMER_CONNECTION_LIST(consumerGroup=group)
            online.ask(group, cluster.ask, broker, request)
    yield from _lines([online])


def _of_topics(cluster: Cluster, brokers: Sequence[str], routes: Sequence[Route]) -> list[_Tried]:
    stats = _Tried("GET_TOPIC_STATS_INFO", "where queues begin and end: every read")
    pulls = _Tried("PULL_MESSAGE", "messages")
    entries = _Tried("QUERY_CONSUME_QUEUE", "sizes, lagMode=hash")
    keys = _Tried("QUERY_MESSAGE", "keys, msgIds")
    group = cluster.settings.consumer_group
    for route in routes[:_MOST_TOPICS]:
        for broker in sorted(set(route.queues) & set(brokers)):
            one = Route(route.topic, {broker: route.queues[broker]}, route.brokers)
            held = stats.ask(route.topic, bounds, cluster, [one])
            if not held:
                continue
            queue = next((q for q in held if q.low < q.high), held[0])
            name = (queue.topic, queue.queue_id)
            asked = [(keys, _by_key(queue.topic)), (entries, _entry(queue))]
            if group == TOOLS_CONSUMER or _is_group(cluster, broker, group):
                asked.append((pulls, requests.pull(group, name, queue.low, 1)))
            else:
                pulls.refused.append(route.topic)
                pulls.error = pulls.error or _NoGroupError(group)
            for tried, request in asked:
                tried.ask(route.topic, cluster.ask, broker, request)
    return [stats, pulls, entries, keys]


class _NoGroupError(UnknownGroupError):
    """The group of consumerGroup is not there: a pull would make it."""

    text = (
        "option consumerGroup: brokers have no group {what}: the first read makes it, or is "
        "refused where autoCreateSubscriptionGroup=false; not tried here"
    )


def _is_group(cluster: Cluster, broker: str, group: str) -> bool:
    try:
        return group in ClusterState(broker, cluster).groups()
    except StoreError:
        return False


def _by_key(topic: str) -> Request:
    return requests.QUERY_MESSAGE(
        topic=topic, key="mqlog", maxNum=1, beginTimestamp=0, endTimestamp=1
    )


def _entry(queue: LiveBounds) -> Request:
    return requests.QUERY_CONSUME_QUEUE(
        topic=queue.topic, queueId=queue.queue_id, index=queue.low, count=1
    )


def _lines(tried: Sequence[_Tried]) -> Iterator[Diagnosis]:
    for one in tried:
        diagnosis = one.diagnosis()
        if diagnosis is not None:
            yield diagnosis
