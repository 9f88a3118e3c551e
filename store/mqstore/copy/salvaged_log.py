"""The CommitLog of the new store: each whole record where it says that it lies.

Records that lie in their places are copied there, file by file. Others, of files that lost their
names or of blocks that were moved, are put into the gaps that the first ones left. Then the gaps
get filler records, so that brokers walk over them, and files without their end a blank record.
"""

import os
from collections.abc import Callable
from dataclasses import replace
from typing import Final

import numpy as np

from mqstore.codec.filler import MIN_FILLER_BYTES, filler_sizes
from mqstore.copy.damaged_log import MOST_FILES_APART, SourceFile, Sources
from mqstore.copy.new_log import (
    FILE_MISSING,
    LIES_ELSEWHERE,
    NO_WHOLE_RECORD,
    CopyProgress,
    NewLog,
    NewLogFile,
    records_of,
    time_of,
)
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
from mqstore.files.base import durable
from mqstore.files.base.read_file import LocalFile
from mqstore.files.copy_target import Copy
from mqstore.format.arrays import Int64s
from mqstore.format.message import HEADERS, MIN_BLANK_BYTES
from mqstore.format.names import COMMIT_LOG

_COPIED_BYTES: Final = 1 << 22
_MOST_MOVED: Final = 1_000_000  # stretches
_SECTOR_BYTES: Final = 512
_ALL_CONFIRMED: Final = 2**63
_PLACE_TAKEN: Final = "another record lies where this one says that it lies"
_UNCONFIRMED: Final = (
    "nothing on this disk tells that the group of this replica agreed on it; "
    "mqlog salvage --read-uncommitted takes it"
)
_NO_ROOM: Final = "too few bytes before it for a record or a blank one"


class SalvagedLog(NewLog):
    """Makes the CommitLog: ``take``, then ``fill``. Raises NoSpaceError, OSError."""

    def __init__(
        self, copy: Copy, sources: Sources, report: Report, confirmed: int | None = None
    ) -> None:
        """Take records before the physical offset ``confirmed`` of a replica; None: all."""
        super().__init__(copy, sources, report)
        self._confirmed = _ALL_CONFIRMED if confirmed is None else confirmed
        self._moved: list[tuple[SourceFile, Stretch]] = []
        self._closed: dict[str, int] = {}  # where blank records close source files, by name

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
        made = self._check_made()
        for start in range(min(made), max(made) + 1, self._size):
            self._fill_file(self._file(start), is_last=start == max(made))

    def _take_file(self, file: SourceFile, progress: Callable[[int], None]) -> None:
        source = file.open()
        try:
            walk = WholeRecords(LocalFile(source), file.size, file.start, self._size)
            new = None if file.start is None else self._file(file.start, file)
            for found in walk:
                progress(found.position)
                if isinstance(found, Doubt):
                    self._doubt(file, source, found.position, found.length, found.reason)
                    continue
                found = self._agreed_on(file, source, found)  # noqa: PLW2901
                if not found.records:
                    continue
                if new is not None and self._is_in_place(found, new):
                    with self._opened(new) as fd:
                        file.copy(source, fd, found.position, found.length)
                    new.occupy(found.position, found.end)
                    self.records += found.records
                elif len(self._moved) < _MOST_MOVED:
                    self._moved.append((file, found))
                else:
                    self._doubt(file, source, found.position, found.length, LIES_ELSEWHERE)
            self._closed[file.name] = walk.closed_at
            if new is not None:
                room = min(self._size, max(0, self._confirmed - new.start))
                new.blank_at, new.used_to = walk.closed_at, min(walk.used_to, room)
        finally:
            os.close(source)

    def _agreed_on(self, file: SourceFile, source: int, found: Stretch) -> Stretch:
        """Return the records up to the confirmed end; put the others into the report."""
        if found.physical_offset + found.length <= self._confirmed:
            return found
        length = records = 0
        for position, starts, ends in records_of(source, found):
            said = found.physical_offset + position - found.position
            for start, end in zip(starts.tolist(), ends.tolist(), strict=True):
                if said + end <= self._confirmed:
                    length, records = position + end - found.position, records + 1
                else:
                    self._doubt(file, source, position + start, end - start, _UNCONFIRMED)
        return replace(found, length=length, records=records)

    def _is_in_place(self, found: Stretch, new: NewLogFile) -> bool:
        in_place = found.physical_offset == new.start + found.position
        return in_place and found.end <= self._size - MIN_BLANK_BYTES

    def _take_moved(self, file: SourceFile, stretch: Stretch) -> None:
        """Put the records of a stretch where they say, as far as there are gaps."""
        source = file.open()
        try:
            for position, starts, ends in records_of(source, stretch):
                said = stretch.physical_offset + position - stretch.position
                if self._is_believable(file, stretch):
                    self._take_records(file, source, position, said, (starts, ends))
                else:
                    for start, end in zip(starts.tolist(), ends.tolist(), strict=True):
                        self._doubt(file, source, position + start, end - start, LIES_ELSEWHERE)
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
                    reason=LIES_ELSEWHERE,
                    file=file.name,
                    position=position + first,
                    physicalOffset=said + first,
                    size=size,
                    count=count,
                )
            )

    def _is_there(self, new: NewLogFile, position: int, data: bytes) -> bool:
        if not new.is_made:
            return False
        with self._opened(new) as fd:
            return os.pread(fd, len(data), position) == data

    def _fill_file(self, file: NewLogFile, *, is_last: bool) -> None:
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
                    self._lose(file, low, high, NO_WHOLE_RECORD)
                    ms = time_of(os.pread(fd, HEADERS[-1].itemsize, high))
                    for size in filler_sizes(high - low):
                        self._put_filler(fd, file, low, size, ms)
                        low += size

    def _end_file(self, fd: int, file: NewLogFile, low: int, *, is_last: bool) -> None:
        if file.source is None:
            self._lose(file, low, self._size, FILE_MISSING)
        elif file.blank_at != low and (not is_last or file.used_to > low):
            self._lose(file, low, file.used_to if is_last else self._size, NO_WHOLE_RECORD)
        if not is_last:
            self._put_blank(fd, file, low)

    def _drop(self, fd: int, file: NewLogFile, position: int) -> int:
        """Report the record at ``position`` of a new file as doubted; return its size."""
        head = os.pread(fd, HEADERS[-1].itemsize, position)
        size = int(record_headers(head).field("total_size")[0])
        record = os.pread(fd, size, position)
        durable.write_zeros(fd, position, size)
        entry = ReportEntry(kind=DOUBTED, reason=_NO_ROOM, physicalOffset=file.start + position)
        self._report.add(with_record(entry, record))
        self.records -= 1
        return size

    def _lose(self, file: NewLogFile, low: int, high: int, reason: str) -> None:
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
