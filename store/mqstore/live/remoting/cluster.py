"""A cluster: its name servers, what they tell of brokers, and one connection to each server.

Name servers know nothing of each other. One is asked for as long as it answers; when it does
not, the next; and all when a route lacks a broker, which a name server forgets with its connection.

Reference: org.apache.rocketmq.client.impl.MQClientAPIImpl#getTopicRouteInfoFromNameServer,
NettyRemotingClient#getAndCreateNameserverChannel, MQClientInstance#findBrokerAddressInSubscribe.
"""

import logging
import ssl
from collections.abc import Sequence
from contextlib import suppress
from typing import Any, Final, Self

from mqstore.errors import StoreError, UnknownTopicError, shown
from mqstore.live.remoting import requests
from mqstore.live.remoting.advice import absence, all_failed, located, no_topic, warn_of_strangers
from mqstore.live.remoting.answers import checked, rows, table, value
from mqstore.live.remoting.connection import Connection
from mqstore.live.remoting.errors import BrokerTimeoutError, BrokerUnavailableError, NoMasterError
from mqstore.live.remoting.frame import Frame
from mqstore.live.remoting.requests import Request
from mqstore.live.remoting.retry import Retry
from mqstore.live.remoting.routes import (
    MASTER_ID,
    Addresses,
    Route,
    parse_brokers,
    parse_route,
    refuse_static,
)
from mqstore.live.remoting.settings import ClusterSettings

_LOG = logging.getLogger(__name__)
_IN_A_PIPELINE: Final = 64


class Cluster:
    """Connections to the servers of a cluster. A context manager; not for several threads.

    Its requests raise BrokerUnavailableError after ``retry_timeout_ms`` of failures,
    AccessDeniedError, RequestRefusedError, BrokenAnswerError.
    """

    def __init__(
        self,
        settings: ClusterSettings,
        *,
        was_reached: bool = False,
        tls: ssl.SSLContext | None = None,
    ) -> None:
        """Connect to nothing yet; raises InvalidOptionError for unusable TLS files.

        ``was_reached``: the servers answered the driver, so that none answers now will pass.
        ``tls``: the context of these settings, made before.
        """
        self.settings = settings
        self._tls = tls or (settings.tls.context() if settings.tls else None)
        self._open: dict[str, Connection] = {}
        self._name_servers = list(settings.name_servers)
        self._has_contact = was_reached
        self._brokers: dict[str, Addresses] = {}
        self._routes: dict[str, Route] = {}
        self._has_compared = False
        self._absent: set[tuple[str, str]] = set()

    def twin(self) -> "Cluster":
        """Return a cluster with connections of its own that knows where this one's brokers are."""
        found = Cluster(self.settings, was_reached=self._has_contact, tls=self._tls)
        found._brokers = dict(self._brokers)
        return found

    def close(self) -> None:
        """Close all connections."""
        for connection in self._open.values():
            connection.close()
        self._open.clear()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def route(self, topic: str, *, fresh: bool = False) -> Route | None:
        """Return where the topic's queues are; None where no name server knows it.

        That is so for a topic that does not exist, and for one whose brokers are all away. A
        route once told is kept until a ``fresh`` one is asked for. Raises UnsupportedTopicError
        for a static topic.
        """
        if topic not in self._routes or fresh:
            return self.fresh_routes([topic])[0]
        return self._routes[topic]

    def fresh_routes(self, topics: Sequence[str]) -> list[Route | None]:
        """Ask where topics are, all at once; returns for each what ``route`` returns."""
        found: list[tuple[str, Route | None]] = []
        for first in range(0, len(topics), _IN_A_PIPELINE):
            found += self._ask_for_routes(topics[first : first + _IN_A_PIPELINE])
        return [self._kept(topic, route) for topic, route in found]

    def _kept(self, topic: str, found: Route | None) -> Route | None:
        if found is None:
            self._routes.pop(topic, None)
            return None
        refuse_static(found)
        self._routes[topic] = found
        self._brokers |= found.brokers
        return found

    def note_absent(self, broker: str, topic: str) -> None:
        """Note that a broker lacks a topic that name servers show on it; the first time, warn."""
        if (broker, topic) not in self._absent:
            self._absent.add((broker, topic))
            _LOG.warning("left out: %s", absence(broker, topic))

    def without_absent(self, route: Route) -> Route:
        """Return a route without the brokers that turned out to lack its topic."""
        lacking = {broker for broker, topic in self._absent if topic == route.topic}
        return route.without(lacking) if lacking else route

    def known_route(self, topic: str, option: str = "subscribe") -> Route:
        """Return the route; raises UnknownTopicError with the nearest names where there is none."""
        found = self.route(topic)
        if found is None:
            raise UnknownTopicError(no_topic(topic, option, self.topic_names()))
        return found

    def topic_names(self) -> list[str]:
        """Return all names that name servers list: topics, and names of brokers and clusters."""
        answer, address = self.ask_name_server(request := requests.GET_ALL_TOPIC_LIST())
        names = rows(address, value(address, request, answer), "topicList")
        return sorted(name for name in names if isinstance(name, str))

    def brokers(self) -> dict[str, Addresses]:
        """Return the addresses of all brokers registered now."""
        found, address = self._cluster_info()
        brokers = parse_brokers(address, found)
        self._brokers |= brokers
        return brokers

    def cluster_names(self) -> list[str]:
        """Return the names of the clusters that the brokers are of: each has a topic's name too."""
        found, address = self._cluster_info()
        return sorted(str(name) for name in table(address, found, "clusterAddrTable"))

    def _cluster_info(self) -> tuple[Any, str]:
        answer, address = self.ask_name_server(request := requests.GET_BROKER_CLUSTER_INFO())
        return value(address, request, answer), address

    def master(self, broker: str) -> str:
        """Return the address of a broker's master; raises NoMasterError where none is known."""
        return self._address(broker, MASTER_ID)

    def reading_address(self, broker: str) -> str:
        """Return the address to pull a broker's messages from, as ``read_from`` says.

        Raises NoMasterError where only slaves are there and ``read_from`` is not ``any``.
        """
        if self.settings.read_from == "master":
            return self.master(broker)
        slaves = sorted(id_ for id_ in self._addresses(broker) if id_ != MASTER_ID)
        if self.settings.read_from == "slave" and slaves:
            return self._address(broker, slaves[0])
        if self.has_master(broker) or not slaves or self.settings.read_from == "slave":
            return self.master(broker)
        return self._address(broker, slaves[0])

    def asking_address(self, broker: str) -> str:
        """Return the address to ask all else: the master's; a slave's if that is gone, with any.

        Raises NoMasterError where there is none of them.
        """
        if self.settings.read_from == "any":
            return self.reading_address(broker)
        return self.master(broker)

    def has_master(self, broker: str) -> bool:
        """Tell whether a broker's master is registered, or ``broker_addresses`` names it."""
        return MASTER_ID in self._addresses(broker) or broker in self.settings.broker_addresses

    def forget(self, broker: str) -> None:
        """Have the next request to a broker ask the name servers where it is."""
        self._brokers.pop(broker, None)

    def connection(self, address: str) -> Connection:
        """Return the open connection to a server, or a new one; raises BrokerUnavailableError."""
        connection = self._open.get(address)
        if connection is None or not connection.is_open:
            settings = self.settings
            connection = self._open[address] = Connection(
                address, settings.limits, credentials=settings.credentials, tls=self._tls
            )
        return connection

    def abandon(self) -> None:
        """Want none of the answers that are under way, on any connection."""
        for connection in self._open.values():
            connection.abandon()

    def ask(self, broker: str, request: Request) -> tuple[Frame, str]:
        """Ask a broker (see ``asking_address``); returns the answer and the server's address."""
        return self.ask_all([(broker, request)])[0]

    def value(self, broker: str, request: Request) -> tuple[Any, str]:
        """Ask a broker; returns the value in the answer's body and the server's address."""
        answer, address = self.ask(broker, request)
        return value(address, request, answer), address

    def ask_all(self, asked: Sequence[tuple[str, Request]]) -> list[tuple[Frame, str]]:
        """Ask many things of many brokers at once; returns answers and addresses in that order.

        What a broken connection or a busy broker left open is asked again.
        """
        answers: dict[int, tuple[Frame, str]] = {}
        retry = Retry(self.settings.retry_timeout_ms)
        while len(answers) < len(asked):
            before = len(answers)
            failure = self._ask_open(asked, answers, is_first=not retry.failures)
            if failure is None:
                continue
            if len(answers) > before:
                retry.succeeded()
            retry.failed(failure)
            if retry.wants_new_route:
                for broker in {broker for i, (broker, _) in enumerate(asked) if i not in answers}:
                    self.forget(broker)
        return [answers[place] for place in range(len(asked))]

    def ask_name_server(self, request: Request) -> tuple[Frame, str]:
        """Ask the name servers in turn until one answers; returns the answer and its address.

        A refusal is an answer. Before the first contact each is tried once, later on for
        ``retry_timeout_ms``.
        """
        answers, address = self._ask_name_server([request])
        return answers[0], address

    def _ask_name_server(self, asked: Sequence[Request]) -> tuple[list[Frame], str]:
        retry = Retry(self.settings.retry_timeout_ms if self._has_contact else 0)
        while True:
            failures = []
            for address in list(self._name_servers):
                try:
                    answers = self._ask_address(address, asked)
                except BrokerUnavailableError as error:
                    failures.append(error)
                    self._name_servers.append(self._name_servers.pop(0))
                else:
                    self._has_contact = True
                    return answers, address
            retry.failed(all_failed(failures))

    def _ask_open(
        self,
        asked: Sequence[tuple[str, Request]],
        answers: dict[int, tuple[Frame, str]],
        *,
        is_first: bool,
    ) -> StoreError | None:
        """Ask what has no answer yet, a pipeline to each broker; return a failure, if any."""
        by_broker: dict[str, list[int]] = {}
        for place, (broker, _) in enumerate(asked):
            if place not in answers:
                by_broker.setdefault(broker, []).append(place)
        failure: StoreError | None = None
        sent: list[tuple[str, Connection, list[tuple[int, int]]]] = []
        for broker, places in by_broker.items():
            try:
                connection = self.connection(self.asking_address(broker))
                some = places[:_IN_A_PIPELINE]
                opaques = connection.send_all([asked[place][1] for place in some])
                sent.append((broker, connection, list(zip(some, opaques, strict=True))))
            except BrokerUnavailableError as error:
                failure = located(broker, error)
            except NoMasterError as error:
                if is_first:
                    raise
                failure = error
        for broker, connection, numbers in sent:
            try:
                self._receive(asked, answers, connection, numbers)
            except BrokerUnavailableError as error:
                failure = located(broker, error)
            except StoreError:
                self.abandon()
                raise
        return failure

    def _receive(
        self,
        asked: Sequence[tuple[str, Request]],
        answers: dict[int, tuple[Frame, str]],
        connection: Connection,
        numbers: Sequence[tuple[int, int]],
    ) -> None:
        for place, opaque in numbers:
            address, answer = connection.address, connection.receive(opaque)
            answers[place] = checked(address, asked[place][1], answer), address

    def _ask_address(self, address: str, asked: Sequence[Request]) -> list[Frame]:
        # A server closes a connection that was idle for two minutes: what fails on an old one
        # is tried on a new one.
        was_open = address in self._open and self._open[address].is_open
        for is_old in (True, False) if was_open else (False,):
            try:
                connection = self.connection(address)
                numbers = zip(asked, connection.send_all(asked), strict=True)
                return [checked(address, one, connection.receive(at)) for one, at in numbers]
            except BrokerUnavailableError as error:
                if not is_old or isinstance(error, BrokerTimeoutError):
                    raise
        raise AssertionError

    def _ask_for_routes(self, topics: Sequence[str]) -> list[tuple[str, Route | None]]:
        """Return what name servers say; all of them are asked while one lacks a known broker."""
        found: dict[str, Route | None] = dict.fromkeys(topics)
        left = list(found)
        for _ in self._name_servers:
            asked = [
                requests.GET_ROUTEINFO_BY_TOPIC(topic=topic, acceptStandardJsonOnly=True)
                for topic in left
            ]
            answers, address = self._ask_name_server(asked)
            for topic, request, answer in zip(left, asked, answers, strict=True):
                if answer.code == requests.SUCCESS:
                    route = parse_route(address, topic, value(address, request, answer))
                    before = found[topic]
                    if before is None or len(route.queues) > len(before.queues):
                        found[topic] = route
            left = [topic for topic in left if self._lacks_brokers(topic, found[topic])]
            if not left:
                break
            self._name_servers.append(self._name_servers.pop(0))
        return [(topic, found[topic]) for topic in topics]

    def _lacks_brokers(self, topic: str, found: Route | None) -> bool:
        known = self._routes.get(topic)
        return known is not None and not set(known.queues) <= set(found.queues if found else ())

    def _addresses(self, broker: str) -> Addresses:
        # While a broker registers, name servers show it without any address for a moment.
        if not self._brokers.get(broker):
            self.brokers()
        return self._brokers.get(broker, {})

    def _address(self, broker: str, broker_id: int) -> str:
        overrides = self.settings.broker_addresses
        if broker in overrides and broker_id == MASTER_ID:
            return overrides[broker]
        if overrides and not self._has_compared:  # One of them may be misspelt.
            self._has_compared = True
            with suppress(StoreError):
                warn_of_strangers(overrides, self.brokers())
        found = self._addresses(broker)
        if broker_id not in found:
            slaves = ", ".join(found[id_] for id_ in sorted(found)) or "no slave either"
            raise NoMasterError(
                f"broker {shown(broker)} has no master at the name servers "
                f"({', '.join(self._name_servers)}); there is {shown(slaves)}. Start it; or "
                "set readFrom=any, which reads a slave where no master is"
            )
        return found[broker_id]
