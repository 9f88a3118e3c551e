"""Sockets to host:port: addresses looked up and connected to, all before a deadline."""

import ipaddress
import math
import socket
import threading
import time
from dataclasses import dataclass
from typing import Any

from mqstore.errors import shown
from mqstore.live.remoting.errors import BrokerUnavailableError


@dataclass(slots=True)
class Patience:
    """When whoever asks gives up, whatever ``request_timeout_ms`` says: monotonic seconds."""

    until: float = math.inf


def split_host(address: str) -> tuple[str, int]:
    """Return host and port of ``host:port`` or ``[ipv6]:port``; raises BrokerUnavailableError."""
    host, _, port = address.rpartition(":")
    host = host[1:-1] if host.startswith("[") and host.endswith("]") else host
    if not host or not (port.isascii() and port.isdigit() and 0 < int(port[:9]) < 65_536):
        raise BrokerUnavailableError(address, "is no address: host:port")
    return host, int(port)


def connected(host: str, port: int, deadline: float) -> socket.socket:
    """Return a socket connected to the first of the host's addresses that answers."""
    last: OSError = OSError(f"{shown(host)} has no address")
    for family, kind, protocol, _, address in _addresses(host, port, deadline):
        left = deadline - time.monotonic()
        if left <= 0:
            raise TimeoutError
        made = socket.socket(family, kind, protocol)
        try:
            made.settimeout(left)
            made.connect(address)
        except OSError as error:
            made.close()
            last = error
            continue
        return made
    raise last


def _addresses(host: str, port: int, deadline: float) -> list[Any]:
    try:
        ipaddress.ip_address(host)
    except ValueError:
        pass
    else:
        return socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
    found: list[Any] = []

    # A resolver takes the time it takes and cannot be stopped: it is left behind when that is long.
    def look_up() -> None:
        try:
            found.append(socket.getaddrinfo(host, port, type=socket.SOCK_STREAM))
        except (OSError, UnicodeError) as error:
            found.append(error if isinstance(error, OSError) else OSError(str(error)))

    looking = threading.Thread(target=look_up, name=f"look up {host}", daemon=True)
    looking.start()
    looking.join(max(0.0, deadline - time.monotonic()))
    if not found:
        raise TimeoutError
    if isinstance(found[0], OSError):
        raise found[0]
    addresses: list[Any] = found[0]
    return addresses
