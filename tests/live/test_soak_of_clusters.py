"""Reads, a follower, backlogs and writes of both kinds while the servers of a cluster break.

Two name servers, two brokers and, in the long run, two proxies of RocketMQ 5. Each is killed and
started again, frozen, half open (accepts, never answers), behind a balancer that closes, or cut;
one at a time, as the seed chooses, for a few seconds. What was acknowledged is there once for all,
a read that begins and ends while nothing is away has every message, an error names what was away,
and all work again soon. The size network_seconds says how long.
"""

import json
import os
import random
import signal
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import mqlog
from broker import proxies
from broker.harness import DEFAULT_FILES, LOOPBACK
from broker.harness import Cluster as Servers
from broker.ports import free_ports
from broker.toolchain import Toolchain
from live.real import QUIET
from live.relay import CLOSE, HOLD, PASS, Relay, relay
from live.sending import create_topic
from mqstore.errors import StoreError
from mqstore.live.remoting.cluster import Cluster
from mqstore.live.remoting.settings import ClusterSettings
from support import soak
from support.processes import until

pytestmark = pytest.mark.broker

SECONDS = soak.size("network_seconds", check=5, test=40, whole=1_200)
TOPIC, ONCE, GROUP = "Soak", "SoakOnce", "SoakGroup"
QUEUES = 2
BROKERS = ("broker-a", "broker-b")
ROWS = 20
WITHIN_S = 30.0
"""All work again within so many seconds of the return of what was away; ten times are waited."""
CALM_S = 35.0
"""What was away may be missing from name servers and proxies for so long."""
NAMED = (
    "MQLOG_BROKER_UNAVAILABLE",
    "MQLOG_NO_MASTER",
    "MQLOG_SEND_FAILED",
    "MQLOG_PUBLICATION",
    "MQLOG_UNKNOWN_TOPIC",
)
OPTIONS: dict[str, Any] = {
    "connect_timeout": "1s",
    "request_timeout": "3s",
    "retry_timeout": "20s",
}


class Server:
    """A process behind a relay, which may be harmed and healed."""

    def __init__(self, name: str, port: int, start: Callable[[], Any], stack: ExitStack) -> None:
        self.name = name
        self.relay: Relay = stack.enter_context(relay(f"{LOOPBACK}:{port}"))
        self._start, self._stack = start, stack.enter_context(ExitStack())
        self._process: Any = None
        self.start()

    def start(self) -> None:
        """Start the process."""
        self._process = self._stack.enter_context(self._start())

    @property
    def pid(self) -> int:
        """The process id."""
        return int(getattr(self._process, "pid", 0) or self._process._jvm.pid)

    def harm(self, kind: str) -> None:
        """Break it."""
        if kind == "kill":
            self._process.kill()
            self._stack.close()
        elif kind == "freeze":
            os.kill(self.pid, signal.SIGSTOP)
        elif kind in {HOLD, CLOSE}:
            self.relay.mode = kind
            self.relay.drop()
        else:
            self.relay.drop()

    def heal(self, kind: str) -> None:
        """Mend it."""
        if kind == "kill":
            self.start()
        elif kind == "freeze":
            os.kill(self.pid, signal.SIGCONT)
        self.relay.mode = PASS
        if kind == HOLD:
            self.relay.drop()


class Trial:
    """The work, its errors, and when something was away."""

    def __init__(self, places: dict[str, dict[str, Any]]) -> None:
        """``places`` are addresses with their options."""
        self.places = places
        self.pending: list[str] = []
        """The rows of the write that happens once and is not done yet."""
        self.position: dict[str, Any] | None = None
        self.stop = threading.Event()
        self.done = Counter[str]()
        self.sent: set[str] = set()
        self.sent_once: set[str] = set()
        self.maybe: set[str] = set()
        self.away_until = 0.0
        """Monotonic time since when all are here; infinity while something is away."""
        self.followed: list[tuple[str, int, int, str]] = []
        self.problems: list[str] = []
        self.good_at: dict[str, float] = {}

    def run(self) -> Iterator[threading.Thread]:
        """Start the workers."""
        for work in (self._write, self._write_once, self._read, self._follow, self._ask):
            thread = threading.Thread(target=self._guarded, args=(work,), daemon=True)
            thread.start()
            yield thread

    def _guarded(self, work: Callable[[str], None]) -> None:
        name = work.__name__.strip("_")
        turns = 0
        while not self.stop.wait(0.05):
            begun = time.monotonic()
            place = list(self.places)[turns % len(self.places)]
            turns += 1
            try:
                work(place)
            except StoreError as error:
                self.done[f"{name} error"] += 1
                condition = getattr(error, "condition", "")
                if not condition.startswith(NAMED) or self._was_calm(begun):
                    self.problems.append(f"{name} at {place}: {error}")
            except Exception as error:  # noqa: BLE001 - a problem of the trial
                self.problems.append(f"{name} at {place}: {error!r}")
            else:
                self.done[name] += 1
                self.good_at[name] = time.monotonic()

    def _was_calm(self, since: float) -> bool:
        return since - self.away_until > CALM_S

    def has_recovered(self) -> bool:
        """Tell whether each kind of work was done since all are here."""
        return min(self.good_at.values()) > self.away_until

    def _rows(self, kind: str) -> list[str]:
        return [f"{kind}-{time.time_ns()}-{number}" for number in range(ROWS)]

    def _write(self, place: str) -> None:
        bodies = self._rows("w")
        self.maybe |= set(bodies)
        table = pa.table({"body": pa.array([body.encode() for body in bodies], pa.binary())})
        mqlog.write(table, place, topic=TOPIC, send_timeout="20s", **self.places[place])
        self.sent |= set(bodies)

    def _write_once(self, place: str) -> None:
        """One version after the other; one that fails is written again until it is done."""
        version = self.done["write_once"]
        if not self.pending:
            self.pending[:] = self._rows(f"o{version}")
        table = pa.table({"body": pa.array([b.encode() for b in self.pending], pa.binary())})
        once = {"delivery": "exactlyOnce", "txn_app_id": "soak", "txn_version": version}
        mqlog.write(table, place, topic=ONCE, send_timeout="20s", **once, **self.places[place])
        self.sent_once |= set(self.pending)
        self.pending.clear()

    def _read(self, place: str) -> None:
        begun, before = time.monotonic(), set(self.sent)
        scan = mqlog.open(place, **self.places[place]).scan(TOPIC, columns=["body"])
        bodies = {one.decode() for one in scan.to_table()["body"].to_pylist()}
        if self._was_calm(begun) and not before <= bodies:
            lost = len(before - bodies)
            self.problems.append(f"read at {place}: {lost} of {len(before)} are missing")

    def _follow(self, place: str) -> None:
        """Follow for some seconds from where the last one ended."""
        follow = mqlog.open(place, **self.places[place]).follow(
            TOPIC,
            position=self.position,
            timeout=2,
            starting_offsets="earliest",
            columns="brokerName,queueId,queueOffset,body",
            **({"commit_group": GROUP} if place == next(iter(self.places)) else {}),
        )
        end = time.monotonic() + 10
        for batch, position in follow:
            for row in batch.to_pylist():
                key = row["brokerName"], row["queueId"], row["queueOffset"]
                self.followed.append((*key, row["body"].decode()))
            self.position = json.loads(json.dumps(position))
            if time.monotonic() > end:
                break

    def _ask(self, place: str) -> None:
        opened = mqlog.open(place, **self.places[place])
        opened.table("queues", subscribe=TOPIC).to_table()
        if self.position is not None:  # The group is there since then.
            opened.table("backlog", subscribe=TOPIC, groups=GROUP).to_table()

    def end(self, place: str) -> None:
        """Check that what was acknowledged is there, once where that was promised."""
        opened = mqlog.open(place, **self.places[place])
        columns = "brokerName,queueId,queueOffset,body"
        rows = opened.scan(TOPIC, columns=columns).to_table().to_pylist()
        stored = {
            (row["brokerName"], row["queueId"], row["queueOffset"]): row["body"].decode()
            for row in rows
        }
        assert len(stored) == len(rows)
        assert self.sent <= set(stored.values()) <= self.maybe
        end = time.monotonic() + WITHIN_S
        while len(self.followed) < len(stored) and time.monotonic() < end:
            self._follow(place)
        keys = Counter(row[:3] for row in self.followed)
        assert {key: count for key, count in keys.items() if count > 1} == {}
        assert {row[:3]: row[3] for row in self.followed} == stored
        once = Counter(
            body.decode()
            for body in opened.scan(ONCE, columns="body").to_table()["body"].to_pylist()
        )
        assert {body: count for body, count in once.items() if count > 1} == {}
        assert self.sent_once <= once.keys() <= self.sent_once | set(self.pending)


@contextmanager
def running(
    toolchain: Toolchain, version: str, home: Path, *, with_proxies: bool
) -> Iterator[tuple[list[Server], Trial]]:
    """Run the servers, each behind a relay, with the topics."""
    with Servers(toolchain, version, home / "servers") as servers, ExitStack() as stack:
        ports = [free_ports(0) for _ in range(2)]
        all_servers = [
            Server(f"ns{number}", port, partial(servers.another_name_server, port), stack)
            for number, port in enumerate(ports)
        ]
        names = [one.relay.address for one in all_servers]
        direct = [f"{LOOPBACK}:{port}" for port in ports]
        servers.more_name_servers[:] = direct
        addresses = {}
        for broker in BROKERS:
            port = free_ports(-2, 0, 1)
            settings = {**QUIET, **DEFAULT_FILES, "brokerName": broker}
            settings |= {"mappedFileSizeCommitLog": str(32 << 20), "maxIndexNum": "200000"}
            started = partial(servers.booted, home / broker / "store", settings, port)
            all_servers.append(Server(broker, port, started, stack))
            addresses[broker] = all_servers[-1].relay.address
        _create_topics(servers.name_server)
        places = {f"rocketmq://{','.join(names)}": {**OPTIONS, "broker_addresses": addresses}}
        if with_proxies:
            for number in range(2):
                port = free_ports(0)
                started = partial(
                    proxies.running,
                    toolchain,
                    ";".join(direct),
                    home / "proxies",
                    port,
                    more={"enableTopicMessageTypeCheck": False},
                )
                all_servers.append(Server(f"proxy{number}", port, started, stack))
            through = ",".join(one.relay.address for one in all_servers[-2:])
            places[f"rocketmq://{through}"] = OPTIONS
        yield all_servers, Trial(places)


def _create_topics(name_server: str) -> None:
    settings = ClusterSettings(name_servers=(name_server,), retry_timeout_ms=60_000)
    with Cluster(settings) as client:
        until(lambda: all(name in client.brokers() for name in BROKERS))
        for broker in BROKERS:
            for topic, queues in ((TOPIC, QUEUES), (ONCE, QUEUES), ("MQLOG_CONTROL", 1)):
                create_topic(client, broker, topic, queues)


@soak.only
def test_nothing_is_lost_doubled_or_missing_whatever_breaks_for_a_while(
    toolchain: Toolchain, tmp_path: Path
) -> None:
    soaked(toolchain, tmp_path, "5.5.0")


@soak.only
def test_nothing_is_lost_doubled_or_missing_whatever_breaks_of_4_9(
    toolchain: Toolchain, tmp_path: Path
) -> None:
    soaked(toolchain, tmp_path, "4.9.7")


def soaked(toolchain: Toolchain, folder: Path, version: str) -> None:
    """Work while servers break, then compare."""
    moments, harms = random.Random(soak.SEED), Counter[str]()
    slowest = 0.0
    with running(toolchain, version, folder, with_proxies=soak.WHOLE) as (servers, trial):
        threads = list(trial.run())
        _await(lambda: len(trial.good_at) == len(threads), "work", trial)
        end = time.monotonic() + SECONDS
        while time.monotonic() < end:
            server = moments.choice(servers)
            kind = moments.choice(_harms(server, version))
            harms[f"{server.name} {kind}"] += 1
            trial.away_until = float("inf")
            server.harm(kind)
            threading.Event().wait(moments.uniform(1, 8))
            server.heal(kind)
            trial.away_until = time.monotonic()
            _await(trial.has_recovered, f"{server.name} {kind}", trial)
            slowest = max(slowest, time.monotonic() - trial.away_until)
            if moments.random() < 0.2:  # Some calm, in which reads must be whole.
                threading.Event().wait(min(CALM_S + 10, SECONDS / 4))
        trial.stop.set()
        for thread in threads:
            thread.join(180)
        assert trial.problems == []
        trial.end(next(iter(trial.places)))
    soak.tell(
        f"{version}: {len(trial.sent)} and {len(trial.sent_once)} rows, {dict(trial.done)}; "
        f"{dict(harms)}; all worked again after {slowest:.1f} s at most"
    )


def _harms(server: Server, version: str) -> list[str]:
    """A broker of 4.9.7 that is killed may skip messages when it starts again: data loss."""
    kinds = ["kill", "freeze", HOLD, CLOSE, "cut"]
    return kinds[1:] if version == "4.9.7" and server.name in BROKERS else kinds


def _await(is_so: Callable[[], bool], what: str, trial: Trial) -> None:
    end = time.monotonic() + 10 * WITHIN_S
    while not is_so():
        assert time.monotonic() < end, f"{what}: {trial.good_at} {trial.problems[-5:]}"
        time.sleep(0.05)
