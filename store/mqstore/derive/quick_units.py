"""The compiled walk over a log file, as far as its kernel goes: it leaves rare records to numpy."""

from collections.abc import Iterator
from typing import Final

import numpy as np

from mqstore.codec.walk import CUT, what_lies_at
from mqstore.files.base.mapped_file_queue import MappedFile
from mqstore.files.log.commit_log import CommitLog
from mqstore.format.arrays import Bytes
from mqstore.format.message import HARD_RECORD_BYTES
from mqstore.native.registry import FULL, NOT_MINE
from mqstore.native.walk import GatheredUnits, UnitsKernel

LEFT: Final = "left to numpy"


class QuickWalk:
    """Walks over records that follow each other in one file."""

    def __init__(self, log: CommitLog, file: MappedFile, limit: int, room: int) -> None:
        """Gather units of ``room`` records at a time, of records before ``limit``."""
        self._log = log
        self._file = file
        self._limit = limit
        self._kernel = UnitsKernel(room, limit)
        self._memory: Bytes = np.empty(log.block_bytes, np.uint8)
        self.end = file.start
        """Behind the last record."""
        self.why = CUT
        """What lies at ``end``: as codec.walk tells it, or LEFT."""

    @staticmethod
    def is_for(log: CommitLog, file: MappedFile) -> bool:
        """Tell whether there is a kernel for such a file: one of plain records, all committed."""
        if not UnitsKernel.is_there() or log.head_bytes(file):
            return False
        return log.committed_end is None or log.committed_end >= file.end

    @property
    def last_ms(self) -> int:
        """Store timestamp of the last record; 0 if there was none."""
        return self._kernel.last_ms

    def parts(self, position: int) -> Iterator[GatheredUnits]:
        """Yield the units of records from ``position`` on; ``end`` and ``why`` are final then.

        Raises OSError.
        """
        self.end, self.why, is_last = position, CUT, False
        while self.why == CUT and not is_last:
            room = self._file.end - self.end
            buffer = self._memory[:room]
            buffer = buffer[: self._log.read_into(self.end, buffer.data)]
            moved, result = self._kernel.walk(buffer, self.end)
            self.end += moved
            if result == FULL and self._kernel.count:
                yield self._kernel.take()
                continue
            if result in {FULL, NOT_MINE}:
                self.why = LEFT
                break
            self.why = what_lies_at(buffer.data, moved)
            size = len(self._memory)
            is_last = size >= room or self.end >= self._limit
            if not moved and not is_last:
                is_last = size >= HARD_RECORD_BYTES
                self._memory = np.empty(4 * size, np.uint8)
        if self._kernel.count:
            yield self._kernel.take()
