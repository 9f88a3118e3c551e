"""A store whose commit was killed: decided, hidden or published.

`leave` has a child of a program do the commit that has imported all that it needs: an
interpreter of its own for each commit would take most of a test's time. The program is this
module: python -m support.killed_commit. It reads a line `ROOT STATE COUNT` as JSON, and prints how
the child ended: 0, a number, or minus a signal.
"""

import atexit
import json
import os
import signal
import subprocess
import sys
import tempfile
import traceback
import warnings
from functools import cache
from pathlib import Path

from mqstore.files.base import durable
from support.writing import SMALL, append, rows

APP_ID, VERSION = "killed", 7
_PENDING = "txn/pending.json"


def leave(root: Path, state: str, count: int = 3) -> None:
    """Leave a commit of so many rows in that state, keyed by APP_ID and VERSION.

    The state says when it is killed: as soon as the commit is `decided`, while its records are
    there and `hidden`, or as soon as it is `published`.
    """
    program = _program()
    assert program.stdin is not None
    assert program.stdout is not None
    program.stdin.write(f"{json.dumps([str(root), state, count])}\n")
    program.stdin.flush()
    ended = program.stdout.readline()
    assert ended == f"{-signal.SIGKILL}\n", f"{state}: the commit ended with {ended}"


@cache
def _program() -> "subprocess.Popen[str]":
    program = subprocess.Popen(
        [sys.executable, "-m", __name__],
        cwd=Path(__file__).parents[1],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    atexit.register(program.communicate)  # It ends with its standard input.
    return program


def main() -> None:
    warnings.simplefilter("ignore")  # What was imported has threads, which a fork does not need.
    with tempfile.TemporaryDirectory() as folder:  # What is imported late is imported now.
        append(Path(folder) / "store", rows(1), **SMALL)
    for line in sys.stdin:
        root, state, count = json.loads(line)
        child = os.fork()
        if child == 0:
            _commit(root, state, count)
        _, status = os.waitpid(child, 0)
        sys.stdout.write(f"{os.waitstatus_to_exitcode(status)}\n")
        sys.stdout.flush()


def _commit(root: str, state: str, count: int) -> None:
    """Commit, and be killed; end with 1 if something is wrong, with 0 if nothing killed it."""
    signal.alarm(60)
    status = 1
    try:
        _die_at(state)
        append(Path(root), rows(count), **SMALL, txn_app_id=APP_ID, txn_version=VERSION)
        status = 0
    except BaseException:
        traceback.print_exc()
        raise
    finally:
        os._exit(status)


def _die_at(state: str) -> None:
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


if __name__ == "__main__":
    main()
