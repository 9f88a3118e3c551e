"""Tells whether a proxy is in local mode, in which it answers nothing about messages.

Its route names its gRPC port then, and in cluster mode its remoting port. But behind a mapped port
(a container, a Service, NAT) a proxy in cluster mode names another port too, and while brokers are
frozen or away, it answers nothing about them either: silence proves no mode. So each broker's queue
is asked for, and where all are silent, the port that the route names is tried at the proxy's host:
in local mode it speaks gRPC and no remoting.

Reference: LocalTopicRouteService#getTopicRouteForProxy, GetTopicRouteActivity,
LocalMessageService#request; ProtocolNegotiationHandler (remoting ports detect gRPC as well).
"""

from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from typing import Final

from mqstore.live.remoting import proxies, requests, speech
from mqstore.live.remoting.connection import Connection
from mqstore.live.remoting.errors import BrokerUnavailableError, LocalModeError
from mqstore.live.remoting.routes import Route
from mqstore.live.remoting.settings import ClusterSettings

PROBE_MS: Final = 3_000
"""So long a proxy that may be in local mode has to answer."""
_MOST_PROBED: Final = 16
_LOCAL_MODE: Final = (
    "a RocketMQ proxy in local mode, whose route names its gRPC port {port}, and which answered "
    "nothing about a queue in {waited:g} s. Local mode serves no messages over remoting; the "
    "broker in its process does: name that broker's name server"
)
_MAY_BE: Final = (
    ". The brokers behind this proxy do not answer; or the proxy is in local mode, which serves no "
    "messages over remoting (its route names port {port}): then name the name server of its broker"
)


def doubt(address: str, route: Route, port: str, settings: ClusterSettings) -> str:
    """Return what to add to the error of a silent broker behind a proxy; "" if one answers.

    ``port`` is what the route names in place of the proxy's own. Takes ``PROBE_MS`` three times at
    most. Raises LocalModeError where local mode is proven.
    """
    limits = settings.limits
    waited_ms = min(limits.request_timeout_ms, PROBE_MS)
    limits = replace(limits, request_timeout_ms=waited_ms)
    limits = replace(limits, connect_timeout_ms=min(limits.connect_timeout_ms, PROBE_MS))
    tls = settings.tls.context() if settings.tls else None

    def answers(queue: tuple[str, int]) -> bool:
        request = requests.GET_MAX_OFFSET(topic=route.topic, queueId=queue[1])
        try:
            with Connection(
                address, limits, credentials=settings.credentials, tls=tls
            ) as connection:
                opaque = connection.send(proxies.served(address, queue[0], request))
                connection.receive(opaque)
        except BrokerUnavailableError:
            return False
        return True

    queues = list({broker: (broker, id_) for broker, id_ in route.each()}.values())[:_MOST_PROBED]
    with ThreadPoolExecutor(len(queues), "probe") as pool:
        if any(pool.map(answers, queues)):
            return ""
    named = f"{address.rpartition(':')[0]}:{port}"
    waited_s = waited_ms / 1000
    if speech.speaks_only_grpc(named, waited_s):
        raise LocalModeError(address, _LOCAL_MODE.format(port=port, waited=waited_s))
    return _MAY_BE.format(port=port)
