"""Servers on loopback for tests of the live room: one that plays a script, one that is a broker.

``FakeCluster`` is a name server and brokers in one, written from RocketMQ's own sources with
``struct`` and ``json``: it shares nothing with what it tests.
"""

import json
import socket
import struct
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from typing import Any

from support import oracle
from support.oracle import Message

LOOPBACK = "127.0.0.1"
JSON, BINARY = 0, 1
MOST_FRAME_BYTES = 16 << 20
Play = Callable[[socket.socket], None]


def frame(header: bytes, body: bytes = b"", kind: int = JSON) -> bytes:
    """The bytes of a frame, whatever its header is."""
    return struct.pack(">iI", 4 + len(header) + len(body), kind << 24 | len(header)) + header + body


def json_answer(
    opaque: int, code: int = 0, body: bytes = b"", remark: str | None = None, **fields: object
) -> bytes:
    """A whole answer with a JSON header, as brokers write it."""
    header: dict[str, Any] = {"code": code, "flag": 1, "language": "JAVA", "opaque": opaque}
    header |= {"serializeTypeCurrentRPC": "JSON", "version": 513}
    if fields:
        header["extFields"] = {name: str(value) for name, value in fields.items()}
    if remark is not None:
        header["remark"] = remark
    return frame(json.dumps(header).encode(), body)


def read_request(peer: socket.socket) -> dict[str, Any] | None:
    """The next request's header with its body, or None where the client is gone or no client."""
    head = _exactly(peer, 8)
    if head is None:
        return None
    length, mark = struct.unpack(">iI", head)
    if length > MOST_FRAME_BYTES:
        return None  # The begin of a TLS handshake, say: a broker closes the connection.
    assert mark >> 24 == JSON
    header, body = _exactly(peer, mark & 0xFFFFFF), _exactly(peer, length - 4 - (mark & 0xFFFFFF))
    if header is None or body is None:
        return None
    found: dict[str, Any] = json.loads(header)
    return found | {"body": body}


def _compact(value: object) -> bytes:
    return json.dumps(value, separators=(",", ":")).encode()


def _exactly(peer: socket.socket, count: int) -> bytes | None:
    data = b""
    while len(data) < count:
        more = peer.recv(count - len(data))
        if not more:
            return None
        data += more
    return data


@contextmanager
def listening(play: Play) -> Iterator[str]:
    """The address of a server that plays to every client; all its threads end with the body."""
    peers: list[socket.socket] = []
    threads: list[threading.Thread] = []

    def serve(peer: socket.socket) -> None:
        with peer, suppress(OSError):
            play(peer)

    def accept() -> None:
        with suppress(OSError):
            while True:
                peer, _ = server.accept()
                peers.append(peer)
                thread = threading.Thread(target=serve, args=(peer,), daemon=True)
                threads.append(thread)
                thread.start()

    with socket.create_server((LOOPBACK, 0)) as server:
        acceptor = threading.Thread(target=accept, daemon=True)
        acceptor.start()
        try:
            yield f"{LOOPBACK}:{server.getsockname()[1]}"
        finally:
            with suppress(OSError):
                server.shutdown(socket.SHUT_RDWR)
            acceptor.join(5)
            for peer in peers:
                with suppress(OSError):
                    peer.shutdown(socket.SHUT_RDWR)
            for thread in threads:
                thread.join(5)


@dataclass
class FakeQueue:
    """Messages of a queue: ``messages[i]`` is at queue offset ``low + i``; None: it is gone."""

    messages: list[Message | None] = field(default_factory=list)
    low: int = 0
    raw: dict[int, bytes] = field(default_factory=dict)
    """Bytes to give in place of a message, by queue offset."""

    @property
    def high(self) -> int:
        return self.low + len(self.messages)

    @property
    def is_expired(self) -> bool:
        """Whether all its messages are gone, and it goes on to name them, as 4.9 does."""
        return bool(self.messages) and not any(self.messages)

    def record(self, queue_offset: int) -> bytes | None:
        message = self.messages[queue_offset - self.low]
        if queue_offset in self.raw:
            return self.raw[queue_offset]
        return None if message is None else oracle.encode(message)


class FakeCluster:
    """Brokers that serve queues by (broker, topic, queueId), and their name server, on one port.

    ``most`` messages and ``most_bytes`` come with a pull. ``faults`` are consumed one by one: a
    function that gets each request in turn and returns an answer in place of the broker's,
    b"" to close the connection, or None to let it be.
    """

    def __init__(self) -> None:
        self.queues: dict[tuple[str, str, int], FakeQueue] = {}
        self.most = 32
        self.most_bytes = 256 * 1024
        self.fault: Callable[[dict[str, Any]], bytes | None] = lambda _: None
        self.requests: list[dict[str, Any]] = []
        self.addresses: dict[str, dict[int, str]] = {}
        self.route_more: dict[str, Any] = {}
        self.attributes: dict[str, dict[str, str]] = {}
        self.address = ""
        self.lacking: set[tuple[str, str]] = set()
        """(broker, topic) that the name server shows, and the broker does not have any more."""
        self.groups: dict[str, int] = {}
        """Groups that the broker knows, and how many consumers each has now."""
        self.committed: dict[tuple[str, str, int], int] = {}
        """Next queue offsets by topic, group and queueId."""
        self.subscriptions: dict[str, dict[str, tuple[str, str]]] = {}
        """Of groups that are online: by topic the expression and its type."""
        self.topics: dict[str, dict[str, Any]] = {}
        """What the configuration of a topic says, where it is not the usual."""
        self.pulled_offsets: dict[tuple[str, str, int], int] = {}
        self.tells_pulled = True
        """False: it does not tell them all at once, as a broker of 5.5.1."""
        self.pulled_by_group: dict[tuple[str, str, int], int] = {}
        """As ``committed``, what was pulled: 5.1 and later."""
        self.refusals: dict[int, tuple[int, str]] = {}
        """By request's code the code and the remark of what is refused."""
        self.settings = {"mappedFileSizeConsumeQueue": "200"}
        self.delays: dict[int, int] = {}
        """Next queue offset to deliver by delay level."""
        self.codes: dict[tuple[str, int], Callable[[int], int]] = {}
        """Of queues whose entries have no hashes: by queue offset what they have."""
        self.behind_bytes = 0
        """dispatchBehindBytes: what the ConsumeQueues lack of 900 bytes of CommitLog."""
        self.timers_ms: int | None = None
        """Up to when timers were delivered; None: the broker has no timer wheel."""

    @contextmanager
    def running(self) -> Iterator["FakeCluster"]:
        with listening(self._serve) as address:
            self.address = address
            yield self

    def fill(self, topic: str, count: int, *, broker: str = "broker-a", **more: Any) -> FakeQueue:
        """Make queue 0 of a topic with so many messages, stored 10 ms apart."""
        low = more.pop("low", 0)
        queue_id = more.pop("queue_id", 0)
        body = more.pop("body", lambda i: b"%d" % i)
        tags = more.pop("tags", None)
        messages: list[Message | None] = [
            Message(
                topic=topic,
                queue_id=queue_id,
                queue_offset=low + i,
                physical_offset=1_000 * (low + i),
                body=body(i),
                properties=oracle.join_properties({} if tags is None else {"TAGS": tags(i)}),
                store_timestamp_ms=1_700_000_000_000 + 10 * i,
            )
            for i in range(count)
        ]
        return self.queues.setdefault((broker, topic, queue_id), FakeQueue(messages, low))

    def pulls(self) -> list[tuple[int, int]]:
        """(queueOffset, maxMsgNums) of every pull that came."""
        asked = [request["extFields"] for request in self.requests if request["code"] == 11]
        return [(int(f["queueOffset"]), int(f["maxMsgNums"])) for f in asked]

    def _serve(self, peer: socket.socket) -> None:
        while self._serve_next(peer):
            pass

    def _serve_next(self, peer: socket.socket) -> bool:
        """Answer a request; tell whether the connection goes on."""
        request = read_request(peer)
        if request is None:
            return False
        self.requests.append(request)
        answer = self.fault(request)
        answer = self._answer(request) if answer is None else answer
        if answer:
            peer.sendall(answer)
        return bool(answer)

    def _answer(self, request: dict[str, Any]) -> bytes:
        fields, opaque = request.get("extFields", {}), request["opaque"]
        if request["code"] in self.refusals:
            code, remark = self.refusals[request["code"]]
            return json_answer(opaque, code, remark=remark)
        by_code: dict[int, Callable[[int, dict[str, str]], bytes]] = {
            105: lambda opaque, fields: self._route(opaque, fields["topic"]),
            106: lambda opaque, _: json_answer(opaque, 0, self._brokers().encode()),
            206: lambda opaque, _: self._names(opaque),
            202: lambda opaque, fields: self._stats(opaque, fields["topic"]),
            21: lambda opaque, _: self._topics(opaque),
            26: lambda opaque, _: self._settings(opaque),
            28: lambda opaque, _: self._runtime(opaque),
            30: lambda opaque, f: json_answer(opaque, 0, offset=self.queue(f).high),
            31: lambda opaque, f: json_answer(opaque, 0, offset=self.queue(f).low),
            45: lambda opaque, _: self._delays(opaque),
            201: lambda opaque, _: self._configured(opaque),
            11: self.pulled,
            12: self._by_key,
            33: self._by_place,
            60: lambda opaque, _: self._timers(opaque),
            15: self._committed,
            43: lambda opaque, _: self._offsets(opaque),
            208: self._progress,
            200: lambda opaque, _: self._created(opaque, request["body"]),
            203: lambda opaque, fields: self._online(opaque, fields["consumerGroup"]),
            321: self._entries,
        }
        found = by_code.get(request["code"])
        if found is None:
            return json_answer(opaque, 3, remark="request type not supported")
        return found(opaque, fields)

    def _names(self, opaque: int) -> bytes:
        names = sorted({topic for _, topic, _ in self.queues})
        return json_answer(opaque, 0, json.dumps({"topicList": names}).encode())

    def _named(self) -> dict[str, dict[int, str]]:
        names = {broker for broker, _, _ in self.queues}
        return {name: {0: self.address} for name in sorted(names)} | self.addresses

    def _route(self, opaque: int, topic: str) -> bytes:
        queues: dict[str, int] = {}
        perm = self.topics.get(topic, {}).get("perm", 6)
        for broker, name, queue_id in self.queues:
            if name == topic:
                queues[broker] = max(queues.get(broker, 0), queue_id + 1)
        if not queues:
            return json_answer(opaque, 17, remark=f"No topic route info: {topic}\nSee a link")
        data = {
            "queueDatas": [
                {"brokerName": b, "readQueueNums": n, "writeQueueNums": n, "perm": perm}
                for b, n in queues.items()
            ],
            "brokerDatas": [
                {"brokerName": b, "cluster": "C", "brokerAddrs": self._named()[b]} for b in queues
            ],
        }
        return json_answer(opaque, 0, json.dumps(data | self.route_more).encode())

    def _brokers(self) -> str:
        # As fastjson writes it: ids stand without quotes.
        inner = (
            f'"{name}":{{"brokerName":"{name}","brokerAddrs":{{'
            + ",".join(f'{id_}:"{host}"' for id_, host in hosts.items())
            + "}}"
            for name, hosts in self._named().items()
        )
        names = json.dumps(sorted(self._named()))
        return f'{{"brokerAddrTable":{{{",".join(inner)}}},"clusterAddrTable":{{"C":{names}}}}}'

    def _stats(self, opaque: int, topic: str) -> bytes:
        entries = [
            f'{{"brokerName":"{broker}","queueId":{queue_id},"topic":"{name}"}}:'
            f'{{"lastUpdateTimestamp":{-1 if queue.is_expired else 7},'
            f'"maxOffset":{queue.high},"minOffset":{queue.low}}}'
            for (broker, name, queue_id), queue in self.queues.items()
            if name == topic and (broker, topic) not in self.lacking
        ]
        if not entries:
            return json_answer(opaque, 17, remark=f"topic[{topic}] not exist")
        return json_answer(opaque, 0, f'{{"offsetTable":{{{",".join(entries)}}}}}'.encode())

    def _topics(self, opaque: int) -> bytes:
        table = {
            topic: {
                "topicName": topic,
                "readQueueNums": 1
                + max((n for _, name, n in self.queues if name == topic), default=-1),
                "writeQueueNums": 1,
                "perm": 6,
                "order": False,
                "attributes": self.attributes.get(topic, {}),
            }
            | self.topics.get(topic, {})
            for topic in {
                *self.topics,
                *(name for broker, name, _ in self.queues if (broker, name) not in self.lacking),
            }
        }
        return json_answer(opaque, 0, json.dumps({"topicConfigTable": table}).encode())

    def queue(self, fields: dict[str, str]) -> FakeQueue:
        """The queue that a request's fields name, of whatever broker."""
        wanted = fields["topic"], int(fields["queueId"])
        return next(q for (_, topic, id_), q in self.queues.items() if (topic, id_) == wanted)

    def pulled(self, opaque: int, fields: dict[str, str]) -> bytes:
        """DefaultMessageStore#getMessage and PullMessageProcessor, without long polling."""
        queue, start = self.queue(fields), int(fields["queueOffset"])
        most = min(int(fields["maxMsgNums"]), self.most)
        edges = {"minOffset": queue.low, "maxOffset": queue.high}
        if not queue.low <= start <= queue.high:
            begin = queue.low if start < queue.low else queue.high
            return json_answer(opaque, 21, remark="OFFSET", nextBeginOffset=begin, **edges)
        if start == queue.high:
            return json_answer(opaque, 19, remark="OVER", nextBeginOffset=start, **edges)
        tags = fields["subscription"]
        wanted = None if tags == "*" else {oracle.java_hash(t.strip()) for t in tags.split("||")}
        looked_at = start + most if wanted is None else start + max(800, int(fields["maxMsgNums"]))
        found: list[bytes] = []
        at = start
        while at < min(looked_at, queue.high):
            record = queue.record(at)
            size = sum(map(len, found)) + len(record or b"")
            if found and (len(found) == most or size > self.most_bytes):
                break
            at += 1
            message = queue.messages[at - 1 - queue.low]
            if record is not None and (
                wanted is None or (message and oracle.tags_code(message) in wanted)
            ):
                found.append(record)
        code = 0 if found else 20
        return json_answer(opaque, code, b"".join(found), nextBeginOffset=at, **edges)

    def _committed(self, opaque: int, fields: dict[str, str]) -> bytes:
        """As 5.5 does: a group that it does not know is refused."""
        group = fields["consumerGroup"]
        if group not in self.groups:
            return json_answer(opaque, 26, remark=f"Group {group} not exist!")
        key = fields["topic"], group, int(fields["queueId"])
        self.committed[key] = int(fields["commitOffset"])
        return json_answer(opaque)

    def _created(self, opaque: int, body: bytes) -> bytes:
        self.groups[json.loads(body)["groupName"]] = 0
        return json_answer(opaque)

    def _offsets(self, opaque: int) -> bytes:
        found: dict[str, dict[str, dict[str, int]]] = {}
        for name, told in (
            ("offsetTable", self.committed),
            ("pullOffsetTable", self.pulled_offsets),
        ):
            if told is self.pulled_offsets and not self.tells_pulled:
                continue
            table = found.setdefault(name, {})
            for (topic, group, queue_id), at in told.items():
                table.setdefault(f"{topic}@{group}", {})[str(queue_id)] = at
        return json_answer(opaque, 0, _compact(found))

    def _progress(self, opaque: int, fields: dict[str, str]) -> bytes:
        """As a broker of 5.x, whose keys are objects."""
        its = fields["topic"], fields["consumerGroup"]
        entries = []
        for (topic, group, queue_id), at in self.pulled_by_group.items():
            if (topic, group) == its:
                queue = {"brokerName": "broker-a", "queueId": queue_id, "topic": topic}
                entry = {"brokerOffset": 0, "consumerOffset": 0, "pullOffset": at}
                entries.append(f"{json.dumps(queue)}:{json.dumps(entry)}")
        body = '{"consumeTps":0.0,"offsetTable":{' + ",".join(entries) + "}}"
        return json_answer(opaque, 0, body.encode())

    def _online(self, opaque: int, group: str) -> bytes:
        count = self.groups.get(group, 0)
        if not count:
            return json_answer(opaque, 206, remark=f"the consumer group[{group}] not online")
        table = {
            topic: {"topic": topic, "subString": expression, "expressionType": kind}
            for topic, (expression, kind) in self.subscriptions.get(group, {}).items()
        }
        clients = [{"clientId": f"client-{number}"} for number in range(count)]
        found: dict[str, Any] = {"connectionSet": clients, "subscriptionTable": table}
        found["messageModel"] = "CLUSTERING"
        return json_answer(opaque, 0, _compact(found))

    def _configured(self, opaque: int) -> bytes:
        table = {group: {"groupName": group} for group in self.groups}
        return json_answer(opaque, 0, _compact({"subscriptionGroupTable": table}))

    def _delays(self, opaque: int) -> bytes:
        # As fastjson writes it: levels stand without quotes.
        inner = ",".join(f"{level}:{at}" for level, at in self.delays.items())
        return json_answer(opaque, 0, f'{{"offsetTable":{{{inner}}}}}'.encode())

    def _by_key(self, opaque: int, fields: dict[str, str]) -> bytes:
        found = [
            oracle.encode(message)
            for (_, topic, _), queue in self.queues.items()
            for message in queue.messages
            if message is not None
            and topic == fields["topic"]
            and fields["key"] in message.properties_map.get("KEYS", "")
        ]
        return json_answer(opaque, 0 if found else 22, b"".join(found))

    def _by_place(self, opaque: int, fields: dict[str, str]) -> bytes:
        """As a broker of 5.5.1 does: a topic that is named must be the message's own."""
        held = (m for queue in self.queues.values() for m in queue.messages if m)
        found = [m for m in held if m.physical_offset == int(fields["offset"])]
        if not found:
            return json_answer(opaque, 1)
        own = found[0].properties_map.get("REAL_TOPIC", found[0].topic)
        if fields.get("topic") not in (None, "", own):
            remark = "The topic does not match the message"
            return json_answer(opaque, 16, remark=remark)
        return json_answer(opaque, 0, oracle.encode(found[0]))

    def _settings(self, opaque: int) -> bytes:
        lines = (f"{name}={value}\n" for name, value in self.settings.items())
        return json_answer(opaque, 0, "".join(lines).encode())

    def _runtime(self, opaque: int) -> bytes:
        table = {"brokerVersionDesc": "V5_5_0", "commitLogMinOffset": "100"}
        table["commitLogMaxOffset"] = "900"
        table["dispatchBehindBytes"] = str(self.behind_bytes)
        return json_answer(opaque, 0, _compact({"table": table}))

    def _timers(self, opaque: int) -> bytes:
        if self.timers_ms is None:
            return json_answer(opaque, 1, remark="The checkpoint is null")
        return json_answer(opaque, 0, struct.pack(">7q", self.timers_ms, *range(6)))

    def _entries(self, opaque: int, fields: dict[str, str]) -> bytes:
        queue, index = self.queue(fields), int(fields["index"])
        end = min(index + int(fields["count"]), queue.high) if index >= queue.low else index
        data = [
            {
                "physicOffset": (queue.messages[at - queue.low] or Message()).physical_offset,
                "physicSize": len(queue.record(at) or b""),
                "tagsCode": self.codes.get(
                    (fields["topic"], int(fields["queueId"])),
                    lambda at: oracle.tags_code(queue.messages[at - queue.low] or Message()),
                )(at),
            }
            for at in range(index, end)
        ]
        return json_answer(opaque, 0, _compact({"queueData": data}) if data else b"")
