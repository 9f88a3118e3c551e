"""Items that wait are done by several threads, bounded; others by the caller's own thread."""

import threading

import pytest

from mqstore.files.base import side_by_side
from mqstore.files.base.side_by_side import AT_A_TIME, each_beside
from support.processes import SECONDS

LOOKED_AT = 16


def by_clock(monkeypatch: pytest.MonkeyPatch, waits_s: float) -> None:
    """Have each look at the clocks tell that items waited so long, and took no processor."""
    passed = iter(range(1_000_000))
    monkeypatch.setattr(
        side_by_side.time, "perf_counter", lambda: (next(passed) + 1) // 2 * waits_s * 100
    )
    monkeypatch.setattr(side_by_side.time, "thread_time", lambda: 0.0)


def test_items_that_do_not_wait_are_done_by_the_caller(monkeypatch: pytest.MonkeyPatch) -> None:
    by_clock(monkeypatch, 0.0)
    threads = each_beside(lambda _: threading.get_ident(), range(500))

    assert set(threads) == {threading.get_ident()}


def test_items_that_wait_are_done_side_by_side_and_stay_in_order(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    by_clock(monkeypatch, 1.0)
    at_once, most, lock, second = 0, 0, threading.Lock(), threading.Event()

    def work(number: int) -> int:
        nonlocal at_once, most
        with lock:
            at_once += 1
            most = max(most, at_once)
            if at_once > 1:
                second.set()
        if number >= LOOKED_AT:
            assert second.wait(SECONDS)  # Until another item is worked on beside this one.
        with lock:
            at_once -= 1
        return number

    assert each_beside(work, range(200), LOOKED_AT) == list(range(200))
    assert 1 < most <= AT_A_TIME


def test_an_error_of_an_item_comes_to_the_caller(monkeypatch: pytest.MonkeyPatch) -> None:
    by_clock(monkeypatch, 1.0)

    def work(number: int) -> int:
        if number == 40:
            raise FileNotFoundError(number)
        return number

    with pytest.raises(FileNotFoundError):
        each_beside(work, range(50))
