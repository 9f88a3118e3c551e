"""Tells how a server speaks that closed a connection without a word: by TLS, plainly or not.

A server of TLS only closes plain connections, one without TLS those that begin a handshake, and a
load balancer those of a server that is away. Each way of speaking is tried on a connection of its
own, which carries no credentials.

Reference: org.apache.rocketmq.remoting.netty.NettyRemotingServer.TlsModeHandler#channelRead0.
"""

import socket
import ssl
import time
from contextlib import suppress
from typing import Final

from mqstore.live.remoting.errors import BrokerUnavailableError
from mqstore.live.remoting.frame import HEAD_BYTES, Frame, FrameError, encode, sizes
from mqstore.live.remoting.requests import GET_BROKER_RUNTIME_INFO
from mqstore.live.remoting.sockets import connected, split_host

_ALERT: Final = "ALERT"  # In the names of OpenSSL's errors for what a peer said by TLS.
_MOST_ANSWER_BYTES: Final = 1 << 20


def speaks_tls(address: str, timeout_s: float) -> bool:
    """Tell whether a server answers a handshake; ``address`` is host:port, ``timeout_s`` seconds.

    Its certificate is not checked, and nothing is sent behind the handshake.
    """
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    deadline = time.monotonic() + timeout_s
    try:
        with _open(address, deadline) as plain, context.wrap_socket(plain):
            return True
    except ssl.SSLError as error:
        return _ALERT in (error.reason or "")
    except (OSError, BrokerUnavailableError):
        return False


def speaks_plainly(address: str, timeout_s: float) -> bool:
    """Tell whether a server answers a plain request, whatever it answers; units as above."""
    request = GET_BROKER_RUNTIME_INFO()
    deadline = time.monotonic() + timeout_s
    head = b""
    with suppress(OSError, BrokerUnavailableError), _open(address, deadline) as plain:
        plain.sendall(encode(Frame(request.code, 1)))
        while len(head) < HEAD_BYTES:
            plain.settimeout(max(0.001, deadline - time.monotonic()))
            more = plain.recv(HEAD_BYTES - len(head))
            if not more:
                return False
            head += more
    if len(head) < HEAD_BYTES:
        return False
    try:
        sizes(head, _MOST_ANSWER_BYTES)
    except FrameError:
        return False
    return True


def _open(address: str, deadline: float) -> socket.socket:
    found = connected(*split_host(address), deadline)
    found.settimeout(max(0.001, deadline - time.monotonic()))
    return found
