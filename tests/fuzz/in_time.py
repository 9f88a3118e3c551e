"""A fixture that ends a test which hangs or never stops computing.

The limit that counts is one of CPU time, which no load of the machine shortens. The alarm is for
what waits without computing, as a blocked open() does.
"""

import signal
from collections.abc import Iterator

import pytest

CPU_SECONDS = 20
WAITED_SECONDS = 300


def begin() -> None:
    """Give the running test its time once more."""
    signal.setitimer(signal.ITIMER_PROF, CPU_SECONDS)
    signal.alarm(WAITED_SECONDS)


@pytest.fixture
def in_time() -> Iterator[None]:
    """Fail a test that computes for CPU_SECONDS, or waits for WAITED_SECONDS."""

    def late(*_: object) -> None:
        raise AssertionError(
            f"no end after {CPU_SECONDS} s of CPU or {WAITED_SECONDS} s of waiting"
        )

    before = [signal.signal(number, late) for number in (signal.SIGPROF, signal.SIGALRM)]
    begin()
    yield
    signal.setitimer(signal.ITIMER_PROF, 0)
    signal.alarm(0)
    for number, handler in zip((signal.SIGPROF, signal.SIGALRM), before, strict=True):
        signal.signal(number, handler)
