"""A proxy on loopback that plays RocketMQ 5's, written from what a real one was seen to answer."""

import json
import socket
import struct
from collections.abc import Callable
from contextlib import suppress
from typing import Any

from live.loopback import FakeCluster, FakeQueue, frame, json_answer, read_request

SERVED = {11, 14, 15, 29, 30, 31, 34, 35, 36, 37, 38, 41, 42, 46, 105, 203, 310, 320, 361}
UNADDRESSED = {34, 35, 38, 46, 105, 203}
MARK = {"MSG_REGION": "", "TRACE_ON": "false"}
OTHER_PORT = "8081"


class FakeProxy(FakeCluster):
    """A proxy in front of the brokers of its ``queues``: it answers at its own address only.

    ``is_silent`` tells which requests get no answer. ``lie`` says something in place of an answer,
    and tells that it did. ``crowded`` counts the pulls that had another request behind them on
    their connection: a real proxy may drop such an answer.
    """

    def __init__(self) -> None:
        super().__init__()
        self.is_local = False
        self.is_silent: Callable[[dict[str, Any]], bool] = lambda _: False
        self.lie: Callable[[socket.socket, dict[str, Any]], bool] = lambda _peer, _request: False
        self.route_port = ""
        self.crowded = 0

    def _serve_next(self, peer: socket.socket) -> bool:
        request = read_request(peer)
        if request is None:
            return False
        self.requests.append(request)
        if request["code"] == 11:
            self.crowded += _has_more(peer)
        if self.lie(peer, request):
            return True
        answer = self.fault(request)
        if answer is None:
            answer = self._proxied(request)
            if answer is None:
                return True
        if answer:
            peer.sendall(answer)
        return bool(answer)

    def _proxied(self, request: dict[str, Any]) -> bytes | None:
        code, opaque, fields = request["code"], request["opaque"], request.get("extFields", {})
        if code not in SERVED:
            return json_answer(opaque, 3, remark=f" request type {code} not supported")
        if code not in UNADDRESSED:
            broker = fields.get("n") if code in {310, 320} else fields.get("bname")
            if broker is None:
                return self._marked(
                    json_answer(opaque, 15, remark="Request doesn't have field bname")
                )
            if self.is_local or broker not in self._named():
                return None
        if self.is_silent(request):
            return None
        if code == 14:
            return self._marked(self._committed_offset(opaque, fields))
        return self._marked(self._answer(request))

    def _committed_offset(self, opaque: int, fields: dict[str, str]) -> bytes:
        key = fields["topic"], fields["consumerGroup"], int(fields["queueId"])
        if key not in self.committed:
            return json_answer(opaque, 22, remark="Not found, maybe this group boot first")
        return json_answer(opaque, 0, offset=self.committed[key])

    def _marked(self, answer: bytes) -> bytes:
        length, mark = struct.unpack(">iI", answer[:8])
        end = 8 + (mark & 0xFFFFFF)
        header = json.loads(answer[8:end])
        header["extFields"] = header.get("extFields", {}) | MARK
        return frame(json.dumps(header).encode(), answer[end : 4 + length])

    def _named(self) -> dict[str, dict[int, str]]:
        port = self.route_port or (OTHER_PORT if self.is_local else self.address.split(":")[1])
        return {name: {0: f"192.0.2.7:{port}"} for name in super()._named()}

    def queue(self, fields: dict[str, str]) -> FakeQueue:
        """The queue that a request's fields name, of the broker that they name."""
        return self.queues[fields["bname"], fields["topic"], int(fields["queueId"])]


def _has_more(peer: socket.socket) -> bool:
    with suppress(BlockingIOError):
        return bool(peer.recv(1, socket.MSG_PEEK | socket.MSG_DONTWAIT))
    return False
