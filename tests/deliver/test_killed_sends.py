"""Spark writes to a cluster, killed with -9: tasks, the commit, the driver, executors; and brokers.

MQLOG_SEND_KILLS says how many kills, MQLOG_SEED which; a kill happens when a broker gets rows.
"""

import json
import os
import random
import signal
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing, suppress
from pathlib import Path
from typing import Any

import pytest

from broker.harness import Cluster as Servers
from deliver import sends
from deliver.proxy import Fault, Proxy
from deliver.trial import held
from live.real import Live
from live.taking import Take, TakingCluster
from mqstore.live.cluster import ClusterSettings
from support import soak

pytestmark = pytest.mark.spark

KILLS = soak.size("SEND_KILLS", check=0, test=3, full=60)
SEED = int(os.environ.get("MQLOG_SEED", "7"))
STEP_S = 300
Moment = tuple[str, str]
"""A topic, and what is killed when rows come to it."""
FIRST: list[Moment] = [("Least", "workers"), ("Once", "workers"), ("Stream", "driver")]


class Victim:
    """The program in a process group of its own, and what of it there is to kill."""

    def __init__(self, address: str, folder: Path, master: str, **options: str) -> None:
        self.log, self.stop = folder / "sends.log", folder / "STOP"
        self.done = Counter[str]()
        program = str(Path(sends.__file__))
        command = [sys.executable, program, address, self.log, self.stop, master]
        self._command = [*map(str, command), json.dumps(options)]
        self._errors = folder / "errors.log"
        self._armed: Moment | None = None
        self._lock = threading.Lock()
        self._start()

    def sees(self, request: dict[str, Any]) -> bool:
        """Kill what is to be killed with this request; tell whether it was the moment."""
        with self._lock:
            if self._armed is None or request["extFields"]["b"] != self._armed[0]:
                return False
            topic, kind = self._armed
            if not self._kill(kind):
                return False
            self._armed = None
            self.done[f"{kind} while {topic}"] += 1
            return True

    def suffer(self, topic: str, kind: str) -> None:
        """Be killed when rows come to the topic; return when the program goes on."""
        before = {each: sends.saved(self.log, each) for each in ("Once", "Least")}
        self._armed = topic, kind
        self.until(lambda: self._armed is None)
        if kind == "driver":
            self._process.wait(STEP_S)
            self._start()
        self.until(lambda: all(sends.saved(self.log, t) > n for t, n in before.items()))

    def finish(self) -> None:
        """Have it end by itself."""
        self.stop.touch()
        assert self._process.wait(STEP_S) == 0, self._told()

    def close(self) -> None:
        """Kill all of it."""
        with suppress(ProcessLookupError):
            os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait(STEP_S)

    def until(self, is_so: Callable[[], bool]) -> None:
        """Return when it is so."""
        end, pause = time.monotonic() + STEP_S, threading.Event()
        while not is_so():
            code = self._process.poll()
            assert code in {None, -signal.SIGKILL}, f"it ended with {code}; {self._told()}"
            assert time.monotonic() < end, f"waited in vain; {self._told()}"
            pause.wait(0.02)

    def _start(self) -> None:
        with self._errors.open("ab") as told:
            self._process = subprocess.Popen(
                self._command,
                start_new_session=True,
                stdout=told,
                stderr=told,
                env=os.environ | {"PYTHONPATH": str(Path(sends.__file__).parents[1])},
            )

    def _kill(self, kind: str) -> int:
        """Kill all processes of a kind; return how many there were."""
        if kind == "driver":
            os.killpg(self._process.pid, signal.SIGKILL)
            return 1
        children: dict[int, list[int]] = {}
        for pid, parent in _parents():
            children.setdefault(parent, []).append(pid)
        every = [self._process.pid]
        for pid in every:
            every += children.get(pid, [])
        if kind == "workers":
            daemons = [pid for pid in every if b"pyspark.daemon" in _command(pid)]
            found = [pid for daemon in daemons for pid in children.get(daemon, [])]
        else:
            found = [pid for pid in every if b"CoarseGrainedExecutorBackend" in _command(pid)]
        for pid in found:
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        return len(found)

    def _told(self) -> str:
        log = self.log.read_text()[-1000:] if self.log.exists() else ""
        return f"{log} {self._errors.read_text()[-3000:]}"


def assert_sent(victim: Victim, bodies_of: Callable[[str], list[bytes]]) -> None:
    """Check every topic; a query may end in the middle of its last batch."""
    wanted = {
        topic: Counter(b for v in range(sends.saved(victim.log, topic)) for b in sends.bodies(v))
        for topic in ("Once", "Least")
    }
    assert Counter(bodies_of("Once")) == wanted["Once"]
    least = Counter(bodies_of("Least"))
    assert least >= wanted["Least"]
    assert set(least) == set(wanted["Least"])
    streamed = sorted(map(int, bodies_of("Stream")))
    assert streamed == sorted(set(streamed))
    assert set(range(streamed[-1] // sends.ROWS * sends.ROWS)) <= set(streamed)


def test_rows_are_there_once_though_tasks_the_commit_and_the_driver_are_killed(
    tmp_path: Path,
) -> None:
    with TakingCluster().running() as taking:
        assert isinstance(taking, TakingCluster)
        for topic in (*sends.TOPICS, "MQLOG_CONTROL"):
            taking.topic(topic, 1 if topic == "MQLOG_CONTROL" else 2)
        victim = Victim(f"rocketmq://{taking.address}", tmp_path, "local[2,4]")
        taking.take = lambda r: Take(stores=2, code=None) if victim.sees(r) else None
        with closing(victim):
            for topic, kind in FIRST:
                victim.suffer(topic, kind)
            victim.finish()
        assert_sent(victim, taking.all_bodies)


@pytest.fixture
def brokers(cluster: Servers, tmp_path: Path) -> Iterator[list[tuple[Live, Proxy]]]:
    """Two brokers, each behind a proxy."""
    with ExitStack() as stack:
        found = []
        for name in ("broker-k", "broker-l"):
            settings = {"brokerName": name}
            live = stack.enter_context(closing(Live(cluster, tmp_path / name / "store", settings)))
            found.append((live, stack.enter_context(closing(Proxy(live.broker.address)))))
        yield found


@soak.only
@pytest.mark.broker
@pytest.mark.parametrize("master", ["local[2,4]", "local-cluster[2,1,512]"])
def test_rows_are_there_once_in_real_brokers_whatever_is_killed(
    brokers: list[tuple[Live, Proxy]], tmp_path: Path, master: str
) -> None:
    moments = random.Random(SEED)
    kinds = ["workers", "workers", "driver", "broker"]
    kinds += ["executors"] if master.startswith("local-cluster") else []
    addresses = {live.broker.settings["brokerName"]: proxy.address for live, proxy in brokers}
    names = brokers[0][0].name_servers
    options = {"createTopic": "true", "brokerAddresses": json.dumps(addresses)}
    victim = Victim(brokers[0][0].address, tmp_path, master, **options)
    with closing(victim):
        for _, proxy in brokers:
            proxy.choose = lambda head: Fault.IN_PART if victim.sees(head) else None
        for _ in range(KILLS):
            kind = moments.choice(kinds)
            if kind == "broker":
                live, proxy = moments.choice(brokers)
                proxy.shut()
                live.kill()
                live.start()
                proxy.open()
                victim.done["broker"] += 1
            else:
                victim.suffer(moments.choice(sends.TOPICS), kind)
        victim.finish()
    cluster = ClusterSettings(name_servers=names)
    assert_sent(victim, lambda topic: [body for body, _ in held(cluster, topic)])
    counts = {topic: sends.saved(victim.log, topic) for topic in ("Once", "Least")}
    soak.tell(f"{master}: {dict(victim.done)}, batches {counts}")


def _parents() -> Iterator[tuple[int, int]]:
    for path in Path("/proc").glob("[0-9]*/stat"):
        with suppress(OSError, ValueError):
            text = path.read_text()
            yield int(path.parent.name), int(text.rpartition(")")[2].split()[1])


def _command(pid: int) -> bytes:
    with suppress(OSError):
        return Path(f"/proc/{pid}/cmdline").read_bytes()
    return b""
