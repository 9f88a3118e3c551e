"""Queues made from the CommitLog alone: the walk, cold and warm, and a plan from the cache.

    PYTHONPATH=tests python tests/bench/bench_log.py [MESSAGES]

A store of MESSAGES with bodies of 1 KiB and one with bodies of 100 bytes, 40 queues each. ``cold``:
the log's pages are dropped from the page cache first, where the system lets us; ``warm``: they are
in it; both walk the whole log into an empty cache directory. ``cached``: a plan of a log that was
walked before. ``queues``: the same plan by the ConsumeQueues. Rates are bytes of the log a second.
"""

import os
import shutil
import sys
import tempfile
import time
from pathlib import Path

from bench.laid_out import Shape, lay_out
from bench.rounds import Side, Timed, compare
from mqstore.read.directory import open_origin
from mqstore.read.log_directory import open_by_log
from mqstore.read.source import BoundsSource

BODIES = (1024, 100)
QUEUES = 4
TOPICS = 10


def main(messages: int) -> None:
    """Measure both stores."""
    for body_bytes in BODIES:
        with tempfile.TemporaryDirectory() as directory:
            _measure(Path(directory), Shape(messages, body_bytes, queues=QUEUES, topics=TOPICS))


def _measure(directory: Path, shape: Shape) -> None:
    root, cache = directory / "store", directory / "cache"
    record = lay_out(root, shape)
    log_bytes = record * shape.each * QUEUES * TOPICS

    def plan(source: BoundsSource) -> Timed:
        begin = time.perf_counter()
        found = source.snapshot()
        seconds = time.perf_counter() - begin
        source.close()
        assert sum(queue.messages for queue in found.queues) == shape.each * QUEUES * TOPICS
        return Timed(log_bytes, seconds)

    def from_log() -> Timed:
        return plan(open_by_log(root, (), str(cache)).bounds())

    def warm() -> Timed:
        shutil.rmtree(cache, ignore_errors=True)
        return from_log()

    def cold() -> Timed:
        _drop(root / "commitlog")
        return warm()

    def queues() -> Timed:
        return plan(open_origin(root).bounds())

    sides = {"cold": cold, "warm": warm, "cached": from_log, "queues": queues}
    compare(
        "log",
        f"{shape.body_bytes} bytes",
        [Side(name, work, log_bytes) for name, work in sides.items()],
        messages=shape.messages,
        record_bytes=record,
    )


def _drop(folder: Path) -> None:
    """Let the system forget the pages of these files; it may refuse."""
    for path in folder.iterdir():
        fd = os.open(path, os.O_RDONLY)
        try:
            os.fsync(fd)
            os.posix_fadvise(fd, 0, 0, os.POSIX_FADV_DONTNEED)
        finally:
            os.close(fd)


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 800_000)
