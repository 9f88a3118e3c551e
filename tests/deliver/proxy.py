"""A proxy between publishers and a broker that loses what a test wants lost, frame by frame.

It never doubles a request. A request is under way until the broker has answered it, also when its
client is gone; ``settle`` returns when none is.
"""

import json
import socket
import struct
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from enum import Enum, auto
from typing import Any

from broker.ports import free_ports
from support.sockets import readable

SENDS = (310, 320)
LOOPBACK = "127.0.0.1"
SETTLE_S = 120.0
SLOW_S = 0.05
_AT_ONCE = 1 << 16
_ONEWAY = 2


class Fault(Enum):
    """What becomes of a request that stores messages; with all but SLOW the connection ends."""

    LOST_REQUEST = auto()
    """Half of it comes to the broker."""
    LOST_ANSWER = auto()
    """The broker stores it, and its answer is lost."""
    LATE = auto()
    """It comes to the broker in ``settle``."""
    IN_PART = auto()
    """The first messages of the batch come to the broker."""
    SLOW = auto()
    """It comes to the broker a little later."""


Choose = Callable[[dict[str, Any]], Fault | None]
"""The header of a request that stores messages, before it is passed on, to what becomes of it."""


class Proxy:
    """A port on loopback that passes frames on to ``target`` (host:port)."""

    def __init__(self, target: str) -> None:
        host, _, port = target.rpartition(":")
        self.choose: Choose = lambda _: None
        self._target = host, int(port)
        self._port = free_ports(0)
        self._server: socket.socket | None = None
        self._lock = threading.Lock()
        self._links: list[_Link] = []
        self.address = f"{LOOPBACK}:{self._port}"
        self.open()

    def open(self) -> None:
        """Listen, until ``shut``: then connections are refused, as by a host without a broker."""
        self._server = socket.create_server((LOOPBACK, self._port))
        threading.Thread(target=self._serve, args=(self._server,), daemon=True).start()

    def shut(self) -> None:
        """Accept no more connections; those that are there go on."""
        with self._lock:
            server, self._server = self._server, None
        if server is not None:
            with suppress(OSError):
                server.shutdown(socket.SHUT_RDWR)
            server.close()

    def settle(self) -> None:
        """Pass on what is late; return when the broker has answered all that was sent to it."""
        end = time.monotonic() + SETTLE_S
        while not self._is_settled():
            assert time.monotonic() < end, "the broker never answered"
            time.sleep(0.002)

    def close(self) -> None:
        """Close the port and all connections."""
        self.shut()
        for link in self._links:
            link.close()

    def _serve(self, server: socket.socket) -> None:
        with suppress(OSError, ValueError):
            while readable([server]):
                with self._lock:
                    client, _ = server.accept()
                    try:
                        broker = socket.create_connection(self._target, 5)
                    except OSError:
                        client.close()
                        continue
                    broker.settimeout(None)
                    self._links = [one for one in self._links if not one.is_over]
                    self._links.append(_Link(self, client, broker))

    def _is_settled(self) -> bool:
        with self._lock:
            if self._server is not None and readable([self._server], 0):
                return False
            return sum(not link.is_settled() for link in self._links) == 0


class _Link:
    """A client's connection, and the one to the broker in its name."""

    def __init__(self, proxy: Proxy, client: socket.socket, broker: socket.socket) -> None:
        self.is_over = False
        """Both sides are gone."""
        self._proxy = proxy
        self._client: socket.socket | None = client
        self._broker = broker
        self._requests, self._answers = bytearray(), bytearray()
        self._under_way: set[int] = set()
        self._lost: set[int] = set()
        self._late = b""
        self._lock = threading.Lock()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def is_settled(self) -> bool:
        """Tell whether nothing is under way; what is late is passed on."""
        with self._lock:
            if self.is_over:
                return True
            if self._late:
                late, self._late = self._late, b""
                with suppress(OSError):
                    self._broker.sendall(late)
            is_heard = self._client is None or not readable([self._client], 0)
            return is_heard and not self._under_way

    def close(self) -> None:
        """End both sides."""
        for side in (self._client, self._broker):
            if side is not None:
                with suppress(OSError):
                    side.shutdown(socket.SHUT_RDWR)
        self._thread.join(5)

    def _run(self) -> None:
        while not self.is_over:
            sides = [side for side in (self._client, self._broker) if side is not None]
            for ready in readable(sides):
                with self._lock:
                    self._take(ready)
        self._broker.close()

    def _take(self, ready: socket.socket) -> None:
        data = b""
        with suppress(OSError):
            data = ready.recv(_AT_ONCE)
        if ready is self._broker and not data:
            self._end_client()
            self.is_over = True
        elif ready is self._broker:
            self._answered(data)
        elif self._client is not None:
            with suppress(OSError):  # A broker that is gone is seen at its own side.
                self._asked(data)
        self.is_over |= self._client is None and not self._under_way

    def _end_client(self) -> None:
        client, self._client = self._client, None
        if client is not None:
            client.close()

    def _asked(self, data: bytes) -> None:
        if not data:
            self._end_client()
        self._requests += data
        for frame in frames(self._requests):
            head = header(frame)
            fault = self._proxy.choose(head) if head["code"] in SENDS else None
            if fault is Fault.LOST_REQUEST:
                # Not the end of the connection: the broker still answers what came before.
                self._end_client()
                self._broker.sendall(frame[: len(frame) // 2])
                return
            if not head["flag"] & _ONEWAY:
                self._under_way.add(head["opaque"])
            if fault is Fault.LATE:
                self._late = frame
                self._end_client()
                return
            if fault is Fault.SLOW:
                threading.Event().wait(SLOW_S)
            if fault in {Fault.LOST_ANSWER, Fault.IN_PART}:
                self._lost.add(head["opaque"])
            self._broker.sendall(in_part(frame) if fault is Fault.IN_PART else frame)

    def _answered(self, data: bytes) -> None:
        self._answers += data
        for frame in frames(self._answers):
            opaque = header(frame)["opaque"]
            self._under_way.discard(opaque)
            if opaque in self._lost:
                self._end_client()
            if self._client is not None:
                with suppress(OSError):
                    self._client.sendall(frame)


def frames(buffer: bytearray) -> Iterator[bytes]:
    """Take whole frames from the buffer's front."""
    while len(buffer) >= 4:
        size = 4 + int.from_bytes(buffer[:4], "big")
        if len(buffer) < size:
            return
        frame = bytes(buffer[:size])
        del buffer[:size]
        yield frame


def header(frame: bytes) -> dict[str, Any]:
    """Return the header of a frame, which is JSON."""
    length = int.from_bytes(frame[5:8], "big")
    found: dict[str, Any] = json.loads(frame[8 : 8 + length])
    return found


def in_part(frame: bytes) -> bytes:
    """Return a batch with the first half of its messages; a single message as it is."""
    start = 8 + int.from_bytes(frame[5:8], "big")
    if header(frame)["code"] != SENDS[1]:
        return frame
    body, ends = frame[start:], [0]
    while ends[-1] < len(body):
        ends.append(ends[-1] + struct.unpack_from(">i", body, ends[-1])[0])
    kept = body[: ends[max(1, (len(ends) - 1) // 2)]]
    return (start - 4 + len(kept)).to_bytes(4, "big") + frame[4:start] + kept
