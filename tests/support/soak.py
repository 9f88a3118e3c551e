"""How much a test does: the size of `make test`, or that of `make soak`.

A test that does more in `make soak` carries the marker `soak`, and asks here how much:

    pytestmark = pytest.mark.soak
    STATES = soak.size("CRASH_STATES", test=5_000, full=500_000)

    soak.tell(f"{tested} states")

`make soak` sets MQLOG_SOAK=1 and runs what carries the marker; MQLOG_CRASH_STATES=20000 sets that
one figure, in either. A test that is for `make soak` alone is decorated with `@soak.only`.
"""

import os
from collections.abc import Callable
from typing import TypeVar

import pytest

Test = TypeVar("Test", bound=Callable[..., object])

SOAKING = os.environ.get("MQLOG_SOAK", "0") not in {"", "0"}
"""Whether this run is `make soak`."""


def size(name: str, *, test: int, full: int) -> int:
    """Return how many: of MQLOG_<name> if it is set, else of `make test` or `make soak`."""
    told = os.environ.get(f"MQLOG_{name}")
    return int(told) if told else (full if SOAKING else test)


def only(test: Test) -> Test:
    """Let a test run in `make soak` alone."""
    skipped = pytest.mark.skipif(not SOAKING, reason="for `make soak`, or MQLOG_SOAK=1")
    return pytest.mark.soak(skipped(test))


def tell(figure: str) -> None:
    """Print a figure, as `pytest -s` shows it."""
    print(f"\n{figure}", flush=True)  # noqa: T201
