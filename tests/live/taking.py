"""A cluster on loopback that takes messages, as brokers of 5.5.0 do, and can be told to fail.

It parses requests with ``struct`` and keeps what it takes as the oracle's messages.
"""

import socket
import struct
import threading
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any

from live.loopback import FakeCluster, FakeQueue, json_answer
from support.oracle import Message
from support.processes import until
from support.sockets import readable

SENDS = (310, 320)
NOW_MS = 1_700_000_000_000


def split_batch(body: bytes) -> list[tuple[int, bytes, bytes]]:
    """(flag, body, property block) of each message: MessageDecoder#decodeMessages."""
    found, at = [], 0
    while at < len(body):
        size, magic, crc, flag, length = struct.unpack_from(">iiiii", body, at)
        assert (magic, crc) == (0, 0)
        start = at + 20
        (properties,) = struct.unpack_from(">h", body, start + length)
        end = start + length + 2 + properties
        assert end - at == size
        found.append((flag, body[start : start + length], body[start + length + 2 : end]))
        at = end
    return found


@dataclass
class Take:
    """What the broker does with a send: how many of its messages it stores, what it answers.

    ``code`` None: it closes the connection without an answer.
    """

    stores: int | None = None
    code: int | None = 0
    remark: str | None = None
    fields: dict[str, object] = field(default_factory=dict)


class TakingCluster(FakeCluster):
    """Brokers that store what is sent to them. ``take`` says what becomes of each send."""

    def __init__(self) -> None:
        super().__init__()
        self.take: Callable[[dict[str, Any]], Take | None] = lambda _: None
        self.perm = 6
        self.settings = "maxMessageSize=4194304\n"
        self.lock = threading.Lock()
        self._at_work: dict[socket.socket, bool] = {}

    def topic(self, topic: str, queues: int = 1, *, broker: str = "broker-a") -> None:
        """Give a broker an empty topic."""
        for queue_id in range(queues):
            self.fill(topic, 0, broker=broker, queue_id=queue_id)

    def settle(self) -> None:
        """Return when all that was sent to it is done."""
        until(self._is_settled)

    def hang_up(self) -> None:
        """Close every connection, as a broker does with one that was idle for long."""
        for peer in list(self._at_work):
            peer.shutdown(socket.SHUT_RDWR)

    def _is_settled(self) -> bool:
        peers = list(self._at_work.items())
        heard = all(peer.fileno() < 0 or not readable([peer], 0) for peer, _ in peers)
        return heard and not any(self._at_work.values())

    def _serve(self, peer: socket.socket) -> None:
        try:
            super()._serve(peer)
        finally:
            del self._at_work[peer]

    def _serve_next(self, peer: socket.socket) -> bool:
        self._at_work[peer] = False
        peer.recv(1, socket.MSG_PEEK)
        self._at_work[peer] = True
        return super()._serve_next(peer)

    def sends(self) -> list[dict[str, Any]]:
        """Every send that came, in order."""
        return [request for request in self.requests if request["code"] in SENDS]

    def bodies(self, topic: str, queue_id: int = 0, broker: str = "broker-a") -> list[bytes]:
        """The bodies in a queue, in order."""
        held = self.queues[broker, topic, queue_id].messages
        return [message.body for message in held if message is not None]

    def all_bodies(self, topic: str) -> list[bytes]:
        """The bodies of a topic, sorted."""
        named = [(b, q) for b, t, q in self.queues if t == topic]
        return sorted(body for b, q in named for body in self.bodies(topic, q, b))

    def _answer(self, request: dict[str, Any]) -> bytes:
        opaque, fields = request["opaque"], request.get("extFields", {})
        if request["code"] in SENDS:
            with self.lock:
                return self._taken(request)
        if request["code"] == 17:
            for broker in {broker for broker, _, _ in self.queues}:
                self.topic(fields["topic"], int(fields["writeQueueNums"]), broker=broker)
                self.lacking.discard((broker, fields["topic"]))
            return json_answer(opaque)
        if request["code"] == 26:
            return json_answer(opaque, 0, self.settings.encode())
        if request["code"] == 105 and self.perm != 6:
            return super()._answer(request).replace(b'"perm": 6', b'"perm": %d' % self.perm)
        return super()._answer(request)

    def _taken(self, request: dict[str, Any]) -> bytes:
        fields, opaque = request["extFields"], request["opaque"]
        queue = self.queues.get((fields["n"], fields["b"], int(fields["e"])))
        if queue is None or (fields["n"], fields["b"]) in self.lacking:
            return json_answer(opaque, 17, remark=f"topic {fields['b']} not exist")
        messages = self._messages(request, fields)
        wanted = self.take(request) or Take()
        count = len(messages) if wanted.stores is None else wanted.stores
        first = queue.high
        self._store(queue, messages[:count])
        if wanted.code is None:
            return b""
        answer = {"msgId": "0" * 32, "queueId": fields["e"], "queueOffset": first}
        return json_answer(opaque, wanted.code, remark=wanted.remark, **answer | wanted.fields)

    def _messages(self, request: dict[str, Any], fields: dict[str, str]) -> list[Message]:
        is_batch = request["code"] == 320
        assert fields["m"] == str(is_batch).lower()
        parts = (
            split_batch(request["body"])
            if is_batch
            else [(int(fields["h"]), request["body"], fields["i"].encode())]
        )
        return [
            Message(
                topic=fields["b"],
                queue_id=int(fields["e"]),
                flag=flag,
                sys_flag=int(fields["f"]),
                born_timestamp_ms=int(fields["g"]),
                body=body,
                properties=properties,
            )
            for flag, body, properties in parts
        ]

    def _store(self, queue: FakeQueue, messages: list[Message]) -> None:
        for message in messages:
            at = queue.high
            placed = replace(
                message,
                queue_offset=at,
                physical_offset=1_000 * at,
                store_timestamp_ms=NOW_MS + at,
            )
            queue.messages.append(placed)


def said(request: dict[str, Any]) -> tuple[str, str, int, int]:
    """Broker, topic, queue and number of messages of a send."""
    fields = request["extFields"]
    count = len(split_batch(request["body"])) if request["code"] == 320 else 1
    return fields["n"], fields["b"], int(fields["e"]), count
