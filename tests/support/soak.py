"""How much a test does: a small sample, a sample, or all of it.

    STATES = soak.size("crash_states", check=200, test=1_500, whole=500_000)
    for k in soak.sample(range(calls), check=5, test=20): ...

    soak.tell(f"{tested} states")

Three variables say how much:

MQLOG_SAMPLE=check, test or whole: as `make check`, `make test` and `make soak` set it. A number
    behind it is the seed of all that is drawn: whole:7. The number alone, 7, is test:7.
MQLOG_FACTOR=0.1: a tenth of every size and of every sample.
MQLOG_SIZE=crash_states=20000,model_runs=50: these sizes, whatever the other two say.

A test that does more in `make soak` carries the marker `soak`: `make soak` runs what carries it. A
test that is for `make soak` alone is decorated with `@soak.only`. The same seed makes the same run.
"""

import itertools
import os
import random
from collections.abc import Callable, Iterable, Sequence
from typing import TypeVar

import pytest

Test = TypeVar("Test", bound=Callable[..., object])
Item = TypeVar("Item")


def _read_sample(text: str) -> tuple[str, int]:
    """Return the kind and the seed that MQLOG_SAMPLE names. Raises ValueError."""
    kind, _, seed = f"test:{text}".partition(":") if text.isdigit() else text.partition(":")
    if kind not in {"check", "test", "whole"}:
        raise ValueError(f"MQLOG_SAMPLE={text}: it is check, test or whole, or a seed")
    return kind, int(seed or 1)


def _read_sizes(text: str) -> dict[str, int]:
    """Return the sizes that MQLOG_SIZE names. Raises ValueError."""
    pairs = (pair.partition("=") for pair in text.split(",") if pair)
    return {name: int(count) for name, _, count in pairs}


KIND, SEED = _read_sample(os.environ.get("MQLOG_SAMPLE") or "test")
WHOLE = KIND == "whole"
"""Whether this run is `make soak`."""
CHECK = KIND == "check"
"""Whether this run is `make check`."""
FACTOR = float(os.environ.get("MQLOG_FACTOR") or 1)
SIZES = _read_sizes(os.environ.get("MQLOG_SIZE", ""))
AGAIN = os.environ.get("MQLOG_AGAIN", "")
"""The one state that is tried again: a test that fails prints this variable."""
CASES = 2
"""How many cases of a parametrized test `make check` runs."""
_NAMES: set[str] = set()


def size(name: str, *, check: int, test: int, whole: int) -> int:
    """Return how many this run wants, or how many MQLOG_SIZE says for the name."""
    _NAMES.add(name)
    if name in SIZES:
        return SIZES[name]
    return _scaled(whole if WHOLE else check if CHECK else test)


def sample(items: Iterable[Item], *, check: int, test: int) -> list[Item]:
    """Return so many of the items, in their order; all of them in `make soak`.

    They are spread evenly: of each stretch of the items one is drawn.
    """
    every = list(items)
    count = _scaled(check if CHECK else test)
    if WHOLE or len(every) <= count:
        return every
    edges = [number * len(every) // count for number in range(count + 1)]
    rng = random.Random(str(SEED))
    return [every[rng.randrange(a, b)] for a, b in itertools.pairwise(edges)]


def _scaled(count: int) -> int:
    return max(1, round(count * FACTOR)) if count else 0


def unknown_sizes() -> set[str]:
    """Return the names in MQLOG_SIZE that no test which was imported has asked for."""
    return set(SIZES) - _NAMES


def leave_out_cases(items: Sequence[pytest.Item]) -> list[pytest.Item]:
    """Return the cases of parametrized tests that `make check` leaves out: all but CASES of each.

    Those that carry the marker `soak` are not concerned: they say how much they do. Nor are those
    that are `not_in_check`.
    """
    if not CHECK:
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
    """Return the variables that make this run again."""
    sizes = ",".join(f"{name}={count}" for name, count in SIZES.items())
    told = {"SAMPLE": f"{KIND}:{SEED}", "FACTOR": f"{FACTOR:g}" * (FACTOR != 1), "SIZE": sizes}
    return " ".join(f"MQLOG_{name}={text}" for name, text in told.items() if text)


def only(test: Test) -> Test:
    """Let a test run in `make soak` alone."""
    return pytest.mark.soak(only_whole(test))


only_whole = pytest.mark.skipif(not WHOLE, reason="for `make soak`")
"""Mark of a case that runs in `make soak` alone."""
not_in_check = pytest.mark.skipif(CHECK, reason="for `make test`")
"""Mark of a test that takes seconds and checks what changes seldom."""
again = pytest.mark.skipif(not AGAIN, reason="MQLOG_AGAIN names no state")
"""Mark of a test that tries the state of MQLOG_AGAIN again."""


def tell(figure: str) -> None:
    """Print a figure, as `pytest -s` shows it."""
    print(f"\n{figure}", flush=True)  # noqa: T201
