"""A commit that is killed in the middle: python -m support.killed_commit STORE STATE COUNT.

It appends COUNT rows to a store. STATE says when it is killed: as soon as the commit is decided,
while its records are there and hidden, or as soon as it is published. `leave` runs it.
"""

import os
import signal
import subprocess
import sys
from pathlib import Path

from mqstore.files import durable
from support.writing import SMALL, append, rows

APP_ID, VERSION = "killed", 7
_PENDING = "txn/pending.json"
_SECONDS = 60


def leave(root: Path, state: str, count: int = 3) -> None:
    """Leave a commit of so many rows in that state, keyed by APP_ID and VERSION."""
    command = [sys.executable, "-m", __spec__.name, str(root), state, str(count)]
    path = str(Path(__file__).parents[1])
    env = {**os.environ, "PYTHONPATH": path}
    done = subprocess.run(command, env=env, check=False, capture_output=True, timeout=_SECONDS)
    assert done.returncode == -signal.SIGKILL, done.stderr.decode()


def main(root: str, state: str, count: int) -> None:
    replace, stages = durable.replace, iter(("decided", "published"))
    write_at = durable.write_at

    def replace_and_die(source: str, target: str) -> None:
        replace(source, target)
        if target.endswith(_PENDING) and next(stages) == state:
            os.kill(os.getpid(), signal.SIGKILL)

    def write_at_or_die(fd: int, data: bytes | memoryview, position: int) -> None:
        if state == "hidden" and data == bytes([0xDA]):  # Of the first magic: see publish.
            os.kill(os.getpid(), signal.SIGKILL)
        write_at(fd, data, position)

    durable.replace, durable.write_at = replace_and_die, write_at_or_die
    append(Path(root), rows(count), **SMALL, txn_app_id=APP_ID, txn_version=VERSION)


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], int(sys.argv[3]))
