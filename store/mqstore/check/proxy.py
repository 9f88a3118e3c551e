"""A RocketMQ 5 proxy, examined: what it serves, the brokers behind it, and whether they answer.

A proxy lists no topics, so it is asked for one that every broker has. Reads need no more than is
asked here: a route, and the bounds of a queue.

Reference: TopicConfigManager (SystemTopicConstant of a broker), RemotingProtocolServer.
"""

import time
from collections.abc import Iterator
from typing import Final

from mqstore.diagnosis import ERROR, GOOD, WARNING, Diagnosis
from mqstore.errors import StoreError, shown
from mqstore.live.remoting import requests
from mqstore.live.remoting.answers import is_of_rights
from mqstore.live.remoting.cluster import Cluster
from mqstore.live.remoting.errors import AccessDeniedError, LocalModeError
from mqstore.live.remoting.requests import Request
from mqstore.live.remoting.routes import Route

_TRIED: Final = ("TBW102", "BenchmarkTest", "SELF_TEST_TOPIC")
_SERVES: Final = (
    "serves named topics and groups: reads, streams, writes, offsets, and no lists, keys, ids, "
    "versions or settings"
)
_ADVICE: Final = "for those, name the name servers"


def examine_proxy(cluster: Cluster) -> Iterator[Diagnosis]:
    """Yield the diagnoses of a proxy; raises no StoreError."""
    yield Diagnosis(GOOD, "Serves", _SERVES, _ADVICE)
    try:
        route = _first_route(cluster)
    except LocalModeError as error:
        yield Diagnosis(ERROR, "Mode", str(error))
        return
    except AccessDeniedError as error:
        yield _denied(error)
        return
    except StoreError as error:
        yield Diagnosis(ERROR, "Routes", str(error))
        return
    if route is None:
        found = f"none of the topics {', '.join(_TRIED)} has a route: the brokers were not asked"
        yield Diagnosis(WARNING, "Routes", found, "read a topic that you know")
        return
    for broker in sorted(route.queues):
        yield _broker(cluster, broker, route.topic)


def route_request() -> Request:
    """Return the request that a proxy answers, whatever its brokers have."""
    return requests.GET_ROUTEINFO_BY_TOPIC(topic=_TRIED[0], acceptStandardJsonOnly=True)


def _denied(error: AccessDeniedError) -> Diagnosis:
    if not is_of_rights(error):
        return Diagnosis(ERROR, "Credentials", str(error))
    found = f"accepted; this user may not see {_TRIED[0]}: the brokers were not asked"
    return Diagnosis(WARNING, "Credentials", found, "read a topic that the user may read")


def _first_route(cluster: Cluster) -> Route | None:
    found = (cluster.route(topic) for topic in _TRIED)
    return next((route for route in found if route is not None and route.queues), None)


def _broker(cluster: Cluster, broker: str, topic: str) -> Diagnosis:
    subject, begin = f"Broker {shown(broker)}", time.monotonic()
    try:
        cluster.ask(broker, requests.GET_MAX_OFFSET(topic=topic, queueId=0))
    except StoreError as error:
        return Diagnosis(ERROR, subject, str(error))
    milliseconds = round((time.monotonic() - begin) * 1000)
    return Diagnosis(GOOD, subject, f"answers through the proxy in {milliseconds} ms")
