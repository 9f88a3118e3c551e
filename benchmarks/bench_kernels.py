"""The compiled kernels beside their numpy twins, on one core, in turns within one process.

    python -m benchmarks kernels

``decode`` is a scan, from the ConsumeQueue to record batches, as in bench_decode.py; the page
cache is warm. ``walk`` reads the CommitLog from its start on and checks every record, as a
rebuild does. ``encode`` joins property blocks and makes records of columns, in an order by queue,
as staging does; rows come in batches of 10,000. Both kinds must give the same before anything is
timed. The seconds are the CPU's, of this process alone, so that a machine which does other things
as well disturbs them less.
"""

import itertools
import os
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

import numpy as np
import pyarrow as pa

from benchmarks.laid_out import Shape, lay_out, topic_name
from benchmarks.rounds import Side, Timed, compare
from benchmarks.rows import batches
from mqstore.codec.encode import Hosts, Messages, encode
from mqstore.codec.properties_encode import join_blocks
from mqstore.codec.schema import PROFILES
from mqstore.derive.log_walk import log_chunks
from mqstore.files.base.directory import Directory
from mqstore.files.log.commit_log import CommitLog
from mqstore.format.arrays import Recycled
from mqstore.native.registry import COMPILED, NUMPY, VARIABLE
from mqstore.read.scan import scan
from mqstore.read.settings import ScanSettings
from mqstore.read.source import QueueSlice
from mqstore.read.store_bounds import StoreOrigin

BODIES = {100: 1, 1024: 1, 10_240: 4}  # bytes: by what the number of messages is divided
QUEUES = (1, 4)
MODES = ("pread", "mmap")
KINDS = (COMPILED, NUMPY)
HOSTS = Hosts(bytes([127, 0, 0, 1]), 0, bytes([127, 0, 0, 1]), 10911)
DECODED = ("minimal", "standard", "full")


def main(count: int) -> None:
    """Measure each size of bodies and number of queues."""
    os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})
    pa.set_cpu_count(1)
    pa.set_io_thread_count(1)
    for body_bytes, queues in itertools.product(BODIES, QUEUES):
        shape = Shape(max(100, count // BODIES[body_bytes]), body_bytes, queues)
        with tempfile.TemporaryDirectory() as directory:
            _measure(Path(directory), shape)


def _measure(root: Path, shape: Shape) -> None:
    record_bytes = lay_out(root, shape)
    rows = shape.each * shape.queues
    sides = []
    for name, work in (("walk", partial(_walk, root)), ("encode", _Encode(shape))):
        sides += [Side(f"{name} {kind}", partial(_timed, kind, work), rows) for kind in KINDS]
    for profile, mode in itertools.product(DECODED, MODES):
        settings = ScanSettings(columns=PROFILES[profile], read_mode=mode, merged=True)
        _check(root, shape, settings)
        sides += [
            Side(f"{profile} {mode} {kind}", partial(_rows, kind, root, shape, settings), rows)
            for kind in KINDS
        ]
    compare(
        "kernels",
        f"{shape.body_bytes} B, {shape.queues} queues",
        sides,
        bodyBytes=shape.body_bytes,
        queues=shape.queues,
        recordBytes=record_bytes,
    )


def _timed(kind: str, work: Callable[[], int]) -> Timed:
    os.environ[VARIABLE] = kind
    begin = time.process_time()
    rows = work()
    return Timed(rows, time.process_time() - begin)


def _walk(root: Path) -> int:
    with CommitLog([Directory(str(root / "commitlog"))]) as log:
        return sum(len(chunk.sound_records()) for chunk in log_chunks(log, 0))


class _Encode:
    """Rows as Spark gives them, and the steps of staging and commit that make records of them."""

    def __init__(self, shape: Shape) -> None:
        self._memory = Recycled(most=2)
        self._batches = batches(shape.each * shape.queues, shape.body_bytes)

    def __call__(self) -> int:
        return sum(map(self._one, self._batches))

    def _one(self, batch: pa.RecordBatch) -> int:
        rows = batch.num_rows
        typed = [("KEYS", batch["keys"]), ("TAGS", batch["tags"]), ("WAIT", "true")]
        blocks = join_blocks(rows, None, typed)
        zeros, born = np.zeros(rows, np.int32), np.zeros(rows, np.int64)
        messages = Messages(("BENCH",), zeros, zeros, zeros, zeros, born, batch["body"], blocks)
        order = np.argsort(np.arange(rows) % 4, kind="stable")
        return len(encode(messages, HOSTS, order, self._memory).sizes)


def _batches(
    kind: str, root: Path, shape: Shape, settings: ScanSettings, each: int
) -> Iterator[pa.RecordBatch]:
    os.environ[VARIABLE] = kind
    slices = [
        QueueSlice(StoreOrigin.at(root), "b", topic_name(0), queue, 0, each)
        for queue in range(shape.queues)
    ]
    return scan(slices, settings)


def _rows(kind: str, root: Path, shape: Shape, settings: ScanSettings) -> Timed:
    scanned = partial(_batches, kind, root, shape, settings, shape.each)
    return _timed(kind, lambda: sum(batch.num_rows for batch in scanned()))


def _check(root: Path, shape: Shape, settings: ScanSettings) -> None:
    few = min(shape.each, 5_000)
    ours, theirs = (
        pa.Table.from_batches(_batches(kind, root, shape, settings, few)) for kind in KINDS
    )
    assert ours.equals(theirs)


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 400_000)
