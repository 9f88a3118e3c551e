"""What a piece of work needs in memory: run in a process of its own, pages of files left out."""

import gc
import multiprocessing
from collections.abc import Callable
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

_MIB = 1 << 20
_KIB = 1 << 10
_FORGET_PEAK = "5"


def alone(work: Callable[..., Any], *arguments: object) -> tuple[float, Any]:
    """Return the MiB that a process of its own needed for ``work``, and what that returned.

    By how much its largest resident size exceeds what it was when everything was imported.
    """
    context = multiprocessing.get_context("spawn")
    ours, theirs = context.Pipe(duplex=False)
    process = context.Process(target=_measured, args=(theirs, work, arguments))
    process.start()
    theirs.close()
    found: tuple[float, Any] = ours.recv()
    process.join()
    return found


def _measured(pipe: Connection, work: Callable[..., Any], arguments: tuple[Any, ...]) -> None:
    gc.collect()
    # A new process begins with the peak of the one that made it: forget that (proc(5)).
    Path("/proc/self/clear_refs").write_text(_FORGET_PEAK, encoding="utf-8")
    before = _peak()
    found = work(*arguments)
    pipe.send(((_peak() - before) / _MIB, found))


def _peak() -> int:
    lines = Path("/proc/self/status").read_text(encoding="utf-8").splitlines()
    (peak,) = (line.split()[1] for line in lines if line.startswith("VmHWM:"))
    return int(peak) * _KIB
