"""The queues that producers send to, and topics made on request.

Reference: MQClientInstance#topicRouteData2TopicPublishInfo (write queues of brokers that have a
master, by broker and id), DefaultMQAdminExt#createAndUpdateTopicConfig for every master.
"""

import time
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Final

from mqstore.errors import InvalidOptionError
from mqstore.live.remoting import requests
from mqstore.live.remoting.cluster import Cluster
from mqstore.live.remoting.errors import AccessDeniedError, BrokerUnavailableError, NoMasterError
from mqstore.live.remoting.retry import Retry
from mqstore.live.remoting.routes import MASTER_ID, Route
from mqstore.live.remoting.topics import check_readable, topics
from mqstore.live.send.requests import Queue, create_topic_request

_PAUSE_S: Final = 0.05


class WriteQueues:
    """The queues of topics to send to. ``new_queues`` are those of a topic that is not there.

    0 new queues: no topic is made. ``known`` queues are not asked for. A broker that lacks a topic
    which name servers show there gets it again, or else has no queue of it.
    """

    def __init__(self, cluster: Cluster, new_queues: int = 0, known: Iterable[Queue] = ()) -> None:
        self._cluster = cluster
        self._new_queues = new_queues
        self._known: dict[str, tuple[Queue, ...] | None] = {}
        for queue in known:
            self._known[queue.topic] = (*(self._known.get(queue.topic) or ()), queue)

    def of(self, topic: str) -> tuple[Queue, ...] | None:
        """Return the queues in the order of brokers and ids; None if there is no such topic.

        None of them for a topic that takes no messages. Raises UnsupportedTopicError, what
        Cluster#ask_all raises, and InvalidOptionError if the topic is to be made and cannot be.
        """
        if topic not in self._known:
            route = self._cluster.route(topic)
            if route is None and self._new_queues:
                route = create_topic(self._cluster, topic, self._new_queues)
            if route is not None:
                route = self._without_lacking(route)
            self._known[topic] = None if route is None else self._queues(route)
        return self._known[topic]

    def _without_lacking(self, route: Route) -> Route | None:
        """Return the route as brokers have it; None if none of them has the topic."""
        lacking = {broker for broker, _ in check_readable(self._cluster, [route])}
        if self._new_queues:
            request = [
                (broker, create_topic_request(route.topic, count or self._new_queues))
                for broker in sorted(lacking)
                for count in (route.write_queues.get(broker, 0),)
            ]
            self._cluster.ask_all(request)
            return route
        for broker in sorted(lacking):
            self._cluster.note_absent(broker, route.topic)
        left = route.without(lacking)
        return left if left.queues or left.write_queues or not lacking else None

    def _queues(self, route: Route) -> tuple[Queue, ...]:
        override = self._cluster.settings.broker_addresses
        return tuple(
            Queue(route.topic, broker, queue_id)
            for broker, count in sorted(route.write_queues.items())
            if MASTER_ID in route.brokers[broker] or broker in override
            for queue_id in range(count)
        )


def create_topic(cluster: Cluster, topic: str, queue_nums: int) -> Route:
    """Make a topic on every master that does not have it; return its route, once it has one.

    A broker that has just started is waited for: it registers some seconds later. Raises
    InvalidOptionError where the name servers serve several clusters, NoMasterError where they show
    no master in ``retry_timeout_ms``, AccessDeniedError, BrokerUnavailableError where the name
    servers do not show the topic in time.
    """
    if cluster.is_proxy:
        expected = (
            f"no proxy makes topics: mqadmin updateTopic -n NAMESERVER -c CLUSTER -t {topic} -r "
            f"{queue_nums} -w {queue_nums} makes {topic}"
        )
        raise InvalidOptionError("createTopic", "true", expected)
    masters = _masters(cluster)
    named = cluster.cluster_names()
    if len(named) > 1:
        where = f"clusters {', '.join(named)}"
        expected = f"the name servers have {where}: make the topic {topic} with mqadmin updateTopic"
        raise InvalidOptionError("createTopic", "true", expected)
    there = topics(cluster, masters)
    missing = [broker for broker in masters if topic not in there[broker]]
    request = create_topic_request(topic, queue_nums)
    cluster.ask_all([(broker, request) for broker in missing])
    deadline = time.monotonic() + cluster.settings.retry_timeout_ms / 1000
    while True:
        route = cluster.route(topic, fresh=True)
        if route is not None and set(masters) <= set(route.write_queues):
            return route
        if time.monotonic() > deadline:
            reason = f"brokers made topic {topic}, and the name servers do not show it"
            raise BrokerUnavailableError(", ".join(cluster.settings.name_servers), reason)
        time.sleep(_PAUSE_S)


def _masters(cluster: Cluster) -> list[str]:
    """Return the names of the brokers whose master is registered, at least one."""
    retry = Retry(cluster.settings.retry_timeout_ms)
    while True:
        hosts = cluster.brokers()
        masters = sorted(name for name, by_id in hosts.items() if MASTER_ID in by_id)
        if masters:
            return masters
        servers = ", ".join(cluster.settings.name_servers)
        reason = f"no broker's master is registered at the name servers ({servers}): start one"
        retry.failed(NoMasterError(reason))


@dataclass(frozen=True, slots=True)
class MessageLimits:
    """Bytes of a body that each of some brokers takes, and of their CommitLog files."""

    max_message_size: int
    log_file: int


def message_limits(cluster: Cluster, brokers: Iterable[str], most: MessageLimits) -> MessageLimits:
    """Return the least limits of those brokers that tell theirs, and of ``most``.

    A 4.9 broker acknowledges a message that does not fit into a file, and does not store it. None
    tells its limits through a proxy.
    Raises as Cluster#ask_all.
    """
    for broker in () if cluster.is_proxy else brokers:
        try:
            settings, _ = cluster.value(broker, requests.GET_BROKER_CONFIG())
        except AccessDeniedError:
            continue
        most = MessageLimits(
            min(most.max_message_size, _bytes(settings, "maxMessageSize", most.max_message_size)),
            min(most.log_file, _bytes(settings, "mappedFileSizeCommitLog", most.log_file)),
        )
    return most


def _bytes(settings: Mapping[str, str], name: str, default: int) -> int:
    digits = settings.get(name, "")
    is_number = digits.isascii() and digits.isdigit() and len(digits) <= 10
    return int(digits) if is_number and int(digits) else default
