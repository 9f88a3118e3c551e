"""A cluster: its name servers, what they tell of brokers, and connections to the servers.

Name servers know nothing of each other, and each forgets a broker with its connection, and all of
them when it is started again. So all are asked, and what they know is merged.
In their place may be RocketMQ 5 proxies (proxies.py), which serve all brokers at their own address:
which of both they are is told by their first answers.

Reference: org.apache.rocketmq.client.impl.MQClientAPIImpl#getTopicRouteInfoFromNameServer,
NettyRemotingClient#getAndCreateNameserverChannelAsync,
MQClientInstance#findBrokerAddressInSubscribe.
"""

import logging
import math
import ssl
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from typing import Any

from mqstore.errors import StoreError, UnknownTopicError, shown
from mqstore.live.remoting import local_mode, proxies, requests
from mqstore.live.remoting.advice import (
    absence,
    no_topic,
    warn_of_strangers,
    warn_of_unregistered,
)
from mqstore.live.remoting.ahead import Ahead
from mqstore.live.remoting.answers import checked, rows, table, value
from mqstore.live.remoting.connection import Connection
from mqstore.live.remoting.errors import (
    BrokerUnavailableError,
    NoMasterError,
)
from mqstore.live.remoting.frame import Frame
from mqstore.live.remoting.requests import Request
from mqstore.live.remoting.retry import Retry
from mqstore.live.remoting.routes import (
    MASTER_ID,
    Addresses,
    Route,
    merge_addresses,
    merge_routes,
    parse_brokers,
    parse_route,
    refuse_static,
)
from mqstore.live.remoting.servers import ANSWERED_OR_NOT, Servers
from mqstore.live.remoting.settings import ClusterSettings

_LOG = logging.getLogger(__name__)


class Cluster(Servers):
    """The servers of a cluster. A context manager; not for several threads.

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
        super().__init__(settings, was_reached=was_reached, tls=tls)
        self._was_served = was_reached
        self._brokers: dict[str, Addresses] = {}
        self._routes: dict[str, Route] = {}
        self._has_compared = False
        self._absent: set[tuple[str, str]] = set()
        self._with_master: set[str] = set()
        """Brokers of which a master was registered once."""
        self.proven: dict[tuple[str, str, int], float] = {}
        """When queues (broker, topic, queueId) last gave their last message: monotonic seconds."""
        self.ahead = Ahead()
        """What was asked of many brokers at once, for those who ask one by one."""

    def twin(self) -> "Cluster":
        """Return a cluster with connections of its own that knows where this one's brokers are."""
        found = Cluster(self.settings, was_reached=self._has_contact, tls=self._tls)
        found._brokers = dict(self._brokers)
        found._with_master = self._with_master
        found._naming = self._naming
        found._was_served, found._was_reached = self._was_served, self._was_reached
        found._understood = self._understood
        found._name_servers = self._name_servers  # What fails for one is passed over by both.
        return found

    @property
    def is_proxy(self) -> bool:
        """Tell whether proxies are at the addresses; asks where it is not known yet."""
        if self._is_proxy is None:
            self.brokers()
        return bool(self._is_proxy)

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
        step = proxies.ROUTES_IN_A_PIPELINE if self._is_proxy else proxies.IN_A_PIPELINE
        for first in range(0, len(topics), step):
            found += self._ask_for_routes(topics[first : first + step])
        return [self._kept(topic, route) for topic, route in found]

    def _kept(self, topic: str, found: Route | None) -> Route | None:
        if found is None:
            self._routes.pop(topic, None)
            return None
        refuse_static(found)
        self._routes[topic] = found
        self._note_brokers(found.brokers)
        for broker in sorted(found.ordered - found.brokers.keys()):
            warn_of_unregistered(broker, f"the order of topic {shown(topic)}")
        return found

    def _note_brokers(self, brokers: Mapping[str, Addresses]) -> None:
        self._brokers |= brokers
        self._with_master |= {name for name, by_id in brokers.items() if MASTER_ID in by_id}

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
            names = () if self.is_proxy else self.topic_names()
            raise UnknownTopicError(no_topic(topic, option, names))
        return found

    def topic_names(self) -> list[str]:
        """Return all names that name servers list: topics, and names of brokers and clusters."""
        request, names = requests.GET_ALL_TOPIC_LIST(), set[str]()
        for (answer,), address in self.ask_name_servers([request]):
            listed = rows(address, value(address, request, answer), "topicList")
            names |= {name for name in listed if isinstance(name, str)}
        return sorted(names)

    def brokers(self) -> dict[str, Addresses]:
        """Return the addresses of all brokers registered now; of proxies, of those in routes."""
        told = [] if self._is_proxy else self._cluster_info()
        if self._is_proxy:
            return dict(self._brokers)
        brokers = merge_addresses(
            [parse_brokers(address, found) for found, address in told], self._unreached
        )
        self._note_brokers(brokers)
        warn_of_strangers(self.settings.broker_addresses, brokers)
        return brokers

    def cluster_names(self) -> list[str]:
        """Return the names of the clusters that the brokers are of: each has a topic's name too."""
        told = (
            table(address, found, "clusterAddrTable") for found, address in self._cluster_info()
        )
        return sorted({str(name) for clusters in told for name in clusters})

    def _cluster_info(self) -> list[tuple[Any, str]]:
        """Return what each name server knows, and its address; proxies tell nothing."""
        request = requests.GET_BROKER_CLUSTER_INFO()
        if self._is_proxy is None:  # A proxy is told by its refusal.
            request = replace(request, accepts=ANSWERED_OR_NOT)
        answers = self.ask_name_servers([request])
        if self._is_proxy:
            return []
        return [(value(address, request, answer), address) for (answer,), address in answers]

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
        if self.is_proxy:
            return True
        return MASTER_ID in self._addresses(broker) or broker in self.settings.broker_addresses

    def forget(self, broker: str) -> None:
        """Have the next request to a broker ask the name servers where it is."""
        self._brokers.pop(broker, None)

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
        known = ((place, self.ahead.get(*pair)) for place, pair in enumerate(asked))
        answers = {place: answer for place, answer in known if answer is not None}
        retry = Retry(self.settings.retry_timeout_ms)
        while len(answers) < len(asked):
            before = len(answers)
            retry.begins()
            self.patience.until = retry.until
            try:
                failure = self._ask_open(asked, answers, is_first=not retry.failures)
            finally:
                self.patience.until = math.inf
            if failure is None:
                continue
            if len(answers) > before:
                retry.succeeded()
            retry.failed(failure)
            if retry.wants_new_route:
                for broker in {broker for i, (broker, _) in enumerate(asked) if i not in answers}:
                    self.forget(broker)
        return [answers[place] for place in range(len(asked))]

    def _ask_open(
        self,
        asked: Sequence[tuple[str, Request]],
        answers: dict[int, tuple[Frame, str]],
        *,
        is_first: bool,
    ) -> StoreError | None:
        """Ask what has no answer yet, a pipeline to each broker; return a failure, if any.

        Brokers that are silent, and all connections to one of them, cost one time-out together.
        """
        by_broker: dict[str, list[int]] = {}
        for place, (broker, _) in enumerate(asked):
            if place not in answers:
                by_broker.setdefault(broker, []).append(place)
        failure: StoreError | None = None
        sent: list[tuple[str, Connection, list[tuple[int, int]]]] = []
        for broker, places in by_broker.items():
            try:
                sent += self._sent(broker, places, asked)
            except BrokerUnavailableError as error:
                failure = self.located(broker, error)
            except NoMasterError as error:
                if is_first and not self._had_master(broker):
                    raise
                failure = error
        return self._received(sent, asked, answers) or failure

    def _received(
        self,
        sent: Sequence[tuple[str, Connection, Sequence[tuple[int, int]]]],
        asked: Sequence[tuple[str, Request]],
        answers: dict[int, tuple[Frame, str]],
    ) -> StoreError | None:
        """Receive what was sent; return a failure, if any."""
        failure: StoreError | None = None
        last_s = dict.fromkeys((broker for broker, *_ in sent), time.monotonic())
        for broker, connection, numbers in sent:
            try:
                for place, opaque in numbers:
                    address, answer = connection.address, connection.receive(opaque, last_s[broker])
                    last_s[broker] = time.monotonic()
                    answers[place] = checked(address, asked[place][1], answer), address
            except BrokerUnavailableError as error:
                failure = self.located(broker, error)
            except StoreError:
                self.abandon()
                raise
        return failure

    def _had_master(self, broker: str) -> bool:
        """Tell whether a broker's master was seen before: then it may come back."""
        return self._was_reached or broker in self._with_master

    def _sent(
        self, broker: str, places: Sequence[int], asked: Sequence[tuple[str, Request]]
    ) -> list[tuple[str, Connection, list[tuple[int, int]]]]:
        """Send what may be under way to a broker; return its connections, places and numbers."""
        address = self.asking_address(broker)
        if not self.is_proxy:
            some = places[: proxies.IN_A_PIPELINE]
            connection = self.connection(address)
            opaques = connection.send_all([asked[place][1] for place in some])
            return [(broker, connection, list(zip(some, opaques, strict=True)))]
        sent = []
        for name, some in proxies.lanes(broker, places, asked):
            connection = self.reached(address, name)
            wanted = [proxies.served(address, broker, asked[place][1]) for place in some]
            opaques = connection.send_all(wanted)
            sent.append((broker, connection, list(zip(some, opaques, strict=True))))
        return sent

    def _ask_for_routes(self, topics: Sequence[str]) -> list[tuple[str, Route | None]]:
        """Return the union of what name servers say, or proxies."""
        asked = [
            requests.GET_ROUTEINFO_BY_TOPIC(topic=topic, acceptStandardJsonOnly=True)
            for topic in topics
        ]
        told: dict[str, list[Route]] = {topic: [] for topic in topics}
        for answers, address in self.ask_name_servers(asked):
            for topic, request, answer in zip(topics, asked, answers, strict=True):
                if answer.code == requests.SUCCESS:
                    found = value(address, request, answer)
                    told[topic].append(self._route_of(address, topic, found))
        return [
            (topic, merge_routes(told[topic], self._unreached) if told[topic] else None)
            for topic in topics
        ]

    def _route_of(self, address: str, topic: str, found: Any) -> Route:
        """Return a route as it was told; that of a proxy with the proxy's own address.

        Raises LocalModeError for a proxy that names another port, and is in local mode.
        """
        route = parse_route(address, topic, found)
        if not self._is_proxy:
            return route
        self._note_naming(address, route.brokers)
        is_own, port = proxies.names_port_of(address, found)
        if not self._was_served and not is_own and route.queues:
            self._silence = local_mode.doubt(address, route, port, self.settings)
        self._was_served |= bool(route.queues)
        return replace(route, brokers={name: {MASTER_ID: address} for name in route.brokers})

    def _addresses(self, broker: str) -> Addresses:
        if self._is_proxy:
            return {MASTER_ID: self._proxy_of(broker)}
        # While a broker registers, name servers show it without any address for a moment.
        if not self._brokers.get(broker):
            self.brokers()
        return self._brokers.get(broker, {})

    def _address(self, broker: str, broker_id: int) -> str:
        if self.is_proxy:
            return self._proxy_of(broker)
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
