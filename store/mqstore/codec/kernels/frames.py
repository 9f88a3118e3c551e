"""The kernels over records in a buffer, from Python; None, or False, is "not mine": ask numpy."""

import ctypes
from collections.abc import Sequence
from typing import Final

import numpy as np

from mqstore.codec.kernels.abi import KERNEL_DONE, PlaceFields, Slices, WantedNames
from mqstore.codec.kernels.library import library
from mqstore.codec.kernels.pointers import address, int64s
from mqstore.format.arrays import Bytes, Int64s, Mask
from mqstore.format.message import CRC_MASK, HEADER, MIN_RECORD_BYTES

assert CRC_MASK == 0x7FFFFFFF
assert HEADER.fields is not None
assert HEADER.fields["store_timestamp_ms"][1] == 56

_FEW: Final = 4  # For so few a call costs more than it saves.


def all_whole(buffer: Bytes, starts: Int64s, sizes: Int64s) -> bool:
    """Tell whether each slice is a record that keeps all rules of ``RecordHeaders``."""
    found = library()
    if found is None or len(starts) < _FEW:
        return False
    slices = SlicedBuffer(buffer, starts, sizes)
    return bool(found.mq_all_whole(slices.reference) == KERNEL_DONE)


def broken(buffer: Bytes, starts: Int64s, sizes: Int64s) -> Mask | None:
    """Tell for each record whether one of its checksums does not hold; None if one is not whole."""
    found = library()
    if found is None:
        return None
    slices = SlicedBuffer(buffer, starts, sizes)
    mask = np.empty(len(starts), np.bool_)
    return mask if found.mq_broken(slices.reference, address(mask)) == KERNEL_DONE else None


def checksums(buffer: Bytes, starts: Int64s, sizes: Int64s) -> Int64s | None:
    """Return ``CRC-32 & 0x7FFFFFFF`` of each slice."""
    found = library()
    if found is None:
        return None
    slices = SlicedBuffer(buffer, starts, sizes)
    sums = np.empty(len(starts), np.int64)
    return sums if found.mq_checksums(slices.reference, address(sums)) == KERNEL_DONE else None


def property_values(
    buffer: Bytes, starts: Int64s, lengths: Int64s, names: Sequence[str]
) -> tuple[Int64s, Int64s] | None:
    """Return where in the buffer the values of properties are: starts and lengths, a row a name.

    Each slice given is a record's property block. The start is -1 where it lacks the property.
    """
    found = library()
    if found is None:
        return None
    encoded = [name.encode() for name in names]
    edges = np.cumsum([0, *map(len, encoded)]).astype(np.int32)
    data = np.frombuffer(b"".join(encoded) + b"\0", np.uint8)
    wanted = WantedNames(address(edges), address(data), len(encoded))
    slices = SlicedBuffer(buffer, starts, lengths)
    tables = [np.empty((len(encoded), len(starts)), np.int64) for _ in range(2)]
    inputs = slices.reference, ctypes.byref(wanted)
    if found.mq_property_values(*inputs, *map(address, tables)) != KERNEL_DONE:
        return None
    return tables[0], tables[1]


def follow(buffer: Bytes) -> tuple[Int64s, Int64s, int] | None:
    """Return starts and sizes of the whole records from byte 0 on, and where the last one ends."""
    found = library()
    if found is None:
        return None
    room = len(buffer) // MIN_RECORD_BYTES
    starts, sizes = np.empty(room, np.int64), np.empty(room, np.int64)
    end = ctypes.c_int64()
    places = (address(starts), address(sizes))
    count = found.mq_follow(address(buffer), len(buffer), *places, room, ctypes.byref(end))
    return starts[:count], sizes[:count], end.value


def patch(
    records: Bytes,
    starts: Int64s,
    values: tuple[Int64s, Int64s, Int64s],
    store_timestamp_at: int,
) -> bool:
    """Write queue offsets, physical offsets and store timestamps into records; False: none was.

    The third of ``values`` goes to byte ``store_timestamp_at`` of each record.
    """
    found = library()
    if found is None or not records.flags.writeable:
        return False
    count, arrays = len(starts), [int64s(a) for a in (starts, *values)]
    if any(len(array) != count for array in arrays):
        return False
    places = PlaceFields(*map(address, arrays[1:]), store_timestamp_at)
    inputs = (address(records), len(records), address(arrays[0]), count)
    return bool(found.mq_patch(*inputs, ctypes.byref(places)) == KERNEL_DONE)


class SlicedBuffer:
    """``Slices`` of frames.h, and the arrays it points at."""

    def __init__(self, buffer: Bytes, starts: Int64s, sizes: Int64s) -> None:
        assert len(starts) == len(sizes)
        self._held = buffer, int64s(starts), int64s(sizes)
        where = address(buffer), len(buffer)
        places = address(self._held[1]), address(self._held[2])
        self._slices = Slices(*where, *places, len(starts))
        self.reference = ctypes.byref(self._slices)
