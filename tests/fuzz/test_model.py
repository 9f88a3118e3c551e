"""Writes, crashes, brokers and time, in any order, against a model of what a store must hold.

A crash is a process that ends at the k-th call that changes the disk. What was decided before it
is there after the next write or recovery; what was not is never seen. The model is a list.
"""

import os
import sys
import time
from collections import Counter, defaultdict
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, Phase, seed, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)

from crash.disk import Passing, standing_in
from crash.faults import CHANGES
from mqstore.check import check
from mqstore.codec.schema import PROFILES
from mqstore.errors import NondeterministicWriteError, StoreLockedError
from mqstore.files.base.store_dir import StoreDir
from mqstore.files.lock.store_lock import StoreHold
from mqstore.files.txn import intent, ledger
from mqstore.read.directory import take
from mqstore.read.scan import scan
from mqstore.read.settings import ScanSettings
from mqstore.read.source import slices_of
from mqstore.write.commit import abort
from mqstore.write.recover import RecoverSettings, recover
from support import oracle, soak, writing
from support.memory import folder_in_memory
from support.oracle import Message, join_properties
from support.stores import UNIT_BYTES, Layout, lay_out

pytestmark = pytest.mark.soak

RUNS = soak.size("model_runs", check=2, test=10, whole=5_000)
STEPS = soak.size("model_steps", check=30, test=30, whole=100)
SEED = soak.SEED

# A failure of thirty steps can be read; to make it smaller takes minutes.
PHASES = (Phase.generate, Phase.shrink) if soak.WHOLE else (Phase.generate,)

APP = "loader"
LOG_BYTES = 4096
QUEUE_UNITS = 8
LAYOUT = Layout(commit_log_bytes=LOG_BYTES, queue_units=QUEUE_UNITS, index_slots=7, index_units=60)
DAY_S = 86_400
QUEUE_IDS = st.integers(0, 1)
KILLED = 77
_DEADLY = frozenset({*CHANGES, "link", "copy_file_range"})

COUNTS: Counter[str] = Counter()
Body = bytes
Queue = tuple[str, int]


class Dying(Passing):
    """Ends the process before the call number ``at`` that changes the disk."""

    def __init__(self, at: int) -> None:
        self._left = at

    def __getattr__(self, name: str) -> Any:
        call = getattr(os, name)
        if name not in _DEADLY:
            return call

        def counted(*args: Any, **kwargs: Any) -> Any:
            if name != "open" or args[1] & os.O_CREAT:
                self._die_at_last()
            return call(*args, **kwargs)

        return counted

    def replace(self, source: str, target: str) -> None:
        self._die_at_last()
        super().replace(source, target)

    def fsync(self, fd: int) -> None:
        self._die_at_last()

    fdatasync = fsync

    def _die_at_last(self) -> None:
        self._left -= 1
        if self._left < 0:
            os._exit(KILLED)


class Store(RuleBasedStateMachine):
    """One store, and what must be in it."""

    def __init__(self) -> None:
        super().__init__()
        self._stack = ExitStack()
        self.root = self._stack.enter_context(folder_in_memory()) / "store"
        self.disk = Passing()
        self.queues: dict[Queue, list[Body]] = defaultdict(list)
        self.gone: dict[Queue, int] = defaultdict(int)
        self.limbo: list[Body] = []
        COUNTS["runs"] += 1
        self.version = 0
        self.keyed: dict[int, list[Body]] = {}
        self.number = 0
        self.abandoned: list[Path] = []

    @initialize(count=st.integers(2, 12))
    def begin(self, count: int) -> None:
        messages = [self._message("T", n % 2) for n in range(count)]
        lay_out(self.root, messages, LAYOUT)

    def teardown(self) -> None:
        self._stack.close()

    # --- writers of ours

    @rule(count=st.integers(1, 6), keyed=st.booleans(), large=st.booleans())
    def write(self, count: int, keyed: bool, large: bool) -> None:
        bodies = self._bodies(count, large)
        settings = self._next_key(bodies) if keyed else {}
        done = self._append(bodies, settings)
        assert done.messages == count
        self._settle(decided=True)
        self._add(bodies)
        for folder in self.abandoned:
            assert not folder.exists(), "what a killed driver staged a day ago is still there"
        self.abandoned = []

    @precondition(lambda self: self._last_version() and not self.limbo)
    @rule(count=st.integers(1, 3))
    def write_the_same_again(self, count: int) -> None:
        """The same rows are there already; others under their key are refused."""
        last = self._last_version()
        known = {"txn_app_id": APP, "txn_version": last}
        done = self._append(self.keyed[last], known)
        assert done.is_repeated
        assert not done.messages
        with pytest.raises(NondeterministicWriteError):
            self._append(self._bodies(count, large=False), known)

    @rule(count=st.integers(1, 5), at=st.integers(0, 120), again=st.booleans())
    def crash(self, count: int, at: int, again: bool) -> None:
        """A writer is killed; it is started again with its key, or never."""
        before = self.limbo
        bodies = self._bodies(count, large=False)
        key = self._next_key(bodies)
        if not self._in_child(at, lambda: self._append(bodies, key)):
            self._settle(decided=True)
            self._add(bodies)
            return
        pending = intent.load(StoreDir.at(self.root))
        mine = pending is not None and pending.key == ledger.Key(APP, self.version)
        last = ledger.last_version(StoreDir.at(self.root), APP)
        done = last is not None and last >= self.version
        if before and (mine or done or pending is None):
            self._settle(decided=True)
        if done and not mine:
            self._add(bodies)
        elif mine:
            COUNTS["decided"] += 1
            self.limbo = bodies
        if not again:
            return
        repeated = self._append(bodies, key).is_repeated
        assert repeated == (mine or done)
        self._settle(decided=True)
        if not repeated:
            self._add(bodies)

    @rule(at=st.one_of(st.none(), st.integers(0, 60)))
    def put_in_order(self, at: int | None) -> None:
        """Recover, or be killed while doing so."""
        if at is not None and self._in_child(at, self._recover):
            if intent.load(StoreDir.at(self.root)) is None:
                self._settle(decided=True)
            return
        self._recover()
        self._settle(decided=True)
        assert not (self.root / "abort").exists()
        assert intent.load(StoreDir.at(self.root)) is None

    @rule()
    def two_writers(self) -> None:
        hold = StoreHold(str(self.root), timeout_ms=0, allow_no_lease=True, job="other")
        with hold, pytest.raises(StoreLockedError):
            self._append(self._bodies(1, large=False), {})

    @rule(count=st.integers(1, 3), is_killed=st.booleans())
    def stage_in_vain(self, count: int, is_killed: bool) -> None:
        """A job whose tasks fail is taken back; one whose driver is killed is cleared away."""
        with standing_in(self.disk):
            rows = writing.rows(count)
            job = writing.prepared(self.root, rows.schema, fsync="commit")
            staged = writing.staged(job, [rows])
            self._settle(decided=True)  # `prepare` finishes what it finds.
            if not is_killed:
                abort(job, staged)
                assert not Path(job.target.staging).exists()
                return
        folder = Path(job.target.staging)
        for path in (*folder.iterdir(), folder):
            os.utime(path, (time.time() - 2 * DAY_S,) * 2)
        self.abandoned.append(folder)

    # --- a broker, and time

    @precondition(lambda self: self.is_idle)
    @rule(
        topic=st.sampled_from("TU"), queue_id=st.integers(0, 1), ahead_s=st.integers(-DAY_S, 1800)
    )
    def put(self, topic: str, queue_id: int, ahead_s: int) -> None:
        """A broker, whose clock is another, appends a message."""
        message = self._message(topic, queue_id, ahead_s)
        put(self.root, message, len(self.queues[topic, queue_id]) - 1)

    @precondition(lambda self: self.is_idle and len(self._log()) > 1)
    @rule()
    def expire(self) -> None:
        """A broker deletes its oldest file."""
        oldest = self._log()[0]
        for _, m in oracle.walk(oldest.read_bytes()):
            self.gone[m.topic, m.queue_id] += 1
        oldest.unlink()

    # --- what must hold

    @invariant()
    def readers_see_what_the_model_holds(self) -> None:
        if not self.root.exists():
            return
        COUNTS["steps"] += 1
        found: dict[Queue, list[Body]] = defaultdict(list)
        shown = ScanSettings(columns=PROFILES["full"])
        for batch in scan(slices_of(take(self.root)), shown):
            for row in batch.to_pylist():
                queue = (row["topic"], row["queueId"])
                found[queue].append(row["body"])
                assert row["queueOffset"] == self.gone[queue] + len(found[queue]) - 1
        expected = {queue: bodies[self.gone[queue] :] for queue, bodies in self.queues.items()}
        assert dict(found) == {queue: bodies for queue, bodies in expected.items() if bodies}

    @invariant()
    def an_idle_store_is_whole(self) -> None:
        if self.root.exists() and self.is_idle and self.number % 5 == 0:
            assert [f for f in check(self.root) if f.severity == "error"] == []

    @property
    def is_idle(self) -> bool:
        """Whether nothing is left to be finished."""
        unclean = (self.root / "abort").exists() or (self.root / ".mqlog/txn/pending.json").exists()
        return self.root.exists() and not self.limbo and not unclean

    # --- parts

    def _log(self) -> list[Path]:
        return sorted((self.root / "commitlog").iterdir()) if self.root.exists() else []

    def _last_version(self) -> int:
        return ledger.last_version(StoreDir.at(self.root), APP) or 0

    def _key(self) -> dict[str, Any]:
        return {"txn_app_id": APP, "txn_version": self.version}

    def _next_key(self, bodies: list[Body]) -> dict[str, Any]:
        self.version += 1
        self.keyed[self.version] = bodies
        return self._key()

    def _append(self, bodies: list[Body], how: dict[str, Any]) -> Any:
        rows = writing.rows(
            len(bodies),
            body=bodies,
            topic=[queue[0] for queue in map(queue_of, bodies)],
            queueId=[queue[1] for queue in map(queue_of, bodies)],
            keys=[body[:8].decode() for body in bodies],
        )
        with standing_in(self.disk):
            return writing.append(self.root, rows, queue_nums=2, **how)

    def _recover(self) -> None:
        with standing_in(self.disk):
            recover(self.root, RecoverSettings())

    def _in_child(self, at: int, act: Callable[[], object]) -> bool:
        """Act in a child that is killed at its call number ``at``; tell whether it was."""
        child = os.fork()
        if not child:
            code = 1
            try:
                self.disk = Dying(at)
                act()
                code = 0
            finally:
                os._exit(code)
        code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
        assert code in {0, KILLED}, f"a writer ended with {code}"
        COUNTS["killed" if code else "not reached"] += 1
        return code == KILLED

    def _bodies(self, count: int, large: bool) -> list[Body]:
        found = []
        for _ in range(count):
            self.number += 1
            topic, queue_id = "TU"[self.number % 2], self.number // 2 % 2
            body = f"{self.number:08d} {topic}{queue_id} ".encode()
            found.append(body.ljust(900 if large else 20, b"x"))
        return found

    def _message(self, topic: str, queue_id: int, ahead_s: int = -DAY_S) -> Message:
        self.number += 1
        body = f"{self.number:08d} put".encode()
        self.queues[topic, queue_id].append(body)
        moment = int(1000 * (time.time() + ahead_s))
        return Message(
            topic=topic,
            queue_id=queue_id,
            body=body,
            properties=join_properties({"KEYS": f"{self.number:08d}"}),
            born_timestamp_ms=moment,
            store_timestamp_ms=moment,
        )

    def _add(self, bodies: list[Body]) -> None:
        for body in bodies:
            self.queues[queue_of(body)].append(body)

    def _settle(self, *, decided: bool) -> None:
        """What was decided before is there from now on."""
        if decided:
            self._add(self.limbo)
        self.limbo = []


def queue_of(body: Body) -> Queue:
    """The queue that a body says it is for."""
    return body[9:10].decode(), int(body[10:11])


def put(root: Path, message: Message, queue_offset: int) -> None:
    """Append a record and its unit as a broker does, a new file for each where one is full."""
    log = sorted((root / "commitlog").iterdir())
    records = [m for path in log for _, m in oracle.walk(path.read_bytes())]
    end = records[-1].physical_offset + records[-1].size if records else int(log[0].name)
    room = LOG_BYTES - end % LOG_BYTES
    last = max((m.store_timestamp_ms for m in records), default=0)
    if message.size + 8 > room:
        _write(log[-1], end % LOG_BYTES, oracle.blank(room))
        end += room
    placed = Message(
        **{
            **{name: getattr(message, name) for name in message.__dataclass_fields__},
            "physical_offset": end,
            "queue_offset": queue_offset,
            "store_timestamp_ms": max(last, message.store_timestamp_ms),
        }
    )
    path = root / "commitlog" / f"{end - end % LOG_BYTES:020d}"
    _write(path, end % LOG_BYTES, oracle.encode(placed), LOG_BYTES)
    first = queue_offset - queue_offset % QUEUE_UNITS
    folder = root / "consumequeue" / message.topic / str(message.queue_id)
    folder.mkdir(parents=True, exist_ok=True)
    units = folder / f"{first * UNIT_BYTES:020d}"
    _write(
        units, (queue_offset - first) * UNIT_BYTES, oracle.unit(placed), QUEUE_UNITS * UNIT_BYTES
    )


def _write(path: Path, position: int, data: bytes, size: int = 0) -> None:
    if not path.exists():
        path.write_bytes(bytes(size))
    with path.open("r+b") as file:
        file.seek(position)
        file.write(data)


def test_a_store_holds_what_the_model_holds() -> None:
    machine = seed(SEED)(Store)
    how = settings(
        max_examples=RUNS,
        stateful_step_count=STEPS,
        deadline=None,
        print_blob=True,
        database=None,
        phases=PHASES,
        report_multiple_bugs=False,
        suppress_health_check=list(HealthCheck),
    )
    try:
        run_state_machine_as_test(machine, settings=how)
    except BaseException as error:
        error.add_note(f"{soak.header()} make test ARGS='tests/fuzz/test_model.py'")
        raise
    sys.stdout.write(f"{dict(COUNTS)}, seed {SEED}\n")
    assert COUNTS["killed"] >= RUNS // 4 - 1
    assert COUNTS["decided"] >= RUNS // 20
