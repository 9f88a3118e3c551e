"""Records in a buffer: their starts, checksums and properties. None is "not mine"."""

import ctypes
from collections.abc import Sequence

import numpy as np

from mqstore.format.arrays import Bytes, Int64s, Mask
from mqstore.format.message import HEADER, MIN_RECORD_BYTES
from mqstore.native.arrays import address, int64s
from mqstore.native.declarations import structure
from mqstore.native.registry import KERNEL_DONE, kernel

assert HEADER.fields is not None
assert HEADER.fields["store_timestamp_ms"][1] == 56


def broken(buffer: Bytes, starts: Int64s, sizes: Int64s) -> Mask | None:
    """Tell for each record whether one of its checksums does not hold; None if one is not whole."""
    run = kernel("mq_broken")
    if run is None:
        return None
    slices = SlicedBuffer(buffer, starts, sizes)
    mask = np.empty(len(starts), np.bool_)
    return mask if run(slices.reference, address(mask)) == KERNEL_DONE else None


def property_values(
    buffer: Bytes, starts: Int64s, lengths: Int64s, names: Sequence[str]
) -> tuple[Int64s, Int64s] | None:
    """Return where in the buffer the values of properties are: starts and lengths, a row a name.

    Each slice given is a record's property block. The start is -1 where it lacks the property.
    """
    run = kernel("mq_property_values")
    if run is None:
        return None
    encoded = [name.encode() for name in names]
    edges = np.cumsum([0, *map(len, encoded)]).astype(np.int32)
    data = np.frombuffer(b"".join(encoded) + b"\0", np.uint8)
    wanted = structure("WantedNames")(address(edges), address(data), len(encoded))
    slices = SlicedBuffer(buffer, starts, lengths)
    tables = [np.empty((len(encoded), len(starts)), np.int64) for _ in range(2)]
    inputs = slices.reference, ctypes.byref(wanted)
    if run(*inputs, *map(address, tables)) != KERNEL_DONE:
        return None
    return tables[0], tables[1]


def follow(buffer: Bytes) -> tuple[Int64s, Int64s, int] | None:
    """Return starts and sizes of the whole records from byte 0 on, and where the last one ends."""
    run = kernel("mq_follow")
    if run is None:
        return None
    room = len(buffer) // MIN_RECORD_BYTES
    starts, sizes = np.empty(room, np.int64), np.empty(room, np.int64)
    end = ctypes.c_int64()
    places = (address(starts), address(sizes))
    count = run(address(buffer), len(buffer), *places, room, ctypes.byref(end))
    return starts[:count], sizes[:count], end.value


class SlicedBuffer:
    """``Slices`` of frames.h, and the arrays it points at."""

    def __init__(self, buffer: Bytes, starts: Int64s, sizes: Int64s) -> None:
        assert len(starts) == len(sizes)
        self._held = buffer, int64s(starts), int64s(sizes)
        where = address(buffer), len(buffer)
        places = address(self._held[1]), address(self._held[2])
        self._slices = structure("Slices")(*where, *places, len(starts))
        self.reference = ctypes.byref(self._slices)
