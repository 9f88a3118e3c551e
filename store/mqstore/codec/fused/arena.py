"""Memory for the columns of one chunk, used again once nothing refers to it any more.

Fresh pages cost more than what is written into them. A batch that a caller keeps keeps its
memory; of one that is gone the next chunk is made.
"""

import weakref
from typing import Any, Final

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from mqstore.native.arrays import address

_REUSED_ARENAS: Final = 2  # One batch is on its way to the reader while the next is made.
_SPARE: Final = 4  # A quarter more than was asked for, so that the next chunk fits as well.
_MOST_SPARE: Final = 4  # Memory this many times too large is let go.


class Lease:
    """Memory of one chunk, until the last Arrow buffer on it is gone."""

    def __init__(self, memory: NDArray[np.uint8]) -> None:
        # The view is what every buffer made of ``whole`` refers to; numpy never gets at it.
        view = memory[:]
        self.start = address(memory)
        self.whole = pa.py_buffer(view)
        self.alive: weakref.ref[Any] = weakref.ref(view)

    def buffer(self, start: int, size: int) -> pa.Buffer:
        """Return ``size`` bytes from ``start`` on as an Arrow buffer."""
        return self.whole.slice(start, size)


class Arena:
    """Memories, some leased and some free."""

    def __init__(self) -> None:
        self._held: list[tuple[NDArray[np.uint8], weakref.ref[Any]]] = []

    def lease(self, size: int) -> Lease:
        """Return memory of at least ``size`` bytes with anything in it."""
        for place, (memory, alive) in enumerate(self._held):
            if alive() is None and size <= len(memory) <= _MOST_SPARE * max(size, 1):
                del self._held[place]
                return self._hold(memory)
        return self._hold(np.empty(size + size // _SPARE, np.uint8))

    def _hold(self, memory: NDArray[np.uint8]) -> Lease:
        lease = Lease(memory)
        self._held = [*self._held[1 - _REUSED_ARENAS :], (memory, lease.alive)]
        return lease
