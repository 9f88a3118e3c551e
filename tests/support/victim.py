"""A program that is killed with -9 and started again: a driver with its JVM, a query, a writer.

victim = Victim([sys.executable, program, store], tmp_path / "victim.log")
victim.start()
with closing(victim):
    victim.until(lambda: begun(target) > 3)
    victim.kill()
    victim.start()
"""

import os
import signal
import subprocess
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Final

import pytest

from support.processes import stats

LATE_S: Final = 600.0
"""So long a program may take for one step, on whatever machine."""


class Victim:
    """The program, in a process group of its own that writes to a log."""

    late_s = LATE_S

    def __init__(
        self, command: Sequence[object], log: Path, more: Mapping[str, str] | None = None
    ) -> None:
        self.log = log
        self._command = list(map(str, command))
        self._environment = os.environ | dict(more or {})
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        """Start it, for the first time or again."""
        with self.log.open("ab") as told:
            self._process = subprocess.Popen(
                self._command,
                env=self._environment,
                stdin=subprocess.DEVNULL,
                stdout=told,
                stderr=told,
                start_new_session=True,
            )

    @property
    def process(self) -> "subprocess.Popen[bytes]":
        """The process that was started last."""
        assert self._process is not None
        return self._process

    def until(self, is_so: Callable[[], object], look_s: float = 0.005) -> None:
        """Return when it is so; fail if the program ends by itself, or takes too long."""
        deadline = time.monotonic() + self.late_s
        while not is_so():
            assert time.monotonic() < deadline, f"waited {self.late_s} s; {self.told()}"
            self.pause(look_s)

    def pause(self, seconds: float) -> None:
        """Let it work for so long; fail if it ends by itself."""
        with suppress(subprocess.TimeoutExpired):
            code = self.process.wait(seconds)
            if code != -signal.SIGKILL:
                pytest.fail(f"it ended by itself with {code}; {self.told()}")
            threading.Event().wait(seconds)  # It is being killed.

    def end(self) -> int:
        """Wait until it ends by itself; return its exit code."""
        try:
            return self.process.wait(self.late_s)
        except subprocess.TimeoutExpired:
            pytest.fail(f"it does not end in {self.late_s} s; {self.told()}")

    def send(self, number: signal.Signals) -> None:
        """Send a signal to all of its process group: SIGSTOP, SIGCONT."""
        os.killpg(self.process.pid, number)

    def kill(self) -> None:
        """Kill it, with its JVM. Its Python workers find out by themselves."""
        if self._process is not None:
            with suppress(ProcessLookupError):
                os.killpg(self._process.pid, signal.SIGKILL)
            self._process.wait(self.late_s)

    close = kill

    def told(self) -> str:
        """Return the end of its log."""
        return self.log.read_text(errors="replace")[-4000:]


def begun(target: Path) -> int:
    """Return how many batches a query has begun that keeps its checkpoint in ``target``."""
    return _batches(target, "offsets")


def done(target: Path) -> int:
    """Return how many batches the query has done."""
    return _batches(target, "commits")


def _batches(target: Path, kind: str) -> int:
    """Spark notes each, and keeps the last hundred notes."""
    noted = (target / "checkpoint" / kind).glob("[0-9]*")
    return max((int(path.name) + 1 for path in noted), default=0)


def parents() -> dict[int, int]:
    """Return all processes of the machine, each with its parent."""
    return {pid: int(fields[1]) for pid, fields in stats().items()}


def command_of(pid: int) -> bytes:
    """Return the command line of a process, empty if it has ended."""
    with suppress(OSError):
        return Path(f"/proc/{pid}/cmdline").read_bytes()
    return b""


def send(pid: int, number: signal.Signals) -> bool:
    """Send a process a signal; return whether it was still there."""
    with suppress(ProcessLookupError):
        os.kill(pid, number)
        return True
    return False
