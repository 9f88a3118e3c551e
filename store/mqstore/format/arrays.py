"""Names of types that all rooms use, of numpy arrays and of pairs, and memory for large arrays."""

import weakref
from collections.abc import Iterable
from typing import Any, Final, TypeAlias

import numpy as np
from numpy.typing import NDArray

Bytes: TypeAlias = NDArray[np.uint8]
Int32s: TypeAlias = NDArray[np.int32]
Int64s: TypeAlias = NDArray[np.int64]
Mask: TypeAlias = NDArray[np.bool_]
Structs: TypeAlias = NDArray[np.void]
UInt32s: TypeAlias = NDArray[np.uint32]
UInt64s: TypeAlias = NDArray[np.uint64]
UInt64Pairs: TypeAlias = NDArray[np.uint64]
"""Numbers of 128 bits, [n, 2]: the low half first."""

TopicQueue: TypeAlias = tuple[str, int]
"""A topic and a queueId."""
TopicGroup: TypeAlias = tuple[str, str]
"""A topic and a consumer group."""
Span: TypeAlias = tuple[int, int]
"""[start, end): of queue offsets, unless something else is said."""

_SPARE: Final = 4  # A quarter more than was asked for, so that the next item fits as well.
_MOST_SPARE: Final = 4  # Memory this many times too large is let go.


_PLANES: Final = np.dtype("<i8")


def byte_planes(values: Iterable[int]) -> bytes:
    """Return values of int64 as bytes that compress well: all lowest bytes first, then the next."""
    array = np.fromiter(values, _PLANES)
    return array.view(np.uint8).reshape(-1, _PLANES.itemsize).T.tobytes()


def of_byte_planes(data: bytes) -> list[int]:
    """Return the values of ``byte_planes``; raises ValueError for bytes that are none."""
    planes = np.frombuffer(data, np.uint8).reshape(_PLANES.itemsize, -1)
    return np.ascontiguousarray(planes.T).view(_PLANES).ravel().tolist()


class Recycled:
    """Memory for one large item after the other, used again once nothing refers to the item.

    Fresh pages cost more than what is written into them. An item that a caller keeps keeps its
    memory. One thread at a time may take; any may let go.
    """

    def __init__(self, most: int) -> None:
        """``most`` memories are kept: one more than there are items in use at a time."""
        self._most = most
        self._held: list[tuple[Bytes, weakref.ref[Any]]] = []

    def take(self, size: int) -> memoryview:
        """Return ``size`` writable bytes with anything in them."""
        memory = self._free(size)
        if memory is None:
            memory = np.empty(size + size // _SPARE, np.uint8)
        # What is made of the memoryview refers to this array; numpy never gets past it.
        view = memory[:size]
        self._held = [*self._held, (memory, weakref.ref(view))][-self._most :]
        return view.data

    def _free(self, size: int) -> Bytes | None:
        for place, (memory, user) in enumerate(self._held):
            if user() is None and size <= len(memory) <= _MOST_SPARE * max(size, 1):
                return self._held.pop(place)[0]
        return None
