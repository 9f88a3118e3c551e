"""One file of a queue, looked into a block of units at a time: where a condition begins to hold."""

from bisect import bisect_left
from collections.abc import Callable, Iterator
from typing import Final, TypeAlias

import numpy as np

from mqstore.files.base.mapped_file_queue import MappedFile
from mqstore.files.base.read_file import ReadFile
from mqstore.format.arrays import Mask, Structs
from mqstore.format.consume_queue import UNIT

Test: TypeAlias = Callable[[Structs], Mask]

PROBED_UNITS: Final = 204  # of 4 KiB


def written_units(file: MappedFile, first: int, most: int) -> Iterator[tuple[int, Structs]]:
    """Yield what is not zero of a file from unit ``first`` of it on, with the number of the unit.

    A broker makes its files whole. Their holes are not read, and little of each: what is read at
    once doubles from a page on to ``most`` units. Raises OSError.
    """
    opened = file.open()
    try:
        position, many = first * UNIT.itemsize, PROBED_UNITS
        while (held := opened.next_data(position, file.size)) < file.size:
            many = min(2 * many, most) if held == position else PROBED_UNITS
            position = held - held % UNIT.itemsize
            data = opened.read(min(many * UNIT.itemsize, file.size - position), position)
            units = np.frombuffer(data, UNIT, len(data) // UNIT.itemsize)
            if not len(units):
                return
            if np.frombuffer(data, np.uint8).any():
                yield position // UNIT.itemsize, units
            position += len(units) * UNIT.itemsize
    finally:
        opened.close()


class UnitBlocks:
    """Looks into one file, a block of units at a time; opened when first needed."""

    def __init__(self, file: MappedFile, unit: "np.dtype[np.void]" = UNIT) -> None:
        self._unit = unit
        self.start = file.start // self._unit.itemsize
        self.count = file.size // self._unit.itemsize
        self._file = file
        self._opened: ReadFile | None = None
        self._read: dict[int, Structs] = {}

    def close(self) -> None:
        """Close what is open and forget what was read."""
        if self._opened is not None:
            self._opened.close()
        self._opened = None
        self._read.clear()

    def first(self, count: int, holds: Test) -> int:
        """Return the first of ``count`` units that ``holds``, which is false before it.

        ``count`` if none does. Blocks are tried in strides that double, then bisected: most of
        many queues are short, and zero from the first block on.
        """
        last = (count - 1) // PROBED_UNITS

        def ends(block: int) -> bool:
            return self.tests(min((block + 1) * PROBED_UNITS, count) - 1, holds)

        stride = 1
        while stride <= last and not ends(stride - 1):
            stride *= 2
        block = bisect_left(range(last + 1), True, stride // 2, min(stride, last + 1), key=ends)
        if block > last:
            return count
        held = np.flatnonzero(holds(self._block(block)))
        return min(block * PROBED_UNITS + int(held[0]), count) if len(held) else count

    def tests(self, index: int, holds: Test) -> bool:
        """Tell whether unit ``index`` ``holds``."""
        block, row = divmod(index, PROBED_UNITS)
        return bool(holds(self._block(block)[row : row + 1])[0])

    def units(self, first: int, end: int) -> Structs:
        """Return units [first, end) of one block."""
        block, row = divmod(first, PROBED_UNITS)
        return self._block(block)[row : row + end - first]

    def _block(self, number: int) -> Structs:
        if number not in self._read:
            if self._opened is None:
                self._opened = self._file.open()
            size = PROBED_UNITS * self._unit.itemsize
            data = self._opened.read(size, number * size)
            # Zeros behind the file's end: it may have shrunk since it was listed.
            self._read[number] = np.frombuffer(data.ljust(size, b"\0"), self._unit)
        return self._read[number]
