"""Children of forked.py that are killed at one system call, by strace, as they enter it."""

import re
import shutil
import subprocess
import threading
from collections import Counter
from pathlib import Path
from typing import NamedTuple

from crash.forks import Forks

SECONDS = 60
# Calls that change something whatever they are given; and others, by what they are given.
CHANGING = (
    *("write", "pwrite64", "writev", "pwritev", "pwritev2", "ftruncate", "truncate", "fallocate"),
    *("fsync", "fdatasync", "sync_file_range", "link", "linkat", "symlink", "symlinkat"),
    *("rename", "renameat", "renameat2", "unlink", "unlinkat", "mkdir", "mkdirat", "rmdir"),
    *("preadv", "preadv2"),  # Into a mapping: see durable.WriteMapping.
    *("chmod", "fchmod", "fchmodat", "chown", "fchown", "lchown", "fchownat", "copy_file_range"),
)
BY_ARGUMENT = {
    "open": "O_CREAT|O_TRUNC",
    "openat": "O_CREAT|O_TRUNC",
    "fcntl": "F_OFD_SETLK|F_SETLEASE|F_SETOWN|F_SETSIG",
}


class Call(NamedTuple):
    """The k-th call of that name since the process began to work, counted from 1."""

    name: str
    k: int


class Killed:
    """A program whose children are killed at one call each."""

    def __init__(self, forks: Forks, folder: Path) -> None:
        self._forks = forks
        self._trace = folder / "trace"
        folder.mkdir()

    def calls(self, *words: object) -> list[Call]:
        """Let a child do it all, and return the calls that change something."""
        assert self._run(words, "-y", "-o", str(self._trace)) == 0
        counted, found = Counter[str](), []
        for name, given in re.findall(r"^(?:\d+ +)?(\w+)\((.*)", self._trace.read_text(), re.M):
            counted[name] += 1
            if name in CHANGING or re.search(BY_ARGUMENT.get(name, "^$"), given):
                found.append(Call(name, counted[name]))
        return found

    def kill(self, call: Call, *words: object) -> None:
        """Let a child do it up to that call."""
        inject = f"inject={call.name}:signal=KILL:when={call.k}"
        ended = self._run(words, "-o", "/dev/null", "-e", f"trace={call.name}", "-e", inject)
        assert ended == -9, f"{words} was not killed at {call}: {ended}"

    def _run(self, words: tuple[object, ...], *options: str) -> int:
        pid = self._forks.child(*words)
        command = ["strace", "-f", "-p", str(pid), *options]
        with subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as strace:
            limit = threading.Timer(SECONDS, strace.kill)
            limit.start()
            assert strace.stderr is not None
            told = strace.stderr.readline()
            assert "attached" in told, told
            self._forks.go()
            ended = self._forks.ended()
            strace.stderr.read()
            limit.cancel()
        return ended


def can_trace() -> bool:
    """Tell whether strace is there, and may attach to a process."""
    if shutil.which("strace") is None:
        return False
    with subprocess.Popen(["cat"], stdin=subprocess.PIPE) as other:
        command = ["strace", "-p", str(other.pid)]
        with subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as strace:
            limit = threading.Timer(SECONDS, strace.kill)
            limit.start()
            assert strace.stderr is not None
            told = strace.stderr.readline()  # It says that it attached, or why not and ends.
            other.kill()
            strace.stderr.read()
            limit.cancel()
    return "attached" in told
