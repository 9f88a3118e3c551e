"""The extension of a ConsumeQueue, which a broker with enableConsumeQueueExt keeps beside it.

Units then hold an address in the extension's files; the tagsCode itself stands there.
"""

from dataclasses import dataclass
from functools import cached_property
from typing import Final

import numpy as np

from mqstore.files.base.mapped_file_queue import MappedFileQueue
from mqstore.files.base.store_dir import StoreDir
from mqstore.format import names
from mqstore.format.arrays import Int64s, Mask, Structs
from mqstore.format.consume_queue import EXT_ADDRESS_MAX
from mqstore.format.consume_queue_ext import ADDRESS_BASE, EXT_UNIT

_EXT_WINDOW_BYTES: Final = 256 * 1024


@dataclass(frozen=True)
class ConsumeQueueExt:
    """Reads the extension of one queue. Files are listed once, when first needed."""

    place: StoreDir
    topic: str
    queue_id: int

    @cached_property
    def files(self) -> MappedFileQueue:
        """The extension's files; none if there is no such directory."""
        path = f"{names.CONSUME_QUEUE_EXT}/{self.topic}/{self.queue_id}"
        try:
            return MappedFileQueue.list([self.place.folder.at(path)])
        except (FileNotFoundError, NotADirectoryError):
            return MappedFileQueue(())

    def tags_codes(self, addresses: Int64s) -> Int64s:
        """Return the tagsCode at each address: int64[n].

        An address where there is no unit is returned as it is: the broker too lets such a
        message pass every filter. Reads 256 KiB at a time.
        Reference: DefaultMessageStore#getMessage, ConsumeQueueExt#get.
        """
        found = addresses.copy()
        positions = addresses ^ ADDRESS_BASE  # minus it, without an overflow
        order = np.argsort(positions, kind="stable")
        begin = 0
        while begin < len(order):
            first = int(positions[order[begin]])
            stop = int(np.searchsorted(positions, first + _EXT_WINDOW_BYTES, sorter=order))
            rows = order[begin : max(stop, begin + 1)]
            units = self._units(first, int(positions[rows[-1]]) - first + 1)
            places = positions[rows] - first
            inside = int(np.searchsorted(places, len(units)))
            read = units[places[:inside]]
            whole = read["size"] >= EXT_UNIT.itemsize
            found[rows[:inside][whole]] = read["tags_code"][whole]
            begin += max(inside, 1)
        return found

    def _units(self, position: int, count: int) -> Structs:
        """Return what stands at ``position`` and the bytes after it, as if each began a unit."""
        try:
            data = self.files.read(position, count - 1 + EXT_UNIT.itemsize)
        except FileNotFoundError:  # It expired since it was listed.
            data = b""
        there = max(0, len(data) - EXT_UNIT.itemsize + 1)
        return np.ndarray((there,), EXT_UNIT, data, strides=(1,))


def is_address(tags_codes: Int64s) -> Mask:
    """Tell which of the tags codes are addresses: bool[n]. ConsumeQueueExt#isExtAddr."""
    return tags_codes <= EXT_ADDRESS_MAX
