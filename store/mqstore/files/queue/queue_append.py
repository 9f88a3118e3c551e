"""Append to ConsumeQueues: units at queue offsets, in files of one size.

Units of a batch ConsumeQueue are numbered from 0, whatever queue offsets they have.

A new file is never visible without units: it is filled in the folder of new files, up to its end
or to the last unit of this commit, and only then linked into the queue's directory.

Reference: ConsumeQueue#putMessagePositionInfo, BatchConsumeQueue#putBatchMessagePositionInfo.
"""

import os

import numpy as np

from mqstore.files.base import durable
from mqstore.files.base.new_file import NewFile, opened, reserve_in, wipe
from mqstore.files.base.store_writer import StoreWriter
from mqstore.format.arrays import Structs
from mqstore.format.batch_consume_queue import BATCH_UNIT
from mqstore.format.consume_queue import UNIT
from mqstore.format.names import BATCH_CONSUME_QUEUE, CONSUME_QUEUE, mapped_file_name


class QueueAppender:
    """Writes the units of queue offsets [start, end) of one queue, in that order."""

    def __init__(
        self, writer: StoreWriter, topic: str, queue_id: int, batch_file_size: int = 0
    ) -> None:
        """``batch_file_size``: bytes of a file, of a batch ConsumeQueue; 0: it is none."""
        self._writer = writer
        kind = BATCH_CONSUME_QUEUE if batch_file_size else CONSUME_QUEUE
        self._folder = f"{kind}/{topic}/{queue_id}"
        self._unit_bytes = BATCH_UNIT.itemsize if batch_file_size else UNIT.itemsize
        self._file_size = batch_file_size or writer.sizes.consume_queue
        self._new: dict[int, NewFile] = {}
        self._touched: set[str] = set()

    def reserve(self, start: int, end: int) -> None:
        """Reserve disk space for units [start, end). Nothing visible changes.

        Raises NoSpaceError; CorruptStoreError if a file of another size is in the way.
        """
        low, high = start * self._unit_bytes, end * self._unit_bytes
        base = low - low % self._file_size
        while base < high:
            begin, stop = max(low, base) - base, min(high, base + self._file_size) - base
            path = self._path(base)
            if os.path.lexists(path):
                reserve_in(path, begin, stop - begin, file_size=self._file_size)
            else:
                if base not in self._new:
                    self._new[base] = NewFile(self._writer, self._file_size)
                self._new[base].reserve(begin, stop - begin)
            base += self._file_size

    def write(self, start: int, units: Structs) -> None:
        """Write units from queue offset ``start`` on. New files stay unseen until ``close``."""
        data = units.view(np.uint8).data
        position = start * self._unit_bytes
        while data:
            base = position - position % self._file_size
            part = data[: base + self._file_size - position]
            new = self._new.get(base)
            if new is not None:
                new.write(part, position - base)
            else:
                self._write_existing(self._path(base), part, position - base)
            position, data = position + len(part), data[len(part) :]

    def close(self) -> None:
        """Make new files visible, and return when all units would survive a power cut."""
        # The file in front first: a queue must not have a hole, whatever a power cut leaves.
        for path in sorted(self._touched):
            with opened(path) as fd:
                durable.fsync(fd)
        self._touched.clear()
        if self._new:
            self._writer.make_directories(self._folder)
        for base, new in self._new.items():
            new.put(self._path(base))
        self._new.clear()

    def _write_existing(self, path: str, part: memoryview, position: int) -> None:
        size = len(part)
        self._writer.undo.remember(lambda: wipe(path, position, size))
        self._touched.add(path)
        with opened(path) as fd:
            durable.write_at(fd, part, position)

    def _path(self, base: int) -> str:
        return self._writer.path(f"{self._folder}/{mapped_file_name(base)}")
