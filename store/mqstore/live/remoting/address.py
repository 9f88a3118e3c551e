"""A cluster named by a person: its name servers, topics of it, and one of its tables.

rocketmq://ns1:9876,ns2:9876                 a cluster
rocketmqs://ns1:9876/TopicA,TopicB           two topics of it, spoken to over TLS
rocketmq://[::1]:9876/TopicA#backlog         one of its tables; IPv6 stands in brackets

Nothing is decoded: ``%`` is part of the names of retry and DLQ topics.

Reference: the client's namesrvAddr (MixAll.NAMESRV_ADDR_PROPERTY), host:port separated by ``;``.
"""

import json
import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from mqstore.errors import InvalidOptionError
from mqstore.format.names import is_topic

DEFAULT_PORT: Final = 9876
PROXY_PORT: Final = 8080
_ADDRESS: Final = re.compile(r"(rocketmqs?)://([^/#]*)(?:/([^#]*))?(?:#([A-Za-z_]+)/?)?")
_SERVER: Final = re.compile(r"(\[[0-9A-Fa-f:.]+\]|[A-Za-z0-9_][A-Za-z0-9_.-]*)(?::([0-9]{1,5}))?")
_NO_USER: Final = (
    "has no user and no password in it: set accessKey and secretKey, or credentialsFile, or the "
    "variables MQLOG_ACCESS_KEY and MQLOG_SECRET_KEY"
)
_FORM: Final = "write rocketmq://HOST:9876,HOST:9876/TOPIC,TOPIC, with rocketmqs:// for TLS"


@dataclass(frozen=True, slots=True)
class Address:
    """Name servers (host:port), topics (none: all), the table after ``#``, and whether by TLS."""

    name_servers: tuple[str, ...]
    topics: tuple[str, ...]
    table: str | None
    tls: bool


def is_address(path: str) -> bool:
    """Tell whether a path names a cluster and no directory."""
    return re.match(r"rocketmqs?:", path, re.IGNORECASE) is not None


def parse_address(path: str) -> Address:
    """Return what ``rocketmq://…`` names; raises InvalidOptionError."""
    scheme, _, rest = path.partition("://")
    if "@" in rest:  # A password may stand before it: it is not repeated.
        raise InvalidOptionError("path", f"{scheme}://***@{rest.rpartition('@')[2]}", _NO_USER)
    match = _ADDRESS.fullmatch(f"{scheme.lower()}://{rest}")
    if match is None:
        raise InvalidOptionError("path", path, _FORM)
    _, servers, topics, table = match.groups()
    if not servers:
        raise InvalidOptionError("path", path, f"names no name server: {_FORM}")
    names = tuple(dict.fromkeys(filter(None, (topics or "").split(","))))
    for name in names:
        if not is_topic(name):
            raise InvalidOptionError("path", path, f"{name!r} cannot be a topic: {_FORM}")
    return Address(name_servers("path", servers), names, table, match[1] == "rocketmqs")


def name_servers(option: str, text: str) -> tuple[str, ...]:
    """Return host:port of each server of a list by ``,`` or ``;``; raises InvalidOptionError."""
    return tuple(dict.fromkeys(server(option, one, DEFAULT_PORT) for one in _pieces(option, text)))


def proxy_addresses(option: str, text: str) -> tuple[str, ...]:
    """Return host:port of each proxy of such a list, as ``name_servers``."""
    return tuple(dict.fromkeys(server(option, one, PROXY_PORT) for one in _pieces(option, text)))


def server(option: str, text: str, default_port: int | None = None) -> str:
    """Return ``host:port`` of a server; raises InvalidOptionError."""
    match = _SERVER.fullmatch(text.strip())
    port = (match[2] or default_port) if match else None
    if match is None or port is None or not 0 < int(port) < 65_536:
        raise InvalidOptionError(
            option, text, "must be host:port, with an IPv6 address in brackets"
        )
    return f"{match[1]}:{int(port)}"


def broker_addresses(option: str, text: str) -> dict[str, str]:
    """Return host:port by broker of ``{"broker-a":"host:port"}``; raises InvalidOptionError."""
    form = '{"broker-a":"host:port"}'
    try:
        found = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise InvalidOptionError(option, text, f"is not JSON ({error}): write {form}") from None
    if not isinstance(found, dict) or not all(isinstance(v, str) for v in found.values()):
        raise InvalidOptionError(option, text, f"must be JSON such as {form}")
    return {broker: server(option, host) for broker, host in found.items()}


def _pieces(option: str, text: str) -> Sequence[str]:
    pieces = [piece for piece in re.split("[,;]", text) if piece.strip()]
    if not pieces:
        raise InvalidOptionError(option, text, "names no name server: host:port, by commas")
    return pieces
