"""The CommitLog of a new store from a DLedger log: its records, one behind the other.

An entry has a head before its record, which a plain CommitLog has no room for. So the records move
down, in their order, and say where they lie now. A store of that kind opens without a group, and a
new group can begin with copies of it.

Entries that the disk does not know to be committed are taken as well: a broker that leads on
commits what it has. Those of an earlier term behind a later one are what the group took back.

Reference: DLedgerMmapFileStore, DLedgerCommitLog#getDividedCommitlogOffset; MessageDecoder
#createMessageId.
"""

import os
from array import array
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from itertools import islice
from typing import Final

import numpy as np

from mqstore.codec.entries import heads_before
from mqstore.codec.gather import RecordHeaders
from mqstore.codec.patch import move
from mqstore.copy.damaged_log import MOST_FILES_APART, SourceFile, Sources
from mqstore.copy.new_log import (
    FILE_MISSING,
    LIES_ELSEWHERE,
    NO_WHOLE_RECORD,
    CopyProgress,
    NewLog,
    NewLogFile,
    records_of,
)
from mqstore.copy.salvage_report import LOST, Report, ReportEntry
from mqstore.derive.whole_entries import WholeEntries
from mqstore.derive.whole_records import Doubt, Stretch
from mqstore.files.base import durable
from mqstore.files.base.read_file import LocalFile
from mqstore.files.copy_target import Copy
from mqstore.format.arrays import Int64s, Mask
from mqstore.format.dledger import BODY_OFFSET, ENTRY_MAGIC
from mqstore.format.message import MIN_BLANK_BYTES
from mqstore.format.names import COMMIT_LOG

_LOOKED_AT: Final = 16  # records, to tell where a file starts
_PACKED_BYTES: Final = 1 << 22
_TAKEN_BACK: Final = "its entry is of an earlier term than the two before it"
_PLACE_OF_OTHERS: Final = "another file has the records of its place"


@dataclass
class _Taking:
    """A source file that is gone through, and the records of it that wait to be written."""

    file: SourceFile
    fd: int
    start: int
    end: int = 0
    """Position behind the last record."""
    waiting: list[Stretch] = field(default_factory=list)


class PackedLog(NewLog):
    """Makes the CommitLog: ``take``, then ``fill``. Raises NoSpaceError, OSError."""

    is_packed = True
    _new: NewLogFile | None = None
    _used = 0
    """Bytes of ``_new`` that have records."""
    _terms: tuple[int, int] = (-1, -1)
    """Of the last two entries."""

    def __init__(self, copy: Copy, sources: Sources, report: Report) -> None:
        super().__init__(copy, sources, report)
        self._lost_at = array("q")
        """Where in the new log records would be that were lost, ascending."""
        self._lost_bytes = array("q", [0])
        """How many bytes were lost before the first of those places, and up to each."""

    def take(self, progress: CopyProgress | None = None) -> None:
        """Copy all whole records, in the order of the log."""
        self._copy.make_directory(COMMIT_LOG)
        total, done, following = sum(file.size for file in self._sources.files), 0, None
        files = self._in_order()
        last = max((file.start for file in files if file.start is not None), default=0)
        for file in files:
            if file.start is not None:
                for missing in range(following or file.start, file.start, self._size):
                    self._lose(None, missing, (0, self._size), FILE_MISSING)
                following = file.start + self._size
            self._take_file(
                file,
                lambda at: progress(done + at, total) if progress else None,  # noqa: B023
                is_last=file.start == last,
            )
            done += file.size
        self._known = self.starts

    def fill(self) -> None:
        """Raise CorruptStoreError if there is no whole record at all."""
        self._check_made()

    def apart(self, places: Int64s) -> Int64s:
        """Return physical offsets, moved apart by bytes that were lost and left no room."""
        before = np.searchsorted(np.array(self._lost_at, np.int64), places, side="right")
        return places + np.array(self._lost_bytes, np.int64)[before]

    def _in_order(self) -> list[SourceFile]:
        """Return the files in the order of the log, each with the place that its records say.

        One whose place another has, or that has none, comes last and without a start.
        """
        placed: dict[int, SourceFile] = {}
        others = []
        for file in self._sources.files:
            start = self._start_of(file)
            if start is None or start in placed:
                others.append(replace(file, start=None))
            else:
                placed[start] = replace(file, start=start)
        return [*(placed[start] for start in sorted(placed)), *others]

    def _start_of(self, file: SourceFile) -> int | None:
        """Return where a file starts by most of its first records, else by its name."""
        fd = file.open()
        try:
            walk = WholeEntries(LocalFile(fd), file.size, file.start, self._size)
            found = islice((one for one in walk if isinstance(one, Stretch)), _LOOKED_AT)
            said = Counter(one.physical_offset - one.position for one in found)
        finally:
            os.close(fd)
        named = [one.start for one in self._sources.files if one.start is not None]
        likely, count = max(said.items(), key=lambda item: item[1], default=(-1, 0))
        first, last = (named[0], named[-1]) if named else (likely, likely)
        apart = MOST_FILES_APART * self._size
        is_near = first - apart < likely < last + apart and (likely - first) % self._size == 0
        return likely if likely >= 0 and is_near and 2 * count > said.total() else file.start

    def _take_file(
        self, file: SourceFile, progress: Callable[[int], None], *, is_last: bool
    ) -> None:
        fd = file.open()
        try:
            walk = WholeEntries(LocalFile(fd), file.size, file.start, self._size)
            taking = _Taking(file, fd, -1 if file.start is None else file.start)
            for found in walk:
                progress(found.position)
                if isinstance(found, Doubt):
                    self._doubt(file, fd, found.position, found.length, found.reason)
                elif file.start is None:
                    self._doubt_records(taking, found, _PLACE_OF_OTHERS)
                elif found.physical_offset != file.start + found.position:
                    self._doubt_records(taking, found, LIES_ELSEWHERE)
                else:
                    self._take_records(taking, found)
            self._write_waiting(taking)
            high = min(walk.used_to, self._size) if is_last else self._size
            if file.start is not None and walk.closed_at != taking.end < high:
                self._lose(file, file.start, (taking.end, high), NO_WHOLE_RECORD)
        finally:
            os.close(fd)

    def _doubt_records(self, taking: _Taking, stretch: Stretch, reason: str) -> None:
        for position, starts, ends in records_of(taking.fd, stretch):
            for start, end in zip(starts.tolist(), ends.tolist(), strict=True):
                self._doubt(taking.file, taking.fd, position + start, end - start, reason)

    def _take_records(self, taking: _Taking, found: Stretch) -> None:
        waiting = taking.waiting
        if waiting and found.end - waiting[0].position > _PACKED_BYTES:
            self._write_waiting(taking)
        if found.records == 1:
            taking.waiting.append(found)
            return
        self._write_waiting(taking)
        for position, starts, ends in records_of(taking.fd, found):
            self._write(taking, position + starts, ends - starts)

    def _write_waiting(self, taking: _Taking) -> None:
        waiting, taking.waiting = taking.waiting, []
        if waiting:
            positions = np.array([one.position for one in waiting], np.int64)
            self._write(taking, positions, np.array([one.length for one in waiting], np.int64))

    def _write(self, taking: _Taking, positions: Int64s, sizes: Int64s) -> None:
        """Take records of a file, in its order: write them behind those that were taken."""
        low = max(0, int(positions[0]) - BODY_OFFSET)
        data = taking.file.read(taking.fd, low, int(positions[-1] + sizes[-1]) - low)
        heads = heads_before(data, positions - low)
        is_entry = (heads["magic"] == ENTRY_MAGIC) & (heads["size"] == BODY_OFFSET + sizes)
        is_entry &= heads["position"] == taking.start + positions - BODY_OFFSET
        begins, ends = positions - np.where(is_entry, BODY_OFFSET, 0), positions + sizes
        before = np.append(taking.end, ends[:-1])
        back = self._taken_back(heads["term"].astype(np.int64), is_entry)
        for row in np.flatnonzero(back).tolist():
            where = int(positions[row]), int(sizes[row])
            self._doubt(taking.file, taking.fd, *where, _TAKEN_BACK)
        lost = np.flatnonzero(begins > before)
        for part in np.split(np.arange(len(positions)), lost):
            if len(part) and begins[part[0]] > before[part[0]]:
                span = int(before[part[0]]), int(begins[part[0]])
                self._lose(taking.file, taking.start, span, NO_WHOLE_RECORD)
            chosen = part[~back[part]]
            self._pack(data, positions[chosen] - low, sizes[chosen], taking.start + low)
        taking.end = int(ends[-1])

    def _taken_back(self, terms: Int64s, is_entry: Mask) -> Mask:
        """Tell which entries have a lower term than both before them: one head may be damaged."""
        back = np.zeros(len(terms), np.bool_)
        rows = np.flatnonzero(is_entry)
        if len(rows) and not (np.diff(terms[rows], prepend=max(self._terms)) < 0).any():
            self._terms = (*self._terms, *terms[rows[-2:]].tolist())[-2:]
            return back
        for row in rows.tolist():
            term = int(terms[row])
            back[row] = term < min(self._terms)
            if not back[row]:
                self._terms = self._terms[1], term
        return back

    def _pack(self, data: bytes, starts: Int64s, sizes: Int64s, place: int) -> None:
        """Write records of ``data``, which lies at that physical offset, where there is room."""
        row = 0
        while row < len(starts):
            new = self._new or self._next_file(place - place % self._size, 0)
            room = self._size - MIN_BLANK_BYTES - self._used
            sums = np.cumsum(sizes[row : row + _PACKED_BYTES])
            count = int(np.searchsorted(sums, room, side="right"))
            if not count:
                self._next_file(new.start + self._size, self._used)
                continue
            chosen = slice(row, row + count)
            parts = zip(starts[chosen].tolist(), sizes[chosen].tolist(), strict=True)
            packed = bytearray(b"".join([data[start : start + size] for start, size in parts]))
            at = np.append(0, sums[: count - 1])
            headers = RecordHeaders.within(packed, at, sizes[chosen])
            move(headers, new.start + self._used + at - (place + starts[chosen]))
            with self._opened(new) as fd:
                durable.write_at(fd, memoryview(packed), self._used)
            self._used += len(packed)
            self.records += count
            row += count

    def _next_file(self, start: int, used: int) -> NewLogFile:
        """Close the file that records were written to, and begin another."""
        if self._new is not None:
            with self._opened(self._new) as fd:
                self._put_blank(fd, self._new, used)
        self._new, self._used = self._file(start), 0
        self._new.lows, self._new.highs = array("q"), array("q")
        return self._new

    def _lose(
        self, file: SourceFile | None, start: int, span: tuple[int, int], reason: str
    ) -> None:
        self._lost_at.append(self._new.start + self._used if self._new else 0)
        self._lost_bytes.append(self._lost_bytes[-1] + span[1] - span[0])
        self._report.add(
            ReportEntry(
                kind=LOST,
                reason=reason,
                file=file.name if file else None,
                position=span[0],
                physicalOffset=start + span[0],
                size=span[1] - span[0],
            )
        )
