"""Spark jobs that are killed with -9: the driver's JVM, a Python worker that commits or stages.

Batches are saved one after the other, each with its own txnVersion, and again until they are; or
a query writes them, and is started again. Whatever is killed, and whenever, every row is there
once, in order.

The size spark_kills says how many kills of each, the seed at which moments. `make test` kills
one of the two, `make soak` both.
"""

import json
import os
import random
import signal
import sys
import time
from collections import Counter
from contextlib import suppress
from pathlib import Path

import pyspark
import pytest

from crash import saves
from crash.invariants import assert_clocks, assert_index, assert_log
from mqlog_jobs.machine.session import LOOPBACK, QUIET
from mqstore.check import check
from mqstore.files.base.store_dir import StoreDir
from mqstore.files.txn import intent, ledger
from mqstore.write.recover import RecoverSettings, recover
from support import soak
from support.contract import assert_consume_queues, assert_topics
from support.victim import Victim, command_of, parents, send

pytestmark = [pytest.mark.spark, pytest.mark.soak]
KILLS = soak.size("spark_kills", check=0, test=2, whole=200)
SEED = soak.SEED
SUBMIT = Path(pyspark.__file__).parent / "bin" / "spark-submit"
SCRIPT = Path(saves.__file__)
CONF = {**QUIET, **LOOPBACK, "spark.log.level": "OFF"}
# A new JVM takes longer than all the rest, so it is killed least often.
KINDS = ("committer", "worker", "driver", "committer", "worker", "committer")
DECIDED = 0.6  # so many of those that commit are killed after the decision, or soon after it all


class Saving(Victim):
    """The job, and what of it there is to kill."""

    def __init__(self, what: str, directory: Path) -> None:
        self.store = directory / "broker-a" / "store"
        self.saves = directory / "saves.log"
        self.stop = directory / "STOP"
        conf = [word for name, value in CONF.items() for word in ("--conf", f"{name}={value}")]
        command = [SUBMIT, "--master", "local[2,4]", *conf, SCRIPT]
        command += [what, self.store, self.saves, self.stop]
        more = {"PYSPARK_PYTHON": sys.executable, "SPARK_LOCAL_IP": "127.0.0.1"}
        more["PYTHONPATH"] = str(SCRIPT.parents[1])
        super().__init__(command, directory / "submit.log", more)

    def told(self) -> str:
        last = self.saves.read_text().splitlines()[-3:] if self.saves.exists() else []
        return f"{last} {super().told()}"

    def holder(self) -> int | None:
        """Return the process that has the store: it plans, commits or aborts."""
        with suppress(OSError, ValueError, LookupError):
            text = (self.store / ".mqlog" / "lock").read_text()
            return int(json.loads(text)["pid"]) if text else None
        return None

    def staging(self) -> set[Path]:
        """Return the folders of the jobs that stage, or that staged and were killed."""
        return set(_listed(self.store / ".mqlog" / "staging"))

    def next_job(self) -> Path:
        """Wait until another save begins; return its folder."""
        known = self.staging()
        self.until(lambda: self.staging() - known)
        return max(self.staging() - known)

    def workers(self) -> list[int]:
        """Return the Python workers that do not have the store, below the daemons of the JVM."""
        every = parents()
        daemons = {
            child
            for child, parent in every.items()
            if parent == self.process.pid and b"daemon" in command_of(child)
        }
        holder = self.holder()
        return sorted(c for c, p in every.items() if p in daemons and c != holder)


@pytest.mark.parametrize("what", soak.sample(["stream", "batch"], check=1, test=1))
def test_every_row_is_there_once_whatever_is_killed(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], what: str
) -> None:
    moments = random.Random(SEED)
    kinds = [kind for _ in range(-(-KILLS // len(KINDS))) for kind in KINDS][:KILLS]
    moments.shuffle(kinds)
    victim = Saving(what, tmp_path)
    victim.start()
    told: Counter[str] = Counter()
    began = time.monotonic()
    try:
        for kind in kinds:
            told[f"{kind}, {_kill(victim, kind, moments)}"] += 1
        victim.stop.touch()
        code = victim.end()
        assert code == 0, victim.told()
    finally:
        victim.kill()
    recover(victim.store, RecoverSettings())  # A query may end in the middle of a commit.
    saved = saves.saved(victim.saves)
    assert saved == list(range(len(saved)))
    count = _judge(victim.store)
    assert count >= len(saved) if what == "stream" else count == len(saved)
    with capsys.disabled():
        if soak.WHOLE:
            took = time.monotonic() - began
            found = f"{what}: {KILLS} kills in {took:.0f} s, {count} batches once: {dict(told)}"
            sys.stdout.write(f"\n{found}\n")


def _kill(victim: Saving, kind: str, moments: random.Random) -> str:
    """Kill one of the processes; return what had come of the commit."""
    known = len(saves.saved(victim.saves))
    if kind == "driver":
        victim.until(lambda: len(saves.saved(victim.saves)) > known)
        victim.pause(moments.uniform(0, 1.5))
        victim.kill()
        state = _state(victim.store)
        victim.start()
        return state
    choose = {"committer": _committer, "worker": _worker}[kind]
    while True:
        pid = choose(victim, victim.next_job(), moments)
        if pid is not None and send(pid, signal.SIGKILL):
            return _state(victim.store)


def _committer(victim: Saving, job: Path, moments: random.Random) -> int | None:
    """Return the process that commits the job, some time after it took the store."""

    def is_to_be_committed() -> bool:
        staged = any(file.suffix == ".mqb" for file in _listed(job))
        return not job.exists() or (staged and victim.holder() is not None)

    victim.until(is_to_be_committed)
    pid = victim.holder()
    if moments.random() < DECIDED:
        victim.until(lambda: pid != victim.holder() or _pending(victim.store).exists())
    victim.pause(moments.uniform(0, 0.06))
    return pid if pid == victim.holder() else None


def _worker(victim: Saving, _job: Path, moments: random.Random) -> int | None:
    """Return a process that stages, or might."""
    victim.pause(moments.uniform(0, 0.2))
    workers = victim.workers()
    return moments.choice(workers) if workers else None


def _pending(store: Path) -> Path:
    return store / ".mqlog" / "txn" / "pending.json"


def _state(store: Path) -> str:
    found = intent.load(StoreDir.at(store))
    return found.state if found else "not decided, or done"


def _judge(store: Path) -> int:
    """Check the store, and that it has the rows of batches 0, 1, … once; return how many."""
    assert intent.load(StoreDir.at(store)) is None
    assert not (store / "abort").exists()
    messages = assert_log(store)
    count = len(messages) // saves.ROWS
    for queue_id in range(saves.QUEUES):
        found = [int(message.body) for message in messages if message.queue_id == queue_id]
        wanted = list(range(queue_id, count * saves.ROWS, saves.QUEUES))
        assert found == wanted, f"queue {queue_id}; {soak.header()}"
    assert_consume_queues(store, messages)
    assert_topics(store, messages)
    assert_clocks(store, messages)
    assert_index(store, messages, int(saves.OPTIONS["maxHashSlotNum"]))
    assert [finding for finding in check(store) if finding.severity == "error"] == []
    known = [entry.version for entry in ledger.entries(StoreDir.at(store))]
    assert known == list(range(count))[-len(known) :]
    return count


def _listed(folder: Path) -> list[Path]:
    """Return what is in a folder, which may go at any moment."""
    with suppress(FileNotFoundError):
        return [folder / name for name in os.listdir(folder)]  # noqa: PTH208
    return []
