"""Repair of one ConsumeQueue: units are read as they lie, and replaced.

A file that would be left without a unit at a queue's end is removed, never emptied: a broker
takes the first zeros of a file for a message. New files come into view with their first units.

Reference: ConsumeQueue#putMessagePositionInfo, #fillPreBlank, #truncateDirtyLogicFiles.
"""

from collections.abc import Iterator

import numpy as np

from mqstore.errors import CorruptStoreError, UnsafePathError
from mqstore.files.base import durable
from mqstore.files.base.mapped_file_queue import MappedFile, MappedFileQueue
from mqstore.files.base.new_file import opened
from mqstore.files.base.store_writer import StoreWriter
from mqstore.files.queue.queue_append import QueueAppender
from mqstore.files.queue.unit_blocks import written_units
from mqstore.format.arrays import Int64s, Mask, Structs
from mqstore.format.consume_queue import FILLER_SIZE, UNIT
from mqstore.format.names import CONSUME_QUEUE, mapped_file_name, parse_mapped_file_name

_CHUNK_UNITS = 50_000


class QueueRepair:
    """Reads and replaces units of one queue. Files are listed anew where they may have changed."""

    def __init__(self, writer: StoreWriter, topic: str, queue_id: int) -> None:
        self.path = f"{CONSUME_QUEUE}/{topic}/{queue_id}"
        self._queue = (topic, queue_id)
        self._writer = writer
        self._root = writer.root
        self._folder = writer.place.folder
        self._file_size = writer.sizes.consume_queue
        self._found: list[tuple[int, int]] = []  # start and bytes of each file, empty ones too
        self.files = self._list()

    def sizes(self) -> list[int]:
        """Return the bytes of each file that is not empty."""
        return [size for _, size in self._found if size]

    def check_files(self) -> None:
        """Raise CorruptStoreError for a file that is longer than the store's."""
        for start, size in self._found:
            if size > self._file_size:
                path = f"{self._root}/{self.path}/{mapped_file_name(start)}"
                reason = f"the file is {size} bytes long, the store's {self._file_size}"
                raise CorruptStoreError(path, size, reason)

    def repair_files(self) -> int:
        """Remove files that are empty or no file's place, give short ones their length; count them.

        A broker that was killed while it made a file leaves it so, and will not start.
        """
        count = 0
        folder = f"{self._root}/{self.path}"
        for start, size in self._found:
            path = f"{folder}/{mapped_file_name(start)}"
            if not size or start % self._file_size:
                durable.unlink(path)
                count += 1
            elif size < self._file_size:
                with opened(path) as fd:
                    durable.truncate(fd, self._file_size)
                    durable.fsync(fd)
                count += 1
        if count:
            self._sync_folder()
            self.files = self._list()
        return count

    def read(self, start: int, end: int) -> Structs:
        """Return the units [start, end) as they lie; zeros where there is no file."""
        units = np.zeros(end - start, UNIT)
        into = units.view(np.uint8).data
        low, high = start * UNIT.itemsize, end * UNIT.itemsize
        for file in self.files.files:
            begin, stop = max(low, file.start), min(high, file.end)
            if begin < stop:
                opened_file = file.open()
                try:
                    opened_file.read_into(into[begin - low : stop - low], begin - file.start)
                finally:
                    opened_file.close()
        return units

    def write(self, runs: list[tuple[int, Structs]]) -> None:
        """Write runs of units at their queue offsets, durably."""
        appender = QueueAppender(self._writer, *self._queue)
        for start, units in runs:
            appender.reserve(start, start + len(units))
        for start, units in runs:
            appender.write(start, units)
        self.sync_last()  # In front of new files, and found right in memory only, perhaps.
        appender.close()
        self.files = self._list()

    def file_start(self, queue_offset: int) -> int:
        """Return the first queue offset of the file that the unit is in or would be in."""
        return queue_offset - queue_offset % (self._file_size // UNIT.itemsize)

    def chunks(self, file: MappedFile) -> Iterator[tuple[int, Structs]]:
        """Yield what one file holds as (queue offset, units); its zeros are left out."""
        for first, units in written_units(file, 0, _CHUNK_UNITS):
            yield file.start // UNIT.itemsize + first, units

    def zero(self, file: MappedFile, numbers: Int64s) -> None:
        """Make units of one file zero, durably."""
        with opened(file.name) as fd:
            for run in np.split(numbers, np.flatnonzero(np.diff(numbers) != 1) + 1):
                position = int(run[0]) * UNIT.itemsize - file.start
                durable.write_zeros(fd, position, len(run) * UNIT.itemsize)
            durable.fsync(fd)

    def sync(self, low: int, high: int) -> None:
        """Make units [low, high) and the names of their files durable."""
        for file in self.files.files:
            if file.start < high * UNIT.itemsize and file.end > low * UNIT.itemsize:
                with opened(file.name) as fd:
                    durable.fsync(fd)
        self._sync_folder()

    def sync_last(self) -> None:
        """Make what the last file holds durable."""
        for file in self.files.files[-1:]:
            with opened(file.name) as fd:
                durable.fsync(fd)

    def remove(self, file: MappedFile) -> None:
        """Remove a file, durably."""
        durable.unlink(file.name)
        self._sync_folder()
        self.files = self._list()

    def _list(self) -> MappedFileQueue:
        try:
            entries = self._folder.entries(self.path)
        except (FileNotFoundError, NotADirectoryError):
            entries = []
        named = [(parse_mapped_file_name(e.name), e) for e in entries]
        for start, entry in named:
            if start is not None and entry.is_directory:
                path = f"{self._root}/{self.path}/{entry.name}"
                raise UnsafePathError(path, "a directory named like a mapped file")
        self._found = [(start, entry.size) for start, entry in named if start is not None]
        return MappedFileQueue(
            MappedFile(self._folder, f"{self.path}/{mapped_file_name(start)}", start, size)
            for start, size in self._found
            if size and not start % self._file_size
        )

    def _sync_folder(self) -> None:
        durable.fsync_directory(f"{self._root}/{self.path}")


def fillers(count: int) -> Structs:
    """Return units that stand for queue offsets before a queue's first message."""
    units = np.zeros(count, UNIT)
    units["size"] = FILLER_SIZE
    return units


def are_empty(units: Structs) -> Mask:
    """Tell which units are all zero."""
    plain = np.ascontiguousarray(units).view(np.uint8).reshape(len(units), UNIT.itemsize)
    empty: Mask = np.asarray(~plain.any(axis=1), np.bool_)
    return empty
