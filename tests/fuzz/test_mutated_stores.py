"""Thousands of damaged stores, looked at in every way: named errors or right rows, and no more.

Soak makes more of them and is guided by what they reach. A failure prints one line that does the
same mutant again.
"""

import json
import os
import re
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from fuzz import bases, mutants
from fuzz.mutant_outcome import LOOK_BEGINS, LOOK_ENDS, MutantError, look_at_mutant
from support import soak
from support.memory import folder_in_memory

pytestmark = pytest.mark.soak

MUTANTS = soak.size("fuzz_mutants", check=40, test=1_000, whole=2_000_000)
SEED = soak.SEED
TRACED = soak.size("fuzz_traced", check=0, test=8, whole=3_000)
STALLED_S = 400
FEW_BASES = ("small", "ours", "pending")
"""Enough where few mutants are made: to make all bases and look at them takes seconds."""
BASES = FEW_BASES if soak.CHECK else bases.NAMES
TRACED_BASES = bases.NAMES if soak.WHOLE else FEW_BASES
CORES = len(os.sched_getaffinity(0)) if soak.WHOLE else 1


@pytest.fixture
def memory() -> Iterator[Path]:
    """A folder in memory: thousands of stores are made in it."""
    with folder_in_memory() as folder:
        yield folder


def start(folder: Path, log: Path, prefix: tuple[str, ...] = (), **asked: object) -> "Run":
    told = {"folder": str(folder), "guided": False, "forked": 100, "seed": SEED, "bases": BASES}
    told |= asked
    path = os.pathsep.join(sys.path)
    with log.open("wb") as out, log.with_suffix(".err").open("wb") as err:
        process = subprocess.Popen(
            [*prefix, sys.executable, "-m", "fuzz.mutants", json.dumps(told)],
            env={**os.environ, "PYTHONPATH": path, "ARROW_DEFAULT_MEMORY_POOL": "system"},
            stdout=out,
            stderr=err,
        )
    return Run(process, log)


class Run:
    """A process that makes mutants, and what it told last."""

    def __init__(self, process: "subprocess.Popen[bytes]", log: Path) -> None:
        self._process = process
        self._log = log

    def wait(self) -> dict[str, int]:
        """Return the counts; fail with the line of the mutant that was wrong."""
        size, since = 0, time.monotonic()
        while self._process.poll() is None and time.monotonic() - since < STALLED_S:
            with_timeout(self._process)
            if self._log.stat().st_size != size:
                size, since = self._log.stat().st_size, time.monotonic()
        self.stop()
        last = self._tail()
        done = last[-1].removeprefix("done ") if last and last[-1].startswith("done ") else None
        if done is None or self._process.returncode:
            wrong = self._log.with_suffix(".err").read_text(errors="replace")[-2000:]
            pytest.fail(f"status {self._process.returncode}\n{wrong}\n" + "\n".join(last))
        counts: dict[str, int] = json.loads(done)
        return counts

    def stop(self) -> None:
        """End the process, whatever it does."""
        if self._process.poll() is None:
            self._process.kill()
        self._process.wait(60)

    def _tail(self) -> list[str]:
        with self._log.open("rb") as file:
            file.seek(max(0, self._log.stat().st_size - 65536))
            lines = file.read().decode(errors="replace").splitlines()
        return [line.removeprefix("at ") for line in lines[-2:]]


def with_timeout(process: "subprocess.Popen[bytes]") -> None:
    """Wait for a process for a second at most."""
    try:
        process.wait(1)
    except subprocess.TimeoutExpired:
        return


def test_a_mutant_is_a_named_error_or_right_rows(memory: Path) -> None:
    share = -(-MUTANTS // CORES)
    runs = [
        start(memory / f"{n}", memory / f"{n}.log", seed=SEED + n, mutants=share,
              guided=soak.WHOLE)
        for n in range(CORES)
    ]  # fmt: skip
    try:
        counts = [run.wait() for run in runs]
    finally:
        for run in runs:
            run.stop()
    total = {name: sum(count[name] for count in counts) for name in counts[0]}
    sys.stdout.write(f"mutants {total['mutants']}, ends {counts[0]['ends']}, kept {total['kept']}, "
          f"lines {counts[0]['lines']}, seconds {max(c['ms'] for c in counts) / 1000:.0f}, "
          f"seeds {SEED}..{SEED + CORES - 1}\n")  # fmt: skip
    assert total["mutants"] >= MUTANTS
    assert total["ends"] > 20 * CORES, "mutants that all end alike are no mutants"


@soak.again
def test_that_mutant_again(memory: Path) -> None:
    name, look, edits = json.loads(soak.AGAIN)
    look_at_mutant(bases.make(name, memory / name), edits, look)


@pytest.mark.parametrize("name", soak.sample(bases.NAMES, check=3, test=len(bases.NAMES)))
def test_a_base_is_whole_and_is_put_back(memory: Path, name: str) -> None:
    base = bases.make(name, memory / name)
    mutants.warm_up({name: base})
    with pytest.raises(MutantError, match="untouched"):
        _lying(base)
    now = {str(p.relative_to(base.root)) for p in base.root.rglob("*") if p.is_file()}
    assert now == set(base.files)


def _lying(base: bases.Base) -> None:
    """Judge a base that is said to hold each message's neighbour: the judge must see it."""
    count = base.table.num_rows
    held = {key: replace(h, row=(h.row + 1) % count) for key, h in base.held.items()}
    look_at_mutant(replace(base, held=held), [], "scan skip")


# --- nothing is read but the store --------------------------------------------------------------

_OPENED = re.compile(r"= \d+<(/[^>]*)>")
_CHANGES = re.compile(
    r"\b(unlink|rename|mkdir|rmdir|link|symlink|chmod|chown|utime|truncate|mknod|fallocate|setxattr)"
    r"\w*\("
)


@soak.not_in_check
@pytest.mark.skipif(shutil.which("strace") is None, reason="strace is not installed")
def test_a_look_opens_nothing_outside_the_store_and_nothing_for_writing(memory: Path) -> None:
    trace = memory / "trace"
    tracer = (
        "strace",
        "-f",
        "--seccomp-bpf",  # Only the calls that are traced stop the process.
        "-y",
        "-qq",
        "-e",
        "trace=%file,ftruncate,fallocate",
        "-o",
        str(trace),
    )
    run = start(
        memory / "traced", memory / "log", tracer, mutants=TRACED, forked=0, bases=TRACED_BASES
    )
    try:
        run.wait()
    finally:
        run.stop()
    looked = list(_looked(trace))
    assert sum("openat(" in line for line in looked) > TRACED
    wrong = [line for line in looked if _is_wrong(line, str(memory / "traced"))]
    assert not wrong, wrong[:5]


def _looked(trace: Path) -> Iterator[str]:
    """The system calls between the beginning and the end of a look."""
    inside = False
    with trace.open(encoding="utf-8", errors="replace") as lines:
        for line in lines:
            inside = inside or LOOK_BEGINS in line
            if inside:
                yield line
            inside = inside and LOOK_ENDS not in line


def _is_wrong(line: str, folder: str) -> bool:
    opened = _OPENED.search(line) if "openat" in line else None
    ours = re.sub(r"/copy(\.partial)?(?=[/\"<>])", "", line) != line
    if opened and opened[1].startswith(folder):
        leads_out = opened[1].startswith(tuple(f"{folder}/{n}/outside" for n in bases.NAMES))
        # Whoever holds the store is told of every open of its lock.
        leads_out = leads_out or opened[1].endswith("/store/lock")
        writes = re.search(r"O_WRONLY|O_RDWR|O_CREAT|O_TRUNC|O_APPEND", line)
        return leads_out or (bool(writes) and not ours)
    return bool(_CHANGES.search(line)) and folder in line and not ours


@pytest.mark.parametrize(
    "line",
    [
        '7 openat(5</x/small/outside>, "secret", O_RDONLY) = 6</x/small/outside/secret>',
        '7 openat(5</x/small/store>, "abort", O_WRONLY|O_CREAT, 0666) = 6</x/small/store/abort>',
        '7 unlink("/x/small/store/abort") = 0',
        '7 openat(5</x/small/store>, "lock", O_RDONLY) = 6</x/small/store/lock>',
        '7 openat(5</x/small/store>, "abort", O_RDONLY|O_TRUNC) = 6</x/small/store/abort>',
    ],
)
def test_the_tracer_catches(line: str) -> None:
    assert _is_wrong(line, "/x")


@pytest.mark.parametrize(
    "line",
    [
        '7 openat(5</x/small/store>, "checkpoint", O_RDONLY) = 6</x/small/store/checkpoint>',
        '7 openat(5</x/small>, "copy.partial/a", O_RDWR|O_CREAT) = 6</x/small/copy.partial/a>',
        '7 openat(AT_FDCWD</tmp>, "/usr/lib/x.so", O_RDONLY) = 3</usr/lib/x.so>',
    ],
)
def test_the_tracer_passes(line: str) -> None:
    assert not _is_wrong(line, "/x")
