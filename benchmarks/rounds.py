"""Things compared in alternating runs: what is slow about a minute is slow for all of them.

Each round runs every side once, in turn; first rounds, which are not counted, warm them up.
A line keeps the seconds of every round, so that a ratio can be taken round by round.
"""

import json
import os
import statistics
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from benchmarks.facts import cpu_seconds, facts, load

ROUNDS = int(os.environ.get("MQLOG_BENCH_ROUNDS", "5"))


@dataclass(frozen=True, slots=True)
class Timed:
    """What a side that keeps its own time found: rows, and the seconds they took."""

    rows: int
    seconds: float


@dataclass(frozen=True, slots=True)
class Side:
    """One of the things compared: ``work`` returns how many rows it saw, which must be ``rows``."""

    name: str
    work: Callable[[], int | Timed]
    rows: int
    before: Callable[[], None] | None = None
    """What makes ready for it, which is not counted."""


def compare(
    bench: str,
    case: str,
    sides: Sequence[Side],
    *,
    rounds: int = ROUNDS,
    warm: int = 1,
    found: Callable[[], dict[str, Any]] | None = None,
    **shape: Any,
) -> dict[str, Any]:
    """Run the sides in turn, print one JSON line, and return it.

    ``warm`` rounds come first and are not counted. The line also has what ``found`` returns after
    the last round.
    """
    before = load()
    seconds: dict[str, list[float]] = {side.name: [] for side in sides}
    busy: dict[str, list[float]] = {side.name: [] for side in sides}
    for number in range(warm + rounds):
        for side in sides:
            taken, worked = _run(side)
            if number >= warm:
                seconds[side.name].append(round(taken, 5))
                busy[side.name].append(worked)
    line = {
        "bench": bench,
        "case": case,
        **shape,
        "sides": {side.name: _summary(side, seconds[side.name], busy[side.name]) for side in sides},
        **(found() if found else {}),
        "load": [before, load()],
        **facts(),
    }
    print(json.dumps(line), flush=True)
    return line


def _run(side: Side) -> tuple[float, float]:
    if side.before:
        side.before()
    begin_busy, begin = cpu_seconds(), time.perf_counter()
    done = side.work()
    seconds = time.perf_counter() - begin
    if isinstance(done, Timed):
        done, seconds = done.rows, done.seconds
    if done != side.rows:
        raise AssertionError(f"{side.name} saw {done} rows of {side.rows}")
    return seconds, cpu_seconds() - begin_busy


def _summary(side: Side, seconds: list[float], busy: list[float]) -> dict[str, Any]:
    median = statistics.median(seconds)
    return {
        "rows": side.rows,
        "rowsPerSecond": round(side.rows / median),
        "cpuMicroseconds": round(statistics.median(busy) / side.rows * 1e6, 3),
        "seconds": seconds,
    }
