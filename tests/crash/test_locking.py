"""T12: brokers and writers that come while a commit is under way, at every step of it.

A broker opens `lock`, loads the store, and only then locks it (F1). Whoever comes when, it has
loaded all of a commit or the commit was refused; and whoever is refused is told by whom.
"""

import os
import random
import signal
import threading
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from broker.harness import SMALL_FILES, Cluster
from crash import play
from crash.disk import Passing, standing_in
from crash.forks import Forks
from crash.invariants import is_decided
from crash.play import STORE, Recording
from crash.scenarios import APP, BY_NAME, work
from mqstore.check import check
from mqstore.errors import HoldLostError, StoreError, StoreLockedError
from mqstore.files.lock import store_lock
from mqstore.write.commit import commit
from mqstore.write.errors import CommitInDoubtError
from mqstore.write.recover import RecoverSettings, recover
from mqstore.write.stage.job import CommitResult
from support import soak
from support.processes import SECONDS, is_waited_for, lines_about, lock_user, running, until
from support.writing import append, held, prepared, rows, staged

pytestmark = pytest.mark.soak

INTERLEAVINGS = soak.size("interleavings", check=3, test=6, whole=100)
KILLED_HOLDERS = soak.size("killed_holders", check=1, test=2, whole=100)
ROUNDS = soak.size("writers_rounds", check=1, test=2, whole=100)
SEED = soak.SEED
BOOT_SECONDS = 120
SCENARIO = "everything"


class Pausing(Passing):
    """Stands in for `os` in the seam, and stops before the first change at which it is told to."""

    def __init__(self, when: Callable[[int], bool]) -> None:
        self.changes = 0
        self.stopped = threading.Event()
        self._go_on = threading.Event()
        self._when = when

    def go_on(self) -> None:
        self._go_on.set()

    def fsync(self, fd: int) -> None:
        self._change()

    def pwrite(self, fd: int, data: bytes, position: int) -> int:
        self._change()
        return os.pwrite(fd, data, position)

    def replace(self, source: str, target: str) -> None:
        self._change()
        os.replace(source, target)  # noqa: PTH105 - as the seam does

    def link(self, source: str, target: str, *, follow_symlinks: bool) -> None:
        self._change()
        os.link(source, target, follow_symlinks=follow_symlinks)

    def unlink(self, path: str) -> None:
        self._change()
        os.unlink(path)  # noqa: PTH108 - as the seam does

    def _change(self) -> None:
        self.changes += 1
        if not self.stopped.is_set() and self._when(self.changes):
            self.stopped.set()
            assert self._go_on.wait(2 * SECONDS)


@pytest.fixture(scope="module")
def recording(tmp_path_factory: pytest.TempPathFactory) -> Recording:
    base = tmp_path_factory.mktemp("recording") / "run"
    return replace(play.record(work(BY_NAME[SCENARIO], 0), base), with_ids=False)


@contextmanager
def stopped(
    work_on: Callable[[], CommitResult], when: Callable[[int], bool]
) -> Iterator[tuple[Pausing, "Future[CommitResult]"]]:
    """Commit in a thread that stops in the middle, until it is told to go on."""
    pausing = Pausing(when)
    with standing_in(pausing), ThreadPoolExecutor(1) as pool:
        committing = pool.submit(work_on)
        try:
            until(lambda: pausing.stopped.is_set() or committing.done())
            yield pausing, committing
        finally:
            pausing.go_on()


def is_pending(root: Path) -> bool:
    return (root / ".mqlog" / "txn" / "pending.json").exists()


def is_held(root: Path) -> bool:
    return any("LEASE" in line for line in lines_about(root / "lock"))


# --- A broker that starts ---------------------------------------------------------------------


def changes_of(recording: Recording, root: Path) -> int:
    """Return how many changes the commit makes, from the first task on."""
    recording.work.lay_out(root)
    counting = Pausing(lambda _: False)
    with standing_in(counting):
        recording.work.run(root)
    return counting.changes


def test_a_broker_that_starts_at_any_step_has_loaded_all_or_the_commit_is_refused(
    recording: Recording, tmp_path: Path
) -> None:
    """It opens, loads and locks; no lock of ours can come between the last two: F1."""
    changes = changes_of(recording, tmp_path / "counted")
    ended = Counter[str]()
    for number in range(INTERLEAVINGS):
        rng = random.Random(f"{SEED} {number}")
        at = 1 + (number * changes + rng.randrange(changes)) // INTERLEAVINGS
        base = tmp_path / f"{number}"
        base.mkdir()
        ended[broker_starts(recording, base / STORE, at)] += 1
    soak.tell(f"a broker started at {INTERLEAVINGS} of {changes} steps: {dict(ended)}")
    assert ended["waited"] > INTERLEAVINGS // 3


def broker_starts(recording: Recording, root: Path, at: int) -> str:
    """Have a broker start before a change of the commit; return what came of it."""
    recording.work.lay_out(root)
    lock = root / "lock"
    with (
        lock_user(lock) as broker,
        stopped(lambda: recording.work.run(root), lambda n: n == at) as (pausing, committing),
    ):
        broker.tell("open")
        until(lambda: broker.has_told() or is_waited_for(lock))
        came_in = broker.has_told()
        assert came_in == (not is_held(root)), f"step {at}"
        loaded = (broker.line(), broker.do("load")) if came_in else None
        pausing.go_on()
        refusal = committing.exception(SECONDS)
        if loaded is None:
            assert refusal is None, f"step {at}: {refusal}"
            loaded = (broker.line(), broker.do("load"))
        else:
            assert refusal is None or isinstance(refusal, StoreLockedError), f"step {at}"
        assert loaded == ("opened", broker.do("load")), f"step {at}: it loaded something else"
        assert broker.do("lock") == "taken"
    decided = is_decided(root, recording.expected)
    assert decided == (refusal is None)
    play.assert_store(recording, root, decided)
    return "refused" if refusal else "came when all was done" if came_in else "waited"


@pytest.mark.broker
def test_a_real_broker_that_boots_during_a_commit_waits_and_serves_all_of_it(
    cluster: Cluster,
    tmp_path: Path,
) -> None:
    root = tmp_path / "store"
    sizes: dict[str, Any] = {
        "create_store": True,
        "mapped_file_size_commit_log": int(SMALL_FILES["mappedFileSizeCommitLog"]),
        "mapped_file_size_consume_queue": int(SMALL_FILES["mappedFileSizeConsumeQueue"]),
        "max_hash_slot_num": int(SMALL_FILES["maxHashSlotNum"]),
        "max_index_num": int(SMALL_FILES["maxIndexNum"]),
    }
    append(root, rows(40, queueId=0), **sizes)
    with ExitStack() as stack, ThreadPoolExecutor(1) as pool:
        with stopped(lambda: append(root, rows(40, queueId=0)), lambda _: is_pending(root)) as (
            pausing,
            committing,
        ):
            starting = pool.submit(lambda: stack.enter_context(cluster.broker(root)))
            until(lambda: starting.done() or is_waited_for(root / "lock"))
            assert not starting.done()
            pausing.go_on()
            assert committing.result(SECONDS).messages == 40
        broker = starting.result(BOOT_SECONDS)
        dumped = broker.dump()
        assert dumped.problems == []
        assert dumped.queues["T", 0] == (0, 80)
        broker.produce("T", "Single", 5)
        broker.stop()
    assert len([m for m in held(root) if m.topic == "T"]) == 85
    append(root, rows(3, queueId=0))
    assert [finding for finding in check(root) if finding.severity == "error"] == []


def test_of_two_brokers_that_wait_one_gets_the_store(recording: Recording, tmp_path: Path) -> None:
    root = tmp_path / STORE
    recording.work.lay_out(root)
    lock = root / "lock"
    with lock_user(lock) as one, lock_user(lock) as other:
        with stopped(lambda: recording.work.run(root), lambda _: is_pending(root)) as (
            pausing,
            committing,
        ):
            one.tell("open")
            other.tell("open")
            until(lambda: is_waited_for(lock))
            pausing.go_on()
            committing.result(SECONDS)
        assert (one.line(), other.line()) == ("opened", "opened")
        assert one.do("load") == other.do("load")
        assert (one.do("lock"), other.do("lock")) == ("taken", "refused")
        with pytest.raises(StoreLockedError, match=f"process {one.pid} "):
            append(root, rows(3))
        one.leave()
        with pytest.raises(StoreLockedError, match=f"process {other.pid} "):
            append(root, rows(3))  # It has loaded, and may yet lock.
    append(root, rows(3))


# --- A lease that ends ------------------------------------------------------------------------


@pytest.fixture(params=["told shorter", pytest.param("the kernel's", marks=soak.only_whole)])
def patience(
    request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> str:
    """How long the kernel lets a broker wait: 45 s, which is long for a test."""
    if request.param == "told shorter":
        told = tmp_path / "lease-break-time"
        told.write_text("5.2")
        monkeypatch.setattr(store_lock, "_BREAK_TIME", told)
    return str(request.param)


@pytest.mark.parametrize("decided", [False, True], ids=["before the decision", "after it"])
def test_a_commit_that_a_broker_may_have_got_past_stops_and_keeps_it_from_starting(
    recording: Recording, tmp_path: Path, patience: str, decided: bool
) -> None:
    root = tmp_path / STORE
    recording.work.lay_out(root)
    lock = root / "lock"
    with (
        lock_user(lock) as broker,
        stopped(
            lambda: recording.work.run(root),
            lambda _: is_held(root) and is_pending(root) == decided,
        ) as (pausing, committing),
    ):
        broker.tell("open")
        until(lambda: is_waited_for(lock))
        if patience == "the kernel's":
            until(broker.has_told)
        else:
            threading.Event().wait(0.3)
        pausing.go_on()
        assert broker.line() == "opened"
        assert broker.do("lock") == "refused"
        assert not committing.done(), "it lets go only when the broker has gone"
        broker.leave()
        error = committing.exception(SECONDS)
    assert isinstance(error, CommitInDoubtError if decided else HoldLostError)
    assert "lost" in str(error)
    assert is_decided(root, recording.expected) == decided
    play.assert_store(recording, root, decided)


def test_a_broker_that_is_killed_while_it_waits_does_no_harm(
    recording: Recording, tmp_path: Path
) -> None:
    root = tmp_path / STORE
    recording.work.lay_out(root)
    with (
        lock_user(root / "lock") as broker,
        stopped(lambda: recording.work.run(root), lambda _: is_pending(root)) as (
            pausing,
            committing,
        ),
    ):
        broker.tell("open")
        until(lambda: is_waited_for(root / "lock"))
        broker.leave()
        pausing.go_on()
        committing.result(SECONDS)
    play.assert_store(recording, root, True)


def test_a_broker_that_is_stuck_is_waited_for_and_named(tmp_path: Path) -> None:
    root = tmp_path / STORE
    what = work(BY_NAME["same-file"], 0)
    what.lay_out(root)
    with lock_user(root / "lock") as broker:
        assert broker.do("open") == "opened"
        os.kill(broker.pid, signal.SIGSTOP)
        with pytest.raises(StoreLockedError, match=rf"process {broker.pid} .* \(waited 200 ms\)"):
            append(root, rows(3), lock_timeout_ms=200)
        with ThreadPoolExecutor(1) as pool:
            patient = pool.submit(append, root, rows(3), lock_timeout_ms=1000 * SECONDS)
            until(lambda: patient.running() and not patient.done())
            broker.leave()
            assert patient.result(SECONDS).messages == 3


# --- Writers that are killed, and writers at once ---------------------------------------------


def test_a_broker_that_waits_for_a_commit_that_is_killed_sees_none_or_all_of_it(
    recording: Recording, tmp_path: Path
) -> None:
    """And our recovery waits for the broker."""
    ended = Counter[str]()
    with Forks() as forks:
        for number in range(10 * KILLED_HOLDERS):
            base = tmp_path / f"{number}"
            base.mkdir()
            missed = number - ended["killed"]  # On a fast machine it has ended after 50 ms.
            wait_s = random.Random(f"{SEED} {number}").uniform(0, 0.05) / 2**missed
            ended[holder_is_killed(recording, base / STORE, forks, wait_s)] += 1
            if ended["killed"] == KILLED_HOLDERS:
                break
    soak.tell(f"holders killed while a broker waits: {dict(ended)}")
    assert ended["killed"] == KILLED_HOLDERS


def holder_is_killed(recording: Recording, root: Path, forks: Forks, wait_s: float) -> str:
    recording.work.lay_out(root)
    lock = root / "lock"
    pid = forks.child("write", SCENARIO, 0, root)
    process = os.pidfd_open(pid)
    with lock_user(lock) as broker:
        forks.go()
        until(lambda: is_held(root) or not is_alive(pid))
        threading.Event().wait(wait_s)
        send(process, signal.SIGSTOP)
        broker.tell("open")
        until(lambda: broker.has_told() or is_waited_for(lock))
        waits = not broker.has_told()
        send(process, signal.SIGKILL)
        acked = forks.ended() == 0
        os.close(process)
        assert broker.line() == "opened"
        assert broker.do("lock") == "taken"
        with pytest.raises(StoreLockedError, match=f"process {broker.pid} "):
            recover(str(root), RecoverSettings())
    decided = is_decided(root, recording.expected)
    assert decided or not acked
    play.assert_store(recording, root, decided)
    return "killed" if waits else "done before" if acked else "not held"


def is_alive(pid: int) -> bool:
    """Tell whether a child of another process is at work: not gone, and no zombie."""
    try:
        return (
            Path(f"/proc/{pid}/stat").read_text(encoding="utf-8").rpartition(")")[2].split()[0]
            != "Z"
        )
    except OSError:
        return False


def send(process: int, number: signal.Signals) -> None:
    try:
        signal.pidfd_send_signal(process, number)
    except ProcessLookupError:
        return


WRITER = f"""
import sys
sys.path.insert(0, {str(Path(__file__).parents[1])!r})
from pathlib import Path
from support.writing import append, rows
root, me, rounds = Path(sys.argv[1]), sys.argv[2], int(sys.argv[3])
for n in range(rounds):
    for name in (me, "both"):
        batch = rows(4, body=[f"{{name}} {{n}} {{i}}".encode() for i in range(4)])
        done = append(root, batch, lock_timeout_ms=120_000, txn_app_id=name, txn_version=n)
        print("again" if done.is_repeated else "written", flush=True)
"""


def test_writers_at_once_lose_nothing_and_write_a_common_key_once(tmp_path: Path) -> None:
    root = tmp_path / STORE
    work(BY_NAME["same-file"], 0).lay_out(root)
    before = len(held(root))
    seconds = SECONDS + 10 * ROUNDS
    with (
        running(WRITER, root, "one", ROUNDS, seconds=seconds) as one,
        running(WRITER, root, "two", ROUNDS, seconds=seconds) as two,
    ):
        told = [[each.line() for _ in range(2 * ROUNDS)] for each in (one, two)]
    for lines in told:
        assert set(lines[::2]) == {"written"}
    common = Counter(line for lines in told for line in lines[1::2])
    assert common == {"written": ROUNDS, "again": ROUNDS}
    bodies = Counter(m.body for m in held(root)[before:])
    assert bodies == Counter(
        f"{name} {n} {i}".encode()
        for name in ("one", "two", "both")
        for n in range(ROUNDS)
        for i in range(4)
    )
    assert [finding for finding in check(root) if finding.severity == "error"] == []


class Tidying(Passing):
    """Stands in for `os` in the seam; each empty folder of ours is once removed by another job."""

    def __init__(self) -> None:
        self.removed: list[str] = []

    def mkdir(self, path: str, mode: int) -> None:
        parent = str(Path(path).parent)
        if ".mqlog" in parent and parent not in self.removed:
            Path(parent).rmdir()
            self.removed.append(parent)
        os.mkdir(path, mode)  # noqa: PTH102 - as the seam does


def test_a_writer_that_begins_while_another_tidies_up_is_not_disturbed(tmp_path: Path) -> None:
    root = tmp_path / STORE
    work(BY_NAME["same-file"], 0).lay_out(root)
    batch = rows(3)
    tidying = Tidying()
    with standing_in(tidying):
        job = prepared(root, batch.schema)
    assert [Path(path).name for path in tidying.removed] == [".mqlog", "staging"]
    assert commit(job, staged(job, [batch])).messages == 3


def test_a_writer_that_is_refused_is_told_by_which(recording: Recording, tmp_path: Path) -> None:
    root = tmp_path / STORE
    recording.work.lay_out(root)
    with stopped(lambda: recording.work.run(root), lambda _: is_pending(root)) as (
        pausing,
        committing,
    ):
        refused: list[Callable[[], object]] = [
            lambda: append(root, rows(3), txn_app_id=APP, txn_version=2),
            lambda: recover(str(root), RecoverSettings()),
        ]
        for each in refused:
            with pytest.raises(StoreError, match=f"a write by process {os.getpid()} on .*, job "):
                each()
        pausing.go_on()
        committing.result(SECONDS)
    play.assert_store(recording, root, True)
