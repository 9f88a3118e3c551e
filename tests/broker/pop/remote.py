"""POP over remoting, straight to a broker: send, pop, acknowledge, change the invisible time.

A client of its own, of the standard library: what it is answered is the judge's knowledge of what a
group has, and nothing of mqlog decodes it.

Reference: PopMessageRequestHeader, AckMessageRequestHeader, ChangeInvisibleTimeRequestHeader,
BatchAckMessageRequestBody, ExtraInfoUtil, RequestCode.
"""

import base64
import itertools
import json
import re
import socket
import struct
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, Self

from support import oracle

SEND, POP, ACK, CHANGE, BATCH_ACK, OFFSETS, PULL = 310, 200050, 200051, 200053, 200151, 43, 11
SUCCESS: Final = 0
NOTHING: Final = frozenset({19, 208, 209, 210})
"""PULL_NOT_FOUND, POLLING_FULL, POLLING_TIMEOUT and what a queue that does not exist yet gives."""
NORMAL, RETRY_V1, RETRY_V2 = "0", "1", "2"
FIFO_REVIVE: Final = 999
JSON_VERSION: Final = 459


class RefusedError(Exception):
    """The broker refused a request; carries the code and the remark."""


@dataclass(frozen=True, slots=True)
class Handle:
    """One delivery of a message: what its acknowledgement names."""

    uniq_key: str
    topic: str
    """Where it lies: the topic, or its retry topic."""
    queue_id: int
    queue_offset: int
    extra: str
    reconsume_times: int
    pop_ms: int
    invisible_ms: int

    @property
    def place(self) -> tuple[str, int, int]:
        """Topic, queue and queue offset."""
        return self.topic, self.queue_id, self.queue_offset

    @property
    def visible_ms(self) -> int:
        """When it is to be delivered again."""
        return self.pop_ms + self.invisible_ms


class Remote:
    """A connection to one broker; one request at a time. A context manager."""

    def __init__(self, address: str, seconds: float = 60) -> None:
        host, _, port = address.rpartition(":")
        self._socket = socket.create_connection((host, int(port)), 10)
        self._socket.settimeout(seconds)
        self._opaques = itertools.count(1)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._socket.close()

    def ask(self, code: int, body: bytes = b"", **fields: object) -> tuple[int, str, Any, bytes]:
        """Send a request; return the answer's code, remark, header fields and body."""
        opaque = next(self._opaques)
        texts = {k: _text(v) for k, v in fields.items() if v is not None}
        header = json.dumps(
            {
                "code": code,
                "flag": 0,
                "language": "JAVA",
                "opaque": opaque,
                "version": JSON_VERSION,
                "serializeTypeCurrentRPC": "JSON",
                "extFields": texts,
            }
        ).encode()
        size = struct.pack(">ii", 4 + len(header) + len(body), len(header))
        self._socket.sendall(size + header + body)
        while True:
            found, answered = self._read()
            if found["opaque"] == opaque and found.get("flag", 0) & 1:
                remark = found.get("remark") or ""
                return found["code"], remark, found.get("extFields") or {}, answered

    def send(self, topic: str, queue_id: int, uniq_key: str, queues: int, tag: str = "") -> int:
        """Send one message; returns its queue offset. The topic gets ``queues`` queues."""
        properties = {"KEYS": uniq_key, "UNIQ_KEY": uniq_key, "WAIT": "true"}
        properties |= {"TAGS": tag} if tag else {}
        block = "\x02".join(f"{name}\x01{value}" for name, value in properties.items())
        now = int(time.time() * 1000)
        fields = {"a": "PG", "b": topic, "c": "TBW102", "d": queues, "e": queue_id, "f": 0}
        fields |= {"g": now, "h": 0, "i": block, "j": 0, "k": False, "m": False}
        code, remark, answered, _ = self.ask(SEND, f"body of {uniq_key}".encode(), **fields)
        if code != SUCCESS:
            raise RefusedError(code, remark)
        return int(answered["queueOffset"])

    def pop(
        self,
        topic: str,
        group: str,
        most: int,
        invisible_ms: int,
        *,
        queue_id: int = -1,
        fifo: bool = False,
        attempt: str | None = None,
        tags: str = "*",
    ) -> list[Handle]:
        """Pop at most ``most`` messages of a queue, or of any queue and the retry topic."""
        code, remark, fields, body = self.ask(
            POP,
            consumerGroup=group,
            topic=topic,
            queueId=queue_id,
            maxMsgNums=most,
            invisibleTime=invisible_ms,
            pollTime=0,
            bornTime=int(time.time() * 1000),
            initMode=0,
            expType="TAG",
            exp=tags,
            order=fifo,
            attemptId=attempt,
        )
        if code in NOTHING:
            return []
        if code != SUCCESS:
            raise RefusedError(code, remark)
        return [_handle(m, fields, topic, group) for _, m in oracle.walk(body)]

    def ack(self, group: str, handle: Handle) -> None:
        """Acknowledge one delivery."""
        self._settle(ACK, group, handle)

    def ack_all(self, group: str, handles: Sequence[Handle], broker: str) -> None:
        """Acknowledge deliveries with one request, which writes batches of them."""
        acks = {}
        for h in handles:
            start, pop_ms, invisible, revive, retry, *_ = h.extra.split(" ")
            topic = h.topic if retry == NORMAL else _origin(h.topic, group)
            key = topic, h.queue_id, start, pop_ms, retry
            entry = acks.setdefault(key, {
                "c": group, "t": topic, "r": retry, "so": int(start), "q": h.queue_id,
                "rq": int(revive), "pt": int(pop_ms), "it": int(invisible), "b": 0,
            })  # fmt: skip
            entry["b"] = int(entry["b"]) | 1 << (h.queue_offset - int(start))
        listed = []
        for entry in acks.values():
            bits = int(entry.pop("b"))
            size = (bits.bit_length() + 7) // 8
            listed.append(entry | {"b": base64.b64encode(bits.to_bytes(size, "little")).decode()})
        body = json.dumps({"brokerName": broker, "acks": listed}).encode()
        code, remark, _, _ = self.ask(BATCH_ACK, body)
        if code != SUCCESS:
            raise RefusedError(code, remark)

    def change(self, group: str, handle: Handle, invisible_ms: int) -> Handle:
        """Give one delivery another invisible time from now on; returns the delivery it became."""
        fields = self._settle(CHANGE, group, handle, invisibleTime=invisible_ms)
        parts = handle.extra.split(" ")
        retry, broker, queue, offset = parts[4:8]
        extra = " ".join(
            (offset, fields["popTime"], fields["invisibleTime"], fields["reviveQid"], retry,
             broker, queue, offset)
        )  # fmt: skip
        return Handle(
            handle.uniq_key,
            *handle.place,
            extra,
            handle.reconsume_times,
            int(fields["popTime"]),
            int(fields["invisibleTime"]),
        )

    def offsets(self) -> dict[str, Any]:
        """Return what the broker has committed: offsetTable and, of some, pullOffsetTable."""
        _, _, _, body = self.ask(OFFSETS)
        quoted = re.sub(r"([{,]\s*)(\d+)(\s*:)", r'\1"\2"\3', body.decode())
        found: dict[str, Any] = json.loads(quoted)
        return found

    def held(self, topic: str, queue_id: int = 0) -> list[oracle.Message]:
        """Return all messages of a queue, at most 1,000; none if the topic is not there."""
        found: list[oracle.Message] = []
        while len(found) < 1_000:
            code, _, _, body = self.ask(
                PULL, consumerGroup="TOOLS_CONSUMER", topic=topic, queueId=queue_id,
                queueOffset=len(found), maxMsgNums=32, sysFlag=4, commitOffset=0,
                suspendTimeoutMillis=0, subscription="*", subVersion=0, expressionType="TAG",
            )  # fmt: skip
            if code != SUCCESS:
                break
            found += [m for _, m in oracle.walk(body)]
        return found

    def _settle(self, code: int, group: str, handle: Handle, **more: object) -> Mapping[str, str]:
        answer, remark, fields, _ = self.ask(
            code,
            consumerGroup=group,
            topic=handle.topic,
            queueId=handle.queue_id,
            extraInfo=handle.extra,
            offset=handle.queue_offset,
            **more,
        )
        if answer != SUCCESS:
            raise RefusedError(answer, remark)
        found: Mapping[str, str] = fields
        return found

    def _read(self) -> tuple[dict[str, Any], bytes]:
        (length,) = struct.unpack(">i", self._exactly(4))
        data = self._exactly(length)
        mark = int.from_bytes(data[:4], "big")
        header, body = data[4 : 4 + (mark & 0xFFFFFF)], data[4 + (mark & 0xFFFFFF) :]
        if mark >> 24:
            raise RefusedError(-1, "a binary header, though JSON was asked for")
        found: dict[str, Any] = json.loads(header)
        return found, body

    def _exactly(self, size: int) -> bytes:
        parts = bytearray()
        while len(parts) < size:
            part = self._socket.recv(size - len(parts))
            if not part:
                raise ConnectionError("the broker closed the connection")
            parts += part
        return bytes(parts)


def retry_topic(group: str, topic: str, *, is_v2: bool = False) -> str:
    """Return where messages that were not acknowledged come again."""
    return f"%RETRY%{group}{'+' if is_v2 else '_'}{topic}"


def _origin(retry: str, group: str) -> str:
    return retry.removeprefix(f"%RETRY%{group}")[1:]


def _handle(m: oracle.Message, fields: Mapping[str, str], topic: str, group: str) -> Handle:
    """Return the delivery that a message of an answer is; ExtraInfoUtil#buildExtraInfo."""
    told = m.properties_map.get("POP_CK")
    if told is None:
        v1, v2 = retry_topic(group, topic), retry_topic(group, topic, is_v2=True)
        retry = {v1: RETRY_V1, v2: RETRY_V2}.get(m.topic, NORMAL)
        starts = dict(_three(part) for part in filter(None, fields["startOffsetInfo"].split(";")))
        start = starts[retry, str(m.queue_id)]
        parts = (start, fields["popTime"], fields["invisibleTime"], fields["reviveQid"], retry)
        told = " ".join((*parts, "broker-a", str(m.queue_id), str(m.queue_offset)))
    extra = told.split(" ")
    places = {
        NORMAL: topic,
        RETRY_V1: retry_topic(group, topic),
        RETRY_V2: retry_topic(group, topic, is_v2=True),
    }
    return Handle(
        m.properties_map["UNIQ_KEY"],
        places[extra[4]],
        int(extra[6]),
        int(extra[7]),
        told,
        m.reconsume_times,
        int(extra[1]),
        int(extra[2]),
    )


def _three(part: str) -> tuple[tuple[str, str], str]:
    retry, queue, start = part.split(" ")
    return (retry, queue), start


def _text(value: object) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)
