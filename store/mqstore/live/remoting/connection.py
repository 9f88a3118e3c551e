"""One connection to a broker or a name server: requests in a pipeline, answers by their number.

The only place with a socket. Everything has a deadline: looking a name up, connecting, the TLS
handshake, sending, and an answer as a whole, so that a server that sends a byte now and then cannot
hold a task. Answers to no request and requests of the server's own (39 CHECK_TRANSACTION_STATE, 40,
220) are dropped. A connection that failed is closed; what was asked on it is lost.

Reference: org.apache.rocketmq.remoting.netty.NettyRemotingAbstract (processResponseCommand,
responseTable), NettyDecoder.
"""

import itertools
import select
import socket
import ssl
import time
from collections.abc import MutableSet, Sequence
from typing import Final, Self

import numpy as np

from mqstore.format.remoting import MAX_REQUEST_BYTES
from mqstore.live.remoting.credentials import Credentials
from mqstore.live.remoting.errors import (
    BrokenAnswerError,
    BrokerTimeoutError,
    BrokerUnavailableError,
)
from mqstore.live.remoting.frame import (
    HEAD_BYTES,
    Frame,
    FrameError,
    TooLargeError,
    decode,
    encode,
    sizes,
)
from mqstore.live.remoting.requests import GO_AWAY, Request
from mqstore.live.remoting.settings import Limits
from mqstore.live.remoting.sockets import Patience, connected, split_host
from mqstore.live.remoting.speech import is_foreign

_AHEAD_BYTES: Final = 64 * 1024  # An answer of 32 messages comes with one call of the kernel.
_UNARMED_SHARE: Final = 0.1
_MAX_OPAQUE: Final = 0x7FFFFFFF
_SPEAKS_TLS: Final = (
    "closed the connection without an answer, and speaks TLS: set tls=true, or write rocketmqs://"
)
_SPEAKS_PLAINLY: Final = "no TLS: {why}. The server speaks plainly: set tls=false (rocketmq://)"
_TLS_REFUSED: Final = (
    "no TLS: {why}. If the server speaks plainly, set tls=false (rocketmq://); else check "
    "tlsCaFile, tlsCertFile and, for a certificate without this host's name, tlsVerifyHostname"
)
_CLOSED: Final = (
    "closed the connection without an answer, as a load balancer or a tunnel does in front of a "
    "server that is away, and a server at a frame that it does not take"
)
_CUT: Final = "no answer in the time of all tries (retryTimeout; requestTimeout is for each)"
_WORDLESS: Final = (ConnectionError, ssl.SSLEOFError, ssl.SSLZeroReturnError)
"""Errors of a peer that went away without a word."""


class FrameTooLargeError(BrokenAnswerError):
    """An answer above ``max_frame_bytes``: asking for less may help."""


class NotUnderstoodError(BrokerUnavailableError):
    """A server that shows that no retry helps: TLS on one side only, or refused certificates."""


class Connection:
    """A connection to ``address`` (host:port), open from the start. Not for several threads.

    Raises BrokerUnavailableError where it cannot be made, BrokerTimeoutError where that takes
    longer than ``connect_timeout_ms``.
    """

    def __init__(
        self,
        address: str,
        limits: Limits,
        *,
        credentials: Credentials | None = None,
        tls: ssl.SSLContext | None = None,
        understood: MutableSet[str] | None = None,
        finds_out_why: bool = True,
    ) -> None:
        """``understood`` are addresses of servers that once answered; this one is added to them."""
        self.address = address
        self.patience = Patience()
        self.finds_out_why = finds_out_why
        """Whether the other way of speaking is tried where a server closes without an answer."""
        self._limits = limits
        self._is_cut = False  # The time that is waited for an answer, by ``patience``.
        self._credentials = credentials
        self._tls = tls
        self._understood = set[str]() if understood is None else understood
        self._opaques = itertools.count(1)
        self._awaited: set[int] = set()
        self._answers: dict[int, Frame] = {}
        self._has_answered = False
        self._ahead = memoryview(bytearray(_AHEAD_BYTES))
        self._low = self._high = 0  # of what is in it
        self._armed = 0.0  # seconds
        self._socket = self._connect()

    def send(self, request: Request) -> int:
        """Send a request; returns the number to ``receive`` its answer by."""
        return self.send_all([request])[0]

    def send_all(self, requests: Sequence[Request]) -> list[int]:
        """Send requests with one call of the system; returns their numbers."""
        opaques = [next(self._opaques) & _MAX_OPAQUE for _ in requests]
        frames = [self._encoded(*one) for one in zip(requests, opaques, strict=True)]
        self._write(b"".join(frames), self._deadline())
        self._awaited.update(opaques)
        return opaques

    def receive(self, opaque: int, since: float | None = None) -> Frame:
        """Return the answer to a request, whatever its code; others' answers are kept for them.

        Raises BrokerTimeoutError when it is not there in ``request_timeout_ms`` from now, or from
        ``since`` (monotonic seconds) unless some of it is here,
        BrokenAnswerError for bytes that are no answer, BrokerUnavailableError for a connection
        that breaks. The connection is closed then, and by an answer GO_AWAY: the server ends.
        """
        deadline = self._deadline(since)
        while opaque not in self._answers:
            self._take_next(deadline)
        answer = self._answers.pop(opaque)
        if answer.code == GO_AWAY:
            self.close()
        return answer

    def receive_next(self) -> int | None:
        """Read one frame; return the number of the request that it answers.

        ``receive`` then has the answer at once. None for a frame that answers no request. Raises as
        ``receive``.
        """
        return self._take_next(self._deadline())

    def fileno(self) -> int:
        """Return the socket's descriptor, to wait on; negative once it is closed."""
        return self._socket.fileno()

    @property
    def has_buffered(self) -> bool:
        """Tell whether bytes were taken from the socket that no frame had yet."""
        if self._low < self._high:
            return True
        return isinstance(self._socket, ssl.SSLSocket) and self._socket.pending() > 0

    @property
    def tls_version(self) -> str | None:
        """The version of TLS that is spoken, such as TLSv1.3; None without TLS."""
        return self._socket.version() if isinstance(self._socket, ssl.SSLSocket) else None

    @property
    def is_open(self) -> bool:
        """Tell whether it can be used: False once anything went wrong on it."""
        return self._socket.fileno() >= 0

    @property
    def is_awaiting(self) -> bool:
        """Tell whether an answer is under way."""
        return bool(self._awaited)

    def settle(self) -> None:
        """Wait for the answers that are under way, and keep them for those who ``receive``."""
        deadline = self._deadline()
        while self._awaited:
            self._take_next(deadline)

    def drain(self) -> None:
        """Receive the answers that are under way, and drop them; raises as ``receive``."""
        deadline = self._deadline()
        while self._awaited:
            self._take_next(deadline)
        self._answers.clear()

    def abandon(self) -> None:
        """Want none of the answers that are still to come, or here and not received."""
        self._awaited.clear()
        self._answers.clear()

    def close(self) -> None:
        """Close the connection; answers that are under way are lost."""
        self._socket.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _encoded(self, request: Request, opaque: int) -> bytes:
        fields = request.fields
        if self._credentials is not None:
            fields = self._credentials.sign(fields, request.body)
        data = encode(Frame(request.code, opaque, 0, fields, "", request.body))
        if len(data) > MAX_REQUEST_BYTES:
            raise FrameError(f"a request of {len(data)} bytes: a server reads {MAX_REQUEST_BYTES}")
        return data

    def _take_next(self, deadline: float) -> int | None:
        frame = self._read(deadline)
        if not (frame.is_response and frame.opaque in self._awaited):
            return None
        self._awaited.discard(frame.opaque)
        self._answers[frame.opaque] = frame
        return frame.opaque

    def _deadline(self, since: float | None = None) -> float:
        now, whole_s = time.monotonic(), self._limits.request_timeout_ms / 1000
        if since is None or (since + whole_s <= now and self._is_readable):
            since = now
        deadline = min(since + whole_s, self.patience.until)
        self._is_cut = deadline < since + whole_s
        return deadline

    @property
    def _is_readable(self) -> bool:
        if self.has_buffered or not self.is_open:
            return self.is_open
        look = select.poll()
        look.register(self.fileno(), select.POLLIN)
        return bool(look.poll(0))

    def _read(self, deadline: float) -> Frame:
        try:
            head = bytes(self._take(HEAD_BYTES, deadline))
            kind, header_bytes, body_bytes = sizes(head, self._limits.max_frame_bytes)
            header = bytes(self._take(header_bytes, deadline))
            frame = decode(kind, header, self._take(body_bytes, deadline))
        except TooLargeError as error:
            self.close()
            raise FrameTooLargeError(self.address, str(error)) from None
        except FrameError as error:
            self.close()
            raise BrokenAnswerError(self.address, str(error)) from error
        if not self._has_answered:
            self._has_answered = True
            self._understood.add(self.address)
        return frame

    def _take(self, count: int, deadline: float) -> bytes | memoryview:
        """Return the next bytes; what the socket has beyond few of them waits in ``_ahead``."""
        if count <= self._high - self._low:
            self._low += count
            return self._ahead[self._low - count : self._low].tobytes()
        taken = np.empty(count, np.uint8).data
        at = self._take_ahead(taken)
        while at < count:
            if count - at >= _AHEAD_BYTES // 2:
                at += self._receive_into(taken[at:], deadline)
            else:
                self._low, self._high = 0, self._receive_into(self._ahead, deadline)
                at += self._take_ahead(taken[at:])
        return taken

    def _take_ahead(self, into: memoryview) -> int:
        count = min(len(into), self._high - self._low)
        into[:count] = self._ahead[self._low : self._low + count]
        self._low += count
        return count

    def _receive_into(self, view: memoryview, deadline: float) -> int:
        while True:
            self._arm(deadline)
            try:
                count = self._socket.recv_into(view)
            except TimeoutError:
                continue
            except OSError as error:
                raise self._broken(error) from error
            if count == 0:
                raise self._closed()
            return count

    def _write(self, data: bytes, deadline: float) -> None:
        view, at = memoryview(data), 0
        while at < len(view):
            self._arm(deadline)
            try:
                at += self._socket.send(view[at:])
            except TimeoutError:
                continue
            except OSError as error:
                raise self._broken(error) from error

    def _arm(self, deadline: float) -> None:
        """Have the socket wait until about the deadline; raises BrokerTimeoutError behind it.

        A time-out that differs by less than a tenth stays: setting one is a call of the kernel.
        """
        left = deadline - time.monotonic()
        if left <= 0:
            raise self._broken(TimeoutError())
        if abs(self._armed - left) < _UNARMED_SHARE * left:
            return
        try:
            self._socket.settimeout(left)
        except OSError as error:  # closed before
            raise self._broken(error) from error
        self._armed = left

    def _broken(self, error: OSError) -> BrokerUnavailableError:
        if isinstance(self._socket, ssl.SSLSocket) and isinstance(error, _WORDLESS):
            error = self._alert() or error
        self.close()
        if isinstance(error, TimeoutError):
            waited = self._limits.request_timeout_ms / 1000
            reason = f"no answer in {waited:g} s; requestTimeout sets how long to wait"
            return BrokerTimeoutError(self.address, _CUT if self._is_cut else reason)
        if isinstance(error, _WORDLESS) and not self._has_answered:
            return self._closed()
        if isinstance(error, ssl.SSLError) and not self._has_answered:
            # With TLS 1.3 a server refuses our certificate after the handshake.
            return self._refused(error)
        return BrokerUnavailableError(self.address, f"the connection broke: {_text(error)}")

    def _alert(self) -> ssl.SSLError | None:
        """Return what a server said by TLS before it closed the connection, if anything."""
        try:
            self._socket.settimeout(0)
            self._socket.recv(1)
        except (*_WORDLESS, ssl.SSLWantReadError):
            return None
        except ssl.SSLError as error:
            return error
        except OSError:
            return None
        return None

    def _closed(self) -> BrokerUnavailableError:
        """Return the error for a connection that the server closed.

        Before the first answer, what a server does that speaks TLS only, or none, looks like what
        stands in front of a server that is away: so the other way of speaking is tried, unless
        this server has understood us before.
        """
        self.close()
        if self._has_answered:
            return BrokerUnavailableError(self.address, "the server closed the connection")
        return self._not_understood("the server closed the connection")

    def _not_understood(self, why: str) -> BrokerUnavailableError:
        timeout_s, with_tls = self._limits.connect_timeout_ms / 1000, self._tls is not None
        if self._may_be_foreign and is_foreign(self.address, timeout_s, with_tls=with_tls):
            reason = _SPEAKS_PLAINLY.format(why=why) if with_tls else _SPEAKS_TLS
            return NotUnderstoodError(self.address, reason)
        return BrokerUnavailableError(self.address, _CLOSED)

    def _refused(self, error: Exception) -> BrokerUnavailableError:
        """Return the error for a handshake that failed by more than a closed connection."""
        kind = NotUnderstoodError if self._may_be_foreign else BrokerUnavailableError
        return kind(self.address, _TLS_REFUSED.format(why=_text(error)))

    @property
    def _may_be_foreign(self) -> bool:
        return self.finds_out_why and self.address not in self._understood

    def _connect(self) -> socket.socket:
        deadline = time.monotonic() + self._limits.connect_timeout_ms / 1000
        host, port = split_host(self.address)
        try:
            plain = connected(host, port, deadline)
        except TimeoutError:
            waited = self._limits.connect_timeout_ms / 1000
            reason = f"no connection in {waited:g} s; connectTimeout sets how long to wait"
            raise BrokerTimeoutError(self.address, reason) from None
        except OSError as error:
            raise BrokerUnavailableError(self.address, f"no connection: {_text(error)}") from error
        plain.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        if self._tls is None:
            return plain
        try:
            plain.settimeout(max(0.001, deadline - time.monotonic()))
            return self._tls.wrap_socket(plain, server_hostname=host)
        except TimeoutError:
            plain.close()
            why = f"no handshake in {self._limits.connect_timeout_ms / 1000:g} s (connectTimeout)"
            raise BrokerTimeoutError(self.address, _TLS_REFUSED.format(why=why)) from None
        except (OSError, ValueError) as error:
            plain.close()
            if isinstance(error, _WORDLESS):
                raise self._not_understood(_text(error)) from error
            raise self._refused(error) from error


def _text(error: Exception) -> str:
    if isinstance(error, ssl.SSLCertVerificationError):
        return f"the server's certificate is not trusted: {error.verify_message}"
    if isinstance(error, OSError) and error.strerror:
        return error.strerror
    return str(error) or type(error).__name__
