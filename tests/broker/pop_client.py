"""A client that pops over remoting, straight to a broker: sends, pops, acks, changes of times.

Only what it is told to do happens, at once; RocketMQ's own consumers renew and retry by themselves.
Reference: PopMessageRequestHeader, ExtraInfoUtil, AckMessageRequestHeader.
"""

import itertools
import json
import socket
import struct
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Final

from broker.harness import BROKER_NAME

POP_MESSAGE: Final = 200050
ACK_MESSAGE: Final = 200051
CHANGE_INVISIBLE_TIME: Final = 200053
BATCH_ACK_MESSAGE: Final = 200151
SEND_MESSAGE_V2: Final = 310
_ANSWER_SECONDS: Final = 60


@dataclass(frozen=True, slots=True)
class Popped:
    """A message that was popped: its body and properties, and what an ack of it names."""

    group: str
    topic: str
    queue_id: int
    queue_offset: int
    body: str
    properties: dict[str, str]
    extra: str
    reconsumed: int

    @property
    def place(self) -> tuple[str, int, int]:
        """Topic, queueId and queue offset."""
        return self.topic, self.queue_id, self.queue_offset


class PopClient:
    """One connection to a broker."""

    def __init__(self, address: str) -> None:
        host, _, port = address.rpartition(":")
        self._socket = socket.create_connection((host, int(port)), _ANSWER_SECONDS)
        self._numbers = itertools.count(1)

    def close(self) -> None:
        self._socket.close()

    def send(self, topic: str, body: str, queue_id: int, queues: int, **properties: str) -> None:
        """Send a message whose UNIQ_KEY and KEYS are its body."""
        its = {"KEYS": body, "UNIQ_KEY": body, "WAIT": "true", **properties}
        text = "\x02".join(f"{name}\x01{value}" for name, value in its.items())
        fields = {
            "a": "PG",
            "b": topic,
            "c": "TBW102",
            "d": queues,
            "e": queue_id,
            "f": 0,
            "h": 0,
            "i": text,
            "j": 0,
        }
        answer = self._ask(SEND_MESSAGE_V2, body.encode(), g=_now(), k="false", m="false", **fields)
        assert answer["code"] == 0, answer

    def pop(
        self, topic: str, group: str, *, queue_id: int = -1, most: int = 32, invisible: int,
        in_order: bool = False, tags: str = "*",
    ) -> list[Popped]:  # fmt: skip
        """Pop at most ``most`` messages, retries too; waits a moment for one."""
        answer = self._ask(
            POP_MESSAGE,
            consumerGroup=group,
            topic=topic,
            queueId=queue_id,
            maxMsgNums=most,
            invisibleTime=invisible,
            pollTime=300,
            bornTime=_now(),
            initMode=0,
            expType="TAG",
            exp=tags,
            order=str(in_order).lower(),
            attemptId="attempt",
        )
        if answer["code"]:
            assert answer["code"] in {208, 209, 210, 19, 20, 21}, answer
            return []
        return list(_popped(topic, group, answer["extFields"], answer["body"]))

    def ack(self, message: Popped) -> None:
        """Acknowledge one message."""
        answer = self._ask(ACK_MESSAGE, **_named(message))
        assert answer["code"] == 0, answer

    def change(self, message: Popped, invisible: int) -> None:
        """Make it invisible for so long from now on."""
        answer = self._ask(CHANGE_INVISIBLE_TIME, **_named(message), invisibleTime=invisible)
        assert answer["code"] == 0, answer

    def ask(self, code: int, **fields: object) -> dict[str, Any]:
        """Return the answer to any other request."""
        return self._ask(code, **fields)

    def _ask(self, code: int, data: bytes = b"", **fields: object) -> dict[str, Any]:
        number = next(self._numbers)
        head = {"code": code, "flag": 0, "language": "JAVA", "opaque": number, "version": 500}
        head |= {"serializeTypeCurrentRPC": "JSON"}
        head |= {"extFields": {name: str(value) for name, value in fields.items()}}
        header = json.dumps(head).encode()
        sizes = struct.pack(">ii", 4 + len(header) + len(data), len(header))
        self._socket.sendall(sizes + header + data)
        while True:
            frame = self._exactly(*struct.unpack(">i", self._exactly(4)))
            (length,) = struct.unpack(">i", frame[:4])
            found = json.loads(frame[4 : 4 + (length & 0xFFFFFF)])
            if found["flag"] & 1 and found["opaque"] == number:
                body = frame[4 + (length & 0xFFFFFF) :]
                return {"extFields": {}, **found, "body": body}

    def _exactly(self, count: int) -> bytes:
        data = b""
        while len(data) < count:
            part = self._socket.recv(count - len(data))
            assert part, "the broker closed the connection"
            data += part
        return data


@contextmanager
def pop_client(address: str) -> Iterator[PopClient]:
    client = PopClient(address)
    try:
        yield client
    finally:
        client.close()


def _now() -> int:
    return time.time_ns() // 1_000_000


def _named(message: Popped) -> dict[str, object]:
    return {
        "consumerGroup": message.group,
        "topic": message.topic,
        "queueId": message.queue_id,
        "offset": message.queue_offset,
        "extraInfo": message.extra,
    }


def _popped(topic: str, group: str, told: dict[str, str], body: bytes) -> Iterator[Popped]:
    starts = {}
    for part in filter(None, told["startOffsetInfo"].split(";")):
        kind, queue_id, start = part.split(" ")
        starts[kind, int(queue_id)] = start
    for found in _records(body):
        own = found["properties"].get("POP_CK")
        if own is None:
            kind = "0"
            if found["topic"].startswith("%RETRY%"):
                kind = "2" if "+" in found["topic"] else "1"
            times = told["popTime"], told["invisibleTime"], told["reviveQid"]
            place = str(found["queue_id"]), str(found["queue_offset"])
            own = " ".join((starts[kind, found["queue_id"]], *times, kind, BROKER_NAME, *place))
        parts = own.split(" ")
        names = {"0": topic, "1": f"%RETRY%{group}_{topic}", "2": f"%RETRY%{group}+{topic}"}
        yield Popped(
            group, names[parts[4]], int(parts[6]), int(parts[7]), found["body"],
            found["properties"], own, found["reconsumed"],
        )  # fmt: skip


def _records(data: bytes) -> Iterator[dict[str, Any]]:
    """Yield records as they lie in a CommitLog (V1, IPv4, not compressed)."""
    start = 0
    while start < len(data):
        (size,) = struct.unpack_from(">i", data, start)
        queue_id, _, queue_offset = struct.unpack_from(">iiq", data, start + 12)
        (reconsumed, _, length) = struct.unpack_from(">iqi", data, start + 72)
        body = data[start + 88 : start + 88 + length].decode()
        at = start + 88 + length
        topic = data[at + 1 : at + 1 + data[at]].decode()
        at += 1 + data[at]
        (length,) = struct.unpack_from(">h", data, at)
        pairs = data[at + 2 : at + 2 + length].decode().split("\x02")
        properties = dict(pair.split("\x01", 1) for pair in pairs if pair)
        yield {
            "queue_id": queue_id, "queue_offset": queue_offset, "reconsumed": reconsumed,
            "body": body, "topic": topic, "properties": properties,
        }  # fmt: skip
        start += size
