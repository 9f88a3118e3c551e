"""The units of a ConsumeQueue, a bounded chunk at a time, in the machine's byte order."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

import numpy as np

from mqstore.arrays import Int64s, Structs
from mqstore.errors import CorruptStoreError
from mqstore.files.queue.consume_queue import ConsumeQueue
from mqstore.format.consume_queue import UNIT
from mqstore.format.message import HARD_RECORD_BYTES

CHUNK_UNITS: Final = (1 << 20) // UNIT.itemsize  # 1 MiB, whatever the queue's size


@dataclass(frozen=True, slots=True)
class Chunk:
    """The units of queue offsets [start, start + n): int64[n] each, sizes in bytes.

    A unit that no broker would follow (size or physical offset out of bounds) has size 0.
    """

    start: int
    physical_offsets: Int64s
    sizes: Int64s
    tags_codes: Int64s

    def __len__(self) -> int:
        return len(self.sizes)

    @property
    def end(self) -> int:
        """The queue offset after the last unit."""
        return self.start + len(self)


def chunks(queue: ConsumeQueue, start: int, end: int, most: int = CHUNK_UNITS) -> Iterator[Chunk]:
    """Yield the units of queue offsets [start, end), at most ``most`` at a time.

    As the broker does: where a file is missing, the next one goes on (ConsumeQueue#rollNextFile);
    no consumer ever receives what lay between.
    """
    while start < end:
        stop = min(end, start + most)
        units = _read(queue, start, stop)
        if units is None:
            units = units_before_hole(queue, start, stop)
        if not len(units):
            start = queue.next_file_start(start) or end
            continue
        yield _chunk(start, units)
        start += len(units)


def units_before_hole(queue: ConsumeQueue, start: int, end: int) -> Structs:
    """Return the units of [start, end) in the file that holds ``start``; none if none can be read.

    A range that reaches over a file that is not there begins in one that may be.
    """
    units = _read(queue, start, min(end, _file_end(queue, start)))
    return np.empty(0, UNIT) if units is None else units


def _read(queue: ConsumeQueue, start: int, end: int) -> Structs | None:
    try:
        return queue.read(start, end)
    except (CorruptStoreError, FileNotFoundError):
        return None


def _file_end(queue: ConsumeQueue, queue_offset: int) -> int:
    file = queue.files.find(queue_offset * UNIT.itemsize)
    return file.end // UNIT.itemsize if file else queue_offset


def _chunk(start: int, units: Structs) -> Chunk:
    sizes = units["size"].astype(np.int64)
    physical_offsets = units["physical_offset"].astype(np.int64)
    valid = (sizes > 0) & (sizes <= HARD_RECORD_BYTES) & (physical_offsets >= 0)
    if not valid.all():
        sizes[~valid] = 0
    return Chunk(start, physical_offsets, sizes, units["tags_code"].astype(np.int64))
