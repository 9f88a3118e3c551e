"""The next item made in a second thread, while the calling thread uses the last one.

It gains where both spend their time outside of Python's lock: in system calls, in compiled kernels.
"""

import os
from collections.abc import Generator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from contextvars import copy_context
from itertools import islice
from typing import TypeVar

T = TypeVar("T")


def made_ahead(items: Generator[T, None, None], *, wanted: bool = True) -> Generator[T, None, None]:
    """Yield ``items`` in order; while one is used, the next one is made in a second thread.

    One item is made ahead, no more. What ``items`` raises is raised after the items before it were
    yielded. ``items`` sees the context variables of the call that takes the first item. When this
    generator ends or is closed, ``items`` is closed and the thread has ended: close it where its
    user may raise. On a single core, or if it is not ``wanted``, no thread is made.
    """
    if not wanted or _cores() < 2:
        yield from items
        return
    context = copy_context()

    def make() -> list[T]:
        return context.run(lambda: list(islice(items, 1)))

    with closing(items), ThreadPoolExecutor(1, "made ahead") as thread:
        pending = thread.submit(make)
        while made := pending.result():
            pending = thread.submit(make)
            yield made[0]


def _cores() -> int:
    """Return how many cores this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1
