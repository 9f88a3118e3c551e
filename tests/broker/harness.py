"""RocketMQ on loopback for one test run: a name server, official clients, and brokers.

A ``Cluster`` is one version: a name server and a JVM with the official clients, both of which
live as long as it does. ``Cluster.broker`` runs a real broker on a store directory.
"""

import base64
import json
import os
import re
import shutil
import signal
import threading
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, Self

from broker.jvm import OPEN_MODULES, SMALL, Jvm, JvmError
from broker.ports import free_ports
from broker.toolchain import Toolchain

BROKER_NAME: Final = "broker-a"
LOOPBACK: Final = "127.0.0.1"
BOOT_SECONDS: Final = 300
ANSWER_SECONDS: Final = 300

SMALL_FILES: Final = {
    "mappedFileSizeCommitLog": "262144",
    "mappedFileSizeConsumeQueue": "4000",
    "maxHashSlotNum": "100",
    "maxIndexNum": "400",
}
"""Mapped files so small that a few hundred messages roll all of them."""

DEFAULT_FILES: Final = {
    "mappedFileSizeCommitLog": str(1024 * 1024 * 1024),
    "mappedFileSizeConsumeQueue": str(300_000 * 20),
    "maxHashSlotNum": "5000000",
    "maxIndexNum": "20000000",
}
"""RocketMQ's own sizes (MessageStoreConfig)."""

SETTINGS: Final = {
    "brokerClusterName": "DefaultCluster",
    "brokerName": BROKER_NAME,
    "brokerId": "0",
    "brokerIP1": LOOPBACK,
    "brokerIP2": LOOPBACK,
    "bindAddress": LOOPBACK,
    "autoCreateTopicEnable": "true",
    "brokerRole": "ASYNC_MASTER",
    "flushDiskType": "ASYNC_FLUSH",
    "timerWheelEnable": "false",
    # 4.9 shows the half topic to clients only once its check has run.
    "transactionCheckInterval": "1000",
    "transactionTimeOut": "3000",
    "transactionCheckMax": "1000",
    # 5.x uses a whole core until this time has passed after its start
    # (TransactionMetricsFlushService#run).
    "transactionMetricFlushInterval": "200",
    # 5.5 uses a whole core from this time after the last transaction on, for good
    # (TransactionalMessageServiceImpl#batchSendOpMessage); so each is marked at once, alone.
    "transactionOpBatchInterval": "3600000",
    "transactionOpMsgMaxSize": "1",
    # A slow or full machine must not change what a test sees.
    "brokerFastFailureEnable": "false",
    "osPageCacheBusyTimeOutMills": "20000",
    "diskMaxUsedSpaceRatio": "95",
}

FAST_DELAYS: Final = {
    "messageDelayLevel": "1s 2s 1s 30s 1m 2m 3m 4m 5m 6m 7m 8m 9m 10m 20m 30m 1h 2h"
}
"""Retries start at level 3."""

# The 4.9 servers read conf/logback_NAME.xml of their home and do not start without it.
LOGBACK: Final = """<configuration>
  <appender name="console" class="ch.qos.logback.core.ConsoleAppender">
    <encoder><pattern>%d %-5level %logger{20} - %msg%n</pattern></encoder>
  </appender>
  <logger name="RocketmqTransaction" level="ERROR"/>
  <root level="WARN"><appender-ref ref="console"/></root>
</configuration>
"""

Row = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Dumped:
    """What the official client pulled from every queue of every topic."""

    rows: list[Row]
    """One per message, keyed as golden/README.md says."""
    queues: dict[tuple[str, int], tuple[int, int]]
    """(topic, queueId) to the broker's own [low, high)."""
    problems: list[str]
    """Pulls that did not give the message asked for."""


class Cluster:
    """A name server and official clients of one RocketMQ version. A context manager."""

    def __init__(
        self, toolchain: Toolchain, version: str, home: Path, flags: Sequence[str] = SMALL
    ) -> None:
        """``flags`` are of all JVMs: those of short-lived ones, unless others are given."""
        self.version = version
        self.flags = flags
        self._toolchain = toolchain
        self._home = home
        self._classpath = toolchain.classpath(version)
        self._stack = ExitStack()
        self._brokers = 0
        self.more_name_servers: list[str] = []
        """Others that brokers register at, from their start on."""

    def __enter__(self) -> Self:
        with ExitStack() as stack:
            self._port = free_ports(0)
            home = self._make_home("namesrv")
            settings = {"listenPort": str(self._port), "bindAddress": LOOPBACK}
            conf = write_properties(home / "namesrv.conf", settings)
            main = "org.apache.rocketmq.namesrv.NamesrvStartup"
            server = self._java(home, "namesrv", ["-Xms64m", "-Xmx128m"], main, "-c", str(conf))
            stack.enter_context(server)
            home = self._make_home("client")
            self._client = self._java(home, "client", ["-Xms64m", "-Xmx512m"], "Harness")
            stack.enter_context(self._client)
            server.wait_for("boot success", BOOT_SECONDS)
            self._server = server
            self._stack = stack.pop_all()
        return self

    def __exit__(self, *error: Any) -> None:
        self._stack.__exit__(*error)

    def stop(self) -> None:
        """Stop the clients and the name server cleanly."""
        self._client.finish()
        self._server.stop()

    @property
    def name_server(self) -> str:
        """The name server's ip:port."""
        return f"{LOOPBACK}:{self._port}"

    @contextmanager
    def another_name_server(self, port: int) -> Iterator[Jvm]:
        """Run another name server at a port; it is killed if the body left it running."""
        home = self._make_home(f"namesrv-{port}-{time.monotonic_ns()}")
        settings = {"listenPort": str(port), "bindAddress": LOOPBACK}
        conf = write_properties(home / "namesrv.conf", settings)
        main = "org.apache.rocketmq.namesrv.NamesrvStartup"
        memory = ["-Xms64m", "-Xmx128m"]
        with self._java(home, "namesrv", memory, main, "-c", str(conf)) as server:
            server.wait_for("boot success", BOOT_SECONDS)
            yield server

    @contextmanager
    def controller(self, folder: Path, port: int) -> Iterator[Jvm]:
        """Run a controller of brokers, alone, at a port; it is killed when the body is left."""
        home = self._make_home(f"controller-{port}")
        settings = {
            "controllerDLegerGroup": "controllers",
            "controllerDLegerPeers": f"n0-{LOOPBACK}:{port}",
            "controllerDLegerSelfId": "n0",
            "controllerStorePath": str(folder),
            "scanNotActiveBrokerInterval": "1000",
        }
        conf = write_properties(home / "controller.conf", settings)
        main = "org.apache.rocketmq.controller.ControllerStartup"
        memory = ["-Xms64m", "-Xmx256m"]
        with self._java(home, "controller", memory, main, "-c", str(conf)) as controller:
            controller.wait_for("boot success", BOOT_SECONDS)
            yield controller

    @contextmanager
    def broker(
        self, store: Path, settings: Mapping[str, str] | None = None, port: int | None = None
    ) -> Iterator["Broker"]:
        """Run a broker on a store directory; it is killed if the body left it running.

        ``settings`` are added to SETTINGS and SMALL_FILES (broker.conf's own keys). The clients
        turn to it, see Broker.connect. A JvmError carries its log when it does not boot.
        """
        with self.booted(store, settings, port) as broker:
            broker.connect()
            yield broker

    @contextmanager
    def booted(
        self, store: Path, settings: Mapping[str, str] | None = None, port: int | None = None
    ) -> Iterator["Broker"]:
        """Run a broker as ``broker`` does; the clients do not turn to it."""
        self._brokers += 1
        home = self._make_home(f"broker-{self._brokers}")
        port = port or free_ports(-2, 0, 1)  # Its VIP port, its own, its HA port.
        own = {
            "namesrvAddr": ";".join((self.name_server, *self.more_name_servers)),
            "listenPort": str(port),
            "storePathRootDir": str(store),
            "storePathCommitLog": str(store / "commitlog"),
        }
        conf = SETTINGS | SMALL_FILES | own | dict(settings or {})
        path = write_properties(home / "broker.conf", conf)
        memory = ["-Xms256m", "-Xmx512m", "-XX:MaxDirectMemorySize=256m"]
        main = "org.apache.rocketmq.broker.BrokerStartup"
        with self._java(home, "broker", memory, main, "-c", str(path)) as jvm:
            jvm.wait_for("boot success", BOOT_SECONDS)
            yield Broker(self, jvm, f"{LOOPBACK}:{port}", conf)

    @contextmanager
    def other_clients(self) -> Iterator[Jvm]:
        """Run the client program once more, to be killed; see ``ask_of``."""
        home = self._make_home(f"client-{time.monotonic_ns()}")
        with self._java(home, "client", ["-Xms32m", "-Xmx128m"], "Harness") as client:
            yield client

    def ask(self, command: str, *fields: object) -> Any:
        """Have the client program run one command (see Harness.java) and return its result."""
        return self.ask_of(self._client, command, *fields)

    def ask_of(self, client: Jvm, command: str, *fields: object) -> Any:
        """Have a client program run one command and return its result."""
        line = "\t".join([command, *map(str, fields)])
        answer = json.loads(client.ask(line, ANSWER_SECONDS))
        if "error" in answer:
            raise JvmError(f"{command} {fields}: {answer['error']}")
        return answer["result"]

    def _make_home(self, name: str) -> Path:
        home = self._home / name
        (home / "conf").mkdir(parents=True)
        for server in ("broker", "namesrv", "tools"):
            (home / "conf" / f"logback_{server}.xml").write_text(LOGBACK)
        return home

    def _java(self, home: Path, name: str, memory: list[str], main: str, *arguments: str) -> Jvm:
        command = [
            self._toolchain.java,
            *memory,
            *self.flags,
            *OPEN_MODULES,
            f"-Duser.home={home}",
            "-Duser.timezone=UTC",
            "-Dfile.encoding=UTF-8",
            # Otherwise each server makes a key of its own at its start: a second of CPU time.
            "-Dtls.server.mode=disabled",
            "-cp",
            self._classpath,
            main,
            *arguments,
        ]
        return Jvm(command, home, name, talks=main == "Harness")


class Broker:
    """A running broker, and what the official clients do with it."""

    def __init__(self, cluster: Cluster, jvm: Jvm, address: str, conf: dict[str, str]) -> None:
        self.address = address
        self.settings = conf
        """Its broker.conf."""
        self._cluster = cluster
        self._jvm = jvm
        self._files = 0

    @property
    def version(self) -> str:
        """RocketMQ's version."""
        return self._cluster.version

    @property
    def port(self) -> int:
        """The port it listens on; offsetMsgIds of what it stores name it."""
        return int(self.address.rpartition(":")[2])

    def connect(self) -> None:
        """Have the official clients work with this broker, when it is registered."""
        name = self.settings["brokerName"]
        self._cluster.ask("connect", self._cluster.name_server, name, self.address)

    @property
    def pid(self) -> int:
        """Its process id."""
        return self._jvm.pid

    def log_tail(self) -> str:
        """Return the end of what it logged."""
        return self._jvm.log_tail()

    def lost_from(self) -> list[int]:
        """Return from which physical offsets on it deleted what it had not entered into queues.

        For a broker that has ended. The units that follow stand before the queue offsets of their
        records. Reference: DefaultMessageStore.ReputMessageService#doReput.
        """
        told = self._jvm.logged("store")
        return [int(at) for at in re.findall(r"reputFromOffset=(\d+) is smaller than min", told)]

    def stop(self) -> None:
        """Stop it cleanly, as ``mqshutdown broker`` does."""
        self._jvm.stop()

    def kill(self) -> None:
        """Kill -9."""
        self._jvm.kill()

    def freeze(self) -> None:
        """Stop all its threads (SIGSTOP): peers and clients get no answer any more."""
        os.kill(self._jvm.pid, signal.SIGSTOP)

    def thaw(self) -> None:
        """Let them go on."""
        os.kill(self._jvm.pid, signal.SIGCONT)

    def copy_store(self, root: Path, into: Path) -> None:
        """Copy the store as kill -9 would leave it now: nothing comes or goes meanwhile."""
        with self._jvm.frozen():
            shutil.copytree(root, into)

    def produce(
        self,
        topic: str,
        kind: str,
        count: int,
        *,
        seed: int = 1,
        tags: tuple[str, str] = ("TagA", "TagB"),
        key_word: str = "key",
    ) -> list[Row]:
        """Send ``count`` times a message (or a batch) of a kind; see Producers.java.

        Returns what the broker acknowledged: kind, topic, queueId, queueOffset, msgId, offsetMsgId.
        """
        file = self._file("sent")
        self._cluster.ask("produce", topic, kind, count, seed, ",".join(tags), key_word, file)
        return read_rows(file)

    def send_keyed(self, topic: str, prefix: str, count: int) -> list[Row]:
        """Send ``count`` messages side by side, of keys ``PREFIX-N``; return what was answered.

        A row has key and status, and, of what was stored, queueId, queueOffset and msgId.
        """
        file = self._file("keyed")
        self._cluster.ask("keyed", topic, prefix, count, file)
        return read_rows(file)

    def dump(self, topic: str = "") -> Dumped:
        """Pull every queue of every topic, system topics too; or of one topic."""
        file = self._file("dump")
        result = self._cluster.ask("dump", topic, file)
        queues = {}
        for name, (low, high) in result["queues"].items():
            topic, _, queue_id = name.rpartition("/")
            queues[topic, int(queue_id)] = (low, high)
        return Dumped(read_rows(file), queues, result["problems"])

    def sample(self, topic: str, count: int) -> Dumped:
        """Pull ``count`` stretches of 32 messages of each queue of a topic, spread evenly."""
        file = self._file("sample")
        result = self._cluster.ask("sample", topic, count, file)
        return Dumped(read_rows(file), {}, result["problems"])

    def pull_all(self, topic: str) -> Row:
        """Pull and decode all of a topic, a thread a queue: rows, bytes of bodies, seconds."""
        found: Row = self._cluster.ask("pullAll", topic)
        return found

    def send_all(self, topic: str, count: int, body_bytes: int, batch: int) -> Row:
        """Send ``count`` messages in batches of ``batch``, on one thread: rows, seconds."""
        found: Row = self._cluster.ask("sendAll", topic, count, body_bytes, batch)
        return found

    def lookup(self, requests: Iterable[tuple[str, str, str]]) -> list[list[Row]]:
        """Answer (kind, topic, value); kinds: key, uniqKey, uniqKeyNear, offsetMsgId, tag (5.5)."""
        asked, answered = self._file("asked"), self._file("answered")
        asked.write_text("".join("\t".join(request) + "\n" for request in requests))
        self._cluster.ask("lookup", asked, answered)
        return [answer["found"] for answer in read_rows(answered)]

    def push(self, topic: str, group: str, tags: str, count: int, fail_every: int) -> int:
        """Consume ``count`` messages with a push consumer; one in ``fail_every`` fails.

        Returns how many failed; each comes to %RETRY%GROUP when its delay is over.
        """
        failed = self._cluster.ask("push", topic, group, tags, count, fail_every)
        assert isinstance(failed, int)
        return failed

    def pushed(self, topic: str, group: str, count: int) -> list[Row]:
        """Return the first messages that a push consumer gets, in that order."""
        file = self._file("pushed")
        self._cluster.ask("pushed", topic, group, count, file)
        return read_rows(file)

    def select(self, topic: str, expressions: Iterable[str]) -> list[set[str]]:
        """Return what passes each SQL92 expression, as QUEUE@OFFSET; pulled, once for each."""
        file = self._file("expressions")
        file.write_text("".join(f"{_base64(text)}\n" for text in expressions))
        return [set(found) for found in self._cluster.ask("select", topic, file)]

    def push_selected(self, topic: str, group: str, expression: str, count: int) -> set[str]:
        """Return what a push consumer by SQL92 gets until it has ``count`` messages."""
        return set(self._cluster.ask("pushSelected", topic, group, _base64(expression), count))

    def held(self, topic: str) -> int:
        """Return how many messages the broker holds of a topic."""
        return sum(row["maxOffset"] - row["minOffset"] for row in self.topic_status(topic))

    def wait_for(self, topic: str, count: int, seconds: float = 60) -> None:
        """Return when the topic holds ``count`` messages: sends and deliveries are not instant."""
        end = time.monotonic() + seconds
        pause = threading.Event()
        while (held := self.held(topic)) < count:
            if time.monotonic() > end:
                raise JvmError(f"{topic} holds {held} of {count} messages after {seconds} s")
            pause.wait(0.2)

    def commit(self, topic: str, group: str, queue_offset: int) -> dict[str, int]:
        """Commit one queue offset for every queue of a topic; returns what the broker then says."""
        committed: dict[str, int] = self._cluster.ask("commit", topic, group, queue_offset)
        return committed

    def traced(self, topic: str, group: str, trace_topic: str = "") -> list[Row]:
        """Send to a new topic and consume it, with tracing on; see Traced.java.

        Returns what the clients measured of each send and each delivery.
        """
        file = self._file("traced")
        self._cluster.ask("traced", topic, group, trace_topic, file)
        return read_rows(file)

    def join(
        self, group: str, topic: str, tags: str = "*", how: str = "takes", number: int = 0
    ) -> None:
        """Let a push consumer join a group until ``leave``; ``how`` is in Members.java."""
        self._cluster.ask("join", group, topic, tags, how, number)

    def leave(self, group: str = "") -> None:
        """Let the consumers that joined a group leave, or all of them."""
        self._cluster.ask("leave", group)

    def pace(self, plans: Iterable[Sequence[object]], commit_ms: int) -> int:
        """Let groups drain backlogs by plans until ``paced``; see Paced.java.

        A plan: topic, queue, group, messages of the backlog, when it commits first, when the other
        messages are stored and when each is consumed (in ms, with commas). It commits again every
        ``commit_ms``. Returns when they began, epoch ms.
        """
        file = self._file("plans")
        file.write_text("".join("\t".join(map(str, plan)) + "\n" for plan in plans))
        began_ms: int = self._cluster.ask("pace", file, commit_ms)
        return began_ms

    def paced(self) -> dict[str, int]:
        """Return when nothing waited for each group any more, epoch ms."""
        zeros: dict[str, int] = self._cluster.ask("paced")
        return zeros

    def decoded_traces(self, trace_topic: str) -> list[Row]:
        """Return what RocketMQ's decoder makes of each message of a trace topic."""
        file = self._file("decoded")
        self._cluster.ask("decodeTraces", trace_topic, file)
        return read_rows(file)

    def topic_status(self, topic: str) -> list[Row]:
        """Return topicStatus: topic, queueId, minOffset, maxOffset, lastUpdate (ms)."""
        return sorted_queues(self._cluster.ask("topicStatus", topic))

    def consumer_progress(self, group: str) -> list[Row]:
        """Return consumerProgress: topic, queueId, brokerOffset, consumerOffset, lastTimestamp."""
        return sorted_queues(self._cluster.ask("consumerProgress", group))

    def mqadmin(self, *arguments: str) -> str:
        """Return what ``mqadmin ARGUMENTS`` prints."""
        return str(self._cluster.ask("mqadmin", *arguments))

    def _file(self, name: str) -> Path:
        self._files += 1
        return self._jvm.home / f"{name}-{self._files}.jsonl"


def _base64(text: str) -> str:
    return base64.b64encode(text.encode()).decode()


def sorted_queues(rows: list[Row]) -> list[Row]:
    """Order rows by topic and queueId."""
    return sorted(rows, key=lambda row: (row["topic"], row["queueId"]))


def read_rows(path: Path) -> list[Row]:
    """Read JSON lines."""
    if not path.exists():
        return []
    return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]


def write_properties(path: Path, settings: Mapping[str, str]) -> Path:
    """Write a Java properties file."""
    path.write_text(
        "".join(f"{key}={value}\n" for key, value in settings.items()), encoding="utf-8"
    )
    return path
