"""Readers beside a writer that is killed now and then: whole commits, in order, never less.

Every commit rolls over to a new CommitLog file. Half of the looks are snapshots that are read
to the end, half are a stream's. The run ends when there were so many looks and kills, however
long that takes on a busy machine; `make soak` goes on for an hour.
"""

import json
import os
import random
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack, closing, contextmanager
from pathlib import Path

import pytest

from support import soak
from support.memory import folder_in_memory
from support.victim import Victim

pytestmark = pytest.mark.soak

SECONDS = soak.size("beside_seconds", check=0, test=0, whole=3_600)
LOOKS = soak.size("beside_looks", check=2, test=20, whole=1_000)
"""So many reads, and so many looks of streams, by each reader."""
KILLS = soak.size("beside_kills", check=1, test=2, whole=100)
FILES = soak.size("beside_files", check=1, test=5, whole=1_000)
READERS = 8 if soak.WHOLE else 1 if soak.CHECK else 2
SEED = soak.SEED
LATE_S = 600


@contextmanager
def process(*args: object) -> "Iterator[subprocess.Popen[str]]":
    started = subprocess.Popen(
        [sys.executable, "-m", "fuzz.beside", *map(str, args)],
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
        stdin=subprocess.PIPE,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
    )
    with started:
        try:
            yield started
        finally:
            started.kill()


class Reader:
    """A process that looks until its standard input ends, and notes what it counted."""

    def __init__(self, folder: Path, seed: int, stack: ExitStack) -> None:
        self._counts = folder / f"counts-{seed}.json"
        self._process = stack.enter_context(process("read", folder, seed, self._counts))

    def counts(self) -> Counter[str]:
        """What it counted so far. Fails if it ended: it saw what it must not."""
        if self._process.poll() is not None:
            pytest.fail(f"{soak.header()}\n{self._process.communicate()[1][-3000:]}")
        return self._noted()

    def end(self) -> Counter[str]:
        _, err = self._process.communicate(timeout=LATE_S)
        assert self._process.returncode == 0, f"{soak.header()}\n{err[-3000:]}"
        return self._noted()

    def _noted(self) -> Counter[str]:
        return Counter(json.loads(self._counts.read_text()) if self._counts.exists() else {})


def log_files(folder: Path) -> int:
    return sum(1 for _ in folder.glob("store-*/commitlog/*"))


def one_writer(folder: Path, rng: random.Random) -> None:
    """Let a writer commit for a while, then kill it."""
    before = log_files(folder)
    command = [sys.executable, "-m", "fuzz.beside", "write", folder]
    writer = Victim(command, folder / "writer.log", {"PYTHONPATH": os.pathsep.join(sys.path)})
    writer.start()
    with closing(writer):
        writer.until(lambda: log_files(folder) > before)
        writer.pause(rng.uniform(0.1, 3 if soak.WHOLE else 0.5))


def test_readers_see_whole_commits_beside_a_writer_that_is_killed() -> None:
    rng = random.Random(SEED)
    with folder_in_memory() as folder:
        begun, kills = time.monotonic(), 0
        with ExitStack() as stack:
            readers = [Reader(folder, SEED + n, stack) for n in range(READERS)]

            def is_enough() -> bool:
                counts = [reader.counts() for reader in readers]
                looked = min(min(count["reads"], count["looks"]) for count in counts)
                many = kills >= KILLS and log_files(folder) >= FILES and looked >= LOOKS
                return many and time.monotonic() - begun >= SECONDS

            while not is_enough():
                assert time.monotonic() - begun < SECONDS + LATE_S, "too few looks or commits"
                one_writer(folder, rng)
                kills += 1
            total: Counter[str] = sum((reader.end() for reader in readers), Counter())
        files = log_files(folder)
    soak.tell(f"{dict(total)}, CommitLog files {files}, kills {kills}, seed {SEED}")
