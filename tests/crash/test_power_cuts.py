"""T6: the power goes while a commit is under way, on a real ext4 file system in a file.

The process is killed at a random moment and the file that holds the file system is copied as it
is, without unmounting: what was not synced is not in it, as far as the kernel did not write it
for reasons of its own. The copy is mounted, which replays its journal, and is recovered.
"""

import filecmp
import os
import random
import shutil
import signal
import subprocess
import threading
import time
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest

from crash import play
from crash.forks import Forks, Laid, room
from crash.invariants import is_decided
from crash.scenarios import BY_NAME, work
from support import soak

pytestmark = pytest.mark.soak

CUTS = soak.size("POWER_CUTS", test=20, full=1_000)
SEED = int(os.environ.get("MQLOG_SEED", "0"))
SECONDS = 60
IMAGE_BYTES = 32 << 20
MOUNTS = ["commit=5", "commit=1", "commit=1000"]  # seconds between two of the journal's own
BLOCKS = [4096, 1024]


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
    with room(tmp_path_factory.mktemp("images")) as folder:
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
        self.words = ("write", scenario, 0)
        name = f"{scenario}-{block_bytes}"
        laid = Laid(work(BY_NAME[scenario], 0), space / name)
        self.recording = laid.recording
        self.image = made(space / f"{name}.image", block_bytes)
        self._space = space
        with mounted(self.image) as at:
            laid.copy(at / play.STORE)

    def seconds(self, forks: Forks) -> tuple[float, float]:
        """Return how long the commit takes here until it is decided, and after that."""
        over = threading.Event()
        with mounted(self.copy(self.image, "timed")) as at, ThreadPoolExecutor(1) as pool:
            root = at / play.STORE
            forks.child(*self.words, root)
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


def test_a_power_cut_leaves_a_store_that_recovers(space: Path, forks: Forks) -> None:
    names = sorted(BY_NAME)
    cases: dict[tuple[str, int], tuple[Case, tuple[float, float]]] = {}
    left = Counter[str]()
    for number in range(CUTS):
        turn, which = divmod(number, len(names))
        key = (names[which], BLOCKS[turn % len(BLOCKS)])
        if key not in cases:
            case = Case(space, *key)
            cases[key] = (case, case.seconds(forks))
        rng = random.Random(f"{SEED} {number}")
        left[power_cut(*cases[key], forks, rng)] += 1
    soak.tell(f"{CUTS} power cuts: {dict(left)}")
    assert left["not decided"] > CUTS // 20
    assert left["in doubt"] + left["done"] > CUTS // 20


def power_cut(case: Case, seconds: tuple[float, float], forks: Forks, rng: random.Random) -> str:
    """Cut the power once, judge what is left, and return how far the commit had come.

    Most of a commit's time lies before its decision; most cuts come after it.
    """
    options, late = rng.choice(MOUNTS), rng.random() < 0.7
    moment = rng.uniform(0, 1.2 * seconds[late])
    synced = rng.uniform(0, 2 * sum(seconds))
    live = case.copy(case.image, "live")
    with mounted(live, options) as at:
        root = at / play.STORE
        process, over = os.pidfd_open(forks.child(*case.words, root)), threading.Event()

        def end() -> None:
            if late:
                wait_until_decided(root, over)
            over.wait(moment)
            kill(process)

        flush, cut_off = threading.Timer(synced, sync, [at]), threading.Thread(target=end)
        forks.go()
        flush.start()
        cut_off.start()
        ended = forks.ended()
        over.set()
        flush.cancel()
        for thread in (flush, cut_off):
            thread.join()
        os.close(process)
        cut = case.copy(live, "cut")
    assert ended in {0, -signal.SIGKILL}
    when = f"{moment:.4f} s after {'its decision' if late else 'its begin'}"
    return judged(case, cut, f"{case.words} {options}, cut {when}", ended == 0)


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
            kept = shutil.copytree(root, Path("/tmp") / f"power-cut-{os.getpid()}")
            error.add_note(f"{when}; the store: {kept}")
            raise
    return "done" if acked else "in doubt" if decided else "not decided"
