"""Tells a server that speaks by TLS alone, or plainly alone, by what it does with connections.

A server of TLS only closes plain connections, one without TLS those that begin a handshake, and a
load balancer those of a server that is away. RocketMQ's default (tlsMode=permissive) takes both:
one that was cut, or is being started, closes some connections and answers others. So a server is
foreign only where our way of speaking is closed each time, and the other way answered each time.
Each try is a connection of its own, which carries no credentials.

Reference: org.apache.rocketmq.remoting.netty.NettyRemotingServer.TlsModeHandler#channelRead0.
"""

import socket
import ssl
import time
from collections.abc import Callable
from enum import Enum, auto
from typing import Final

from mqstore.live.remoting.errors import BrokerUnavailableError
from mqstore.live.remoting.frame import HEAD_BYTES, Frame, FrameError, encode, sizes
from mqstore.live.remoting.requests import GET_BROKER_RUNTIME_INFO
from mqstore.live.remoting.sockets import connected, split_host

_ALERT: Final = "ALERT"  # In the names of OpenSSL's errors for what a peer said by TLS.
_MOST_ANSWER_BYTES: Final = 1 << 20
_ROUNDS_OF_A_PROBE: Final = 3
_PAUSE_S: Final = 0.05
_HTTP_2: Final = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + bytes([0, 0, 0, 4, 0, 0, 0, 0, 0])
"""The preface of a client and its SETTINGS, without any (RFC 9113, 3.4)."""
_HTTP_2_HEAD_BYTES: Final = 9
_HTTP_2_SETTINGS: Final = 4


class Reaction(Enum):
    """What a server did with a connection."""

    ANSWERED = auto()
    CLOSED = auto()
    UNKNOWN = auto()
    """It could not be reached, or was silent."""


def is_foreign(address: str, timeout_s: float, *, with_tls: bool) -> bool:
    """Tell whether a server answers only the other way of speaking than ``with_tls`` says.

    ``address`` is host:port. Ends with the first connection that shows anything else, so that a
    server which is silent costs ``timeout_s`` seconds at most.
    """
    ways = (react_to_tls, react_to_request) if with_tls else (react_to_request, react_to_tls)
    expected = (Reaction.CLOSED, Reaction.ANSWERED)
    for number in range(_ROUNDS_OF_A_PROBE):
        if number:
            time.sleep(_PAUSE_S)
        for way, reaction in zip(ways, expected, strict=True):
            if way(address, timeout_s) is not reaction:
                return False
    return True


def react_to_tls(address: str, timeout_s: float) -> Reaction:
    """Begin a handshake; a server's certificate is not checked, and nothing is sent behind it."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE

    def shake(plain: socket.socket, deadline: float) -> Reaction:
        del deadline
        try:
            with context.wrap_socket(plain):
                return Reaction.ANSWERED
        except ssl.SSLError as error:
            return Reaction.ANSWERED if _ALERT in (error.reason or "") else Reaction.CLOSED

    return _reaction(address, timeout_s, shake)


def react_to_request(address: str, timeout_s: float) -> Reaction:
    """Send a plain request; whatever a server answers to it is an answer."""
    request = GET_BROKER_RUNTIME_INFO()

    def ask(plain: socket.socket, deadline: float) -> Reaction:
        plain.sendall(encode(Frame(request.code, 1)))
        head = _received(plain, HEAD_BYTES, deadline)
        if len(head) < HEAD_BYTES:
            return Reaction.CLOSED
        try:
            _, header_bytes, _ = sizes(head, _MOST_ANSWER_BYTES)
        except FrameError:
            return Reaction.CLOSED
        # SETTINGS of HTTP/2, which a gRPC port answers, have the sizes of a frame without a header.
        return Reaction.ANSWERED if header_bytes else Reaction.CLOSED

    return _reaction(address, timeout_s, ask)


def speaks_only_grpc(address: str, timeout_s: float) -> bool:
    """Tell whether a server answers the begin of HTTP/2, and no request of remoting."""
    if react_to_request(address, timeout_s) is Reaction.ANSWERED:
        return False

    def begin(plain: socket.socket, deadline: float) -> Reaction:
        plain.sendall(_HTTP_2)
        head = _received(plain, _HTTP_2_HEAD_BYTES, deadline)
        if len(head) < _HTTP_2_HEAD_BYTES:
            return Reaction.CLOSED
        is_settings = head[3] == _HTTP_2_SETTINGS and head[5:] == bytes(4)
        return Reaction.ANSWERED if is_settings else Reaction.CLOSED

    return _reaction(address, timeout_s, begin) is Reaction.ANSWERED


def _received(plain: socket.socket, count: int, deadline: float) -> bytes:
    """Return so many bytes, fewer if the server closes before; raises TimeoutError."""
    received = b""
    while len(received) < count:
        plain.settimeout(max(0.001, deadline - time.monotonic()))
        more = plain.recv(count - len(received))
        if not more:
            break
        received += more
    return received


def _reaction(
    address: str, timeout_s: float, play: Callable[[socket.socket, float], Reaction]
) -> Reaction:
    deadline = time.monotonic() + timeout_s
    try:
        plain = _open(address, deadline)
    except (OSError, BrokerUnavailableError):
        return Reaction.UNKNOWN
    with plain:
        try:
            return play(plain, deadline)
        except ConnectionError:
            return Reaction.CLOSED
        except OSError:
            return Reaction.UNKNOWN


def _open(address: str, deadline: float) -> socket.socket:
    found = connected(*split_host(address), deadline)
    found.settimeout(max(0.001, deadline - time.monotonic()))
    return found
