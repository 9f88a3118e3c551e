"""How much a test does in `make check`, in `make test` and in `make soak`.

    STATES = soak.size("CRASH_STATES", check=200, test=1_500, full=500_000)
    for k in soak.sample(range(calls), check=5, test=20): ...

    soak.tell(f"{tested} states")

A test that does more in `make soak` carries the marker `soak`: `make soak` runs what carries it,
with MQLOG_SOAK=1. `make check` sets MQLOG_CHECK=1. MQLOG_CRASH_STATES=20000 sets that one figure,
in any of the three. A test that is for `make soak` alone is decorated with `@soak.only`.

What is sampled is sampled by a seed, so the same run is made every time: MQLOG_SAMPLE=7 takes
another sample, and MQLOG_SAMPLE=whole leaves nothing out, as `make soak` does.
"""

import itertools
import os
import random
from collections.abc import Callable, Iterable, Sequence
from typing import TypeVar

import pytest

Test = TypeVar("Test", bound=Callable[..., object])
Item = TypeVar("Item")

SOAKING = os.environ.get("MQLOG_SOAK", "0") not in {"", "0"}
"""Whether this run is `make soak`."""
CHECKING = not SOAKING and os.environ.get("MQLOG_CHECK", "0") not in {"", "0"}
"""Whether this run is `make check`."""
SAMPLE = os.environ.get("MQLOG_SAMPLE") or ("whole" if SOAKING else "1")
"""The seed of all samples, or `whole`."""
CASES = 2
"""How many cases of a parametrized test `make check` runs."""


def size(name: str, *, check: int, test: int, full: int) -> int:
    """Return how many: of MQLOG_<name> if it is set, else as this run wants it."""
    told = os.environ.get(f"MQLOG_{name}")
    if told:
        return int(told)
    return full if SOAKING else check if CHECKING else test


def sample(items: Iterable[Item], *, check: int, test: int) -> list[Item]:
    """Return so many of the items, in their order; all of them in `make soak`.

    They are spread evenly: of each stretch of the items one is drawn.
    """
    every = list(items)
    count = check if CHECKING else test
    if SAMPLE == "whole" or len(every) <= count:
        return every
    edges = [number * len(every) // count for number in range(count + 1)]
    rng = random.Random(SAMPLE)
    return [every[rng.randrange(a, b)] for a, b in itertools.pairwise(edges)]


def leave_out_cases(items: Sequence[pytest.Item]) -> list[pytest.Item]:
    """Return the cases of parametrized tests that `make check` leaves out: all but CASES of each.

    Those that carry the marker `soak` are not concerned: they say how much they do. Nor are those
    that are `not_in_check`.
    """
    if not CHECKING:
        return []
    cases: dict[str, list[pytest.Item]] = {}
    for item in items:
        is_told = item.get_closest_marker("soak") or not_in_check.mark in item.iter_markers()
        if item.nodeid.endswith("]") and not is_told:
            cases.setdefault(item.nodeid.partition("[")[0], []).append(item)
    left_out: list[pytest.Item] = []
    for of_one in cases.values():
        kept = {item.nodeid for item in sample(of_one, check=CASES, test=len(of_one))}
        left_out += [item for item in of_one if item.nodeid not in kept]
    return left_out


def header() -> str:
    """Return the line that tells what this run leaves out."""
    run = "make soak" if SOAKING else "make check" if CHECKING else "make test"
    return f"sizes: those of `{run}`; samples: MQLOG_SAMPLE={SAMPLE}"


def only(test: Test) -> Test:
    """Let a test run in `make soak` alone."""
    skipped = pytest.mark.skipif(not SOAKING, reason="for `make soak`, or MQLOG_SOAK=1")
    return pytest.mark.soak(skipped(test))


not_in_check = pytest.mark.skipif(CHECKING, reason="for `make test`")
"""Mark of a test that takes seconds and checks what changes seldom."""


def tell(figure: str) -> None:
    """Print a figure, as `pytest -s` shows it."""
    print(f"\n{figure}", flush=True)  # noqa: T201
