"""One IndexFile after a crash: how far it can be believed, and cut back to there.

The order of a cut is such that a crash between any two steps loses no key that is kept: slots
that lead to kept units only, then the units behind them zero, then the header, each durable
before the next.

Reference: IndexFile#putKey, #load; IndexHeader.
"""

from bisect import bisect_left

import numpy as np

from mqstore.files.base import durable
from mqstore.files.base.file_sizes import Layout
from mqstore.files.base.new_file import opened
from mqstore.files.base.store_dir import StoreDir
from mqstore.files.index.index_file import IndexFile, chain, read_slots
from mqstore.files.log.commit_log import CommitLog
from mqstore.format.arrays import Int32s, Structs
from mqstore.format.index_file import FIRST_UNIT, HEADER, SLOT, UNIT, file_size
from mqstore.format.names import INDEX, is_index_file_name

_CHUNK_UNITS = 50_000
_PAGE_SLOTS = 1024


def first_behind(file: IndexFile, layout: Layout, count: int, physical_offset: int) -> int:
    """Return the first unit, of those before ``count``, whose record is not before that place.

    If there is none, return ``count``.
    """

    def is_behind(number: int) -> bool:
        return place_of(file, layout, number) >= physical_offset

    numbers = range(FIRST_UNIT, count)
    return FIRST_UNIT + bisect_left(numbers, True, key=is_behind)


def place_of(file: IndexFile, layout: Layout, number: int) -> int:
    """Return where the record of a unit lies."""
    return int(units_of(file, layout, number, number + 1)["physical_offset"][0])


def units_of(file: IndexFile, layout: Layout, start: int, end: int) -> Structs:
    """Return the units numbered [start, end), which the file must have."""
    units = np.zeros(end - start, UNIT)
    opened_file = file.open()
    try:
        opened_file.read_into(units.view(np.uint8).data, file_size(layout.slots, start))
    finally:
        opened_file.close()
    return units


def cut_back(file: IndexFile, layout: Layout, count: int, log: CommitLog) -> None:
    """Leave the units before number ``count``, of which there is one at least, and no others."""
    slots = np.zeros(layout.slots, np.int32)
    for start in range(FIRST_UNIT, count, _CHUNK_UNITS):
        end = min(count, start + _CHUNK_UNITS)
        hashes = units_of(file, layout, start, end)["key_hash"].astype(np.int64)
        chain(slots, hashes % layout.slots, np.arange(start, end))
    header = np.array(file.header, HEADER)
    last = units_of(file, layout, count - 1, count)[0]
    record = log.header(int(last["physical_offset"]))
    if record is not None and int(record["physical_offset"]) == int(last["physical_offset"]):
        moment = int(record["store_timestamp_ms"])
    else:
        moment = int(header["begin_timestamp_ms"]) + int(last["time_diff_s"]) * 1000
    header["end_timestamp_ms"] = moment
    header["end_physical_offset"] = last["physical_offset"]
    header["hash_slot_count"] = np.count_nonzero(slots)
    header["index_count"] = count
    pages = _pages_that_differ(slots, read_slots(file, layout))
    with opened(file.path) as fd:
        for page in pages:
            part = slots[page * _PAGE_SLOTS : (page + 1) * _PAGE_SLOTS]
            position = HEADER.itemsize + page * _PAGE_SLOTS * SLOT.itemsize
            durable.write_at(fd, part.astype(SLOT).tobytes(), position)
        durable.write_zeros(fd, file_size(layout.slots, 0), UNIT.itemsize)
        durable.fsync(fd)
        behind = min(max(count, file.count), layout.units) - count
        durable.write_zeros(fd, file_size(layout.slots, count), behind * UNIT.itemsize)
        durable.fsync(fd)
        durable.write_at(fd, header.tobytes(), 0)
        durable.fsync(fd)


def remove_empty(place: StoreDir) -> None:
    """Remove files without a byte, which a broker that was killed while it made them leaves."""
    folder = f"{place.root}/{INDEX}"
    empty = [name for name, kind, size in place.folder.survey(INDEX) if kind == "file" and not size]
    for name in filter(is_index_file_name, empty):
        durable.unlink(f"{folder}/{name}")
    if empty:
        durable.fsync_directory(folder)


def sync(file: IndexFile) -> None:
    """Make the content of a file durable."""
    with opened(file.path) as fd:
        durable.fsync(fd)


def remove(file: IndexFile) -> None:
    """Remove a whole file, durably."""
    durable.unlink(file.path)
    durable.fsync_directory(f"{file.place.root}/{INDEX}")


def _pages_that_differ(wanted: Int32s, found: Int32s) -> list[int]:
    rows = np.flatnonzero(wanted != found)
    return [int(page) for page in np.unique(rows // _PAGE_SLOTS)]
