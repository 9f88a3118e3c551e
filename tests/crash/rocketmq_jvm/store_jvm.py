"""RocketMQ's own store classes as a judge: what would a broker serve of this directory?

A ``StoreJvm`` is one version in one JVM. ``with jvm.serving(root) as served`` is a broker that
starts on the directory, and leaves it as kill -9 would: nothing is shut down, ``abort`` stays. To
ask again, the directory is copied (``Served.killed``), for the JVM lives on and has the old one
mapped. After some stores it ends, and another one begins.
"""

import json
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final

from broker.jvm import OPEN_MODULES, SMALL, Jvm, JvmError
from broker.toolchain import Toolchain

HERE: Final = Path(__file__).parent
VERSIONS: Final = ("4.9.7", "5.3.3", "5.5.0")
ANSWER_SECONDS: Final = 300
STORES_PER_JVM: Final = 60

# Both log at DEBUG if nobody says otherwise; RocketMQ 5 through a logback of its own.
LOGBACK: Final = """<configuration>
  <appender name="console" class="{}">
    <encoder><pattern>%d %-5level %logger{{20}} - %msg%n</pattern></encoder>
  </appender>
  <root level="WARN"><appender-ref ref="console"/></root>
</configuration>
"""
PACKAGE_OF_5: Final = "org.apache.rocketmq.logging"
CONSOLE: Final = "ch.qos.logback.core.ConsoleAppender"


MakeRoot = Callable[[], Path]
"""Makes another store to be judged."""


@dataclass(frozen=True, slots=True)
class Sizes:
    """The broker's settings that say how long files are: bytes, bytes, slots, units."""

    commit_log: int = 65_536
    consume_queue: int = 2_000
    index_slots: int = 100
    index_units: int = 1_000


@dataclass(frozen=True, slots=True)
class Message:
    """A message as a consumer gets it."""

    queue_offset: int
    physical_offset: int
    size: int
    keys: str | None
    body_sha1: str


@dataclass(frozen=True, slots=True)
class Queue:
    """A queue as consumers see it: [low, high), and what pulling all of it gives."""

    topic: str
    queue_id: int
    low: int
    high: int
    messages: tuple[Message | None, ...]
    """None is a message that the client cannot decode."""

    @property
    def is_dense(self) -> bool:
        """Each queue offset of [low, high) gives its own message, and nothing else comes."""
        told = [m.queue_offset for m in self.messages if m]
        return len(self.messages) == len(told) and told == list(range(self.low, self.high))


@dataclass(frozen=True, slots=True)
class Put:
    """What the broker acknowledged."""

    physical_offset: int
    size: int
    queue_offset: int


class RefusedError(Exception):
    """``load()`` said no: the broker would have exited."""


class StoreJvm:
    """One version's store classes in a JVM of their own. A context manager."""

    def __init__(self, toolchain: Toolchain, version: str, home: Path) -> None:
        self.version = version
        self.overhead = 0
        """Bytes of a record of `put` besides its body, its topic and its key."""
        self._toolchain = toolchain
        self._home = home
        self._jvm: Jvm | None = None
        self._opened = self._jvms = 0

    def __enter__(self) -> "StoreJvm":
        return self

    def __exit__(self, *_: object) -> None:
        self.end()

    def open(self, root: Path, sizes: Sizes | None = None) -> "Served":
        """Construct a store on ``root``: that opens its file ``lock``, and waits for a lease."""
        if self._opened % STORES_PER_JVM == 0:
            self.end()
        self._opened += 1
        s = sizes or Sizes()
        self.ask("open", root, s.commit_log, s.consume_queue, s.index_slots, s.index_units)
        return Served(self, root)

    @contextmanager
    def serving(self, root: Path, sizes: Sizes | None = None) -> "Iterator[Served]":
        """Have a broker start on ``root``; it is killed when the block ends.

        Raises RefusedError.
        """
        served = self.open(root, sizes)
        try:
            served.load()
            served.start()
            yield served
        finally:
            served.drop()

    def ask(self, command: str, *fields: object) -> Any:
        """Have the JVM run a command (see StoreServer.java). Raises JvmError with its trace."""
        if self._jvm is None:
            self._jvm = self._boot()
        answer = json.loads(self._jvm.ask("\t".join([command, *map(str, fields)]), ANSWER_SECONDS))
        if "error" in answer:
            raise JvmError(f"{self.version}: {command} {fields}: {answer['error']}")
        return answer["result"]

    @contextmanager
    def frozen(self) -> Iterator[None]:
        """Let no thread of the JVM do anything meanwhile; files keep what was written to maps."""
        assert self._jvm is not None
        with self._jvm.frozen():
            yield

    def _boot(self) -> Jvm:
        self._jvms += 1
        home = self._home / f"jvm-{self._jvms}"
        home.mkdir(parents=True)
        (home / "logback.xml").write_text(LOGBACK.format(CONSOLE))
        (home / "logback-5.xml").write_text(LOGBACK.format(f"{PACKAGE_OF_5}.{CONSOLE}"))
        classpath = replace(self._toolchain, room=HERE).classpath(self.version)
        command = [
            self._toolchain.java,
            *("-Xms64m", "-Xmx512m", *SMALL, *OPEN_MODULES),
            f"-Duser.home={home}",
            f"-Dlogback.configurationFile={home / 'logback.xml'}",
            f"-Drmq.logback.configurationFile={home / 'logback-5.xml'}",
            "-Drocketmq.client.logUseSlf4j=true",  # 4.9, which has loggers of its own too.
            *("-Dfile.encoding=UTF-8", "-Duser.timezone=UTC"),
            *("-cp", classpath, "StoreServer"),
        ]
        return Jvm(command, home, "jvm", talks=True)

    def end(self) -> None:
        """End the JVM; the next store is opened by a new one."""
        if self._jvm is not None:
            with self._jvm:
                self._jvm.kill()
        self._jvm = None


class Served:
    """A store in the hands of the broker's classes."""

    def __init__(self, jvm: StoreJvm, root: Path) -> None:
        self.root = root
        self._owner = jvm

    def load(self) -> None:
        """Load and recover, as BrokerController#initialize does; no lock is held yet.

        Raises RefusedError.
        """
        if not self._owner.ask("load"):
            raise RefusedError(f"{self._owner.version} does not load {self.root}")

    def start(self) -> None:
        """Take the lock and go to work. Returns when all of the log is dispatched."""
        self._owner.ask("start")

    def queues(self) -> dict[tuple[str, int], Queue]:
        """Pull every queue from its first message to its last; those never used are left out."""
        found = {}
        for queue in self._owner.ask("tell")["queues"]:
            if not queue["high"]:
                continue  # 4.9 has the 18 of SCHEDULE_TOPIC_XXXX from the start.
            messages = tuple(m and Message(*m) for m in queue["messages"])
            key = (queue["topic"], queue["queueId"])
            found[key] = Queue(*key, queue["low"], queue["high"], messages)
        return found

    def put(self, topic: str, queue_id: int, body: str, key: str) -> Put:
        """Append a message as a producer's send does; returns when consumers can get it."""
        _, *where = self._owner.ask("put", topic, queue_id, body, key)
        return Put(*where)

    def find(self, topic: str, key: str) -> list[int]:
        """Return the physical offsets of the messages that the index gives for a key."""
        found: list[int] = self._owner.ask("find", topic, key)
        return found

    def killed(self, into: Path) -> Path:
        """Return a copy of the store as kill -9 would leave it now: of one moment."""
        with self._owner.frozen():
            shutil.copytree(self.root, into, symlinks=True)
        return into

    def drop(self) -> None:
        """Be killed: nothing is shut down in order. The directory is nobody's afterwards."""
        self._owner.ask("drop")

    def close(self) -> None:
        """Shut down as a broker does, which takes seconds."""
        self._owner.ask("close")
        self._owner.end()
