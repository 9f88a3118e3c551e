"""A simulated fleet: hundreds of brokers and their name server, each on a port, in one process.

``Model`` is the truth: what each queue holds and what each group committed, drawn by a seed. The
process that serves it and the test that judges make the same one; ``Fleet`` keeps both in step. The
bodies are written as brokers write them, fastjson's keys included; nothing of it is our code.

Reference: AdminBrokerProcessor, TopicStatsTable, ConsumerOffsetManager, ConsumeStatsList.
"""

import asyncio
import json
import multiprocessing
import struct
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from multiprocessing.connection import Connection
from random import Random
from typing import Any

LOOPBACK = "127.0.0.1"
SPREAD = 2
T0 = 1_700_000_000_000
SILENT, BROKEN, LIES, SLOW = "silent", "broken", "lies", "slow"
"""What a broker can be made to do: never answer, hang up, answer nonsense, answer after 1.5 s."""
SLOW_S = 1.5
_NAME_SERVER = "name server"
_CHANGES = {"move", "leave", "create"}
"""Methods of the model."""
_WAIT_S = 120
_Answer = str | tuple[int, str, str]


@dataclass(frozen=True)
class Size:
    """How many brokers, topics and groups; ``seed`` draws what they hold."""

    brokers: int = 20
    topics: int = 400
    groups: int = 2_000
    queues: int = 4
    seed: int = 1


class Model:
    """What the brokers hold: [low, high) by (broker, topic), a pair for each queue."""

    def __init__(self, size: Size) -> None:
        self.size = size
        random = Random(size.seed)
        self.brokers = [f"broker-{n:04}" for n in range(size.brokers)]
        self.queues: dict[tuple[str, str], list[tuple[int, int]]] = {}
        self.committed: dict[tuple[str, str, str], dict[int, int]] = {}
        self.topics: dict[str, list[str]] = {name: [] for name in self.brokers}
        self.groups: dict[str, list[tuple[str, str]]] = {name: [] for name in self.brokers}
        self.log: dict[str, int] = dict.fromkeys(self.brokers, 1 << 30)
        self.online: set[str] = set()
        for number in range(size.topics):
            topic = f"T{number:05}"
            for broker in self._homes(number):
                self.topics[broker].append(topic)
                self.queues[broker, topic] = [self._drawn(random) for _ in range(size.queues)]
        for number in range(size.groups):
            topic, group = f"T{number % size.topics:05}", f"G{number:05}"
            if random.random() < 0.5:
                self.online.add(group)
            for broker in self._homes(number % size.topics):
                self.groups[broker].append((topic, group))
                self.committed[broker, topic, group] = {
                    queue_id: at
                    for queue_id, held in enumerate(self.queues[broker, topic])
                    if (at := self._stands(random, *held)) is not None
                }

    def _homes(self, number: int) -> list[str]:
        count = len(self.brokers)
        step = 1 + number // count % max(count - 1, 1)
        return sorted({self.brokers[(number + k * step) % count] for k in range(SPREAD)})

    @staticmethod
    def _drawn(random: Random) -> tuple[int, int]:
        low = random.choice((0, 0, random.randrange(1_000_000)))
        return low, low + random.choice((0, random.randrange(1, 100), random.randrange(1, 10**6)))

    @staticmethod
    def _stands(random: Random, low: int, high: int) -> int | None:
        draw = random.random()
        if draw < 0.01:
            return None
        if draw < 0.02:
            return max(low - 5, 0)
        if draw < 0.03:
            return high + 7
        return max(low, high - random.choice((0, random.randrange(10), random.randrange(1_000))))

    def move(self, seed: int, brokers: int, topics: int = 2) -> None:
        """Store messages in some topics of some brokers, and let a group of each consume."""
        random = Random(seed)
        for broker in random.sample(self.brokers, brokers):
            self.log[broker] += 4_096
            for topic in random.sample(self.topics[broker], min(topics, len(self.topics[broker]))):
                held = self.queues[broker, topic]
                self.queues[broker, topic] = [(a, b + random.randrange(1, 9)) for a, b in held]
            topic, group = random.choice(self.groups[broker])
            ends = self.queues[broker, topic]
            self.committed[broker, topic, group] = {n: high for n, (_, high) in enumerate(ends)}

    def leave(self, group: str) -> None:
        """Let the consumers of a group go."""
        self.online.discard(group)

    def create(self, broker: str, topic: str, group: str) -> None:
        """Make a topic, without a message, and let a group commit where it begins."""
        self.topics[broker].append(topic)
        self.groups[broker].append((topic, group))
        self.queues[broker, topic] = [(0, 0)] * self.size.queues
        self.committed[broker, topic, group] = dict.fromkeys(range(self.size.queues), 0)

    def rows(self) -> Iterator[tuple[Any, ...]]:
        """Broker, group, topic, queueId, brokerOffset, consumerOffset, minOffset, lag, status."""
        for broker in self.brokers:
            for topic, group in self.groups[broker]:
                offsets = self.committed[broker, topic, group]
                for queue_id, (low, high) in enumerate(self.queues[broker, topic]):
                    at = offsets.get(queue_id)
                    start = max(at or 0, low)
                    lag = max(high - start, 0)
                    status = self._status(group, at, low, high, lag)
                    yield broker, group, topic, queue_id, high, at, low, lag, status

    def _status(self, group: str, at: int | None, low: int, high: int, lag: int) -> str:
        if at is None:
            return "NEVER_COMMITTED"
        if at > high:
            return "AHEAD"
        if at < low:
            return "EXPIRED"
        return "NO_CONSUMERS" if lag and group not in self.online else "OK"


@dataclass
class _Server:
    """The brokers' sockets, and what was asked of each."""

    model: Model
    asked: Counter[tuple[str, int]] = field(default_factory=Counter)
    modes: dict[str, str] = field(default_factory=dict)
    ports: dict[str, int] = field(default_factory=dict)

    async def start(self) -> None:
        loop = asyncio.get_running_loop()
        for name in [_NAME_SERVER, *self.model.brokers]:
            server = await loop.create_server(lambda n=name: _Peer(self, n), LOOPBACK, 0)  # type: ignore[misc]
            self.ports[name] = int(server.sockets[0].getsockname()[1])

    def answer(self, name: str, code: int, fields: dict[str, str]) -> tuple[int, str, str]:
        """The code, the remark and the body of an answer."""
        self.asked[name, code] += 1
        if self.modes.get(name) == LIES:
            return 0, "", '{"offsetTable":7,"topicConfigTable":[],"table":"x"}'
        kind = self.at_name_server if name == _NAME_SERVER else self.at_broker
        found = kind(name, code, fields)
        return (0, "", found) if isinstance(found, str) else found

    def at_name_server(self, _: str, code: int, fields: dict[str, str]) -> _Answer:
        if code == 106:
            return self.brokers()
        if code == 206:
            names = sorted({topic for _, topic in self.model.queues})
            return json.dumps({"topicList": names})
        if code == 105:
            return self.route(fields["topic"])
        return 3, "request type not supported", ""

    def brokers(self) -> str:
        inner = ",".join(
            f'"{n}":{{"brokerName":"{n}","cluster":"C","brokerAddrs":{{0:"{self.at(n)}"}}}}'
            for n in self.model.brokers
        )
        names = json.dumps(self.model.brokers)
        return f'{{"brokerAddrTable":{{{inner}}},"clusterAddrTable":{{"C":{names}}}}}'

    def at(self, name: str) -> str:
        return f"{LOOPBACK}:{self.ports[name]}"

    def route(self, topic: str) -> _Answer:
        homes = [name for name in self.model.brokers if (name, topic) in self.model.queues]
        if not homes:
            return 17, f"No topic route info: {topic}", ""
        count = self.model.size.queues
        queues = [
            {"brokerName": n, "readQueueNums": count, "writeQueueNums": count, "perm": 6}
            for n in homes
        ]
        brokers = [
            {"brokerName": n, "cluster": "C", "brokerAddrs": {"0": self.at(n)}} for n in homes
        ]
        return json.dumps({"queueDatas": queues, "brokerDatas": brokers})

    def at_broker(self, name: str, code: int, fields: dict[str, str]) -> _Answer:
        by_code: dict[int, Callable[[str], _Answer]] = {
            21: self.configs, 26: self.settings, 28: self.runtime, 43: self.offsets,
            45: self.delays, 201: self.group_configs, 402: self.modes_of, 60: self.timers,
        }  # fmt: skip
        if code in by_code:
            return by_code[code](name)
        if code == 202:
            return self.stats(name, fields["topic"])
        if code == 203:
            return self.connected(fields["consumerGroup"])
        return 3, "request type not supported", ""

    def configs(self, name: str) -> str:
        count = self.model.size.queues
        table = {
            topic: {
                "attributes": {}, "order": False, "perm": 6, "readQueueNums": count,
                "topicFilterType": "SINGLE_TAG", "topicName": topic, "topicSysFlag": 0,
                "writeQueueNums": count,
            }
            for topic in self.model.topics[name]
        }  # fmt: skip
        version = {"counter": 1, "stateVersion": 0, "timestamp": T0}
        return json.dumps({"dataVersion": version, "topicConfigTable": table})

    def settings(self, _: str) -> str:
        return "enablePopBufferMerge=false\nfileReservedTime=72\n"

    def runtime(self, name: str) -> str:
        table = {
            "brokerVersionDesc": "V5_5_0", "brokerVersion": "513", "bootTimestamp": str(T0),
            "commitLogMinOffset": "0", "commitLogMaxOffset": str(self.model.log[name]),
            "dispatchBehindBytes": "0", "putTps": "0.0 0.0 0.0", "remainHowManyDataToFlush": "0 B",
        }  # fmt: skip
        return json.dumps({"table": table})

    def offsets(self, name: str) -> str:
        inner = ",".join(
            f'"{topic}@{group}":{{'
            + ",".join(f"{n}:{at}" for n, at in self.model.committed[name, topic, group].items())
            + "}"
            for topic, group in self.model.groups[name]
        )
        return f'{{"dataVersion":{{"counter":1}},"offsetTable":{{{inner}}},"pullOffsetTable":{{}}}}'

    def delays(self, _: str) -> str:
        return '{"dataVersion":{"counter":1},"offsetTable":{}}'

    def group_configs(self, name: str) -> str:
        table = {
            group: {"groupName": group, "consumeEnable": True, "retryQueueNums": 1}
            for _, group in self.model.groups[name]
        }
        return json.dumps({"subscriptionGroupTable": table, "forbiddenTable": {}})

    def modes_of(self, _: str) -> str:
        return '{"messageRequestModeMap":{}}'

    def timers(self, _: str) -> _Answer:
        return 1, "The checkpoint is null", ""

    def stats(self, name: str, topic: str) -> _Answer:
        held = self.model.queues.get((name, topic))
        if held is None:
            return 17, f"topic[{topic}] not exist", ""
        inner = ",".join(
            f'{{"brokerName":"{name}","queueId":{n},"topic":"{topic}"}}:'
            f'{{"lastUpdateTimestamp":{T0},"maxOffset":{high},"minOffset":{low}}}'
            for n, (low, high) in enumerate(held)
        )
        return f'{{"offsetTable":{{{inner}}}}}'

    def connected(self, group: str) -> _Answer:
        if group not in self.model.online:
            return 206, f"Not found the consumer group consumer, please check: {group}", ""
        topic = f"T{int(group[1:]) % self.model.size.topics:05}"
        one = {"topic": topic, "subString": "*", "expressionType": "TAG", "subVersion": 1}
        client = {"clientId": "c@1", "clientAddr": "127.0.0.1:1", "language": "JAVA", "version": 1}
        table = {"connectionSet": [client], "subscriptionTable": {topic: one}}
        return json.dumps(table | {"messageModel": "CLUSTERING"})


class _Peer(asyncio.Protocol):
    def __init__(self, server: _Server, name: str) -> None:
        self.server = server
        self.name = name
        self.left = b""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self.transport = transport

    def data_received(self, data: bytes) -> None:
        self.left += data
        while len(self.left) >= 8:
            length, mark = struct.unpack_from(">iI", self.left)
            if len(self.left) < 4 + length:
                return
            header = json.loads(self.left[8 : 8 + (mark & 0xFFFFFF)])
            self.left = self.left[4 + length :]
            self.asked(header)

    def asked(self, header: dict[str, Any]) -> None:
        mode = self.server.modes.get(self.name)
        if mode == SILENT:
            self.server.asked[self.name, header["code"]] += 1
        elif mode == BROKEN:
            self.transport.abort()
        elif mode == SLOW:
            asyncio.get_running_loop().call_later(SLOW_S, self.reply, header)
        else:
            self.reply(header)

    def reply(self, header: dict[str, Any]) -> None:
        code, remark, body = self.server.answer(
            self.name, header["code"], header.get("extFields") or {}
        )
        fields = {"code": code, "flag": 1, "language": "JAVA", "opaque": header["opaque"]}
        fields |= {"serializeTypeCurrentRPC": "JSON", "version": 513}
        if remark:
            fields["remark"] = remark
        head, data = json.dumps(fields).encode(), body.encode()
        if self.transport.is_closing():
            return
        length = 4 + len(head) + len(data)
        self.transport.write(struct.pack(">iI", length, len(head)) + head + data)


def _serve(size: Size, pipe: Connection) -> None:
    asyncio.run(_served(size, pipe))


async def _served(size: Size, pipe: Connection) -> None:
    server = _Server(Model(size))
    await server.start()
    over = asyncio.Event()

    def command() -> None:
        try:
            name, arguments = pipe.recv()
        except EOFError:
            over.set()
            return
        if name in _CHANGES:
            getattr(server.model, name)(*arguments)
        elif name == "mode":
            server.modes[arguments[0]] = arguments[1]
        elif name == "asked":
            pipe.send(dict(server.asked))
            server.asked.clear()
            return
        pipe.send(None)

    pipe.send(server.ports)
    asyncio.get_running_loop().add_reader(pipe.fileno(), command)
    await over.wait()


class Fleet:
    """A fleet that runs in a process of its own."""

    def __init__(self, size: Size, pipe: Connection) -> None:
        self._size = size
        self._changes: list[tuple[str, tuple[Any, ...]]] = []
        self._pipe = pipe
        self.ports: dict[str, int] = self._told()
        self.address = f"{LOOPBACK}:{self.ports[_NAME_SERVER]}"

    @property
    def model(self) -> Model:
        """What the brokers hold now, made anew: there is nothing of it in memory before."""
        found = Model(self._size)
        for name, arguments in self._changes:
            getattr(found, name)(*arguments)
        return found

    def move(self, seed: int, brokers: int, topics: int = 2) -> None:
        """Store and consume, here and there."""
        self._change("move", seed, brokers, topics)

    def leave(self, group: str) -> None:
        """Let the consumers of a group go."""
        self._change("leave", group)

    def create(self, broker: str, topic: str, group: str) -> None:
        """Make a topic and have a group commit in it."""
        self._change("create", broker, topic, group)

    def make(self, broker: str, mode: str) -> None:
        """Let a broker be SILENT, BROKEN, SLOW, tell LIES, or be well again: an empty text."""
        self._do("mode", broker, mode)

    def asked(self) -> dict[str, Counter[int]]:
        """What was asked since the last call: by server, by code."""
        found: dict[str, Counter[int]] = {}
        for (name, code), count in self._do("asked").items():
            found.setdefault(name, Counter())[code] = count
        return found

    def _change(self, name: str, *arguments: Any) -> None:
        self._changes.append((name, arguments))
        self._do(name, *arguments)

    def _do(self, name: str, *arguments: object) -> Any:
        self._pipe.send((name, arguments))
        return self._told()

    def _told(self) -> Any:
        assert self._pipe.poll(_WAIT_S)
        return self._pipe.recv()


@contextmanager
def running(size: Size) -> Iterator[Fleet]:
    """A fleet of that size; its process ends with the body."""
    context = multiprocessing.get_context("spawn")
    ours, theirs = context.Pipe()
    process = context.Process(target=_serve, args=(size, theirs), daemon=True)
    process.start()
    theirs.close()
    try:
        yield Fleet(size, ours)
    finally:
        ours.close()
        process.join(_WAIT_S)
        if process.is_alive():
            process.kill()
