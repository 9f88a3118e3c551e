"""The units and slots of one IndexFile, in bulk: what writing and checking need, not finding."""

import os
from collections.abc import Iterator

import numpy as np

from mqstore.arrays import Bytes, Int32s, Int64s, Structs
from mqstore.errors import CorruptStoreError
from mqstore.files.index.index_file import IndexFile, Layout
from mqstore.files.safe_open import open_file
from mqstore.format.index_file import FIRST_UNIT, HEADER, SLOT, UNIT, file_size
from mqstore.format.names import INDEX

_MAX_SECONDS = 2**31 - 1


def read_slots(file: IndexFile, layout: Layout) -> Int32s:
    """Return all slots. Raises CorruptStoreError if the file ends before they do."""
    slots = np.empty(layout.slots, SLOT)
    _read_into(file, slots.view(np.uint8), HEADER.itemsize)
    return slots.astype(np.int32)


def read_slot_pages(file: IndexFile, slots: Int32s, pages: Int64s, page_slots: int) -> None:
    """Read those pages of ``page_slots`` slots each, ascending, into ``slots``.

    Raises CorruptStoreError if the file ends before they do.
    """
    runs = np.split(pages, np.flatnonzero(np.diff(pages) != 1) + 1)
    path = f"{INDEX}/{file.name}"
    fd = open_file(file.root, path)
    try:
        for run in runs:
            begin, end = int(run[0]) * page_slots, (int(run[-1]) + 1) * page_slots
            size = min(end, len(slots)) - begin
            position = HEADER.itemsize + begin * SLOT.itemsize
            data = os.pread(fd, size * SLOT.itemsize, position)
            if len(data) < size * SLOT.itemsize:
                raise CorruptStoreError(f"{file.root}/{path}", position, "the file ends here")
            slots[begin:end] = np.frombuffer(data, SLOT)
    finally:
        os.close(fd)


def read_units(file: IndexFile, layout: Layout, most: int) -> Iterator[tuple[int, Structs]]:
    """Yield the units in use, at most ``most`` at a time, each time with the first one's number."""
    end = min(file.count, layout.units)
    for first in range(FIRST_UNIT, end, most):
        units = np.empty(min(most, end - first), UNIT)
        _read_into(file, units.view(np.uint8), file_size(layout.slots, first))
        yield first, units


def chain(slots: Int32s, places: Int64s, numbers: Int64s) -> tuple[Int64s, int]:
    """Put units into ``slots``, in place; return each one's previous and slots newly used.

    ``places`` are the slots that the units numbered ``numbers`` fall into.
    """
    order = np.argsort(places, kind="stable")
    ordered = places[order]
    heads = np.ones(len(order), np.bool_)
    heads[1:] = ordered[1:] != ordered[:-1]
    previous = np.empty(len(order), np.int64)
    previous[1:] = numbers[order][:-1]
    before = slots[ordered[heads]].astype(np.int64)
    previous[heads] = before
    tails = np.append(heads[1:], True)
    slots[ordered[tails]] = numbers[order][tails]
    unsorted = np.empty(len(order), np.int64)
    unsorted[order] = previous
    return unsorted, int((before == 0).sum())


def time_differences_s(store_timestamps_ms: Int64s, begin_timestamp_ms: int) -> Int64s:
    """Return whole seconds after a file's begin, at least 0; 0 too if the file has no begin.

    Reference: IndexFile#putKey.
    """
    if begin_timestamp_ms <= 0:
        return np.zeros_like(store_timestamps_ms)
    return np.clip((store_timestamps_ms - begin_timestamp_ms) // 1000, 0, _MAX_SECONDS)


def _read_into(file: IndexFile, into: Bytes, position: int) -> None:
    path = f"{INDEX}/{file.name}"
    view = into.data
    fd = open_file(file.root, path)
    try:
        done = 0
        while done < len(view):
            count = os.preadv(fd, [view[done:]], position + done)
            if not count:
                raise CorruptStoreError(
                    f"{file.root}/{path}", position + done, "the file ends here"
                )
            done += count
    finally:
        os.close(fd)
