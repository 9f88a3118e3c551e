"""Holding a store: who is kept out, who is let in when, and what is left behind."""

import fcntl
import json
import os
import socket
import subprocess
import sys
import tempfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import SimpleNamespace

import pytest

from mqstore.errors import (
    HoldLostError,
    StoreLockedError,
    StoreNotFoundError,
    UnsafePathError,
    UnsupportedStoreError,
)
from mqstore.files.base import durable
from mqstore.files.lock import processes, store_lock
from mqstore.files.lock.processes import is_locked, openers
from mqstore.files.lock.store_lock import StoreHold, writers_only
from support.processes import (
    SECONDS,
    held_by_another,
    is_waited_for,
    lines_about,
    lock_user,
    running,
    until,
)

PATIENT_MS = SECONDS * 1000


def run(script: str, *arguments: object) -> str:
    """Run a program to its end, and return what it printed."""
    done = subprocess.run(
        [sys.executable, "-c", script, *map(str, arguments)],
        text=True,
        timeout=SECONDS,
        capture_output=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return str(done.stdout)


HOLDER = """
import sys
from mqstore.files.lock.store_lock import StoreHold, writers_only
print("tries", flush=True)
with StoreHold(sys.argv[1], timeout_ms=int(sys.argv[2]), job="nightly"):
    print("held", flush=True)
    sys.stdin.readline()
"""


def test_a_broker_that_starts_waits_and_then_gets_the_store(tmp_path: Path) -> None:
    """It waits in the open of its constructor: before it loads anything."""
    lock = tmp_path / "lock"
    with lock_user(lock) as broker:
        with StoreHold(str(tmp_path), timeout_ms=0) as held:
            assert lock.stat().st_size == 4
            broker.tell("open")
            until(lambda: is_waited_for(lock))
            held.check()
            assert not broker.has_told()
        assert broker.line() == "opened"
        assert broker.do("lock") == "taken"


def test_a_broker_that_has_loaded_and_not_yet_locked_is_seen(tmp_path: Path) -> None:
    """A lock alone would be given to us: F1."""
    lock = tmp_path / "lock"
    lock.write_bytes(b"lock")
    with lock_user(lock) as broker:
        assert broker.do("open") == "opened"
        named = rf"process {broker.pid} \(.+\) holds the store \(waited 30 ms\)\. Stop the broker"
        with pytest.raises(StoreLockedError, match=named):
            StoreHold(str(tmp_path), timeout_ms=30).__enter__()
        assert broker.do("lock") == "taken"
    with StoreHold(str(tmp_path), timeout_ms=0):
        pass


def test_a_broker_that_runs_is_named(tmp_path: Path) -> None:
    with held_by_another(tmp_path / "lock") as broker:
        assert openers(str(tmp_path / "lock"))[0].pid == broker.pid
        with pytest.raises(StoreLockedError, match=f"process {broker.pid} .*set lockTimeout"):
            StoreHold(str(tmp_path), timeout_ms=0).__enter__()
    assert not (tmp_path / ".mqlog").exists()


def test_who_has_the_lock_open_for_a_moment_is_waited_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As has a program of another thread that is not executed yet: all that was open here."""
    take, answers = durable.take_lease, []

    def take_lease(fd: int) -> bool:
        if not answers:
            other = os.open(tmp_path / "lock", os.O_RDWR)
            answers.append(take(fd))
            os.close(other)
        else:
            answers.append(take(fd))
        return answers[-1]

    monkeypatch.setattr(durable, "take_lease", take_lease)
    with StoreHold(str(tmp_path), timeout_ms=0):
        assert answers == [False, True]


def test_a_lock_on_another_device_is_another_files(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    lock = tmp_path / "lock"
    lock.touch()
    device, inode = lock.stat().st_dev, lock.stat().st_ino
    for minor, is_ours in ((os.minor(device), True), (os.minor(device) ^ 1, False)):
        listed = f"1: POSIX ADVISORY WRITE 7 {os.major(device):02x}:{minor:02x}:{inode} 0 0\n"
        (tmp_path / "locks").write_text(listed)
        monkeypatch.setattr(processes, "_LOCKS", tmp_path / "locks")
        assert is_locked(str(lock)) == (is_ours or not os.major(device))


def test_a_writer_that_tries_never_keeps_a_broker_from_its_lock(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A broker that starts tries its lock once: we must not have it, not for a moment."""
    lock = tmp_path / "lock"
    lock.touch()
    take, answers = durable.take_lease, []
    with lock_user(lock) as broker:
        assert broker.do("open") == "opened"

        def take_slowly(fd: int) -> bool:
            answers.append(broker.do("lock"))
            taken = take(fd)
            answers.append(broker.do("lock"))
            return taken

        monkeypatch.setattr(durable, "take_lease", take_slowly)
        with pytest.raises(StoreLockedError):
            StoreHold(str(tmp_path), timeout_ms=20).__enter__()
    assert set(answers) == {"taken"}


def test_a_second_writer_is_told_who_is_the_first(tmp_path: Path) -> None:
    with running(HOLDER, tmp_path, 0) as first:
        assert (first.line(), first.line()) == ("tries", "held")
        told = json.loads((tmp_path / ".mqlog" / "lock").read_text())
        assert (told["pid"], told["host"], told["job"]) == (
            first.pid,
            socket.gethostname(),
            "nightly",
        )
        with pytest.raises(StoreLockedError) as caught:
            StoreHold(str(tmp_path), timeout_ms=40).__enter__()
        who = f"a write by process {first.pid} on {told['host']}, job nightly, since"
        assert who in str(caught.value)
        assert "(waited 40 ms). Let it finish, or set lockTimeout" in str(caught.value)


@pytest.mark.parametrize("end", ["done", "killed"])
def test_a_second_writer_gets_the_store_when_the_first_is(tmp_path: Path, end: str) -> None:
    with running(HOLDER, tmp_path, 0) as first:
        assert (first.line(), first.line()) == ("tries", "held")
        with running(HOLDER, tmp_path, PATIENT_MS) as second:
            assert second.line() == "tries"
            if end == "done":
                first.tell()
            else:
                first.leave()
            assert second.line() == "held"


def test_writers_can_be_kept_out_without_a_broker_noticing(tmp_path: Path) -> None:
    root = str(tmp_path)
    with held_by_another(tmp_path / "lock") as broker, writers_only(root) as are_out:
        assert are_out
        with pytest.raises(StoreLockedError, match="a write by process"):
            StoreHold(root, timeout_ms=0).__enter__()
        with writers_only(root, timeout_ms=20) as are_out_here:
            assert not are_out_here
        assert lines_about(tmp_path / "lock") == [lines_about(tmp_path / "lock")[0]]
        assert broker.do("lock") == "taken"
    assert not (tmp_path / ".mqlog").exists()
    with StoreHold(root, timeout_ms=0), writers_only(root) as are_out:
        assert not are_out
    with writers_only(root + "/gone") as are_out:
        assert not are_out


def test_two_holds_of_one_process_exclude_each_other(tmp_path: Path) -> None:
    with StoreHold(str(tmp_path), timeout_ms=0), pytest.raises(StoreLockedError):
        StoreHold(str(tmp_path), timeout_ms=20).__enter__()
    inside: list[int] = []

    def work(_: int) -> int:
        with StoreHold(str(tmp_path), timeout_ms=PATIENT_MS) as held:
            inside.append(1)
            held.check()
            together = len(inside)
            inside.pop()
            return together

    with ThreadPoolExecutor(8) as pool:
        assert set(pool.map(work, range(200))) == {1}


def test_writers_of_many_processes_lose_no_turn(tmp_path: Path) -> None:
    """The file of our own lock comes and goes; what is counted under it must not."""
    count = tmp_path / "count"
    count.write_text("0")
    script = """
import sys
from pathlib import Path
from mqstore.files.lock.store_lock import StoreHold
count = Path(sys.argv[1], "count")
for _ in range(25):
    with StoreHold(sys.argv[1], timeout_ms=60_000):
        told = int(count.read_text())
        count.write_text(str(told + 1))
"""
    with ThreadPoolExecutor(4) as pool:
        list(pool.map(lambda _: run(script, tmp_path), range(4)))
    assert count.read_text() == "100"
    left = {path.name for path in tmp_path.rglob("*")}
    assert left - {".mqlog"} == {"count", "lock"}  # Two who make the folder both leave it.


def test_a_hold_leaves_nothing_but_the_lock_file(tmp_path: Path) -> None:
    with StoreHold(str(tmp_path), timeout_ms=0):
        assert (tmp_path / ".mqlog" / "lock").stat().st_mode & 0o777 & ~0o640 == 0
    assert [path.name for path in tmp_path.iterdir()] == ["lock"]
    assert (tmp_path / "lock").read_bytes() == b"lock"
    (tmp_path / ".mqlog").mkdir()
    (tmp_path / ".mqlog" / "lock").write_text("left by one who was killed")
    with StoreHold(str(tmp_path), timeout_ms=0):
        pass
    assert list((tmp_path / ".mqlog").iterdir()) == []
    assert lines_about(tmp_path / "lock") == []


def test_a_lease_that_is_broken_does_not_end_the_process_whatever_thread_has_it(
    tmp_path: Path,
) -> None:
    """The kernel tells of a break by a signal whose default action is to end the process."""
    script = """
import os, subprocess, sys, threading
from mqstore.files.lock.store_lock import StoreHold, writers_only
def work():
    with StoreHold(sys.argv[1], timeout_ms=0) as held:
        code = "import os, sys; os.open(sys.argv[1], os.O_RDWR)"
        opener = subprocess.Popen([sys.executable, "-c", code, sys.argv[1] + "/lock"])
        inode = str(os.stat(sys.argv[1] + "/lock").st_ino)
        while not any("BREAKING" in l and inode in l for l in open("/proc/locks")):
            pass
        held.check()
    opener.wait()
    print("alive")
if sys.argv[2] == "thread":
    thread = threading.Thread(target=work); thread.start(); thread.join()
else:
    work()
"""
    for where in ("thread", "main"):
        assert run(script, tmp_path, where) == "alive\n"


def test_a_forked_child_neither_holds_the_store_nor_keeps_it_held(tmp_path: Path) -> None:
    script = """
import os, sys
from mqstore.errors import HoldLostError, StoreLockedError
from mqstore.files.lock.store_lock import StoreHold
root = sys.argv[1]
told, tell = os.pipe()
with StoreHold(root, timeout_ms=0) as held:
    if os.fork() == 0:
        try:
            held.check()
        except HoldLostError as error:
            print("child:", error, flush=True)
        held.__exit__()
        try:
            StoreHold(root, timeout_ms=0).__enter__()
        except StoreLockedError:
            print("child: locked", flush=True)
        os.write(tell, b"x")
        sys.stdin.read()
        os._exit(0)
    os.read(told, 1)
    held.check()
with StoreHold(root, timeout_ms=0):
    print("parent: held again")
"""
    with running(script, tmp_path) as process:
        lost, locked, again = (process.line() for _ in range(3))
    assert lost.startswith("child: [MQLOG_STORE_LOCKED.LEASE_BROKEN]")
    assert (locked, again) == ("child: locked", "parent: held again")


@pytest.fixture
def impatient(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The kernel seems to let others in sooner than it does: 0.3 s after we must give up."""
    told = tmp_path / "lease-break-time"
    told.write_text("5.3")
    monkeypatch.setattr(store_lock, "_BREAK_TIME", told)


@pytest.mark.usefixtures("impatient")
def test_a_hold_that_somebody_may_get_past_is_lost(tmp_path: Path) -> None:
    """And it keeps the lock until he has tried it, in vain, and is gone."""
    root = tmp_path / "s"
    root.mkdir()
    with lock_user(root / "lock") as broker, ThreadPoolExecutor() as pool:
        held = StoreHold(str(root), timeout_ms=0).__enter__()
        broker.tell("open")
        until(lambda: is_waited_for(root / "lock"))
        with pytest.raises(HoldLostError, match="a broker that started may have loaded it"):
            until(lambda: is_lost(held))
        leaving = pool.submit(held.__exit__)
        assert broker.line() == "opened"
        assert broker.do("lock") == "refused"
        assert not leaving.done()
        assert lines_about(root / "lock")
        broker.leave()
        leaving.result(SECONDS)
    with StoreHold(str(root), timeout_ms=0):
        pass


def is_lost(held: StoreHold) -> bool:
    held.check()
    return False


def test_the_age_of_a_break_counts_from_when_the_lease_was_last_whole(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    root = tmp_path / "s"
    root.mkdir()
    clock = [0.0]
    monkeypatch.setattr(store_lock, "time", SimpleNamespace(monotonic=lambda: clock[0]))
    with lock_user(root / "lock") as broker, StoreHold(str(root), timeout_ms=0) as held:
        clock[0] = 1000.0  # Longer than a break may last; but nobody came.
        held.check()
        broker.tell("open")
        until(lambda: is_waited_for(root / "lock"))
        clock[0] += 1.0
        held.check()


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can become somebody else")
def test_without_a_lease_a_store_is_refused_by_name_or_held_more_weakly_when_asked() -> None:
    """Only the owner of a file may take a lease on it."""
    script = """
import ctypes, os, signal, sys
from mqstore.errors import StoreLockedError, UnsupportedStoreError
from mqstore.files.lock.store_lock import StoreHold
os.setgid(65534); os.setuid(65534)
root = sys.argv[1]
try:
    StoreHold(root, timeout_ms=0).__enter__()
except UnsupportedStoreError as error:
    print(error)
with StoreHold(root, timeout_ms=0, allow_no_lease=True) as held:
    held.check()
    print("held")
told, tell = os.pipe()
opener = os.fork()
if opener == 0:
    ctypes.CDLL(None).prctl(4, 1)  # PR_SET_DUMPABLE: a new user hides its processes
    os.open(root + "/lock", os.O_RDWR)
    os.write(tell, b"x")
    signal.pause()
os.read(told, 1)
try:
    StoreHold(root, timeout_ms=0, allow_no_lease=True).__enter__()
except StoreLockedError as error:
    print(f"process {opener} " in str(error))
os.kill(opener, signal.SIGKILL)
"""
    with tempfile.TemporaryDirectory() as folder:
        root = Path(folder)
        root.chmod(0o777)
        (root / "lock").write_bytes(b"lock")
        (root / "lock").chmod(0o666)
        refused, held, seen = run(script, root).splitlines()
    assert refused.startswith(f"[MQLOG_UNSUPPORTED_STORE.NO_LEASE] {root}: no lease on the file")
    assert "allowNoLease=true" in refused
    assert (held, seen) == ("held", "True")


def test_a_file_system_on_which_nothing_was_tried_is_refused_before_anything_is_made() -> None:
    reason = r"\.FILE_SYSTEM\] /proc: on a file system of type proc .*allowNoLease=true"
    with pytest.raises(UnsupportedStoreError, match=reason):
        StoreHold("/proc", timeout_ms=0).__enter__()


def test_a_place_that_is_no_store_s_is_refused(tmp_path: Path) -> None:
    with pytest.raises(StoreNotFoundError):
        StoreHold(str(tmp_path / "gone"), timeout_ms=0).__enter__()
    (tmp_path / "elsewhere").mkdir()
    for name, target in ((".mqlog", "elsewhere"), ("lock", "elsewhere"), ("lock", "nowhere")):
        (tmp_path / name).symlink_to(tmp_path / target)
        with pytest.raises(UnsafePathError):
            StoreHold(str(tmp_path), timeout_ms=0).__enter__()
        (tmp_path / name).unlink()
    assert [path.name for path in tmp_path.rglob("*")] == ["elsewhere"]


def test_a_lock_of_a_file_that_lost_its_name_does_not_count(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Who waits for our own lock has the file open that its holder removes as he leaves."""
    lock, removed = durable.lock_byte, list[int]()

    def lock_late(fd: int) -> bool:
        if not removed:
            removed.append(fd)
            (tmp_path / ".mqlog" / "lock").unlink()
        return lock(fd)

    monkeypatch.setattr(durable, "lock_byte", lock_late)
    with (
        StoreHold(str(tmp_path), timeout_ms=0),
        pytest.raises(StoreLockedError, match="a write by process"),
    ):
        StoreHold(str(tmp_path), timeout_ms=0).__enter__()


@pytest.mark.parametrize("of", ["file", "process"])
def test_byte_0_is_what_a_broker_locks(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, of: str
) -> None:
    """A kernel without locks of open files has those of processes."""
    if of == "process":
        monkeypatch.delattr(fcntl, "F_OFD_SETLK")
    path = tmp_path / "lock"
    path.touch()
    fd = durable.open_lock(str(path), b"")
    with lock_user(path) as broker:
        assert broker.do("open") == "opened"
        assert durable.lock_byte(fd)
        assert broker.do("lock") == "refused"
        durable.unlock_byte(fd)
        assert broker.do("lock") == "taken"
        assert not durable.lock_byte(fd)
    os.close(fd)


def test_closing_another_descriptor_does_not_lose_the_lock(tmp_path: Path) -> None:
    """F9: a lock of the process would be gone."""
    path = tmp_path / "lock"
    path.touch()
    fd = durable.open_lock(str(path), b"")
    with lock_user(path) as broker:
        assert broker.do("open") == "opened"
        assert durable.lock_byte(fd)
        path.read_bytes()
        assert broker.do("lock") == "refused"
    os.close(fd)
