"""T6: the power goes while a commit is under way, on a real ext4 file system in a file.

The process is killed and the file that holds the file system is copied as it is, without
unmounting: what was not synced is not in it, as far as the kernel did not write it for reasons of
its own. The copy is mounted, which replays its journal, and is recovered.

Of ten cuts three come before a change that is drawn from those before the decision, and one when
the commit has returned; six come at a moment after the decision, and how far the commit has come
by then is up to the machine.
"""

import filecmp
import os
import random
import shutil
import signal
import subprocess
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import NamedTuple

import pytest

from crash import play
from crash.forks import Forks, Laid
from crash.invariants import is_decided
from crash.scenarios import BY_NAME, work
from support import soak
from support.dying import before_each_change
from support.memory import folder_in_memory

pytestmark = pytest.mark.soak

CUTS = soak.size("power_cuts", check=2, test=13, whole=1_000)
SEED = soak.SEED
SECONDS = 60
IMAGE_BYTES = 32 << 20
MOUNTS = ["commit=5", "commit=1", "commit=1000"]  # seconds between two of the journal's own
BLOCKS = [4096, 1024]
BEFORE, BETWEEN, AFTER = "before the decision", "after the decision", "after the end"
PLANS = [BETWEEN, BEFORE, AFTER, BETWEEN, BEFORE, BETWEEN, BETWEEN, BEFORE, BETWEEN, BETWEEN]


def run(*command: object) -> None:
    subprocess.run(list(map(str, command)), capture_output=True, timeout=SECONDS, check=True)


@contextmanager
def mounted(image: Path, options: str = "") -> Iterator[Path]:
    """Mount the file system in a file while the block runs."""
    at = image.with_suffix(".mounted")
    at.mkdir()
    run("mount", "-t", "ext4", "-o", ",".join(filter(None, ["loop", options])), image, at)
    try:
        yield at
    finally:
        run("umount", at)
        at.rmdir()


def made(image: Path, block_bytes: int) -> Path:
    """Make an empty file system in a file."""
    with image.open("wb") as file:
        file.truncate(IMAGE_BYTES)
    run("mkfs.ext4", "-q", "-F", "-b", block_bytes, image)
    return image


@pytest.fixture(scope="module")
def space(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    with folder_in_memory(tmp_path_factory.mktemp("images")) as folder:
        try:
            with mounted(made(folder / "tried", BLOCKS[0])):
                pass
        except (OSError, subprocess.CalledProcessError) as error:
            pytest.skip(f"needs to make and mount an ext4 file system in a file: {error}")
        yield folder


@pytest.fixture(scope="module")
def forks() -> Iterator[Forks]:
    with Forks() as forks:
        yield forks


class Case:
    """A scenario on one kind of file system."""

    def __init__(self, space: Path, scenario: str, block_bytes: int) -> None:
        self.words = (scenario, 0)
        name = f"{scenario}-{block_bytes}"
        laid = Laid(work(BY_NAME[scenario], 0), space / name)
        self.recording = laid.recording
        self.image = made(space / f"{name}.image", block_bytes)
        self._space = space
        with mounted(self.image) as at:
            laid.copy(at / play.STORE)

    def changes(self) -> int:
        """Return how many changes the commit makes until the one that decides it."""
        paths: list[str] = []
        with (
            mounted(self.copy(self.image, "counted")) as at,
            before_each_change(lambda _, path: paths.append(path)),
        ):
            self.recording.work.run(at / play.STORE)
        return next(n for n, path in enumerate(paths) if path.endswith("txn/pending.json"))

    def seconds(self, forks: Forks) -> tuple[float, float]:
        """Return how long the commit takes here until it is decided, and after that."""
        over = threading.Event()
        with mounted(self.copy(self.image, "timed")) as at, ThreadPoolExecutor(1) as pool:
            root = at / play.STORE
            forks.child("write", *self.words, root)
            begun = time.monotonic()
            deciding = pool.submit(wait_until_decided, root, over)
            forks.go()
            assert forks.ended() == 0
            ended = time.monotonic()
            over.set()
        decided = min(deciding.result(), ended)
        return decided - begun, ended - decided

    def copy(self, image: Path, name: str) -> Path:
        """Copy an image as it is at one moment: nothing is written to it meanwhile."""
        copied = self._space / f"{name}.copy"
        while True:
            run("cp", "--sparse=always", image, copied)
            if filecmp.cmp(image, copied, shallow=False):
                return copied


def wait_until_decided(root: Path, over: threading.Event) -> float:
    """Return the time when the commit on the store is decided, or when it is over."""
    pending = str(root / ".mqlog" / "txn" / "pending.json")
    while not os.path.exists(pending) and not over.wait(0.0002):  # noqa: PTH110 - it is fast
        pass
    return time.monotonic()


class Measured(NamedTuple):
    """A case, and how its commit goes here when it is left alone."""

    case: Case
    changes: int
    seconds: tuple[float, float]

    @classmethod
    def of(cls, case: Case, forks: Forks) -> "Measured":
        return cls(case, case.changes(), case.seconds(forks))


def test_a_power_cut_leaves_a_store_that_recovers(space: Path, forks: Forks) -> None:
    names = sorted(BY_NAME)
    measured: dict[tuple[str, int], Measured] = {}
    left, planned = Counter[str](), Counter[str]()
    for number in range(CUTS):
        turn, which = divmod(number, len(names))
        key = (names[which], BLOCKS[(turn + which) % len(BLOCKS)])
        if key not in measured:
            measured[key] = Measured.of(Case(space, *key), forks)
        rng = random.Random(f"{SEED} {number}")
        plan = PLANS[number % len(PLANS)]
        left[power_cut(measured[key], forks, plan, rng)] += 1
        planned[plan] += 1
    soak.tell(f"{CUTS} power cuts: {dict(left)}")
    assert left["not decided"] >= planned[BEFORE]
    assert left["done"] >= planned[AFTER]


def power_cut(measured: Measured, forks: Forks, plan: str, rng: random.Random) -> str:
    """Cut the power once, check what is left, and return how far the commit had come."""
    case, changes, seconds = measured
    options = rng.choice(MOUNTS)
    moment = rng.uniform(0, 1.2 * seconds[1])
    synced = rng.uniform(0, 2 * sum(seconds))
    last = rng.randrange(changes + 1)
    command = ("write-until", last) if plan == BEFORE else ("write",)
    live = case.copy(case.image, "live")
    with mounted(live, options) as at:
        root = at / play.STORE
        process = os.pidfd_open(forks.child(*command, *case.words, root))
        over = threading.Event()

        def end() -> None:
            wait_until_decided(root, over)
            over.wait(moment)
            kill(process)

        flush = threading.Timer(synced, sync, [at])
        helpers = [flush, *([threading.Thread(target=end)] if plan == BETWEEN else [])]
        forks.go()
        for helper in helpers:
            helper.start()
        ended = forks.ended()
        over.set()
        flush.cancel()
        for helper in helpers:
            helper.join()
        os.close(process)
        cut = case.copy(live, "cut")
    assert ended == {BEFORE: -signal.SIGKILL, AFTER: 0}.get(plan, ended)
    assert ended in {0, -signal.SIGKILL}
    when = f"change {last}" if plan == BEFORE else f"{moment:.4f} s after its decision"
    return judged(case, cut, f"{case.words} {options}, cut {plan}: {when}", ended == 0)


def kill(process: int) -> None:
    """Kill -9, unless it ended before."""
    with suppress(ProcessLookupError):
        signal.pidfd_send_signal(process, signal.SIGKILL)


def sync(at: Path) -> None:
    """Have the kernel write what it has: it may do so whenever it likes."""
    subprocess.run(["sync", "-f", str(at)], timeout=SECONDS, check=False)


def judged(case: Case, cut: Path, when: str, acked: bool) -> str:
    """Check all of INV on the store in an image."""
    with mounted(cut) as at:
        root = at / play.STORE
        try:
            decided = root.exists() and is_decided(root, case.recording.expected)
            assert decided or not acked, "a commit that was done is not there"
            play.assert_store(case.recording, root, decided)
        except BaseException as error:
            kept = shutil.copytree(root, Path(tempfile.mkdtemp(prefix="power-cut-")) / "store")
            error.add_note(f"{when}; the store: {kept}")
            raise
    return "done" if acked else "in doubt" if decided else "not decided"
