"""The remoting port of a RocketMQ 5 proxy: how it is told from a name server, and what it serves.

A proxy is name server and broker in one. It answers routes, and forwards requests about one topic
or group to the broker that their field ``bname`` names (``n`` of a send); a request for a broker
that it does not know gets no answer. An answer is dropped while 64 KiB wait for the connection, so
one answer that may be large is under way on a connection at a time.

Reference: org.apache.rocketmq.proxy.remoting.RemotingProtocolServer#registerRemotingServer,
AbstractRemotingActivity#request, #writeResponse; LocalMessageService#request.
"""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any, Final

from mqstore.errors import InvalidOptionError
from mqstore.live.remoting import requests
from mqstore.live.remoting.answers import rows, table
from mqstore.live.remoting.errors import NotServedError
from mqstore.live.remoting.frame import Frame
from mqstore.live.remoting.requests import Request
from mqstore.live.remoting.settings import AUTO, PROXY, ClusterSettings

_SERVED: Final = frozenset(
    {10, 11, 14, 15, 29, 30, 31, 34, 35, 36, 37, 38, 41, 42, 46, 105, 203, 310, 320, 361}
)
"""RequestCodes of proxies since 5.1."""
_SMALL: Final = frozenset({14, 15, 29, 30, 31, 310, 320})
"""Those whose answers have a hundred bytes: several may be under way."""
_ROUTE_CODE: Final = 105
_LARGE_AT_A_TIME: Final = 4
"""Connections to each broker for answers that may be large, asked for one by one."""
_PROXYS_FIELD: Final = "MSG_REGION"
_BROKER_NAME: Final = "bname"
_SHORT_BROKER_NAME: Final = "n"
IN_A_PIPELINE: Final = 64
ROUTES_IN_A_PIPELINE: Final = 8


def given(settings: ClusterSettings) -> bool | None:
    """Return whether the option ``endpoint`` says that the addresses are proxies'; None: neither.

    Raises InvalidOptionError for options that no proxy can follow.
    """
    if settings.endpoint == PROXY:
        check_options(settings)
    return None if settings.endpoint == AUTO else settings.endpoint == PROXY


def check_options(settings: ClusterSettings) -> None:
    """Raise InvalidOptionError for options that no proxy can follow."""
    if settings.read_from != "master":
        expected = "cannot be through a proxy, which asks masters: read from the brokers directly"
        raise InvalidOptionError("readFrom", settings.read_from, expected)
    if settings.broker_addresses:
        named = ", ".join(sorted(settings.broker_addresses))
        expected = "is for brokers that are asked directly, and this is the address of a proxy"
        raise InvalidOptionError("brokerAddresses", named, expected)
    if settings.proxies:
        expected = "stands beside name servers, and this is the address of a proxy"
        raise InvalidOptionError("proxies", ", ".join(settings.proxies), expected)


def bears_mark(answer: Frame) -> bool:
    """Tell whether an answer is marked as a proxy marks each of its answers."""
    return _PROXYS_FIELD in answer.fields


def served(address: str, broker: str, request: Request) -> Request:
    """Return the request for a broker as a proxy takes it; raises NotServedError."""
    check_served(address, request)
    if request.code == _ROUTE_CODE or _SHORT_BROKER_NAME in request.fields:
        return request
    return replace(request, fields={**request.fields, _BROKER_NAME: broker})


def check_served(address: str, request: Request) -> None:
    """Raise NotServedError for a request that no proxy serves."""
    if request.code not in _SERVED:
        code = requests.REQUEST_CODE_NOT_SUPPORTED
        raise NotServedError(address, request.name, code, "not supported")


def lanes(
    broker: str, places: Sequence[int], asked: Sequence[tuple[str, Request]]
) -> Iterator[tuple[str, list[int]]]:
    """Yield connections by name, and which of the requests are sent by each now.

    ``places`` are of requests to one broker. Answers of a hundred bytes come in a pipeline, others
    by connections of their own, one each; the rest of them waits.
    """
    small = [place for place in places if asked[place][1].code in _SMALL]
    large = [place for place in places if asked[place][1].code not in _SMALL]
    if small:
        yield broker, small[:IN_A_PIPELINE]
    for number, place in enumerate(large[:_LARGE_AT_A_TIME]):
        yield f"{broker} {number}", [place]


def names_port_of(address: str, found: Any) -> tuple[bool, str]:
    """Tell whether a route names the port that was asked; return the first other one."""
    own = address.rpartition(":")[2]
    hosts: list[str] = []
    for broker in rows(address, found, "brokerDatas"):
        hosts += map(str, table(address, broker, "brokerAddrs").values())
    ports = [host.rpartition(":")[2] for host in hosts]
    return own in ports or not ports, next((port for port in ports if port != own), "")
