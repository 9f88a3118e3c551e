"""Processes that work on a store and are made to end in the middle of it: see forked.py."""

import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

TESTS = Path(__file__).parents[1]


class Forks:
    """The program, whose children do one thing each. A context manager."""

    def __init__(self) -> None:
        self._program = subprocess.Popen(
            [sys.executable, "-m", "crash.forked"],
            cwd=TESTS,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        assert self._line() == "ready"

    def __enter__(self) -> "Forks":
        return self

    def __exit__(self, *_: object) -> None:
        self._program.kill()
        self._program.communicate()

    def child(self, *words: object) -> int:
        """Return the process id of a child that waits to do what the words say."""
        self._tell(" ".join(map(str, words)))
        return int(self._line())

    def go(self) -> None:
        """Let the child begin."""
        self._tell("go")

    def ended(self) -> int:
        """Wait for the child's end: 0 if it did it all, minus the signal that killed it."""
        return int(self._line())

    def _tell(self, line: str) -> None:
        assert self._program.stdin is not None
        self._program.stdin.write(f"{line}\n")
        self._program.stdin.flush()

    def _line(self) -> str:
        assert self._program.stdout is not None
        return self._program.stdout.readline().strip()


@contextmanager
def room(otherwise: Path) -> Iterator[Path]:
    """Give a folder in memory where there is one, and ``otherwise`` if not."""
    memory = Path("/dev/shm")
    if not os.access(memory, os.W_OK):
        yield otherwise
        return
    with tempfile.TemporaryDirectory(dir=memory, prefix="mqlog-") as folder:
        yield Path(folder)
