"""One Java process: started with a log, waited for with a bound, always ended."""

import os
import signal
import subprocess
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from types import TracebackType
from typing import Final, Self

OPEN_MODULES: Final = [
    "--add-exports=java.base/jdk.internal.ref=ALL-UNNAMED",
    "--add-exports=java.base/sun.nio.ch=ALL-UNNAMED",
    "--add-opens=java.base/java.lang=ALL-UNNAMED",
    "--add-opens=java.base/java.nio=ALL-UNNAMED",
    "--add-opens=java.base/sun.nio.ch=ALL-UNNAMED",
    "--add-opens=java.base/jdk.internal.misc=ALL-UNNAMED",
]
SMALL: Final = ["-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1"]
LOG_TAIL_CHARACTERS: Final = 4_000
KILLED_SECONDS: Final = 120
"""So long the kernel may take to free what a killed broker had mapped."""
STOP_SECONDS: Final = 60
LOGBACK_CHATTER: Final = " |-"


class JvmError(Exception):
    """A Java process ended early, or did not do in time what it was waited for."""


class Jvm:
    """A running Java program whose output goes to ``home/NAME.log``.

    ``home`` is its user.home and ROCKETMQ_HOME: RocketMQ writes its own logs there. A context
    manager: leaving it kills the process if it still runs.
    """

    def __init__(self, command: Sequence[str], home: Path, name: str, *, talks: bool) -> None:
        self.name = name
        self.home = home
        self._log = home / f"{name}.log"
        self._lines: list[str] = []
        self._changed = threading.Condition()
        self._ended = False
        environment = {key: os.environ[key] for key in ("PATH", "LANG") if key in os.environ}
        errors = self._log.open("ab")
        self._process = subprocess.Popen(
            command,
            cwd=home,
            env=environment | {"ROCKETMQ_HOME": str(home), "HOME": str(home)},
            stdin=subprocess.PIPE if talks else subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=errors,
        )
        errors.close()
        self._reader = threading.Thread(target=self._read, name=f"{name} output", daemon=True)
        self._reader.start()

    @property
    def pid(self) -> int:
        """The process id."""
        return self._process.pid

    def ask(self, line: str, seconds: float) -> str:
        """Write one line, and return the next line that comes back."""
        assert self._process.stdin is not None
        with self._changed:
            before = len(self._lines)
        self._process.stdin.write(line.encode() + b"\n")
        self._process.stdin.flush()
        return self._next_line(before, "", seconds, f"an answer to {line!r}")

    def wait_for(self, text: str, seconds: float) -> None:
        """Return when a line with ``text`` was printed; JvmError when that takes too long."""
        self._next_line(0, text, seconds, repr(text))

    @contextmanager
    def frozen(self) -> Iterator[None]:
        """Let no thread of the process do anything meanwhile: its files stay as they are."""
        os.kill(self.pid, signal.SIGSTOP)
        try:
            _await_stop(self.pid)
            yield
        finally:
            os.kill(self.pid, signal.SIGCONT)

    def stop(self, seconds: float = 60) -> None:
        """Ask the process to end (SIGTERM: RocketMQ's shutdown hook) and wait for it."""
        self._process.terminate()
        self._wait(seconds)

    def finish(self, seconds: float = 60) -> None:
        """End the input of a process that talks, and wait for it."""
        assert self._process.stdin is not None
        self._process.stdin.close()
        self._wait(seconds)

    def kill(self) -> None:
        """End the process at once (SIGKILL), as a crash of the machine's process does."""
        self._process.kill()
        self._wait(KILLED_SECONDS)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if error is not None:
            error.add_note(self.log_tail())
        if self._process.poll() is None:
            self.kill()
        if self._process.stdin is not None:
            self._process.stdin.close()

    def log_tail(self) -> str:
        """Return the end of everything this process logged, for a failure's message."""
        logs = [self._log, *sorted((self.home / "logs").rglob(f"*{self.name}*.log"))]
        parts = []
        for log in logs:
            if log.is_file() and log.stat().st_size:
                lines = log.read_text(errors="replace").splitlines()
                told = "\n".join(line for line in lines if LOGBACK_CHATTER not in line)
                parts.append(f"--- {log}\n{told[-LOG_TAIL_CHARACTERS:]}")
        return "\n".join(parts)

    def logged(self, name: str) -> str:
        """Return what RocketMQ wrote into its log of that name: all, once the process has ended."""
        found = sorted((self.home / "logs").rglob(f"{name}.log"))
        return "".join(log.read_text(errors="replace") for log in found)

    def _wait(self, seconds: float) -> None:
        try:
            self._process.wait(seconds)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait(10)
            raise JvmError(f"{self.name} did not end in {seconds} s\n{self.log_tail()}") from None
        self._reader.join(10)

    def _read(self) -> None:
        assert self._process.stdout is not None
        with self._process.stdout as output, self._log.open("ab") as log:
            for line in output:
                log.write(line)
                log.flush()
                with self._changed:
                    self._lines.append(line.decode(errors="replace").rstrip("\n"))
                    self._changed.notify_all()
        with self._changed:
            self._ended = True
            self._changed.notify_all()

    def _next_line(self, start: int, text: str, seconds: float, wanted: str) -> str:
        found: list[str] = []

        def ready() -> bool:
            found[:] = [line for line in self._lines[start:] if text in line][:1]
            return bool(found) or self._ended

        with self._changed:
            self._changed.wait_for(ready, seconds)
        if not found:
            why = "ended" if self._ended else f"waited {seconds} s"
            raise JvmError(f"{self.name}: {wanted} never came ({why})\n{self.log_tail()}")
        return found[0]


def _await_stop(pid: int) -> None:
    """Return when every thread of the process is stopped: a signal takes its time."""
    end, pause = time.monotonic() + STOP_SECONDS, threading.Event()
    while not all(_is_stopped(task) for task in Path(f"/proc/{pid}/task").iterdir()):
        if time.monotonic() > end:
            raise JvmError(f"process {pid} did not stop in {STOP_SECONDS} s")
        pause.wait(0.001)


def _is_stopped(task: Path) -> bool:
    try:
        state = (task / "stat").read_text().rpartition(") ")[2][:1]
    except (FileNotFoundError, ProcessLookupError):
        return True  # It ended.
    return state in "TtZX"
