"""Work of many items that each wait for a medium: one after the other, or side by side.

Whether a directory waits cannot be told from its path: a network file system, a disk at rest and a
page cache look alike. So the first items are done one after the other, and what they took beside
the processor's time decides; where nothing waits, threads would only take turns.
"""

import time
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from typing import Final, TypeVar

T = TypeVar("T")
R = TypeVar("R")

AT_A_TIME: Final = 16
"""Threads at most."""
_LOOKED_AT: Final = 16
_WAITED_S: Final = 0.000_5
"""An item that waits longer, on average, than a thread costs."""


def each_beside(work: Callable[[T], R], items: Iterable[T], looked_at: int = _LOOKED_AT) -> list[R]:
    """Return what ``work`` returns for each item, in order; by several threads if it waits.

    So many items are ``looked_at`` at a time. Raises what it raises. The items must be independent
    of each other.
    """
    listed, found = list(items), list[R]()
    while len(found) < len(listed):
        some = listed[len(found) : len(found) + looked_at]
        begin_s, begin_cpu_s = time.perf_counter(), time.thread_time()
        found += [work(item) for item in some]
        cpu_s = time.thread_time() - begin_cpu_s
        waited_s = time.perf_counter() - begin_s - cpu_s
        if waited_s > max(cpu_s, _WAITED_S * len(some)):
            break
    rest = listed[len(found) :]
    if rest:
        with ThreadPoolExecutor(min(AT_A_TIME, len(rest)), "beside") as workers:
            found += workers.map(work, rest)
    return found
