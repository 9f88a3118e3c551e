"""Queues made from the CommitLog alone: the walk, cold and warm, and a plan from the cache.

    python -m benchmarks log

A store of MESSAGES with bodies of 1 KiB, one of four times as many with bodies of 100 bytes, and
one of a tenth with bodies of 10 KiB; 40 queues each. ``cold``: the log's pages are dropped from
the page cache first, where the system lets us; ``warm``: they are in it; both walk the whole log
into an empty cache directory. ``cached``: a plan of a log that was walked before. ``queues``: the
same plan by the ConsumeQueues. ``rebuild``: the walk of a rebuild, which checks each body's
checksum. The first two walk over several log files side by side.
"""

import os
import shutil
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

from benchmarks.laid_out import Shape, lay_out
from benchmarks.rounds import Side, Timed, compare
from mqstore.derive.log_walk import LogWalk
from mqstore.files.base.directory import Directory
from mqstore.files.log.commit_log import CommitLog
from mqstore.read.directory import open_origin
from mqstore.read.log_directory import open_by_log
from mqstore.read.source import BoundsSource

BODIES = {1024: (1, 1), 100: (4, 1), 10_240: (1, 10)}  # bytes: times as many messages
QUEUES = 4
TOPICS = 10


def main(messages: int) -> None:
    """Measure both stores."""
    for body_bytes, (times, part) in BODIES.items():
        count = max(QUEUES * TOPICS, messages * times // part)
        with tempfile.TemporaryDirectory() as directory:
            _measure(Path(directory), Shape(count, body_bytes, queues=QUEUES, topics=TOPICS))


def _measure(directory: Path, shape: Shape) -> None:
    root, cache = directory / "store", directory / "cache"
    record = lay_out(root, shape)
    rows = shape.each * QUEUES * TOPICS

    def plan(source: BoundsSource) -> Timed:
        begin = time.perf_counter()
        found = source.snapshot()
        seconds = time.perf_counter() - begin
        source.close()
        assert sum(queue.messages for queue in found.queues) == rows
        return Timed(rows, seconds)

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

    def rebuild() -> int:
        with CommitLog([Directory(str(root / "commitlog"))]) as log:
            return LogWalk(log, 0).to_end().count

    sides: dict[str, Callable[[], Timed | int]]
    sides = {"cold": cold, "warm": warm, "cached": from_log, "queues": queues, "rebuild": rebuild}
    compare(
        "log",
        f"{shape.body_bytes} B",
        [Side(name, work, rows) for name, work in sides.items()],
        messages=rows,
        logBytes=rows * record,
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
