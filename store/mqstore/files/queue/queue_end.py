"""The end of a ConsumeQueue, looked at often: one file kept open, one small read a look."""

from contextlib import suppress
from dataclasses import replace
from typing import Final

import numpy as np

from mqstore.files.base.read_file import ReadFile
from mqstore.files.queue.consume_queue import ConsumeQueue
from mqstore.format.consume_queue import UNIT

_NO_SIZE: Final = bytes(UNIT["size"].itemsize)
_SIZE_AT: Final = int(UNIT.fields["size"][1]) if UNIT.fields else 0


class QueueEnd:
    """Counts the units from a queue offset on. Keeps a descriptor: ``close`` it."""

    def __init__(self, queue: ConsumeQueue) -> None:
        self._queue = queue
        self._file: ReadFile | None = None
        self._first = self._past = 0  # queue offsets of the open file

    def close(self) -> None:
        """Close what is open; the next look opens it again."""
        if self._file is not None:
            self._file.close()
            self._file = None

    def has_unit(self, queue_offset: int) -> bool:
        """Tell whether that unit is there. Called very often, it reads 4 bytes."""
        opened = self._open(queue_offset)
        if opened is None:
            return False
        position = (queue_offset - self._first) * UNIT.itemsize + _SIZE_AT
        return opened.read(len(_NO_SIZE), position).strip(_NO_SIZE) != b""

    def count_from(self, queue_offset: int, most: int) -> int:
        """Return how many units there are from ``queue_offset`` on: at most ``most``.

        Also ends with the file: call again from there. The broker writes units in order
        into a file of zeros, so the first without a size ends the queue.
        """
        opened = self._open(queue_offset)
        if opened is None:
            return 0
        position = (queue_offset - self._first) * UNIT.itemsize
        data = opened.read(most * UNIT.itemsize, position)
        sizes = np.frombuffer(data[: len(data) // UNIT.itemsize * UNIT.itemsize], UNIT)["size"]
        empty = np.flatnonzero(sizes == 0)
        return int(empty[0]) if len(empty) else len(sizes)

    def _open(self, queue_offset: int) -> ReadFile | None:
        """Open the file that the unit is in or goes to, if it is there."""
        if self._file is not None and self._first <= queue_offset < self._past:
            return self._file
        self.close()
        position = queue_offset * UNIT.itemsize
        file = self._queue.files.find(position)
        if file is None:
            self._queue = replace(self._queue)  # Perhaps a new file, behind a full one.
            file = self._queue.files.find(position)
        if file is None:
            return None
        with suppress(FileNotFoundError):
            self._file = file.open()
            self._first, self._past = file.start // UNIT.itemsize, file.end // UNIT.itemsize
        return self._file
