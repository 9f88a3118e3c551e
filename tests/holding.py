"""A stand-in for a broker, as far as locks go: another process that has ``lock`` open."""

import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

# Opens `lock` as the constructor of DefaultMessageStore does (new RandomAccessFile(file, "rw")),
# then takes it as its start does (FileChannel.tryLock(0, 1, false)), each when it is told to.
_BROKER = """
import fcntl, sys
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
"""


class LockUser:
    """The other process."""

    def __init__(self, path: Path) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-c", _BROKER, str(path)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        self.pid = self._process.pid

    def ask(self, what: str) -> None:
        """Begin to ``open`` or to ``lock``: the first may have to wait."""
        assert self._process.stdin is not None
        self._process.stdin.write(f"{what}\n")
        self._process.stdin.flush()

    def answer(self) -> str:
        """Wait for what came of it: opened, taken or refused."""
        assert self._process.stdout is not None
        return self._process.stdout.readline().strip()

    def do(self, what: str) -> str:
        """Ask, and wait for the answer."""
        self.ask(what)
        return self.answer()

    def leave(self) -> None:
        """End the process, whatever it is waiting for."""
        self._process.kill()
        self._process.communicate()


@contextmanager
def lock_user(path: Path) -> Iterator[LockUser]:
    """Run such a process while the block runs."""
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
