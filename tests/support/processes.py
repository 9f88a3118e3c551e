"""Other processes that want a store: a program of the test's, and a stand-in for a broker."""

import os
import select
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Final

SECONDS: Final = 60
"""No other process lives longer unless asked to, and nothing is waited for longer."""

# Opens `lock` as the constructor of DefaultMessageStore does (new RandomAccessFile(file, "rw")),
# reads all there is as its load does, then takes the lock as its start does
# (FileChannel.tryLock(0, 1, false)), each when it is told to.
_BROKER: Final = """
import fcntl, hashlib, pathlib, sys
root = pathlib.Path(sys.argv[1]).parent
for line in sys.stdin:
    if line == "open\\n":
        file = open(sys.argv[1], "r+b")
        print("opened", flush=True)
    elif line == "lock\\n":
        try:
            fcntl.lockf(file, fcntl.LOCK_EX | fcntl.LOCK_NB, 1, 0, 0)
            print("taken", flush=True)
        except OSError:
            print("refused", flush=True)
    elif line == "load\\n":
        digest = hashlib.sha256()
        for path in sorted(root.rglob("*")):
            if path.relative_to(root).parts[0] not in {".mqlog", "lock"}:
                digest.update(f"{path} {path.is_dir()}".encode())
                digest.update(b"" if path.is_dir() else path.read_bytes())
        print(digest.hexdigest(), flush=True)
    elif line == "unlock\\n":
        fcntl.lockf(file, fcntl.LOCK_UN, 1, 0, 0)
        print("unlocked", flush=True)
"""


class Program:
    """A Python program in a process group of its own, which is killed when its time is up."""

    def __init__(self, script: str, *arguments: object, seconds: float = SECONDS) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-c", script, *map(str, arguments)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            start_new_session=True,
        )
        self.pid = self._process.pid
        self._timer = threading.Timer(seconds, self._kill)
        self._timer.start()

    def tell(self, line: str = "") -> None:
        """Send it a line."""
        assert self._process.stdin is not None
        self._process.stdin.write(f"{line}\n")
        self._process.stdin.flush()

    def line(self) -> str:
        """Wait for a line from it; empty if it ended, or had to be ended."""
        assert self._process.stdout is not None
        return self._process.stdout.readline().strip()

    def has_told(self) -> bool:
        """Tell whether it has written anything that was not read."""
        assert self._process.stdout is not None
        return bool(select.select([self._process.stdout], [], [], 0)[0])

    def end(self) -> int:
        """Wait for its end, and return its exit status."""
        return self._process.wait(SECONDS)

    def leave(self) -> None:
        """Kill it, and all that it started."""
        self._timer.cancel()
        self._kill()
        self._process.communicate()

    def _kill(self) -> None:
        with suppress(ProcessLookupError):
            os.killpg(self.pid, signal.SIGKILL)


class LockUser(Program):
    """What a broker does with its lock file, one step at a time."""

    def __init__(self, path: Path) -> None:
        super().__init__(_BROKER, path)

    def do(self, what: str) -> str:
        """Have it ``open`` (which may have to wait), ``load``, ``lock`` or ``unlock``."""
        self.tell(what)
        return self.line()


@contextmanager
def running(script: str, *arguments: object, seconds: float = SECONDS) -> Iterator[Program]:
    """Run a program while the block runs, and no longer than so many seconds."""
    program = Program(script, *arguments, seconds=seconds)
    try:
        yield program
    finally:
        program.leave()


@contextmanager
def lock_user(path: Path) -> Iterator[LockUser]:
    """Run the stand-in for a broker while the block runs."""
    user = LockUser(path)
    try:
        yield user
    finally:
        user.leave()


@contextmanager
def held_by_another(path: Path) -> Iterator[LockUser]:
    """Let another process hold the file ``path`` as a running broker does."""
    path.touch()
    with lock_user(path) as user:
        assert user.do("open") == "opened"
        assert user.do("lock") == "taken"
        yield user


def until(is_so: Callable[[], bool], *, pause_s: float = 0.002) -> None:
    """Return when it is so. ``pause_s`` lies between two looks: longer where a look costs much."""
    end = time.monotonic() + SECONDS
    while not is_so():
        assert time.monotonic() < end, "waited in vain"
        time.sleep(pause_s)


def stats() -> dict[int, list[str]]:
    """Return the processes of the machine, each with the fields of its ``stat`` after the name.

    One that ends meanwhile is left out.
    """
    found = {}
    for pid in map(int, filter(str.isdecimal, os.listdir("/proc"))):  # noqa: PTH208
        with suppress(OSError):
            told = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8", errors="replace")
            found[pid] = told.rpartition(")")[2].split()
    return found


def lines_about(path: Path) -> list[str]:
    """Return the kernel's list of locks and leases on a file."""
    inode = path.stat().st_ino
    return [
        line
        for line in Path("/proc/locks").read_text(encoding="utf-8").splitlines()
        if f":{inode} " in line
    ]


def is_waited_for(path: Path) -> bool:
    """Tell whether somebody waits in open(2) for the lease on a file."""
    return any("BREAKING" in line for line in lines_about(path))
