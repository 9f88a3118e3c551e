"""An IndexFile that a broker is putting keys into, copied as it stood a moment earlier.

A broker writes a unit, then the slot that points to it, then the header. So the header is read
first and says how many units there are for sure; slots that have moved on meanwhile are led
back along ``previous``, which never changes.

Reference: org.apache.rocketmq.store.index.IndexFile#putKey.
"""

import os
from bisect import bisect_left
from collections.abc import Iterator
from typing import Final

import numpy as np

from mqstore.files.base.directory import descriptor
from mqstore.files.base.file_sizes import Layout
from mqstore.files.copy_target import CopyTarget
from mqstore.files.index.index_file import IndexFile, read_slots
from mqstore.files.log.commit_log import CommitLog
from mqstore.format.arrays import Int32s
from mqstore.format.index_file import FIRST_UNIT, HEADER, SLOT, file_size
from mqstore.format.names import INDEX

_AT_ONCE: Final = 1 << 20
_MAX_STEPS: Final = 1_000_000  # A chain that was broken by a crash must not lead for ever.


def copy_before(copy: CopyTarget, file: IndexFile, log: CommitLog, physical_offset: int) -> bool:
    """Copy the units of records before ``physical_offset``; tell whether the file is readable.

    A file without such units is left out.
    """
    header = file.header.copy()
    layout = file.layout
    if layout is None:
        return file.count <= FIRST_UNIT
    count = _first_behind(file, min(file.count, layout.units), physical_offset)
    if count == FIRST_UNIT:
        return True
    slots = _slots_before(file, layout, count)
    last = file.units(count - 1, count)[0]
    record = log.header(int(last["physical_offset"]))
    if record is not None:
        header["end_timestamp_ms"] = record["store_timestamp_ms"]
    header["end_physical_offset"] = last["physical_offset"]
    header["index_count"] = count
    header["hash_slot_count"] = np.count_nonzero(slots)
    pieces = _pieces(file, layout, (header, slots, count))
    copy.compose(f"{INDEX}/{file.name}", file.size, pieces)
    return True


def _first_behind(file: IndexFile, count: int, physical_offset: int) -> int:
    def is_behind(number: int) -> bool:
        return int(file.units(number, number + 1)[0]["physical_offset"]) >= physical_offset

    return FIRST_UNIT + bisect_left(range(FIRST_UNIT, count), True, key=is_behind)


def _slots_before(file: IndexFile, layout: Layout, count: int) -> Int32s:
    slots = read_slots(file, layout)
    for slot in np.flatnonzero(slots >= count).tolist():
        number, steps = int(slots[slot]), 0
        while number >= count and steps < _MAX_STEPS:
            units = file.units(number, number + 1)
            number, steps = int(units[0]["previous"]) if len(units) else 0, steps + 1
        slots[slot] = number if 0 <= number < count else 0
    return slots


def _pieces(
    file: IndexFile, layout: Layout, parts: tuple[np.void, Int32s, int]
) -> Iterator[tuple[int, bytes]]:
    header, slots, count = parts
    yield 0, header.tobytes()
    yield HEADER.itemsize, slots.astype(SLOT).tobytes()
    position, end = (file_size(layout.slots, number) for number in (FIRST_UNIT, count))
    source = descriptor(file.place.folder, f"{INDEX}/{file.name}")
    try:
        while position < end:
            data = os.pread(source, min(_AT_ONCE, end - position), position)
            if not data:
                break
            yield position, data
            position += len(data)
    finally:
        os.close(source)
