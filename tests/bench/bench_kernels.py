"""The compiled kernels beside their numpy twins, on one core, in turns within one process.

    PYTHONPATH=tests python tests/bench/bench_kernels.py [MESSAGES]

``decode`` is a scan, from the ConsumeQueue to record batches, as in bench_decode.py; the page
cache is warm. Both kinds must give the same before anything is timed. The seconds are the CPU's,
of this process alone, so that a machine which does other things as well disturbs them less.
"""

import itertools
import os
import sys
import tempfile
import time
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import pyarrow as pa

from bench.laid_out import Shape, lay_out, topic_name
from bench.rounds import Side, Timed, compare
from mqstore.codec.kernels.library import NUMPY, VARIABLE, C
from mqstore.codec.schema import PROFILES
from mqstore.read.plan import QueueSlice
from mqstore.read.scan import scan
from mqstore.read.settings import ScanSettings

BODIES = {100: 1, 1024: 1, 10_240: 4}  # bytes: by what the number of messages is divided
QUEUES = (1, 4)
MODES = ("pread", "mmap")
KINDS = (C, NUMPY)
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
    for profile, mode in itertools.product(DECODED, MODES):
        settings = ScanSettings(columns=PROFILES[profile], read_mode=mode, merged=True)
        _check(root, shape, settings)
        sides += [
            Side(f"{profile} {mode} {kind}", partial(_rows, kind, root, shape, settings), rows)
            for kind in KINDS
        ]
    compare(
        "kernels",
        f"decode, {shape.body_bytes} B, {shape.queues} queues",
        sides,
        bodyBytes=shape.body_bytes,
        queues=shape.queues,
        recordBytes=record_bytes,
    )


def _batches(
    kind: str, root: Path, shape: Shape, settings: ScanSettings, each: int
) -> Iterator[pa.RecordBatch]:
    os.environ[VARIABLE] = kind
    log = (str(root / "commitlog"),)
    slices = [
        QueueSlice(str(root), log, "b", topic_name(0), queue, 0, each)
        for queue in range(shape.queues)
    ]
    return scan(slices, settings)


def _rows(kind: str, root: Path, shape: Shape, settings: ScanSettings) -> Timed:
    begin = time.process_time()
    rows = sum(batch.num_rows for batch in _batches(kind, root, shape, settings, shape.each))
    return Timed(rows, time.process_time() - begin)


def _check(root: Path, shape: Shape, settings: ScanSettings) -> None:
    few = min(shape.each, 5_000)
    ours, theirs = (
        pa.Table.from_batches(_batches(kind, root, shape, settings, few)) for kind in KINDS
    )
    assert ours.equals(theirs)


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 400_000)
