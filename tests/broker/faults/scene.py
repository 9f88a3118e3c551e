"""A broker with groups whose states are made: clients, steady senders, other processes."""

import json
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, Final

from broker.harness import BROKER_NAME, Broker, Cluster
from broker.jvm import Jvm
from broker.pop.remote import Remote
from support import planned

LOCK_BATCH_MQ, COMMIT = 41, 15
QUEUES: Final = 4
_TICK_S: Final = 0.1
SECONDS: Final = 120
SPIN: Final = "import os\nwhile os.getppid() == {}: pass"


@dataclass
class Scene:
    """What the rows of the table make their groups with. Offsets are of every queue of a topic."""

    cluster: Cluster
    root: Path
    broker: Broker
    client: Remote
    stack: ExitStack
    feeds: list[tuple[str, float, Sequence[int]]] = field(default_factory=list)
    """Topic, messages a second of each queue, queues: they are sent until the scene ends."""
    steps: list[Callable[[Remote], object]] = field(default_factory=list)
    """What is done again and again by a client of its own, every second or so."""
    waits: list[Callable[[], bool]] = field(default_factory=list)
    """What must be so before the first look: retries take their time."""
    later: list[Callable[[], object]] = field(default_factory=list)
    """What is done shortly before the last look."""

    @property
    def live(self) -> str:
        return f"rocketmq://{self.cluster.name_server}"

    def topic(self, name: str, each: int = 50, queues: int = QUEUES) -> str:
        """Make a topic with so many messages in each of its queues."""
        for number in range(each * queues):
            self.client.send(name, number % queues, f"{name}-{number}", queues, tag="TagA")
        wait(lambda: self.broker.held(name) == each * queues)
        return name

    def feed(self, topic: str, per_second: float, queues: Sequence[int] = range(QUEUES)) -> None:
        """Send so many messages a second to each of the queues, from now on."""
        self.feeds.append((topic, per_second, queues))

    def set_group(self, group: str, *more: str) -> None:
        """Make a group, or change its settings."""
        self.broker.mqadmin(
            "updateSubGroup", "-n", self.cluster.name_server, "-b", self.broker.address,
            "-g", group, *more,
        )  # fmt: skip

    def set_permission(self, topic: str, permission: int) -> None:
        """Let a topic be read (4), written (2), or both (6)."""
        self.broker.mqadmin(
            "updateTopicPerm", "-n", self.cluster.name_server, "-b", self.broker.address,
            "-t", topic, "-p", str(permission),
        )  # fmt: skip

    def set_broker(self, **settings: str) -> None:
        for name, value in settings.items():
            self.broker.mqadmin(
                "updateBrokerConfig", "-n", self.cluster.name_server, "-b", self.broker.address,
                "-k", name, "-v", value,
            )  # fmt: skip

    def delete(self, topic: str) -> None:
        where = ("-n", self.cluster.name_server, "-c", self.broker.settings["brokerClusterName"])
        self.broker.mqadmin("deleteTopic", *where, "-t", topic)

    def commit_one(self, group: str, topic: str, queue_id: int, queue_offset: int) -> None:
        """Commit an offset as no member of the group."""
        code, remark, _, _ = self.client.ask(
            COMMIT, consumerGroup=group, topic=topic, queueId=queue_id, commitOffset=queue_offset
        )
        assert code == 0, remark

    def lock_all(self, group: str, topic: str, client: Remote | None = None) -> None:
        """Lock all queues of the topic for a client that is not a member, as one that was killed.

        Reference: LockBatchRequestBody.
        """
        named = [
            {"brokerName": BROKER_NAME, "queueId": number, "topic": topic}
            for number in range(QUEUES)
        ]
        body = json.dumps({"consumerGroup": group, "clientId": "gone", "mqSet": named}).encode()
        code, remark, _, answer = (client or self.client).ask(LOCK_BATCH_MQ, body)
        assert code == 0, remark
        assert len(json.loads(answer)["lockOKMQSet"]) == QUEUES

    def other_client(self) -> Jvm:
        """Another process with clients of the broker."""
        client = self.stack.enter_context(self.cluster.other_clients())
        where = self.cluster.name_server, BROKER_NAME, self.broker.address
        self.cluster.ask_of(client, "connect", *where)
        return client

    def offsets(self, group: str, topic: str) -> dict[int, int]:
        """The offsets that a group has committed, by queueId."""
        found = self.client.offsets()["offsetTable"].get(f"{topic}@{group}", {})
        return {int(queue_id): queue_offset for queue_id, queue_offset in found.items()}

    def consumed(self, group: str, topic: str) -> None:
        """Return when a group has consumed something of each queue."""
        wait(lambda: sum(at > 0 for at in self.offsets(group, topic).values()) == QUEUES)

    @contextmanager
    def running(self) -> Iterator[None]:
        """Send, and do the steps, meanwhile."""
        stop = threading.Event()
        works = [self._send, *(partial(self._repeat, step) for step in self.steps)]
        threads = [threading.Thread(target=work, args=(stop,), daemon=True) for work in works]
        for thread in threads:
            thread.start()
        try:
            yield
        finally:
            stop.set()
            for thread in threads:
                thread.join(SECONDS)

    def _send(self, stop: threading.Event) -> None:
        began, sent = time.monotonic(), [0] * len(self.feeds)
        with Remote(self.broker.address) as client:
            while not stop.wait(_TICK_S):
                for number, (topic, per_second, queues) in enumerate(self.feeds):
                    due = int((time.monotonic() - began) * per_second)
                    # A machine that is behind does not make up for it: the rate is at most that.
                    if sent[number] < due:
                        for queue_id in queues:
                            key = f"{topic}-more-{sent[number]}"
                            client.send(topic, queue_id, key, QUEUES, tag="TagA")
                        sent[number] += 1

    def _repeat(self, step: Callable[[Remote], object], stop: threading.Event) -> None:
        while not stop.is_set():
            # A broker never answers a pop for which it finds no room in its direct memory.
            with suppress(TimeoutError), Remote(self.broker.address, 10) as client:
                while not stop.wait(1):
                    step(client)


def wait(is_so: Callable[[], bool], seconds: float = SECONDS) -> None:
    """Look a few times a second until something is so."""
    pause, end = threading.Event(), time.monotonic() + seconds
    while not is_so():
        assert time.monotonic() < end, "it never came to be so"
        pause.wait(0.2)


@contextmanager
def loaded(processes: int, pid: int) -> Iterator[None]:
    """So many processes that compute all the while, beside the test and its broker."""
    words = [sys.executable, "-c", SPIN.format(pid)]
    busy = [subprocess.Popen(words) for _ in range(processes - 1)]
    try:
        yield
    finally:
        for one in busy:
            one.kill()
            one.wait(SECONDS)


def words(place: str, **options: str) -> dict[str, set[str]]:
    """The verdicts about each group that has one."""
    found: dict[str, set[str]] = {}
    for row in planned.rows(place, table="verdicts", **options):
        found.setdefault(row["group"], set()).add(row["verdict"])
    return found


def evidence(place: str, **options: str) -> list[Any]:
    """The same with what was said, for a failure's message."""
    return [
        (row["group"], row["verdict"], row["topic"], row["queueId"], row["evidence"])
        for row in planned.rows(place, table="verdicts", **options)
    ]
