"""Append to the CommitLog: bytes at physical offsets, in files of one size.

write/plan.py decides where records lie; here a run of bytes never crosses a file's end. Existing
files keep their names and sizes; room that is too small for a batch becomes a blank record.

Reference: CommitLog.DefaultAppendMessageCallback#doAppend, MappedFileQueue#tryCreateMappedFile.
"""

import os
from typing import Final

import numpy as np

from mqstore.errors import CorruptStoreError, UnsupportedStoreError
from mqstore.files.base import durable
from mqstore.files.base.new_file import NewFile, opened, reserve_in, wipe
from mqstore.files.base.store_writer import MMAP, StoreWriter
from mqstore.format.message import BLANK, BLANK_MAGIC
from mqstore.format.names import mapped_file_name

_MAGIC_AT: Final = 4  # of a record and of a blank one
_NO_BLOCKS: Final = "its file system reserves no blocks, which writeMode=mmap needs: use pwrite"


class CommitLogAppender:
    """Writes physical offsets [tail, end) of one CommitLog, where there is nothing yet.

    With the write mode ``mmap``, through a mapping of each file whose blocks it has reserved.

    One byte at ``tail``, the first of the magic, stays zero until ``publish``: until then a scan
    of the log, a broker's or ours, ends there and sees nothing of what is written behind.
    """

    def __init__(self, writer: StoreWriter, log_start: int) -> None:
        """``log_start`` is where any file of the log starts: its name."""
        self._writer = writer
        self._folder = writer.place.commit_log[0]
        self._file_size = writer.sizes.commit_log
        self._log_start = log_start
        self._new: dict[int, NewFile] = {}
        self._reserved: set[int] = set()
        self._mapping: durable.WriteMapping | None = None
        self._fd = -1
        self._start = -1
        self._written = durable.WriteBack()
        self._tail = -1
        self._hidden: int | None = None
        self._inodes: dict[str, int] = {}

    def reserve(self, tail: int, end: int) -> None:
        """Reserve disk space for [tail, end), which may be empty. Nothing visible changes.

        Raises NoSpaceError; CorruptStoreError if a file of another size is in the way;
        UnsupportedStoreError if files are to be mapped and blocks cannot be reserved.
        """
        self._tail = tail
        start = tail - self._position(tail)
        while start < end:
            low, high = max(tail, start), min(end, start + self._file_size)
            path = self._path(start)
            if os.path.lexists(path):
                size = self._file_size
                is_promised = reserve_in(path, low - start, high - low, file_size=size)
            else:
                self._new[start] = new = NewFile(self._writer, self._file_size)
                is_promised = new.reserve(low - start, high - low)
            if is_promised:
                self._reserved.add(start)
            elif self._writer.write_mode == MMAP:
                raise UnsupportedStoreError(self._writer.root, "FILE_SYSTEM", _NO_BLOCKS)
            start += self._file_size

    def make_files(self) -> None:
        """Put the new files in place, all zeros: to a broker they are preallocated ones."""
        for start, new in self._new.items():
            new.put(self._path(start))
        self._new.clear()

    def write(self, physical_offset: int, data: memoryview) -> None:
        """Write ``data``, all of which lies in one file. Positions never go back."""
        position = self._position(physical_offset)
        self._open(physical_offset - position)
        if physical_offset == self._tail:
            data = self._hide(data)
        start, size = self._start, len(data)
        path = self._path(start)
        self._writer.undo.remember(lambda: wipe(path, position, size))
        if self._mapping is None:
            durable.write_at(self._fd, data, position)
        else:
            self._mapping.write_at(data, position)
        self._written.wrote(self._fd, position, size)

    def blank(self, physical_offset: int) -> None:
        """End the file that holds ``physical_offset`` there with a blank record."""
        record = np.zeros((), BLANK)
        record["magic"] = BLANK_MAGIC
        record["total_size"] = self._file_size - self._position(physical_offset)
        self.write(physical_offset, memoryview(record.tobytes()))

    def check_files(self) -> None:
        """Raise CorruptStoreError if a file that was written is not in its place any more.

        A broker that starts in spite of the lock removes files behind the end of the log.
        """
        for path, inode in self._inodes.items():
            if not durable.same_file(path, inode):
                raise CorruptStoreError(path, 0, "the file was removed while it was written")

    def publish(self) -> None:
        """Write the byte that was held back, durably: all records become visible at once."""
        assert self._hidden is not None
        position = self._position(self._tail)
        with opened(self._path(self._tail - position)) as fd:
            durable.write_at(fd, bytes([self._hidden]), position + _MAGIC_AT)
            durable.fsync(fd)

    def close(self) -> None:
        """Return when all that was written would survive a power cut."""
        if self._fd >= 0:
            fd, self._fd, self._start = self._fd, -1, -1
            mapping, self._mapping = self._mapping, None
            try:
                if mapping is not None:
                    mapping.close()
                durable.fsync(fd)
            finally:
                durable.close(fd)

    def _hide(self, data: memoryview) -> memoryview:
        self._hidden = data[_MAGIC_AT]
        hidden = bytearray(data)
        hidden[_MAGIC_AT] = 0
        return memoryview(hidden)

    def _open(self, start: int) -> None:
        if start != self._start:
            self.close()
            self._fd = durable.open_for_write(self._path(start))
            self._start = start
            if self._writer.write_mode == MMAP and start in self._reserved:
                self._mapping = durable.WriteMapping(self._fd)
            self._written = durable.WriteBack()
            self._inodes[self._path(start)] = os.fstat(self._fd).st_ino

    def _position(self, physical_offset: int) -> int:
        return (physical_offset - self._log_start) % self._file_size

    def _path(self, start: int) -> str:
        return f"{self._folder}/{mapped_file_name(start)}"
