"""Checks on the driver, before any task runs, that a cluster can be written to exactly once."""

import time
from collections.abc import Iterable, Sequence
from typing import Final

from mqstore.deliver.settings import SendSettings
from mqstore.errors import InvalidOptionError
from mqstore.live.remoting import requests
from mqstore.live.remoting.cluster import Cluster
from mqstore.live.remoting.errors import AccessDeniedError
from mqstore.live.remoting.topics import check_readable
from mqstore.live.send.requests import Queue
from mqstore.live.send.topics import create_topic

_OUT_OF_ORDER: Final = "enableBuildConsumeQueueConcurrently"
_CONTROL_QUEUES: Final = 1
STALE_S: Final = 25.0
"""A proxy may give a route as it was for 20 s, and once more while it asks again.

Reference: org.apache.rocketmq.proxy.service.route.TopicRouteService (refreshAfterWrite)."""
_BETWEEN_ROUTES_S: Final = 0.5


def check_once(
    cluster: Cluster, settings: SendSettings, queues: Iterable[Queue], brokers: Sequence[str]
) -> None:
    """Make the control topic where ``createTopic`` says so; refuse what cannot be looked back at.

    Raises InvalidOptionError for a broker without the control topic, a topic that cannot be
    read, and a broker that builds ConsumeQueues out of order.
    """
    for broker in () if cluster.is_proxy else brokers:
        _check_order(cluster, broker)
    for topic in sorted({queue.topic for queue in queues}):
        check_readable_back(cluster, topic)
    control = settings.control_topic
    there = _with_control(cluster, control, set(brokers))
    if set(brokers) <= there and (there or not cluster.is_proxy):
        return
    if settings.create_topic:
        create_topic(cluster, control, _CONTROL_QUEUES)
        return
    missing = ", ".join(sorted(set(brokers) - there)) or "of the cluster"
    expected = (
        f"is not on broker {missing} (to read and write), and exactly once needs it: set "
        f"createTopic=true, or mqadmin updateTopic -n ... -c CLUSTER -t {control} -r 1 -w 1"
    )
    raise InvalidOptionError("controlTopic", control, expected)


def _with_control(cluster: Cluster, control: str, wanted: set[str]) -> set[str]:
    """Return the brokers that have the control topic, to read and write.

    Where proxies show it without a ``wanted`` broker they are asked again for a while: their routes
    are some seconds old, and the broker may have come back meanwhile.
    """
    until_s = time.monotonic() + min(STALE_S, cluster.settings.retry_timeout_ms / 1000)
    while True:
        route = cluster.route(control, fresh=True)
        if route is None:
            return set()
        there = set(route.write_queues) & set(route.queues)
        there -= {broker for broker, _ in check_readable(cluster, [route])}
        if wanted <= there or not cluster.is_proxy or time.monotonic() > until_s:
            return there
        time.sleep(_BETWEEN_ROUTES_S)


def check_readable_back(cluster: Cluster, topic: str) -> None:
    """Raise InvalidOptionError for a topic with queues to write that cannot be read."""
    route = cluster.known_route(topic, "topic")
    for broker, count in route.write_queues.items():
        if count > route.queues.get(broker, 0):
            expected = (
                f"exactly once reads what it wrote, and {broker} lets queues of {topic} be written "
                "that cannot be read: its perm must be RW, with as many read queues"
            )
            raise InvalidOptionError("topic", topic, expected)


def _check_order(cluster: Cluster, broker: str) -> None:
    try:
        found, _ = cluster.value(broker, requests.GET_BROKER_CONFIG())
    except AccessDeniedError:
        return
    if found.get(_OUT_OF_ORDER, "").strip().lower() == "true":
        expected = (
            f"broker {broker} has {_OUT_OF_ORDER}=true, which shows messages in another order than "
            "it stored them: exactly once needs false"
        )
        raise InvalidOptionError("delivery", "exactlyOnce", expected)
