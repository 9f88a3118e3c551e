"""Processes that work on a store and are made to end in the middle of it: see forked.py."""

import shutil
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

from crash import play
from crash.disk import Passing, standing_in
from crash.invariants import Expected
from crash.scenarios import APP, Work
from support.writing import held

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


class Laid:
    """The store of a scenario, made once and copied, and how the commit on it goes well."""

    def __init__(self, what: Work, base: Path) -> None:
        self._store = base / "laid" / play.STORE
        self._store.parent.mkdir(parents=True)
        what.lay_out(self._store)
        root = base / "run" / play.STORE
        self.copy(root)
        before = play.held_before(root)
        with standing_in(Passing()):
            what.run(root)
        expected = Expected.of(before, held(root), APP, what.shape.version)
        recorded = play.record(what, base / "recorded")
        self.recording = replace(recorded, expected=expected, with_ids=False)

    def copy(self, root: Path) -> None:
        """Make another one; where the commit makes the store, only the folder it will be in."""
        root.parent.mkdir(parents=True, exist_ok=True)
        if self._store.exists():
            shutil.copytree(self._store, root)
