"""Take items while the next one is made in another thread.

What makes them spends its time in calls that let other threads run: reads, checksums, compiled
kernels. One item is made ahead, so that three are in memory at most.
"""

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextvars import copy_context
from itertools import islice
from typing import TypeVar

Item = TypeVar("Item")


def made_ahead(items: Iterator[Item]) -> Iterator[Item]:
    """Yield ``items`` in their order, each made by another thread than the caller's.

    What making one raises is raised where it would have been yielded. The thread is gone when
    this iterator ends or is closed.
    """
    context = copy_context()  # durable.synced

    def make() -> list[Item]:
        return context.run(lambda: list(islice(items, 1)))

    with ThreadPoolExecutor(1, "mqlog-ahead") as worker:
        making = worker.submit(make)
        while made := making.result():
            making = worker.submit(make)
            yield made[0]
