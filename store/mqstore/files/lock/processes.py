"""The processes that have a lock file open, by /proc: for messages, and instead of leases.

Nothing is opened that could disturb: an open of ``lock`` breaks a lease on it. Processes that
this one may not look at, or that run in another namespace or on another machine, are not seen.

Reference: proc(5), proc_locks(5).
"""

import os
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Final

_PROCESSES: Final = "/proc"
_LOCKS: Final = Path("/proc/locks")
_PID, _INODE = 4, 5  # fields of a line that is no waiter's


@dataclass(frozen=True, slots=True)
class Process:
    """One process; ``name`` is what ps(1) shows."""

    pid: int
    name: str

    def __str__(self) -> str:
        return f"process {self.pid} ({self.name})"


def holders(path: str) -> list[Process]:
    """Return the processes with a lock or a lease on ``path``, or else those that have it open."""
    return _lockers(path) or openers(path)


def openers(path: str) -> list[Process]:
    """Return the processes, but this one, that have the file ``path`` open."""
    try:
        status = os.stat(path)  # noqa: PTH116 - strings, as everywhere in a store
    except OSError:
        return []
    sought = status.st_dev, status.st_ino
    return [_process(pid) for pid in _pids() if pid != os.getpid() and sought in _open_in(pid)]


def is_locked(path: str) -> bool:
    """Tell whether a process, this one or another, holds a lock or a lease on the file ``path``."""
    return bool(_locks(path))


def _lockers(path: str) -> list[Process]:
    pids = {int(fields[_PID]) for fields in _locks(path)}  # -1 of a lock that no process owns
    return [_process(pid) for pid in sorted(pids) if pid > 0 and pid != os.getpid()]


def _locks(path: str) -> list[list[str]]:
    """Return the fields of each lock and lease that is held on a file, without those waited for."""
    try:
        file = os.stat(path)  # noqa: PTH116
        lines = _LOCKS.read_text(encoding="utf-8").splitlines()
    except OSError:
        return []
    major, minor = os.major(file.st_dev), os.minor(file.st_dev)
    # btrfs and overlays give files a device of major 0, and the kernel lists another: take any.
    named = f"{major:02x}:{minor:02x}:{file.st_ino}" if major else f":{file.st_ino}"
    held = (line.split() for line in lines if "->" not in line)
    return [f for f in held if len(f) > _INODE and f[_INODE].endswith(named)]


def _pids() -> list[int]:
    try:
        return sorted(int(name) for name in os.listdir(_PROCESSES) if name.isdigit())  # noqa: PTH208
    except OSError:
        return []


def _open_in(pid: int) -> Iterator[tuple[int, int]]:
    with suppress(OSError):
        for name in os.listdir(f"{_PROCESSES}/{pid}/fd"):  # noqa: PTH208
            with suppress(OSError):
                status = os.stat(f"{_PROCESSES}/{pid}/fd/{name}")  # noqa: PTH116
                yield status.st_dev, status.st_ino


def _process(pid: int) -> Process:
    try:
        return Process(
            pid,
            Path(f"{_PROCESSES}/{pid}/comm").read_text(encoding="utf-8", errors="replace").strip(),
        )
    except OSError:
        return Process(pid, "gone")
