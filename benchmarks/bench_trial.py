"""Each compiled kernel on trial: whole steps of a write, a read and a repair with and without it.

    python -m benchmarks trial

``stage`` is what a task of a write does, ``read`` a scan of all
columns, ``log`` a plan of ``queues=log``, ``rebuild`` ConsumeQueues and IndexFiles made from the
log. Each runs with all kernels, and once for each kernel that it uses with that one left to numpy.
A kernel is worth its C if one of these steps takes 1.15 times the CPU time without it, with bodies
of 100 bytes or of 1 KiB. The seconds are the CPU's, of this process.
"""

import os
import shutil
import sys
import tempfile
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path

import pyarrow as pa

from benchmarks.rounds import Side, Timed, compare
from benchmarks.rows import batches
from mqstore.codec.schema import PROFILES
from mqstore.native.registry import without
from mqstore.read.log_directory import open_by_log
from mqstore.read.scan import scan
from mqstore.read.settings import ScanSettings
from mqstore.read.source import QueueSlice
from mqstore.read.store_bounds import StoreOrigin
from mqstore.write.commit import commit
from mqstore.write.prepare import prepare
from mqstore.write.recover import RecoverSettings, recover
from mqstore.write.stage.settings import WriteSettings
from mqstore.write.stage.task import stage

BODIES = (100, 1024)
QUEUES = 4
KERNELS_OF = {
    "stage": ("mq_encode", "mq_join_blocks"),
    "read": ("mq_decode",),
    "log": ("mq_log_units",),
    "rebuild": ("mq_broken", "mq_follow", "mq_property_values"),
}


def main(count: int) -> None:
    """Measure each size of bodies."""
    os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})
    pa.set_cpu_count(1)
    pa.set_io_thread_count(1)
    for body_bytes in BODIES:
        with tempfile.TemporaryDirectory() as directory:
            _Steps(Path(directory), max(QUEUES, count // QUEUES * QUEUES), body_bytes).measure()


class _Steps:
    """The steps over the same rows; each begins with what the step before it made."""

    def __init__(self, home: Path, count: int, body_bytes: int) -> None:
        self._root = home / "store"
        self._cache = home / "cache"
        self._count = count
        self._body_bytes = body_bytes
        self._batches = batches(count, body_bytes)

    def measure(self) -> None:
        """Write a store; print a line for each step."""
        self._remove()
        self._stage()
        assert commit(self._job, [self._manifest]).messages == self._count
        steps: dict[str, tuple[Callable[[], None] | None, Callable[[], None]]] = {
            "stage": (self._remove_staged, self._stage),
            "read": (None, self._read),
            "log": (partial(shutil.rmtree, self._cache, ignore_errors=True), self._log),
            "rebuild": (self._lose_derived, self._rebuild),
        }
        for name, (before, work) in steps.items():
            kernels = KERNELS_OF[name]
            sides = [Side("all", partial(self._timed, work), self._count, before)]
            sides += [
                Side(f"without {kernel}", partial(self._timed, work, kernel), self._count, before)
                for kernel in kernels
            ]
            case = f"{name} {self._body_bytes} B"
            compare("trial", case, sides, bodyBytes=self._body_bytes, step=name)

    def _timed(self, work: Callable[[], None], *left_out: str) -> Timed:
        with without(*left_out):
            begin = time.process_time()
            work()
            return Timed(self._count, time.process_time() - begin)

    def _remove_staged(self) -> None:
        shutil.rmtree(self._root / ".mqlog", ignore_errors=True)

    def _remove(self) -> None:
        shutil.rmtree(self._root, ignore_errors=True)

    def _stage(self) -> None:
        settings = WriteSettings(
            root=str(self._root), create_store=True, topic="BENCH", queue_nums=QUEUES
        )
        self._job = prepare(settings, self._batches[0].schema)
        self._manifest = stage(self._job, self._batches, partition=0, attempt=0)

    def _read(self) -> None:
        origin = StoreOrigin.at(self._root)
        each = self._count // QUEUES
        slices = [QueueSlice(origin, "b", "BENCH", queue, 0, each) for queue in range(QUEUES)]
        settings = ScanSettings(PROFILES["full"], merged=True)
        assert sum(batch.num_rows for batch in scan(slices, settings)) == self._count

    def _log(self) -> None:
        source = open_by_log(self._root, (), str(self._cache)).bounds()
        assert sum(queue.messages for queue in source.snapshot().queues) == self._count
        source.close()

    def _lose_derived(self) -> None:
        for folder in ("consumequeue", "index"):
            shutil.rmtree(self._root / folder)

    def _rebuild(self) -> None:
        recover(self._root, RecoverSettings(rebuild=True))


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 100_000)
