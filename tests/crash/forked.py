"""Commits and recoveries in forks of a program that has imported all they need: forked.py.

A line `write SCENARIO SEED ROOT` or `recover ROOT` makes a child, whose process id is printed and
which waits; the line `go` lets it work, and prints how it ended: 0, a number, or minus a signal.
`write-until N SCENARIO SEED ROOT` is a write that is killed before its change number N;
`point ACT ROOT` is one of snapshot_copy.point_runs.
"""

import os
import signal
import sys
import tempfile
import traceback
import warnings
from pathlib import Path

from crash.scenarios import BY_NAME, work
from mqstore.write.recover import RecoverSettings, recover
from snapshot_copy.point_runs import ACTS, prepared
from support.dying import before_each_change


def main() -> None:
    warnings.simplefilter("ignore")  # What was imported has threads, which a fork does not need.
    with tempfile.TemporaryDirectory() as folder:  # What is imported late is imported now.
        what = work(BY_NAME["same-file"], 0)
        what.lay_out(Path(folder, "store"))
        what.run(Path(folder, "store"))
        recover(Path(folder, "store"), RecoverSettings())
        for name, act in ACTS.items():
            prepared(Path(folder, name))
            act(Path(folder, name))
    _tell("ready")
    for line in sys.stdin:
        gate, opener = os.pipe()
        child = os.fork()
        if child == 0:
            os.close(opener)
            os.read(gate, 1)
            _exit_with(line.split())
        os.close(gate)
        _tell(child)
        sys.stdin.readline()
        os.close(opener)
        _, status = os.waitpid(child, 0)
        _tell(os.waitstatus_to_exitcode(status))


def _tell(what: object) -> None:
    sys.stdout.write(f"{what}\n")
    sys.stdout.flush()


def _exit_with(words: list[str]) -> None:
    status = 1
    try:
        _do(*words)
        status = 0
    except BaseException:
        traceback.print_exc()
        raise
    finally:
        os._exit(status)


def _do(what: str, *arguments: str) -> None:
    if what.startswith("write"):
        *until, scenario, seed, root = arguments
        last = int(until[0]) if until else -1

        def die_at_last(number: int, _: str) -> None:
            if number == last:
                os.kill(os.getpid(), signal.SIGKILL)

        with before_each_change(die_at_last):
            work(BY_NAME[scenario], int(seed)).run(Path(root))
    elif what == "point":
        ACTS[arguments[0]](Path(arguments[1]))
    else:
        recover(arguments[0], RecoverSettings())


if __name__ == "__main__":
    main()
