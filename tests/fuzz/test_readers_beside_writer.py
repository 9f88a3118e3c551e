"""Readers beside a writer that is killed now and then: whole commits, in order, never less.

Every commit rolls over to a new CommitLog file. Half of the looks are snapshots that are read
to the end, half are a stream's.
"""

import json
import os
import random
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest

from support import soak

pytestmark = pytest.mark.soak

SECONDS = soak.size("BESIDE_SECONDS", test=30, full=3_600)
READERS = 2 if not soak.SOAKING else 8
SEED = int(os.environ.get("MQLOG_BESIDE_SEED", "1"))
LATE_S = 120


@contextmanager
def process(*args: object) -> "Iterator[subprocess.Popen[str]]":
    started = subprocess.Popen(
        [sys.executable, "-m", "fuzz.beside", *map(str, args)],
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    with started:
        try:
            yield started
        finally:
            started.kill()


def counts_of(running: "subprocess.Popen[str]") -> Counter[str]:
    out, err = running.communicate(timeout=SECONDS + LATE_S)
    assert running.returncode == 0, f"MQLOG_BESIDE_SEED={SEED}\n{err[-3000:]}"
    return Counter(json.loads(out.splitlines()[-1]))


def log_files(folder: Path) -> int:
    return sum(1 for _ in folder.glob("store-*/commitlog/*"))


def one_writer(folder: Path, seconds: float, rng: random.Random) -> bool:
    """Let a writer commit for a while, then kill it; tell whether that came to pass."""
    before, end = log_files(folder), time.monotonic() + LATE_S
    with process("write", folder, seconds) as writer:
        while log_files(folder) == before and writer.poll() is None and time.monotonic() < end:
            ended_within(writer, 0.05)
        ended = ended_within(writer, min(seconds, rng.uniform(0.1, 3)))
        writer.kill()
        assert writer.wait(LATE_S) in {0, -9}, writer.stderr and writer.stderr.read()
        return not ended


def ended_within(running: "subprocess.Popen[str]", seconds: float) -> bool:
    try:
        running.wait(seconds)
    except subprocess.TimeoutExpired:
        return False
    return True


def test_readers_see_whole_commits_beside_a_writer_that_is_killed() -> None:
    rng = random.Random(SEED)
    shared = Path("/dev/shm")
    with TemporaryDirectory(
        "", "mqlog-fuzz-", shared if os.access(shared, os.W_OK) else None
    ) as folder:
        end = time.monotonic() + SECONDS
        kills = 0
        with ExitStack() as stack:
            running = [
                stack.enter_context(process("read", folder, SECONDS, SEED + n))
                for n in range(READERS)
            ]
            while (left := end - time.monotonic()) > 0:
                kills += one_writer(Path(folder), left, rng)
            total: Counter[str] = sum((counts_of(one) for one in running), Counter())
        files = log_files(Path(folder))
    sys.stdout.write(f"{dict(total)}, CommitLog files {files}, kills {kills}, seed {SEED}\n")
    assert min(total["reads"], total["looks"]) > 10
    assert files > 10
    assert kills
