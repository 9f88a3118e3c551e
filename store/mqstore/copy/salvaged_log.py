"""The CommitLog of the new store: each whole record where it says that it lies.

Records that lie in their places are copied there, file by file. Others, of files that lost their
names or of blocks that were moved, are put into the gaps that the first ones left. Then the gaps
get filler records, so that brokers walk over them, and files without their end a blank record.
"""

import os
from array import array
from bisect import bisect_right
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Final

import numpy as np

from mqstore.codec.filler import MIN_FILLER_BYTES, filler, filler_sizes
from mqstore.codec.gather import RecordHeaders
from mqstore.codec.patch import move
from mqstore.codec.walk import CUT, follow
from mqstore.copy.damaged_log import FILE_SIZE_FLAG, MOST_FILES_APART, SourceFile, Sources
from mqstore.copy.salvage_report import (
    DOUBTED,
    LOST,
    MOVED,
    Report,
    ReportEntry,
    record_headers,
    with_record,
)
from mqstore.derive.whole_records import Doubt, Stretch, WholeRecords
from mqstore.errors import CorruptStoreError
from mqstore.files import durable
from mqstore.files.copy_target import Copy
from mqstore.files.read_file import LocalFile
from mqstore.format.arrays import Int64s
from mqstore.format.message import BLANK, BLANK_MAGIC, HARD_RECORD_BYTES, HEADERS, MIN_BLANK_BYTES
from mqstore.format.names import COMMIT_LOG, mapped_file_name

CopyProgress = Callable[[int, int], None]

_COPIED_BYTES: Final = 1 << 22
_MOST_MOVED: Final = 1_000_000  # stretches
_SECTOR_BYTES: Final = 512
_LIES_ELSEWHERE: Final = "PHYSICALOFFSET is not the record's place"
_PLACE_TAKEN: Final = "another record lies where this one says that it lies"
_NO_ROOM: Final = "too few bytes before it for a record or a blank one"
_MISSING: Final = "the file is missing"
_NO_WHOLE_RECORD: Final = "no whole record in these bytes"
_OTHER_SIZE: Final = (
    f"if the broker's mappedFileSizeCommitLog is another, give it by {FILE_SIZE_FLAG}"
)


@dataclass(slots=True)
class _NewFile:
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


class SalvagedLog:
    """Makes the CommitLog: ``take``, then ``fill``. Raises NoSpaceError, OSError."""

    def __init__(self, copy: Copy, sources: Sources, report: Report) -> None:
        self._copy = copy
        self._sources = sources
        self._size = sources.file_size
        self._report = report
        self._files: dict[int, _NewFile] = {}
        self._moved: list[tuple[SourceFile, Stretch]] = []
        self._known: list[int] = []
        """Where the files start whose names are right, by their records."""
        self._closed: dict[str, int] = {}  # where blank records close source files, by name
        self.records = 0
        """Whole records in the new log."""
        self.moved = 0
        """Those of them that lay elsewhere."""

    def take(self, progress: CopyProgress | None = None) -> None:
        """Copy all whole records."""
        self._copy.make_directory(COMMIT_LOG)
        total, done = sum(file.size for file in self._sources.files), 0
        for file in self._sources.files:
            self._take_file(file, lambda at: progress(done + at, total) if progress else None)  # noqa: B023
            done += file.size
        # A file whose name none of its records agrees with has lost its name.
        self._known = self.starts
        self._moved.sort(key=lambda one: -one[1].length)
        for file, stretch in self._moved:
            self._take_moved(file, stretch)
            self._known = self._known or self.starts
        self._moved.clear()

    def fill(self) -> None:
        """Fill the gaps. Raises CorruptStoreError if there is no whole record at all."""
        made = [file.start for file in self._files.values() if file.is_made]
        if not made:
            where = self._sources.files[0].folder if self._sources.files else COMMIT_LOG
            reason = f"no whole record is in these files of {self._size} bytes"
            raise CorruptStoreError(where, 0, f"{reason}: {_OTHER_SIZE}")
        for start in range(min(made), max(made) + 1, self._size):
            self._fill_file(self._file(start), is_last=start == max(made))

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

    def set_aside(self, physical_offset: int, size: int, entry: ReportEntry) -> None:
        """Put a filler record over a record, which goes into the report."""
        file = self._file_of(physical_offset)
        position = physical_offset - file.start
        with self._opened(file) as fd:
            record = os.pread(fd, size, position)
            self._put_filler(fd, file, position, size, _time_of(record))
        self.records -= 1
        self._report.add(with_record(entry, record))

    def _take_file(self, file: SourceFile, progress: Callable[[int], None]) -> None:
        source = file.open()
        try:
            walk = WholeRecords(LocalFile(source), file.size, file.start, self._size)
            new = None if file.start is None else self._file(file.start, file)
            for found in walk:
                progress(found.position)
                if isinstance(found, Doubt):
                    self._doubt(file, source, found.position, found.length, found.reason)
                elif new is not None and self._is_in_place(found, new):
                    with self._opened(new) as fd:
                        file.copy(source, fd, found.position, found.length)
                    new.occupy(found.position, found.end)
                    self.records += found.records
                elif len(self._moved) < _MOST_MOVED:
                    self._moved.append((file, found))
                else:
                    self._doubt(file, source, found.position, found.length, _LIES_ELSEWHERE)
            self._closed[file.name] = walk.closed_at
            if new is not None:
                new.blank_at, new.used_to = walk.closed_at, min(walk.used_to, self._size)
        finally:
            os.close(source)

    def _is_in_place(self, found: Stretch, new: _NewFile) -> bool:
        in_place = found.physical_offset == new.start + found.position
        return in_place and found.end <= self._size - MIN_BLANK_BYTES

    def _take_moved(self, file: SourceFile, stretch: Stretch) -> None:
        """Put the records of a stretch where they say, as far as there are gaps."""
        source = file.open()
        try:
            for position, starts, ends in _records_of(source, stretch):
                said = stretch.physical_offset + position - stretch.position
                if self._is_believable(file, stretch):
                    self._take_records(file, source, position, said, (starts, ends))
                else:
                    for start, end in zip(starts.tolist(), ends.tolist(), strict=True):
                        self._doubt(file, source, position + start, end - start, _LIES_ELSEWHERE)
        finally:
            os.close(source)

    def _is_believable(self, file: SourceFile, stretch: Stretch) -> bool:
        """Tell whether records that lie elsewhere may belong where they say.

        Disks move whole blocks. What lies elsewhere otherwise may be part of a message.
        """
        known, said = self._known, stretch.physical_offset
        if file.start not in known:
            beside = MOST_FILES_APART * self._size
            return not known or known[0] - beside <= said < known[-1] + beside
        moved_by = said - (file.start or 0) - stretch.position
        return moved_by % _SECTOR_BYTES == 0 and known[0] <= said < known[-1] + self._size

    def _take_records(
        self,
        file: SourceFile,
        source: int,
        position: int,
        said: int,
        edges: tuple[Int64s, Int64s],
    ) -> None:
        """Put records that follow each other at ``position``, and say ``said``, into gaps."""
        starts, ends = edges
        row = 0
        while row < len(starts):
            first = int(starts[row])
            new = self._file_of(said + first)
            at = said + first - new.start
            room = new.room_at(at)
            count = int(np.searchsorted(ends, first + room - at, side="right")) - row
            if count <= 0:
                size = int(ends[row]) - first
                if not self._is_there(new, at, os.pread(source, size, position + first)):
                    self._doubt(file, source, position + first, size, _PLACE_TAKEN)
                row += 1
                continue
            size = int(ends[row + count - 1]) - first
            with self._opened(new) as fd:
                durable.write_at(fd, file.read(source, position + first, size), at)
            new.occupy(at, at + size)
            if position + first + size == at + size == self._closed.get(file.name):
                new.blank_at = at + size
            row += count
            self.records += count
            self.moved += count
            self._report.add(
                ReportEntry(
                    kind=MOVED,
                    reason=_LIES_ELSEWHERE,
                    file=file.name,
                    position=position + first,
                    physicalOffset=said + first,
                    size=size,
                    count=count,
                )
            )

    def _is_there(self, new: _NewFile, position: int, data: bytes) -> bool:
        if not new.is_made:
            return False
        with self._opened(new) as fd:
            return os.pread(fd, len(data), position) == data

    def _fill_file(self, file: _NewFile, *, is_last: bool) -> None:
        with self._opened(file) as fd:
            gaps = list(zip(file.lows, file.highs, strict=True))[::-1]
            while gaps:
                low, high = gaps.pop()
                if high == self._size:
                    self._end_file(fd, file, low, is_last=is_last)
                elif high - low < MIN_FILLER_BYTES:
                    # What a broker left has room for a record: these bytes are no broker's.
                    size = self._drop(fd, file, high)
                    if gaps and gaps[-1][0] == high + size:
                        gaps[-1] = low, gaps[-1][1]
                    else:
                        gaps.append((low, high + size))
                else:
                    self._lose(file, low, high, _NO_WHOLE_RECORD)
                    ms = _time_of(os.pread(fd, HEADERS[-1].itemsize, high))
                    for size in filler_sizes(high - low):
                        self._put_filler(fd, file, low, size, ms)
                        low += size

    def _end_file(self, fd: int, file: _NewFile, low: int, *, is_last: bool) -> None:
        if file.source is None:
            self._lose(file, low, self._size, _MISSING)
        elif file.blank_at != low and (not is_last or file.used_to > low):
            self._lose(file, low, file.used_to if is_last else self._size, _NO_WHOLE_RECORD)
        if not is_last:
            self._put_blank(fd, file, low)

    def _drop(self, fd: int, file: _NewFile, position: int) -> int:
        """Report the record at ``position`` of a new file as doubted; return its size."""
        head = os.pread(fd, HEADERS[-1].itemsize, position)
        size = int(record_headers(head).field("total_size")[0])
        record = os.pread(fd, size, position)
        durable.write_zeros(fd, position, size)
        entry = ReportEntry(kind=DOUBTED, reason=_NO_ROOM, physicalOffset=file.start + position)
        self._report.add(with_record(entry, record))
        self.records -= 1
        return size

    def _lose(self, file: _NewFile, low: int, high: int, reason: str) -> None:
        self._report.add(
            ReportEntry(
                kind=LOST,
                reason=reason,
                file=file.source.name if file.source else None,
                position=low,
                physicalOffset=file.start + low,
                size=high - low,
            )
        )

    def _doubt(
        self, file: SourceFile, source: int, position: int, length: int, reason: str
    ) -> None:
        record = os.pread(source, min(length, HARD_RECORD_BYTES), position)
        entry = ReportEntry(kind=DOUBTED, reason=reason, file=file.name, position=position)
        self._report.add(with_record(entry, record))

    def _put_filler(self, fd: int, file: _NewFile, position: int, size: int, ms: int) -> None:
        head, tail = filler(file.start + position, size, ms)
        durable.write_zeros(fd, position, size)
        durable.write_at(fd, head, position)
        durable.write_at(fd, tail, position + size - len(tail))

    def _put_blank(self, fd: int, file: _NewFile, position: int) -> None:
        record = np.zeros((), BLANK)
        record["magic"], record["total_size"] = BLANK_MAGIC, file.size - position
        durable.write_at(fd, record.tobytes(), position)

    def _file_of(self, physical_offset: int) -> _NewFile:
        base = self._known[0] if self._known else 0
        return self._file(physical_offset - (physical_offset - base) % self._size)

    def _file(self, start: int, source: SourceFile | None = None) -> _NewFile:
        found = self._files.get(start)
        if found is None:
            found = self._files[start] = _NewFile(start, self._size, source=source)
            found.lows.append(0)
            found.highs.append(self._size)
        return found

    def _opened(self, file: _NewFile) -> "_Opened":
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


def _records_of(source: int, stretch: Stretch) -> Iterator[tuple[int, Int64s, Int64s]]:
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
    for position, starts, ends in _records_of(fd, Stretch(0, 0, size, 0)):
        data = bytearray(os.pread(fd, int(ends[-1]), position))
        move(RecordHeaders.within(data, starts, ends - starts), by)
        durable.write_at(fd, memoryview(data), position)


def _time_of(record: bytes) -> int:
    return int(record_headers(record).field("store_timestamp_ms")[0])
