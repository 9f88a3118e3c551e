"""The servers that a cluster is reached by: connections, and the name servers that are asked first.

Reference: NettyRemotingClient#getAndCreateNameserverChannelAsync; proxies.py for proxies.
"""

import itertools
import ssl
from collections.abc import Collection, Iterable, Sequence
from dataclasses import replace
from functools import partial
from typing import Final, Self

from mqstore.errors import StoreError
from mqstore.live.remoting import proxies, requests
from mqstore.live.remoting.advice import all_failed, located, warn_of_silence
from mqstore.live.remoting.answers import checked
from mqstore.live.remoting.asking import SideBySide
from mqstore.live.remoting.connection import Connection
from mqstore.live.remoting.errors import (
    BrokerTimeoutError,
    BrokerUnavailableError,
    RequestRefusedError,
)
from mqstore.live.remoting.frame import Frame
from mqstore.live.remoting.requests import Request
from mqstore.live.remoting.retry import Retry
from mqstore.live.remoting.settings import NAME_SERVER, PROXY, ClusterSettings
from mqstore.live.remoting.sockets import Patience

_NOT_SERVED: Final = requests.REQUEST_CODE_NOT_SUPPORTED
ANSWERED_OR_NOT: Final = frozenset({requests.SUCCESS, _NOT_SERVED})
_PROBED_TOPIC: Final = "TBW102"  # TopicValidator.AUTO_CREATE_TOPIC_KEY_TOPIC
_OF_A_BROKER: Final = "this is the address of a broker: name its name server, or a proxy"


class Servers:
    """Name servers or proxies, and connections to them and to brokers."""

    def __init__(
        self, settings: ClusterSettings, *, was_reached: bool, tls: ssl.SSLContext | None
    ) -> None:
        self.settings = settings
        """With what ``endpoint`` turned out to be, once that is known."""
        self._tls = tls or (settings.tls.context() if settings.tls else None)
        self._open: dict[tuple[str, str], Connection] = {}
        self._name_servers = list(settings.name_servers)
        self._side_by_side = SideBySide[list[Frame]]()
        self._closings = 0
        self.patience = Patience()
        self._unreached: set[str] = set()
        """Addresses to which the last connection could not be made."""
        self._silence = ""
        """What to add to the error of a broker that is silent behind proxies."""
        self._naming: dict[str, list[str]] = {}
        """By broker the proxies whose routes name it."""
        self._has_contact = was_reached
        self._is_proxy = proxies.given(settings)
        self._was_reached = was_reached
        self._understood: set[str] = set()
        """Addresses of servers that once answered: they speak as we do."""

    def close(self) -> None:
        """Close all connections."""
        self._closings += 1
        for connection in list(self._open.values()):
            connection.close()
        self._open.clear()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def connection(self, address: str, name: str = "") -> Connection:
        """Return the open connection of that name to a server, or a new one.

        Raises BrokerUnavailableError.
        """
        connection = self._open.get((address, name))
        if connection is None or not connection.is_open:
            self._unreached.add(address)
            connection = self._open[address, name] = Connection(
                address,
                self.settings.limits,
                credentials=self.settings.credentials,
                tls=self._tls,
                understood=self._understood,
                finds_out_why=not self._was_reached,
            )
            connection.patience = self.patience
            self._unreached.discard(address)
        return connection

    def is_connected(self, address: str) -> bool:
        """Tell whether a connection to a server is open."""
        connection = self._open.get((address, ""))
        return connection is not None and connection.is_open

    def reached(self, address: str, name: str = "") -> Connection:
        """Return a connection to a server; of proxies, to that or the first that can be reached.

        Raises BrokerUnavailableError.
        """
        if not self._is_proxy:
            return self.connection(address, name)
        failures = []
        for other in dict.fromkeys((address, *self._name_servers)):
            try:
                return self.connection(other, name)
            except BrokerUnavailableError as error:
                failures.append(error)
                self.failed_at(other)
        raise all_failed(failures)

    def located(self, broker: str, error: BrokerUnavailableError) -> BrokerUnavailableError:
        """Return the error with the broker's name; what follows goes to another proxy, if any."""
        self.failed_at(error.address)
        if self._is_proxy:
            may_be = self._silence if isinstance(error, BrokerTimeoutError) else ""
            return type(error)(f"{broker} through {error.address}", error.reason + may_be)
        return located(broker, error)

    def abandon(self) -> None:
        """Want none of the answers that are under way, on any connection."""
        for connection in list(self._open.values()):
            if self._is_proxy and connection.is_awaiting:
                connection.close()  # No other answer may be under way with the next.
            connection.abandon()

    def send_pulls(
        self, broker: str, address: str, pulls: Sequence[Request], busy: Collection[Connection]
    ) -> list[tuple[Connection, int]]:
        """Send pulls; return for each the connection and the number to receive its answer by.

        Each is sent to a proxy by a connection of its own that is not ``busy``. Raises
        BrokerUnavailableError.
        """
        if not self._is_proxy:
            connection = self.connection(address)
            return [(connection, opaque) for opaque in connection.send_all(pulls)]
        sent, number = [], itertools.count()
        for request in pulls:
            while (one := self.reached(address, f"{broker} pull {next(number)}")) in busy:
                pass
            one.drain()
            sent.append((one, one.send(proxies.served(one.address, broker, request))))
        return sent

    def failed_at(self, address: str) -> None:
        """Have the next requests go to another proxy than that, if there is another."""
        if not self._is_proxy:
            return
        self._put_last(address)
        for naming in self._naming.values():
            if address in naming:
                naming.remove(address)

    def _note_naming(self, address: str, brokers: Iterable[str]) -> None:
        for broker in brokers:
            naming = self._naming.setdefault(broker, [])
            if address not in naming:
                naming.append(address)

    def settings_for(self, broker: str) -> ClusterSettings:
        """Return the settings, with the proxies first that named the broker in a route."""
        naming = self._naming.get(broker, ())
        if not self._is_proxy or len(naming) in {0, len(self.settings.name_servers)}:
            return self.settings
        ordered = sorted(self.settings.name_servers, key=lambda address: address not in naming)
        return replace(self.settings, name_servers=tuple(ordered))

    def _proxy_of(self, broker: str) -> str:
        """Return the first proxy that named the broker in a route, else the first one.

        A proxy that does not know a broker yet answers nothing about it.
        """
        naming = self._naming.get(broker, ())
        return next((one for one in self._name_servers if one in naming), self._name_servers[0])

    def _put_last(self, address: str) -> None:
        if address in self._name_servers:
            self._name_servers.remove(address)
            self._name_servers.append(address)

    def silent_proxies(self) -> list[BrokerUnavailableError]:
        """Ask each proxy; return the failures of those that may still run and do not answer.

        Where a connection is refused, none runs, and it holds no request any more. None of name
        servers.
        """
        request = requests.GET_ROUTEINFO_BY_TOPIC(topic=_PROBED_TOPIC, acceptStandardJsonOnly=True)
        silent = []
        for address in self.settings.name_servers if self._is_proxy else ():
            try:
                self._exchanged(address, [request])
            except BrokerUnavailableError as error:
                if not isinstance(error.__cause__, ConnectionRefusedError):
                    silent.append(error)
        return silent

    def ask_name_servers(self, asked: Sequence[Request]) -> list[tuple[list[Frame], str]]:
        """Ask all name servers the same at once; returns the answers and the address of each.

        Of those that answer, one at least: what only another one knows is not there, which is
        warned of. A refusal is an answer. Before the first contact each is tried once, later on
        for ``retry_timeout_ms``.
        """
        retry = Retry(self.settings.retry_timeout_ms if self._has_contact else 0)
        while True:
            retry.begins()
            answers, failures = self._ask_all_once(asked)
            if answers:
                self._has_contact = True
                for address, error in failures.items():
                    self._put_last(address)
                    warn_of_silence(address, error, is_proxy=bool(self._is_proxy))
                return answers
            errors = [error for error in failures.values() if error is not None]
            for error in errors:
                if not isinstance(error, BrokerUnavailableError):
                    raise error
            retry.failed(all_failed([e for e in errors if isinstance(e, BrokerUnavailableError)]))

    def _ask_all_once(
        self, asked: Sequence[Request]
    ) -> tuple[list[tuple[list[Frame], str]], dict[str, StoreError | None]]:
        addresses = list(self._name_servers)
        for request in asked if self._is_proxy else ():
            proxies.check_served(addresses[0], request)
        told, failures = self._side_by_side.ask(addresses, partial(self._exchanged_apart, asked))
        answers = []
        for address in (address for address in addresses if address in told):
            try:
                answers.append((self._checked(address, asked, told[address]), address))
            except StoreError as error:
                failures[address] = error
        return answers, failures

    def _checked(
        self, address: str, asked: Sequence[Request], answers: Sequence[Frame]
    ) -> list[Frame]:
        """Return the answers of a server; the first one tells what servers there are."""
        if self._is_proxy is None and self._find_out(address, asked[0], answers[0]):
            for request in asked:
                if request.accepts != ANSWERED_OR_NOT:
                    proxies.check_served(address, request)
        return [checked(address, *pair) for pair in zip(asked, answers, strict=True)]

    def _exchanged_apart(self, asked: Sequence[Request], address: str) -> list[Frame]:
        """Ask a server, in whatever thread; a connection that outlives ``close`` is closed."""
        closings = self._closings
        try:
            return self._exchanged(address, asked)
        finally:
            if closings != self._closings:
                connection = self._open.pop((address, ""), None)
                if connection is not None:
                    connection.close()

    def _find_out(self, address: str, request: Request, answer: Frame) -> bool:
        """Return by an answer whether a name server or a proxy gave it; ask once more if unsure.

        A name server answers GET_BROKER_CLUSTER_INFO, a proxy does not. Of what does not either,
        a proxy answers for a route, and a broker does not.
        """
        other = requests.GET_BROKER_CLUSTER_INFO()
        if answer.code == _NOT_SERVED:
            other = requests.GET_ROUTEINFO_BY_TOPIC(
                topic=_PROBED_TOPIC, acceptStandardJsonOnly=True
            )
        elif not proxies.bears_mark(answer):
            return self._settle(is_proxy=False)
        (second,) = self._exchanged(address, [other])
        is_proxy = (second.code == _NOT_SERVED) != (answer.code == _NOT_SERVED)
        if not is_proxy and answer.code == _NOT_SERVED:
            raise RequestRefusedError(address, request.name, answer.code, _OF_A_BROKER)
        return self._settle(is_proxy=is_proxy)

    def _settle(self, *, is_proxy: bool) -> bool:
        self._is_proxy = is_proxy
        if is_proxy:
            proxies.check_options(self.settings)
        self.settings = replace(self.settings, endpoint=PROXY if is_proxy else NAME_SERVER)
        return is_proxy

    def _exchanged(self, address: str, asked: Sequence[Request]) -> list[Frame]:
        # A server closes a connection that was idle for two minutes: what fails on an old one
        # is tried on a new one.
        was_open = (address, "") in self._open and self._open[address, ""].is_open
        for is_old in (True, False) if was_open else (False,):
            try:
                connection = self.connection(address)
                return [connection.receive(opaque) for opaque in connection.send_all(asked)]
            except BrokerUnavailableError as error:
                if not is_old or isinstance(error, BrokerTimeoutError):
                    raise
        raise AssertionError
