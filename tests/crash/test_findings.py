"""T15: every finding that decided how a commit goes, as a hazard and as its absence.

Each test first does it the way that looks right, by hand (rocketmq_jvm/hand.py), and shows that a
broker's own classes lose messages, double them or refuse to start; then with the one thing that
a commit of ours does about it. F1 to F12 are the numbers that the commit protocol gives them.
"""

import fcntl
import shlex
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from broker.jvm import JvmError
from crash.rocketmq_jvm import hand
from crash.rocketmq_jvm.store_jvm import VERSIONS, MakeRoot, Queue, RefusedError, Sizes, StoreJvm
from mqstore.errors import StoreLockedError
from mqstore.files.lock.store_lock import StoreHold
from mqstore.read.settings import ScanSettings
from support.oracle import Message
from support.stores import Layout, lay_out

pytestmark = [pytest.mark.broker, pytest.mark.soak]

BATCH = [("A", 0, f"ours {n}", f"o{n}") for n in range(3)]
KEYS = [f"o{n}" for n in range(3)]
HELD_0 = [f"a{n}" for n in range(10)]
HELD_1 = [f"b{n}" for n in range(5)]


def served(jvm: StoreJvm, root: Path, sizes: Sizes | None = None) -> dict[tuple[str, int], Queue]:
    """What a broker that starts on the store serves; it is killed afterwards."""
    with jvm.serving(root, sizes) as broker:
        return broker.queues()


def keys(queue: Queue) -> list[str | None]:
    return [m and m.keys for m in queue.messages]


def of_length(jvm: StoreJvm, root: Path, size: int, spare: Path) -> str:
    """A body that makes the broker's next record of A/0 with a key of two letters `size` long."""
    shutil.copytree(root, spare)
    with jvm.serving(spare) as broker:
        empty = broker.put("A", 0, "x", "zz").size - 1
    return "y" * (size - empty)


# --- F1, F9: locks ----------------------------------------------------------------------------


def kernel_says(path: Path, words: tuple[str, ...]) -> bool:
    """Whether a line of /proc/locks about the file has all the words."""
    place = f":{path.stat().st_ino}"
    told = [line.split() for line in Path("/proc/locks").read_text(encoding="utf-8").splitlines()]
    return any(
        any(word.endswith(place) for word in line) and set(words) <= set(line) for line in told
    )


def until(holds: Callable[[], bool], what: str, seconds: float = 120) -> None:
    """Return when `holds()` does; fail if that takes too long."""
    end, pause = time.monotonic() + seconds, threading.Event()
    while not holds():
        assert time.monotonic() < end, f"not in {seconds} s: {what}"
        pause.wait(0.01)


def commit_by_hand(root: Path) -> list[Message]:
    batch = hand.placed(root, BATCH)
    hand.append(root, batch)
    hand.dispatch(root, batch)
    return batch


def test_f1_a_broker_that_loaded_before_we_locked_overwrites_what_we_committed(
    jvm: StoreJvm, base: MakeRoot, tmp_path: Path
) -> None:
    root = base()
    broker = jvm.open(root)
    broker.load()
    with (root / "lock").open("r+b") as lock:
        hand.lock_open_file(lock)  # As a broker would; nobody has it.
        batch = commit_by_hand(root)
    broker.start()
    put = broker.put("A", 0, "theirs", "t0")
    assert put.physical_offset == batch[0].physical_offset
    again = broker.killed(tmp_path / "again")
    broker.drop()
    assert not set(KEYS) <= set(keys(served(jvm, again)["A", 0]))


def test_f1_a_store_that_a_broker_has_loaded_is_not_ours_to_write(
    jvm: StoreJvm, base: MakeRoot, tmp_path: Path
) -> None:
    root = base()
    broker = jvm.open(root)
    broker.load()
    with pytest.raises(StoreLockedError), StoreHold(str(root), timeout_ms=0):
        raise AssertionError("a broker is about to start on it")
    broker.start()
    broker.put("A", 0, "theirs", "t0")
    again = broker.killed(tmp_path / "again")
    broker.drop()
    (again / "abort").unlink()
    with StoreHold(str(again), timeout_ms=0):
        commit_by_hand(again)
    assert keys(served(jvm, again)["A", 0]) == [*HELD_0, "t0", *KEYS]


def test_f1_a_broker_that_starts_while_we_write_waits_and_loads_all(
    jvm: StoreJvm, base: MakeRoot
) -> None:
    root = base()
    lock = root / "lock"
    with ThreadPoolExecutor(1) as thread:
        with StoreHold(str(root), timeout_ms=0) as hold:
            starting = thread.submit(jvm.open, root)
            until(lambda: kernel_says(lock, ("LEASE", "BREAKING")), "the broker opens `lock`")
            commit_by_hand(root)
            hold.check()
            assert not starting.done()
        broker = starting.result(timeout=120)
    broker.load()
    broker.start()
    assert keys(broker.queues()["A", 0]) == HELD_0 + KEYS
    assert broker.put("A", 0, "theirs", "t0").queue_offset == len(HELD_0 + KEYS)
    broker.drop()


def test_f9_a_lock_of_the_process_is_gone_when_any_descriptor_of_the_file_is_closed(
    jvm: StoreJvm, base: MakeRoot
) -> None:
    root = base()
    with (root / "lock").open("r+b") as lock:
        fcntl.lockf(lock, fcntl.LOCK_EX | fcntl.LOCK_NB, 1, 0)
        with pytest.raises(JvmError, match="Lock failed"):
            served(jvm, root)
    root = base()
    with (root / "lock").open("r+b") as lock:
        fcntl.lockf(lock, fcntl.LOCK_EX | fcntl.LOCK_NB, 1, 0)
        (root / "lock").read_bytes()  # Opens and closes it.
        assert keys(served(jvm, root)["A", 0]) == HELD_0  # The broker writes, and so do we.
    root = base()
    with (root / "lock").open("r+b") as lock:
        hand.lock_open_file(lock)
        (root / "lock").read_bytes()
        with pytest.raises(JvmError, match="Lock failed"):
            served(jvm, root)


def test_f9_our_lock_is_that_of_the_open_file(tmp_path: Path) -> None:
    root = tmp_path / "store"
    long_ago(root, 3)
    lock = root / "lock"
    with StoreHold(str(root), timeout_ms=0):
        assert kernel_says(lock, ("OFDLCK", "WRITE"))
        assert kernel_says(lock, ("LEASE", "ACTIVE", "WRITE"))
        assert not kernel_says(lock, ("POSIX",))
    assert not kernel_says(lock, ("OFDLCK",))
    assert not kernel_says(lock, ("LEASE",))


# --- F2, F3: abort ---------------------------------------------------------------------------


def test_f2_without_abort_the_first_message_behind_the_queues_is_skipped(
    jvm: StoreJvm, base: MakeRoot
) -> None:
    bare, guarded = base(), base()
    for root in (bare, guarded):
        hand.append(root, hand.placed(root, BATCH))  # Durable to the last byte; no queue knows it.
    hand.leave_abort(guarded)
    queue = served(jvm, bare)["A", 0]
    if jvm.version.startswith("4."):
        assert keys(queue) == HELD_0 + KEYS  # 4.9 dispatches from the last entry itself.
    else:
        assert keys(queue) == HELD_0 + KEYS[1:]
        assert not queue.is_dense
    queue = served(jvm, guarded)["A", 0]
    assert keys(queue) == HELD_0 + KEYS
    assert queue.is_dense


def test_f3_without_abort_queues_that_were_written_out_of_order_lose_messages(
    jvm: StoreJvm, base: MakeRoot
) -> None:
    bare, guarded = base(), base()
    for root in (bare, guarded):
        first, second = hand.placed(root, [("A", 0, "ours", "o0"), ("A", 1, "ours", "o1")])
        hand.append(root, [first, second])
        hand.dispatch(root, [second])
    hand.leave_abort(guarded)
    found = served(jvm, bare)
    assert keys(found["A", 0]) == HELD_0  # o0 is in the log, and nobody will ever see it.
    assert keys(found["A", 1]) == [*HELD_1, "o1"]
    found = served(jvm, guarded)
    assert keys(found["A", 0]) == [*HELD_0, "o0"]
    assert keys(found["A", 1]) == [*HELD_1, "o1"]


# --- F4: ConsumeQueue files -------------------------------------------------------------------


@pytest.mark.parametrize("unclean", [False, True], ids=["stopped", "killed"])
def test_f4_an_empty_queue_file_of_full_length_is_a_message_that_nobody_sent(
    jvm: StoreJvm, base: MakeRoot, unclean: bool
) -> None:
    bare, guarded = base(), base()
    (message,) = hand.placed(base(), [("New", 0, "ours", "o0")])
    empty = bare / "consumequeue" / "New" / "0" / f"{0:020d}"
    empty.parent.mkdir(parents=True)
    empty.write_bytes(bytes(hand.QUEUE_BYTES))  # To be filled when the message is published.
    hand.append(guarded, [message])
    hand.dispatch(guarded, [message])
    if unclean:
        hand.leave_abort(bare)
        hand.leave_abort(guarded)
    with jvm.serving(bare) as broker:
        phantom = broker.queues()["New", 0]
        assert (phantom.low, phantom.high, phantom.messages) == (0, 1, (None,))
        assert broker.put("New", 0, "theirs", "t0").queue_offset == 1
    with jvm.serving(guarded) as broker:
        assert keys(broker.queues()["New", 0]) == ["o0"]
        assert broker.put("New", 0, "theirs", "t0").queue_offset == 1
        assert keys(broker.queues()["New", 0]) == ["o0", "t0"]


# --- F5, F6: bytes behind the end -------------------------------------------------------------


@pytest.mark.parametrize("unclean", [False, True], ids=["stopped", "killed"])
def test_f5_what_was_left_behind_the_end_comes_back_to_life(
    jvm: StoreJvm, base: MakeRoot, tmp_path: Path, unclean: bool
) -> None:
    bare, guarded = base(), base()
    batch = hand.placed(bare, BATCH)
    for root in (bare, guarded):
        hand.append(root, batch, hidden=True)
        if unclean:
            hand.leave_abort(root)
    hand.wipe(guarded, batch[0].physical_offset, sum(m.size for m in batch))
    body = of_length(jvm, bare, batch[0].size, tmp_path / "spare")
    for root, expected in ((bare, KEYS[1:]), (guarded, [])):
        with jvm.serving(root) as broker:
            assert keys(broker.queues()["A", 0]) == HELD_0
            put = broker.put("A", 0, body, "zz")
            assert (put.physical_offset, put.size) == (batch[0].physical_offset, batch[0].size)
            again = broker.killed(tmp_path / f"again-{root.name}")
        assert keys(served(jvm, again)["A", 0]) == [*HELD_0, "zz", *expected]


@pytest.mark.parametrize("unclean", [False, True], ids=["stopped", "killed"])
def test_f6_records_written_one_after_the_other_are_seen_in_part(
    jvm: StoreJvm, base: MakeRoot, unclean: bool
) -> None:
    bare, guarded, shown = base(), base(), base()
    batch = hand.placed(bare, BATCH)
    torn = batch[2].physical_offset
    hand.append(bare, batch)
    hand.append(guarded, batch, hidden=True)
    hand.append(shown, batch, hidden=True)
    for root in (bare, guarded):
        hand.wipe(root, torn + 20, batch[2].size - 20)
    hand.show(shown, batch[0])
    hand.leave_abort(shown)
    if unclean:
        hand.leave_abort(bare)
        hand.leave_abort(guarded)
    seen = keys(served(jvm, bare)["A", 0])
    assert set(seen) & set(KEYS)
    assert not set(KEYS) <= set(seen)
    assert keys(served(jvm, guarded)["A", 0]) == HELD_0
    assert keys(served(jvm, shown)["A", 0]) == HELD_0 + KEYS


# --- F13: files made ahead --------------------------------------------------------------------


@pytest.mark.parametrize("count", [2, 3])
def test_f13_three_empty_files_ahead_hide_the_end_from_a_broker_that_stopped_in_order(
    jvm: StoreJvm, base: MakeRoot, tmp_path: Path, count: int
) -> None:
    """CommitLog#recoverNormally of 4.9 looks for the end in the last three files."""
    bare, guarded = base(), base()
    for root in (bare, guarded):
        for number in range(1, count + 1):
            (root / "commitlog" / f"{number * 65_536:020d}").write_bytes(bytes(65_536))
    hand.leave_abort(guarded)
    for root in (bare, guarded):
        tail = hand.end(root)
        with jvm.serving(root) as broker:
            put = broker.put("A", 0, "theirs", "t0")
            again = broker.killed(tmp_path / f"again-{root.name}")
        found = keys(served(jvm, again)["A", 0])
        if root == bare and count == 3 and jvm.version == "4.9.7":
            assert put.physical_offset > tail
            assert found == HELD_0  # It was acknowledged, and it is gone.
        else:
            assert put.physical_offset == tail
            assert found == [*HELD_0, "t0"]


# --- F7, F8: the checkpoint -------------------------------------------------------------------

HOUR_MS = 3_600_000
LAID = Layout(commit_log_bytes=8192, queue_units=100, index_slots=10, index_units=150)
LAID_SIZES = Sizes(commit_log=8192, consume_queue=2000, index_slots=10, index_units=150)


def long_ago(root: Path, count: int) -> list[Message]:
    """A store of some files, a message every ten seconds, each with one key; stopped."""
    rows = [("A", 0, "x" * 80, f"a{n}") for n in range(count)]
    start = 1_700_000_000_000
    messages = [hand.message(row, start + 10_000 * n) for n, row in enumerate(rows)]
    return list(lay_out(root, messages, LAID).messages)


@pytest.mark.parametrize("jvm", VERSIONS, indirect=True, scope="session")
def test_f7_a_checkpoint_from_the_future_hides_messages(jvm: StoreJvm, tmp_path: Path) -> None:
    found = {}
    for name, ahead_ms in (("bare", HOUR_MS), ("guarded", 0)):
        root = tmp_path / name
        old = long_ago(root, 60)
        now = old[-1].store_timestamp_ms + 10_000
        batch = hand.placed(root, [("A", 0, "y" * 80, f"o{n}") for n in range(60)], now)
        assert batch[-1].physical_offset // 8192 > old[-1].physical_offset // 8192
        hand.append(root, batch)  # Published; the queues know nothing of it yet.
        hand.leave_abort(root)
        hand.set_checkpoint(root, now + ahead_ms, now + ahead_ms, now + ahead_ms)
        found[name] = keys(served(jvm, root, LAID_SIZES)["A", 0])
    everything = [f"a{n}" for n in range(60)] + [f"o{n}" for n in range(60)]
    assert found["guarded"] == everything
    if jvm.version != "5.5.0":  # 5.5.0 looks at where the queues end.
        assert len(found["bare"]) < len(everything)


def test_f8_an_unclean_start_deletes_an_index_that_the_checkpoint_does_not_cover(
    jvm: StoreJvm, tmp_path: Path
) -> None:
    lost = {}
    for name in ("bare", "guarded"):
        root = tmp_path / name
        messages = long_ago(root, 200)
        last = max((root / "index").iterdir())
        log_ms, queues_ms, _ = hand.checkpoint(root)
        index_ms = hand.header_end_ms(last.read_bytes()) - (1 if name == "bare" else 0)
        hand.set_checkpoint(root, log_ms, queues_ms, index_ms)
        hand.leave_abort(root)
        with jvm.serving(root, LAID_SIZES) as broker:
            looked = [(m, broker.find("A", m.properties_map["KEYS"])) for m in messages]
            assert keys(broker.queues()["A", 0]) == [f"a{n}" for n in range(200)]
        lost[name] = [
            (m.properties_map["KEYS"], m.physical_offset, where)
            for m, where in looked
            if m.physical_offset not in where
        ]
    assert lost["guarded"] == []
    assert lost["bare"]


# --- F10: files that shrink, disks that fill --------------------------------------------------

SHRINKING = """
import os, sys
import numpy as np
from mqstore.errors import CorruptStoreError
from mqstore.files.base.directory import Directory
from mqstore.files.log.commit_log import CommitLog
root, mode = sys.argv[1:]
with CommitLog([Directory(root + "/commitlog")], mode) as log:
    first, last = np.array([0]), np.array([8000])
    bytes(log.gather(first, np.array([100])).buffer[:100])
    path = log.files.files[0].name
    os.truncate(path, 4096)
    try:
        found = log.gather(last, np.array([100]))
        sys.exit(f"read {bytes(found.buffer[found.starts[0]:][:100])!r}")
    except CorruptStoreError as error:
        assert "ends here" in str(error), error
"""


@pytest.mark.parametrize(("mode", "end"), [("pread", 0), ("mmap", -signal.SIGBUS)])
def test_f10_reading_a_file_that_shrinks_is_a_named_error_unless_it_is_mapped(
    tmp_path: Path, mode: str, end: int
) -> None:
    root = tmp_path / "store"
    long_ago(root, 100)
    done = run([sys.executable, "-c", SHRINKING, str(root), mode])
    assert done.returncode == end, done.stderr
    assert ScanSettings(columns=()).read_mode == "pread"  # Who maps, says so.


FILLING = """
import mmap, os, sys
from mqstore.errors import NoSpaceError
from mqstore.files.base import durable
path, mode = sys.argv[1:]
fd = durable.create(path)
size = 4 << 20
if mode == "mapped":
    os.ftruncate(fd, size)
    with mmap.mmap(fd, size) as data:
        for position in range(0, size, 4096):
            data[position] = 1
    sys.exit("a disk of 1 MiB holds 4")
try:
    durable.reserve(fd, 0, size)
except NoSpaceError as error:
    sys.exit(7)
"""


@pytest.mark.parametrize(("mode", "end"), [("reserved", 7), ("mapped", -signal.SIGBUS)])
def test_f10_writing_to_a_full_disk_is_a_named_error_unless_it_is_mapped(
    tmp_path: Path, mode: str, end: int
) -> None:
    disk = tmp_path / "disk"
    disk.mkdir()
    mount = f"mount -t tmpfs -o size=1m mqlog {shlex.quote(str(disk))}"
    alone = ["unshare", "--mount", "sh", "-c"]
    if shutil.which("unshare") is None or run([*alone, mount]).returncode:
        pytest.skip("needs to mount a small tmpfs (root, and unshare of util-linux)")
    program = shlex.join([sys.executable, "-c", FILLING, str(disk / "file"), mode])
    done = run([*alone, f"{mount} && exec {program}"])
    assert done.returncode == end, done.stderr


def run(command: list[str]) -> "subprocess.CompletedProcess[str]":
    return subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)


# --- F12: names that are not the broker's -----------------------------------------------------

LOG = "commitlog"
QUEUE = "consumequeue/A/0"
STRAY = {
    # path below the root: (bytes, or None for a directory, and what each version makes of it)
    ".mqlog/staging/j/part.mqb": (2, "ok ok ok"),
    ".mqlog/txn/pending.json": (2, "ok ok ok"),
    "foo.tmp": (2, "ok ok ok"),
    "config/topics.json.tmp": (2, "ok ok ok"),
    "index/foo.tmp": (2, "ok ok ok"),
    "index/.dir": (None, "ok ok ok"),
    "index/123": (None, "ok refused refused"),
    "index/20200101000000000": (2, "ok ok ok"),
    "consumequeue/foo.tmp": (2, "ok ok ok"),
    "consumequeue/.dir/0": (None, "ok ok ok"),
    "consumequeue/A/foo.tmp": (2, "ok ok ok"),
    "consumequeue/Z/3": (None, "ok ok ok"),
    f"{LOG}/.dir": (None, "refused ok ok"),
    f"{LOG}/.file": (2, "refused refused refused"),
    f"{LOG}/.empty": (0, "refused refused refused"),
    f"{LOG}/zz": (0, "refused deleted deleted"),
    f"{LOG}/tmpfile": (65_536, "refused refused refused"),
    f"{LOG}/{65_536:020d}": (65_536, "deleted deleted deleted"),
    f"{LOG}/{131_072:020d}": (0, "refused deleted deleted"),
    f"{LOG}/{196_608:020d}": (100, "refused refused refused"),
    f"{LOG}/99999999999999999999.mqlog-commit-in-progress": (1, "refused refused refused"),
    f"{QUEUE}/.dir": (None, "refused ok ok"),
    f"{QUEUE}/foo.tmp": (2, "refused refused refused"),
    f"{QUEUE}/{2_000:020d}": (0, "refused deleted deleted"),
    f"{QUEUE}/{4_000:020d}": (40, "refused refused refused"),
}


@pytest.mark.parametrize("path", STRAY)
def test_f12_a_stray_name_is_tolerated_or_not(jvm: StoreJvm, base: MakeRoot, path: str) -> None:
    size, told = STRAY[path]
    expected = dict(zip(VERSIONS, told.split(), strict=True))[jvm.version]
    root = base()
    stray = root / path
    if size is None:
        stray.mkdir(parents=True)
    else:
        stray.parent.mkdir(parents=True, exist_ok=True)
        stray.write_bytes(bytes(size))
    try:
        found = served(jvm, root)
    except RefusedError:
        became = "refused"
    else:
        assert (keys(found["A", 0]), keys(found["A", 1])) == (HELD_0, HELD_1)
        became = "ok" if stray.exists() else "deleted"
    assert became == expected
