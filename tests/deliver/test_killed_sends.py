"""Spark writes to a cluster, killed with -9: tasks, the commit, the driver, executors; and brokers.

The size send_kills says how many kills, the seed which. A kill happens when a broker gets rows.
What is left of the program stands still then until all that was on its way to brokers is over: so
no request is held up for longer than ``fenceWait``, however slow the machine, which the guide
demands.
"""

import json
import os
import random
import signal
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing, contextmanager
from pathlib import Path
from typing import Any

import pytest

from broker.harness import Cluster as Servers
from deliver import sends
from deliver.failing_trial import held
from deliver.proxy import Fault, Proxy
from live.real import Live
from live.taking import Take, TakingCluster
from mqstore.live.remoting.settings import ClusterSettings
from support import soak
from support.victim import Victim, command_of, parents, send

pytestmark = pytest.mark.spark

KILLS = soak.size("send_kills", check=0, test=3, whole=60)
SEED = soak.SEED
TESTS = Path(sends.__file__).parents[1]
SHOWN = 10
Moment = tuple[str, str]
"""A topic, and what is killed when rows come to it."""
FIRST: list[Moment] = [("Least", "workers"), ("Once", "workers"), ("Stream", "driver")]


class Sending(Victim):
    """The program, and what of it there is to kill."""

    late_s = 1_800

    def __init__(self, address: str, folder: Path, master: str, **options: str) -> None:
        self.sent, self.stop = folder / "sends.log", folder / "STOP"
        self.done = Counter[str]()
        command = [sys.executable, sends.__file__, address, self.sent, self.stop, master]
        more = {"PYSPARK_PYTHON": sys.executable, "PYTHONPATH": str(TESTS)}
        super().__init__([*command, json.dumps(options)], folder / "errors.log", more)
        self._armed: Moment | None = None
        self._phase = "start"
        self._stopped: list[int] = []
        self._lock = threading.Lock()
        self.start()

    def sees(self, request: dict[str, Any]) -> bool:
        """Kill what is to be killed with this request; tell whether it was the moment.

        What is left is stopped, until ``suffer`` has it go on.
        """
        with self._lock:
            if self._armed is None or request["extFields"]["b"] != self._armed[0]:
                return False
            topic, kind = self._armed
            if not self._kill(kind):
                return False
            self._armed = None
            self.done[f"{kind} while {topic}"] += 1
            return True

    def suffer(self, topic: str, kind: str, settle: Callable[[], None]) -> None:
        """Be killed when rows come to the topic; return when the program has gone on.

        It goes on once ``settle`` returned: nothing is under way to brokers then. It has when the
        batches that were interrupted are saved, and not earlier: it may be told to end next.
        """
        self._phase = f"rows come to {topic}, to kill {kind} then"
        self._armed = topic, kind
        self.until(lambda: self._armed is None)
        settle()
        # Not before: what was saved until the kill says nothing of the batch that it interrupted.
        before = {each: sends.saved(self.sent, each) for each in ("Once", "Least")}
        self.go_on()
        if kind == "driver":
            self.end()
            self.start()
        self._phase = f"batches behind {before} are saved, after a kill of {kind} while {topic}"
        self.until(lambda: all(sends.saved(self.sent, t) > n for t, n in before.items()))

    def stop_all(self) -> dict[int, int]:
        """Have all processes of the program stand still; return them, each with its parent."""
        seen: dict[int, int] = {}
        while found := {pid: of for pid, of in self._tree().items() if pid not in seen}:
            seen |= found
            for pid in found:
                send(pid, signal.SIGSTOP)
        self._stopped = list(seen)
        return seen

    def go_on(self) -> None:
        """Have what was stopped go on."""
        while self._stopped:
            send(self._stopped.pop(), signal.SIGCONT)

    def finish(self) -> None:
        """Have it end by itself."""
        self._phase = "the program ends by itself"
        self.stop.touch()
        code = self.end()
        assert code == 0, f"it ended with {code}; {self.told()}"

    def close(self) -> None:
        """Kill all of it, also what has another process group."""
        for pid in self.stop_all() if self.process.poll() is None else ():
            send(pid, signal.SIGKILL)
        self.kill()

    def told(self) -> str:
        """Return what was waited for, what was done, and the ends of the program's logs."""
        if self.process.poll() is None:
            self._show_threads()
        sent = self.sent.read_text()[-3000:] if self.sent.exists() else ""
        return (
            f"wanted: {self._phase}\ndone: {dict(self.done)}; ended with {self.process.poll()}\n"
            f"--- {self.sent}\n{sent}\n--- {self.log}\n{super().told()}"
        )

    def _kill(self, kind: str) -> int:
        """Kill all processes of a kind, and stop the others; return how many were killed."""
        every = self.stop_all()
        if kind == "driver":
            found = list(every)
        elif kind == "workers":
            daemons = {pid for pid in every if b"pyspark.daemon" in command_of(pid)}
            found = [pid for pid, parent in every.items() if parent in daemons]
        else:
            found = [pid for pid in every if b"CoarseGrainedExecutorBackend" in command_of(pid)]
        for pid in found:
            send(pid, signal.SIGKILL)
        if not found:
            self.go_on()
        return len(found)

    def _tree(self) -> dict[int, int]:
        """Return all processes of the program, each with its parent."""
        children: dict[int, list[int]] = {}
        for pid, parent in parents().items():
            children.setdefault(parent, []).append(pid)
        found = {self.process.pid: os.getpid()}
        rest = list(found)
        while rest:
            parent = rest.pop()
            found |= dict.fromkeys(children.get(parent, []), parent)
            rest += children.get(parent, [])
        return found

    def _show_threads(self) -> None:
        """Have all JVMs of the program write the stacks of their threads to its log of errors."""
        before = self.log.stat().st_size
        for pid in self._tree():
            if b"java" in command_of(pid).partition(b"\0")[0]:
                send(pid, signal.SIGQUIT)
        end, pause = time.monotonic() + 10, threading.Event()
        while self.log.stat().st_size == before and time.monotonic() < end:
            pause.wait(0.1)


def assert_sent(victim: Sending, bodies_of: Callable[[str], list[bytes]]) -> None:
    """Check every topic; a query may end in the middle of its last batch."""
    wanted = {
        topic: Counter(b for v in range(sends.saved(victim.sent, topic)) for b in sends.bodies(v))
        for topic in ("Once", "Least")
    }
    once, least = (Counter(bodies_of(topic)) for topic in ("Once", "Least"))
    streamed = Counter(map(int, bodies_of("Stream")))
    of_stream = range(max(streamed, default=0) // sends.ROWS * sends.ROWS)
    wrong = {
        "Once, lost": wanted["Once"] - once,
        "Once, too often": once - wanted["Once"],
        "Least, lost": wanted["Least"] - least,
        "Least, strange": Counter(set(least) - set(wanted["Least"])),
        "Stream, lost": Counter(of_stream) - streamed,
        "Stream, too often": streamed - Counter(set(streamed)),
    }
    found = {
        what: f"{rows.total()}, such as {sorted(rows)[:SHOWN]}"
        for what, rows in wrong.items()
        if rows
    }
    assert not found, f"{found}\n{victim.told()}"


def test_rows_are_there_once_though_tasks_the_commit_and_the_driver_are_killed(
    tmp_path: Path,
) -> None:
    with TakingCluster().running() as taking:
        assert isinstance(taking, TakingCluster)
        for topic in (*sends.TOPICS, "MQLOG_CONTROL"):
            taking.topic(topic, 1 if topic == "MQLOG_CONTROL" else 2)
        victim = Sending(f"rocketmq://{taking.address}", tmp_path, "local[2,4]")
        taking.take = lambda r: Take(stores=2, code=None) if victim.sees(r) else None
        with closing(victim):
            for topic, kind in FIRST:
                victim.suffer(topic, kind, taking.settle)
            victim.finish()
        assert_sent(victim, taking.all_bodies)


Pairs = list[tuple[Live, Proxy]]


@pytest.fixture
def brokers(cluster: Servers, tmp_path: Path) -> Iterator[Pairs]:
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
    victim = Sending(brokers[0][0].address, tmp_path, master, **options)
    with closing(victim), logs_of(brokers):
        for _, proxy in brokers:
            proxy.choose = lambda head: Fault.IN_PART if victim.sees(head) else None
        for _ in range(KILLS):
            kind = moments.choice(kinds)
            if kind == "broker":
                kill_broker(victim, brokers, moments.randrange(len(brokers)))
            else:
                victim.suffer(moments.choice(sends.TOPICS), kind, lambda: settle(brokers))
        victim.finish()
        cluster = ClusterSettings(name_servers=names)
        assert_sent(victim, lambda topic: [body for body, _ in held(cluster, topic)])
    counts = {topic: sends.saved(victim.sent, topic) for topic in ("Once", "Least")}
    soak.tell(f"{master}: {dict(victim.done)}, batches {counts}")


def settle(brokers: Pairs) -> None:
    """Return when nothing is under way to a broker."""
    for _, proxy in brokers:
        proxy.settle()


def kill_broker(victim: Sending, brokers: Pairs, number: int) -> None:
    """Kill a broker and start it again; what was under way is over before the program sees it.

    The broker stores nothing at that moment: it could keep a torn message, which ends a write
    exactly once for good. ``test_writes_through_failures.py`` kills brokers in the middle.
    """
    live, proxy = brokers[number]
    victim.stop_all()
    settle(brokers)
    proxy.shut()
    live.kill()
    settle(brokers)
    victim.go_on()
    live.start()
    proxy.open()
    victim.done["broker"] += 1


@contextmanager
def logs_of(brokers: Pairs) -> Iterator[None]:
    """Add the ends of the brokers' logs to a failure."""
    try:
        yield
    except BaseException as error:
        for live, _ in brokers:
            error.add_note(live.broker.log_tail())
        raise
