"""The CommitLog of a new store, while a salvage makes it: files, and what is put into them."""

import os
from array import array
from bisect import bisect_right
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Final

import numpy as np

from mqstore.codec.filler import filler
from mqstore.codec.gather import RecordHeaders
from mqstore.codec.patch import move
from mqstore.codec.walk import CUT, follow
from mqstore.copy.damaged_log import FILE_SIZE_FLAG, SourceFile, Sources
from mqstore.copy.salvage_report import (
    DOUBTED,
    Report,
    ReportEntry,
    record_headers,
    with_record,
)
from mqstore.derive.whole_records import Stretch
from mqstore.errors import CorruptStoreError
from mqstore.files.base import durable
from mqstore.files.copy_target import Copy
from mqstore.format.arrays import Int64s
from mqstore.format.message import BLANK, BLANK_MAGIC, HARD_RECORD_BYTES, MIN_BLANK_BYTES
from mqstore.format.names import COMMIT_LOG, mapped_file_name

CopyProgress = Callable[[int, int], None]

LIES_ELSEWHERE: Final = "PHYSICALOFFSET is not the record's place"
FILE_MISSING: Final = "the file is missing"
NO_WHOLE_RECORD: Final = "no whole record in these bytes"

_COPIED_BYTES: Final = 1 << 22
_OTHER_SIZE: Final = (
    f"if the broker's mappedFileSizeCommitLog is another, give it by {FILE_SIZE_FLAG}"
)


@dataclass(slots=True)
class NewLogFile:
    """A file of the new log: where it starts, and positions [low, high) without a record."""

    start: int
    size: int
    lows: "array[int]" = field(default_factory=lambda: array("q"))
    highs: "array[int]" = field(default_factory=lambda: array("q"))
    is_made: bool = False
    blank_at: int = -1
    used_to: int = 0
    source: SourceFile | None = None

    def room_at(self, position: int) -> int:
        """Return where the gap that holds ``position`` ends for records; ``position`` if none."""
        number = bisect_right(self.lows, position) - 1
        if number < 0 or self.highs[number] <= position:
            return position
        return min(self.highs[number], self.size - MIN_BLANK_BYTES)

    def occupy(self, low: int, high: int) -> None:
        """Take positions [low, high) out of the gap that holds them."""
        number = bisect_right(self.lows, low) - 1
        begin, end = self.lows[number], self.highs[number]
        rest = [(a, b) for a, b in ((begin, low), (high, end)) if a < b]
        self.lows[number : number + 1] = array("q", [a for a, _ in rest])
        self.highs[number : number + 1] = array("q", [b for _, b in rest])


class NewLog:
    """Files of a new CommitLog. Raises NoSpaceError, OSError."""

    is_packed = False
    """Whether records lie elsewhere than in the source, one behind the other."""

    def __init__(self, copy: Copy, sources: Sources, report: Report) -> None:
        self._copy = copy
        self._sources = sources
        self._size = sources.file_size
        self._report = report
        self._files: dict[int, NewLogFile] = {}
        self._known: list[int] = []
        """Where files start whose places are sure."""
        self.records = 0
        """Whole records in the new log."""
        self.moved = 0
        """Those of them that lay elsewhere than they said."""

    @property
    def low(self) -> int:
        """Physical offset where the new log starts, once it is filled."""
        return min(file.start for file in self._files.values() if file.is_made)

    @property
    def starts(self) -> list[int]:
        """Where its files start."""
        return sorted(file.start for file in self._files.values() if file.is_made)

    def move_up(self, by: int) -> None:
        """Add ``by`` to the physical offsets of all records, and to the names of the files."""
        for start in reversed(self.starts):
            file = self._files.pop(start)
            with self._opened(file) as fd:
                _move_records(fd, self._size, by)
            file.start += by
            names = [f"{COMMIT_LOG}/{mapped_file_name(one)}" for one in (start, file.start)]
            self._copy.rename(*names)
            self._files[file.start] = file

    def put_blank_file(self, start: int) -> None:
        """Make a file that holds nothing but a blank record."""
        file = self._file(start)
        with self._opened(file) as fd:
            self._put_blank(fd, file, 0)

    def apart(self, places: Int64s) -> Int64s:
        """Return physical offsets, moved apart by bytes that were lost and left no room."""
        return places

    def set_aside(self, physical_offset: int, size: int, entry: ReportEntry) -> None:
        """Put a filler record over a record, which goes into the report."""
        file = self._file_of(physical_offset)
        position = physical_offset - file.start
        with self._opened(file) as fd:
            record = os.pread(fd, size, position)
            self._put_filler(fd, file, position, size, time_of(record))
        self.records -= 1
        self._report.add(with_record(entry, record))

    def _check_made(self) -> list[int]:
        """Return where the files start. Raises CorruptStoreError if there are none."""
        if not self.starts:
            reason = f"no whole record is in these files of {self._size} bytes"
            raise CorruptStoreError(self._sources.path, 0, f"{reason}: {_OTHER_SIZE}")
        return self.starts

    def _doubt(
        self, file: SourceFile, source: int, position: int, length: int, reason: str
    ) -> None:
        record = os.pread(source, min(length, HARD_RECORD_BYTES), position)
        entry = ReportEntry(kind=DOUBTED, reason=reason, file=file.name, position=position)
        self._report.add(with_record(entry, record))

    def _put_filler(self, fd: int, file: NewLogFile, position: int, size: int, ms: int) -> None:
        head, tail = filler(file.start + position, size, ms)
        durable.write_zeros(fd, position, size)
        durable.write_at(fd, head, position)
        durable.write_at(fd, tail, position + size - len(tail))

    def _put_blank(self, fd: int, file: NewLogFile, position: int) -> None:
        record = np.zeros((), BLANK)
        record["magic"], record["total_size"] = BLANK_MAGIC, file.size - position
        durable.write_at(fd, record.tobytes(), position)

    def _file_of(self, physical_offset: int) -> NewLogFile:
        base = self._known[0] if self._known else 0
        return self._file(physical_offset - (physical_offset - base) % self._size)

    def _file(self, start: int, source: SourceFile | None = None) -> NewLogFile:
        found = self._files.get(start)
        if found is None:
            found = self._files[start] = NewLogFile(start, self._size, source=source)
            found.lows.append(0)
            found.highs.append(self._size)
        return found

    def _opened(self, file: NewLogFile) -> "_Opened":
        path = f"{COMMIT_LOG}/{mapped_file_name(file.start)}"
        if file.is_made:
            return _Opened(durable.open_for_write(f"{self._copy.root}/{path}"))
        file.is_made = True
        opened = _Opened(self._copy.create(path))
        durable.truncate(opened.fd, self._size)
        return opened


@dataclass(frozen=True, slots=True)
class _Opened:
    fd: int

    def __enter__(self) -> int:
        return self.fd

    def __exit__(self, *_: object) -> None:
        durable.close(self.fd)


def records_of(source: int, stretch: Stretch) -> Iterator[tuple[int, Int64s, Int64s]]:
    """Yield a position in the file, and where the records behind it start and end, from there."""
    position, window = stretch.position, _COPIED_BYTES
    while position < stretch.end:
        walked = follow(os.pread(source, min(window, stretch.end - position), position))
        if walked.end:
            yield position, walked.starts, walked.starts + walked.sizes
            position += walked.end
        if walked.why != CUT or window > HARD_RECORD_BYTES:
            return
        window = _COPIED_BYTES if walked.end else 4 * window


def _move_records(fd: int, size: int, by: int) -> None:
    """Add ``by`` to the physical offsets of the records that a file begins with."""
    for position, starts, ends in records_of(fd, Stretch(0, 0, size, 0)):
        data = bytearray(os.pread(fd, int(ends[-1]), position))
        move(RecordHeaders.within(data, starts, ends - starts), by)
        durable.write_at(fd, memoryview(data), position)


def time_of(record: bytes) -> int:
    """Return the store timestamp of a record, in ms, given its first bytes."""
    return int(record_headers(record).field("store_timestamp_ms")[0])
