"""The kernels that chain keys into the slots of an IndexFile; None is "not mine": ask numpy."""

import ctypes

import numpy as np

from mqstore.codec.kernels.abi import KERNEL_DONE, Chaining
from mqstore.codec.kernels.library import library
from mqstore.codec.kernels.pointers import address, int64s
from mqstore.format.arrays import Int32s, Int64s, Structs
from mqstore.format.index_file import UNIT

assert UNIT.itemsize == 20


def pages_of(hashes: Int32s, slot_count: int, page_slots: int) -> Int64s | None:
    """Return the pages of ``page_slots`` slots that the keys fall into, ascending."""
    found = library()
    if found is None or hashes.dtype != np.int32:
        return None
    hashes = np.ascontiguousarray(hashes)
    pages = np.zeros(-(-slot_count // page_slots), np.bool_)
    call = Chaining(address(hashes), 0, 0, len(hashes), 0, slot_count, 1, 0)
    if found.mq_index_pages(ctypes.byref(call), page_slots, address(pages)) != KERNEL_DONE:
        return None
    return np.flatnonzero(pages)


def chain(
    hashes: Int32s, places: tuple[Int64s, Int64s], slots: Int32s, first: int
) -> tuple[Structs, int] | None:
    """Let each slot point at its last key, in place; return the units and how many slots were free.

    ``places`` are physical offsets and times in seconds of the file. The first key's unit has the
    number ``first``. A slot that points outside [1, first) counts as free.
    """
    found, count = library(), len(hashes)
    if found is None or hashes.dtype != np.int32 or any(len(each) != count for each in places):
        return None
    assert slots.flags.writeable
    hashes, moments = np.ascontiguousarray(hashes), [int64s(each) for each in places]
    units = np.empty(count, UNIT)
    inputs = (address(hashes), *map(address, moments), count)
    call = Chaining(*inputs, address(slots), len(slots), first, 0)
    if found.mq_index_chain(ctypes.byref(call), address(units)) != KERNEL_DONE:
        return None
    return units, int(call.used)
