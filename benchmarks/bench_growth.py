"""How time grows with messages, with queues and with files: core library, one core.

    python -m benchmarks growth

``messages`` from a thousandth of MESSAGES on (bodies of 100 B): reading ``standard`` columns,
the backlog by hash and by tag, and writing (a hundred times fewer, staged and committed).
``queues``: a hundredth of MESSAGES in 1 to 10,000 queues (no more than messages), planned and
read. ``files``: as many in 1 to 1,000 files of the CommitLog, planned and read. A line each;
``at`` is the number that grows.
"""

import os
import sys
import tempfile
from collections.abc import Callable
from functools import partial
from pathlib import Path

import pyarrow as pa

from benchmarks.laid_out import Shape, lay_out
from benchmarks.rounds import Side, compare
from benchmarks.rows import batches
from mqstore import backlog
from mqstore.codec.schema import PROFILES
from mqstore.read.directory import take
from mqstore.read.plan import SplitLimits, split, weigh
from mqstore.read.scan import scan
from mqstore.read.settings import ScanSettings
from mqstore.read.source import QueueSlice, slices_of
from mqstore.write.commit import commit
from mqstore.write.prepare import prepare
from mqstore.write.stage.settings import WriteSettings
from mqstore.write.stage.task import stage

BODY_BYTES = 100
LIMITS = SplitLimits(parallelism=2)
QUEUES = (1, 10, 100, 1_000, 10_000)
FILES = (1, 10, 100, 1_000)
TOPICS_FROM = 100
LARGE = 1_000_000  # Of more messages than this, fewer rounds are run.
SLOW_ROUNDS = 3


def main(count: int) -> None:
    """Measure the three."""
    os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})
    pa.set_cpu_count(1)
    pa.set_io_thread_count(1)
    steps = [count // 1000, count // 100, count // 10, count]
    for messages in [step for step in steps if step >= 100]:
        shape = Shape(messages, BODY_BYTES, queues=4)
        _measure("messages", messages, shape, {"read": _read, "hash": _hash, "exact": _exact})
    for messages in [step // 10 for step in steps if step >= 1000]:
        _measure_writes(messages)
    some = max(100, count // 100)
    for queues in [number for number in QUEUES if number <= some]:
        topics = max(1, queues // TOPICS_FROM)
        shape = Shape(some, BODY_BYTES, queues=queues // topics, topics=topics)
        _measure("queues", queues, shape, {"plan": _plan, "read": _read})
    for files in [number for number in FILES if number <= some]:
        shape = Shape(some, BODY_BYTES, per_file=some // files)
        _measure("files", files, shape, {"plan": _plan, "read": _read})


def _measure(
    case: str, at: int, shape: Shape, works: dict[str, Callable[[Path, Shape], int]]
) -> None:
    rows = shape.each * shape.queues * shape.topics
    with tempfile.TemporaryDirectory() as directory:
        lay_out(Path(directory), shape)
        sides = [
            Side(name, partial(work, Path(directory), shape), rows) for name, work in works.items()
        ]
        _compare(case, at, sides, rows)


def _measure_writes(messages: int) -> None:
    rows = batches(messages, BODY_BYTES)
    with tempfile.TemporaryDirectory() as directory:
        stores = (Path(directory) / str(number) for number in range(100))

        def write() -> int:
            settings = WriteSettings(root=str(next(stores)), create_store=True, topic="BENCH")
            job = prepare(settings, rows[0].schema)
            return commit(job, [stage(job, rows, partition=0, attempt=0)]).messages

        _compare("writes", messages, [Side("write", write, messages)], messages)


def _compare(case: str, at: int, sides: list[Side], rows: int) -> None:
    few = {"rounds": SLOW_ROUNDS} if rows > LARGE else {}
    compare("growth", case, sides, at=at, bodyBytes=BODY_BYTES, **few)


def _slices(root: Path) -> list[QueueSlice]:
    return slices_of(take(root))


def _plan(root: Path, shape: Shape) -> int:
    partitions = split(weigh(_slices(root)), LIMITS)
    return sum(piece.end - piece.start for pieces in partitions for piece in pieces)


def _read(root: Path, shape: Shape) -> int:
    settings = ScanSettings(columns=PROFILES["standard"])
    return sum(batch.num_rows for batch in scan(_slices(root), settings))


def _hash(root: Path, shape: Shape) -> int:
    return _lag(root, shape, "hash")


def _exact(root: Path, shape: Shape) -> int:
    return _lag(root, shape, "exact")


def _lag(root: Path, shape: Shape, lag_mode: str) -> int:
    request = backlog.BacklogRequest(lag_mode=lag_mode, subscriptions={"g": {"T00000": "TagA"}})
    found = backlog.measure(backlog.plan(take(root), request), request, 0)
    matching = sum(found["lagMatching"].to_pylist())
    assert matching == shape.each * shape.queues - shape.rare
    return sum(found["lag"].to_pylist())


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 10_000_000)
