"""A running cluster, examined step by step: what a read of it needs, in the order it needs it.

Name servers, TLS, brokers at the addresses that they registered, their versions, credentials,
routes, the requests that the user may make, settings that make reads slow. Nothing is asked that
changes a broker; what fails is tried again for two seconds, and no answer is waited for longer than
the options say.

Reference: BrokerOuterAPI#registerBrokerAll (brokerIP1); MQVersion; MessageStoreConfig.
"""

import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Final

from mqstore.check.cluster_requests import allowed_requests
from mqstore.check.proxy import examine_proxy, route_request
from mqstore.diagnosis import ERROR, GOOD, WARNING, Diagnosis
from mqstore.errors import StoreError, UnsupportedTopicError, shown
from mqstore.live.remoting.advice import absence
from mqstore.live.remoting.answers import value
from mqstore.live.remoting.cluster import Cluster
from mqstore.live.remoting.errors import (
    AccessDeniedError,
    BrokerTimeoutError,
    BrokerUnavailableError,
    RequestRefusedError,
)
from mqstore.live.remoting.requests import GET_BROKER_CLUSTER_INFO
from mqstore.live.remoting.routes import Route, parse_brokers
from mqstore.live.remoting.settings import PROXY, ClusterSettings
from mqstore.live.remoting.topics import broker_infos, check_readable, reading_settings, topic_names

_OLDEST: Final = (4, 9)
_NEWEST: Final = (5, 5)
_NAMED: Final = 5
_PATIENCE_MS: Final = 2_000  # for a server that is busy, or just about to register
# What a pull may give, and what brokers that serve Spark should allow.
_COUNTS: Final = {
    "maxTransferCountOnMessageInMemory": 1000,
    "maxTransferCountOnMessageInDisk": 256,
}
_ACL: Final = ("aclEnable", "authenticationEnabled")


def examine_cluster(settings: ClusterSettings) -> Iterator[Diagnosis]:
    """Yield the diagnoses, those that the next ones depend on first; raises no StoreError."""
    settings = replace(settings, retry_timeout_ms=min(settings.retry_timeout_ms, _PATIENCE_MS))
    answers = [(address, *_ask(settings, address)) for address in settings.name_servers]
    alive = tuple(address for address, error, _ in answers if error is None)
    is_proxied = _is_proxied(settings, alive)
    for address, error, milliseconds in answers:
        yield _name_server(address, error, milliseconds, is_alone=not alive, is_proxied=is_proxied)
    if not alive:
        return
    with Cluster(replace(settings, name_servers=alive)) as cluster:
        try:
            yield _tls(cluster, alive[0])
            yield from examine_proxy(cluster) if is_proxied else _cluster(cluster)
        except StoreError as error:
            yield Diagnosis(ERROR, "Cluster", str(error), _advice(error))


def _cluster(cluster: Cluster) -> Iterator[Diagnosis]:
    if len(cluster.settings.name_servers) > 1:
        yield _registrations(cluster)
    names = sorted(cluster.brokers())
    if not names:
        advice = "start one whose namesrvAddr has these name servers"
        yield Diagnosis(ERROR, "Brokers", "none is registered", advice)
        return
    there = []
    for name in names:
        diagnosis = _broker(cluster, name)
        if diagnosis.severity != ERROR:
            there.append(name)
        yield diagnosis
    if not there:
        return
    settings = {name: _settings(cluster, name) for name in there}
    yield _credentials(cluster, settings)
    routes, diagnosis = _routes(cluster)
    yield diagnosis
    yield from allowed_requests(cluster, there, routes)
    for name, found in settings.items():
        yield from _speed(name, found)


def _registrations(cluster: Cluster) -> Diagnosis:
    """Tell which brokers a name server lacks that another one has: a broker tells each alone."""
    request = GET_BROKER_CLUSTER_INFO()
    known = {
        address: set(parse_brokers(address, value(address, request, answer)))
        for (answer,), address in cluster.ask_name_servers([request])
    }
    brokers = set().union(*known.values())
    lacking = [
        f"{address} lacks {_listed(sorted(map(shown, brokers - names)))}"
        for address, names in sorted(known.items())
        if brokers - names
    ]
    if not lacking:
        return Diagnosis(GOOD, "Registrations", f"each name server has the same {len(brokers)}")
    advice = (
        "a client that asks such a name server alone misses the broker's messages (mqlog asks all "
        "that are named): name all of them in namesrvAddr of the broker, or wait for its next "
        "heartbeat, 30 s, where the name server has just been started"
    )
    return Diagnosis(WARNING, "Registrations", "; ".join(lacking[:_NAMED]), advice)


def _is_proxied(settings: ClusterSettings, alive: Sequence[str]) -> bool:
    """Tell whether proxies answer at the addresses."""
    if not alive:
        return settings.endpoint == PROXY
    try:
        with Cluster(replace(settings, name_servers=tuple(alive))) as cluster:
            return cluster.is_proxy
    except StoreError:
        return False


def _ask(settings: ClusterSettings, address: str) -> tuple[StoreError | None, int]:
    """Return why a name server does not answer, and how many ms it took."""
    begin = time.monotonic()
    try:
        with Cluster(replace(settings, name_servers=(address,))) as cluster:
            if settings.endpoint == PROXY:
                cluster.ask_name_servers([route_request()])
            else:
                cluster.brokers()
    except StoreError as error:
        return error, _since(begin)
    return None, _since(begin)


def _since(begin: float) -> int:
    return round((time.monotonic() - begin) * 1000)


def _name_server(
    address: str,
    error: StoreError | None,
    milliseconds: int,
    *,
    is_alone: bool,
    is_proxied: bool,
) -> Diagnosis:
    subject = "Proxy" if is_proxied else "Name server"
    if error is None:
        return Diagnosis(GOOD, subject, f"{address} answers in {milliseconds} ms")
    advice = _advice(error)
    if is_alone:
        return Diagnosis(ERROR, subject, str(error), advice)
    advice = "; ".join(filter(None, (advice, "the others are asked when it does not answer")))
    return Diagnosis(WARNING, subject, str(error), advice)


def _tls(cluster: Cluster, address: str) -> Diagnosis:
    settings = cluster.settings
    cluster.brokers()
    version = cluster.connection(address).tls_version
    if settings.tls is not None and version is not None:
        names = "checked" if settings.tls.verify_host_name else "not checked: tlsVerifyHostname"
        return Diagnosis(GOOD, "TLS", f"{version}; the certificate is trusted, its name {names}")
    if settings.credentials is None:
        return Diagnosis(GOOD, "TLS", "off")
    advice = "without it the network shows the access key and signatures, not the secret key"
    return Diagnosis(GOOD, "TLS", "off", advice)


def _broker(cluster: Cluster, name: str) -> Diagnosis:
    subject = f"Broker {name}"
    try:
        ((info),) = broker_infos(cluster, [name])
    except StoreError as error:
        if isinstance(error, RequestRefusedError) and not isinstance(error, AccessDeniedError):
            advice = "it is there; a 4.9 broker cannot tell its version in its first seconds"
            return Diagnosis(WARNING, subject, str(error), advice)
        return Diagnosis(ERROR, subject, str(error), _advice(error))
    found = f"{info.address}, RocketMQ {info.version or '?'}"
    numbers = tuple(int(part) for part in info.version.split(".")[:2]) if info.version else ()
    if _OLDEST <= numbers <= _NEWEST:
        return Diagnosis(GOOD, subject, found)
    return Diagnosis(WARNING, subject, found, "mqlog is tried with 4.9 to 5.5")


def _settings(cluster: Cluster, name: str) -> Mapping[str, str] | StoreError:
    try:
        return reading_settings(cluster, name)
    except StoreError as error:
        return error


def _credentials(
    cluster: Cluster, settings: Mapping[str, Mapping[str, str] | StoreError]
) -> Diagnosis:
    """Tell whether brokers want keys and take those given: any user may ask for the settings."""
    refused = [found for found in settings.values() if isinstance(found, AccessDeniedError)]
    if refused:
        return Diagnosis(ERROR, "Credentials", str(refused[0]), _advice(refused[0]))
    wanting = [
        name
        for name, found in settings.items()
        if not isinstance(found, StoreError) and any(found.get(one) == "true" for one in _ACL)
    ]
    if cluster.settings.credentials is None:
        found = f"none given; {_listed(wanting)} uses ACL" if wanting else "none given, none wanted"
        return Diagnosis(WARNING if wanting else GOOD, "Credentials", found)
    if wanting:
        return Diagnosis(GOOD, "Credentials", f"accepted by {_listed(wanting)}")
    return Diagnosis(GOOD, "Credentials", "given, and not looked at: no broker uses ACL")


def _routes(cluster: Cluster) -> tuple[list[Route], Diagnosis]:
    """Return the routes of users' topics that can be read, and what the others are."""
    routes, problems = [], []
    names = topic_names(cluster)
    for name in names:
        try:
            route = cluster.route(name)
            if route is None or not any(route.queues.values()):
                reason = "no broker is there" if route is None else "its perm has no R"
                problems.append(f"{shown(name)}: {reason}")
                continue
            lacking = check_readable(cluster, [route], set())
            problems += [absence(broker, name) for broker, _ in sorted(lacking)]
            route = route.without({broker for broker, _ in lacking})
            if route.queues:
                routes.append(route)
        except UnsupportedTopicError as error:
            problems.append(str(error))
        except StoreError as error:
            problems.append(f"{shown(name)}: {error}")
    queues = sum(sum(route.queues.values()) for route in routes)
    found = f"{len(routes)} of {len(names)} users' topics can be read, {queues} queues"
    if problems:
        more = f" and {len(problems) - _NAMED} more" if len(problems) > _NAMED else ""
        return routes, Diagnosis(WARNING, "Routes", found, "; ".join(problems[:_NAMED]) + more)
    return routes, Diagnosis(GOOD, "Routes", found)


def _speed(name: str, found: Mapping[str, str] | StoreError) -> Iterator[Diagnosis]:
    subject = f"Settings {name}"
    if isinstance(found, StoreError):
        if not isinstance(found, AccessDeniedError):
            yield Diagnosis(WARNING, subject, str(found), _advice(found))
        return
    values = {key: found[key] for key in _COUNTS if key in found}
    told = ", ".join(f"{key}={value}" for key, value in values.items()) or "not reported"
    low = [key for key, value in values.items() if value.isdigit() and int(value) < _COUNTS[key]]
    if low:
        wanted = ", ".join(f"{key}={_COUNTS[key]}" for key in low)
        advice = f"a pull gives no more messages, which makes reads slow: set {wanted}"
        yield Diagnosis(WARNING, subject, told, advice)
    else:
        yield Diagnosis(GOOD, subject, told)


def _advice(error: StoreError) -> str:
    """Return what to do, where the error itself does not say."""
    if isinstance(error, BrokerTimeoutError):
        return (
            "it is frozen or overloaded, or a firewall drops packets; see connectTimeout and "
            "requestTimeout"
        )
    if isinstance(error, BrokerUnavailableError) and "refused" in str(error).lower():
        return "nothing listens there: start it, or correct the host and the port"
    return ""


def _listed(names: Sequence[str]) -> str:
    more = f" and {len(names) - _NAMED} more" if len(names) > _NAMED else ""
    return ", ".join(map(shown, names[:_NAMED])) + more
