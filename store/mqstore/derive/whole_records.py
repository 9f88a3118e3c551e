"""Find all whole records of one file, wherever damage lies between them.

A record is whole if its magic is known, its lengths add up, its checksums hold, its fields are
believable, and its body can be decompressed if its SYSFLAG says that it is compressed. Where it
says that it lies need not be where it does: a file may have lost its name. While records follow
each other, TOTALSIZE leads from one to the next. Behind damage every place that looks like a header
is tried. The work is linear in the file's bytes, also if bytes imitate records: what is checked in
one window of the file is bounded.

Reference: CommitLog#checkMessageAndReturnSize.
"""

from collections.abc import Callable, Generator, Iterator
from dataclasses import dataclass
from itertools import pairwise
from typing import Final

import numpy as np

from mqstore.codec.bodies import broken_bodies
from mqstore.codec.checksum import broken
from mqstore.codec.gather import RecordHeaders
from mqstore.codec.plausible import implausible
from mqstore.codec.walk import BLANK_RECORD, CUT, Walked, follow, places_of_headers
from mqstore.files.base.read_file import ReadFile
from mqstore.format.arrays import Int64s
from mqstore.format.message import HARD_RECORD_BYTES, HEADERS, MIN_RECORD_BYTES

_FIRST_WINDOW_BYTES: Final = 1 << 16
_WINDOW_BYTES: Final = 1 << 22
_SEARCH_BYTES: Final = 1 << 22
_CHECKED_TIMES: Final = 4  # as many bytes of records are checked as a window has, times this
_BROKEN: Final = "its checksum does not hold"
_UNTRIED: Final = "too much in these bytes looks like records: not all was tried"


@dataclass(frozen=True, slots=True)
class Stretch:
    """Whole records that follow each other in a file, and by what they say in the log.

    ``position`` is where in the file the first starts, ``physical_offset`` what it says.
    """

    position: int
    physical_offset: int
    length: int
    records: int

    @property
    def end(self) -> int:
        """Position in the file behind the last one."""
        return self.position + self.length

    def leads_to(self, other: "Stretch") -> bool:
        """Tell whether ``other`` follows, in the file and in the log."""
        follows = self.physical_offset + self.length == other.physical_offset
        return follows and self.end == other.position


@dataclass(frozen=True, slots=True)
class Doubt:
    """Bytes that have a record's lengths, and are no whole record."""

    position: int
    length: int
    reason: str


@dataclass(frozen=True, slots=True)
class Chain:
    """How records of one kind lead to each other.

    ``follow`` walks them from the first byte of a window, none is longer than ``hard_bytes``, and
    the size of a blank record stands ``blank_size`` bytes behind its start.
    """

    follow: Callable[[bytes], Walked]
    hard_bytes: int
    blank_size: int


_PLAIN: Final = Chain(follow, HARD_RECORD_BYTES, 0)


class WholeRecords:
    """Walks over a file's bytes once: iterate over it. Raises OSError."""

    def __init__(self, file: ReadFile, size: int, start: int | None, file_size: int) -> None:
        """``start`` is the physical offset by the file's name; None if it has no such name.

        ``file_size`` is that of the log's files: a blank record that ends there closes the file.
        """
        self._file = file
        self._size = size
        self._start = start
        self._file_size = file_size
        self.closed_at = -1
        """Position of the blank record that closes the file; -1 if none does, or none was found."""
        self.used_to = 0
        """Position behind the last byte that is not zero, of those that were searched."""

    def __iter__(self) -> Iterator[Stretch | Doubt]:
        """Yield stretches, as long as they can be, and doubts, in the order of the file."""
        pending: Stretch | None = None
        for found in self._parts():
            if isinstance(found, Stretch) and pending is not None and pending.leads_to(found):
                length, records = pending.length + found.length, pending.records + found.records
                pending = Stretch(pending.position, pending.physical_offset, length, records)
                continue
            if pending is not None:
                yield pending
            pending = found if isinstance(found, Stretch) else None
            if isinstance(found, Doubt):
                yield found
        if pending is not None:
            yield pending

    def _parts(self) -> Iterator[Stretch | Doubt]:
        position = 0
        while position + MIN_RECORD_BYTES <= self._size:
            position = yield from self._follow(position)
            position = self._file.next_data(position, self._size)
            if position + MIN_RECORD_BYTES <= self._size:
                position = yield from self._search(position)

    def _follow(self, position: int) -> Generator[Stretch, None, int]:
        """Yield records that follow each other; return where no whole one follows."""
        return self._follow_by(_PLAIN, position)

    def _follow_by(self, chain: Chain, position: int) -> Generator[Stretch, None, int]:
        window = _FIRST_WINDOW_BYTES
        while True:
            room = self._size - position
            walked = chain.follow(self._file.read(min(window, room), position))
            headers = RecordHeaders(walked.buffer, walked.starts, walked.sizes)
            count = count_whole(headers)
            yield from stretches_of(position, headers.take(np.arange(count)))
            if count < len(headers):
                return position + int(headers.starts[count])
            position += walked.end
            is_last = window >= room or (window >= chain.hard_bytes and not walked.end)
            if walked.why == BLANK_RECORD and self._closes(position, position + chain.blank_size):
                return self._size
            if walked.why != CUT or is_last:
                return position
            window = _WINDOW_BYTES if walked.end and window >= _WINDOW_BYTES else 4 * window

    def _closes(self, position: int, size_position: int) -> bool:
        """Tell whether the blank record there reaches to where a file of the log ends."""
        size = int.from_bytes(self._file.read(4, size_position), "big", signed=True)
        if position + size == self._file_size:
            self.closed_at = position
        return self.closed_at >= 0

    def _search(self, position: int) -> Generator[Stretch | Doubt, None, int]:
        """Yield what starts in the next bytes; return where the search goes on."""
        room = self._size - position
        data = self._file.read(min(_SEARCH_BYTES + HEADERS[-1].itemsize, room), position)
        used = len(data.rstrip(b"\0"))
        self.used_to = position + used if used else self.used_to
        end = position + min(len(data), _SEARCH_BYTES)
        starts = places_of_headers(data)
        starts = starts[starts < _SEARCH_BYTES]
        sizes = RecordHeaders.within(data, starts, starts).field("total_size")
        fits = starts + sizes <= room
        starts, sizes = starts[fits], sizes[fits].astype(np.int64)
        if not len(starts):
            return end if data else self._size
        reach = int((starts + sizes).max())
        if reach > len(data):
            data = self._file.read(reach, position)
        for found in self._judge(position, RecordHeaders.within(data, starts, sizes)):
            yield found
            end = max(end, found.end) if isinstance(found, Stretch) else end
        return end

    def _judge(self, position: int, headers: RecordHeaders) -> list[Stretch | Doubt]:
        """Return what of these places is whole and what is doubted; they may overlap."""
        headers = headers.take(np.delete(np.arange(len(headers)), list(headers.problems())))
        if self._start is None:
            in_place = np.zeros(len(headers), np.bool_)
        else:
            own = self._start + position + headers.starts
            in_place = np.asarray(headers.field("physical_offset") == own)
        order = np.argsort(~in_place, kind="stable")
        most = _CHECKED_TIMES * len(headers.buffer)
        tried = np.sort(order[np.cumsum(headers.sizes[order]) <= most])
        untried = len(tried) < len(headers)
        headers, in_place = headers.take(tried), in_place[tried]
        wrong = broken(headers)
        chosen = np.zeros(len(headers), np.bool_)
        for rows in (in_place & ~wrong, ~in_place & ~wrong, wrong):
            chosen[_apart(headers, np.flatnonzero(rows), np.flatnonzero(chosen))] = True
        kept = np.flatnonzero(chosen)
        headers, wrong = headers.take(kept), wrong[kept]
        odd = _odd(headers) | dict.fromkeys(np.flatnonzero(wrong).tolist(), _BROKEN)
        doubts = [
            Doubt(position + int(headers.starts[row]), int(headers.sizes[row]), reason)
            for row, reason in odd.items()
        ]
        if untried:
            doubts.append(Doubt(position, 0, _UNTRIED))
        whole = headers.take(np.delete(np.arange(len(headers)), list(odd)))
        return sorted([*stretches_of(position, whole), *doubts], key=lambda one: one.position)


def count_whole(headers: RecordHeaders) -> int:
    """Return how many records there are before the first that is not whole."""
    count = min(headers.problems(), default=len(headers))
    headers = headers.take(np.arange(count))
    wrong = np.flatnonzero(broken(headers))
    if len(wrong):
        headers = headers.take(np.arange(int(wrong[0])))
    return min(_odd(headers), default=len(headers)) if len(headers) else 0


def _odd(headers: RecordHeaders) -> dict[int, str]:
    """Return the rows of records that no checksum shows to be damaged and that are, and why."""
    return broken_bodies(headers) | implausible(headers)


def stretches_of(position: int, headers: RecordHeaders) -> Iterator[Stretch]:
    """Yield whole records, in the order of their starts, together where they follow each other."""
    if not len(headers):
        return
    said, ends = headers.field("physical_offset"), headers.starts + headers.sizes
    goes_on = (headers.starts[1:] == ends[:-1]) & (said[1:] == (said + headers.sizes)[:-1])
    edges = [0, *(np.flatnonzero(~goes_on) + 1).tolist(), len(headers)]
    for first, last in pairwise(edges):
        start, length = int(headers.starts[first]), int(ends[last - 1] - headers.starts[first])
        yield Stretch(position + start, int(said[first]), length, last - first)


def _apart(headers: RecordHeaders, rows: Int64s, chosen: Int64s) -> list[int]:
    """Return those of ``rows`` that overlap neither the chosen ones nor an earlier one."""
    if not len(rows):
        return []
    starts, ends = headers.starts[rows], headers.starts[rows] + headers.sizes[rows]
    if len(chosen):
        taken = headers.starts[chosen]
        before = np.searchsorted(taken, ends, side="left") - 1
        reach = (taken + headers.sizes[chosen])[np.maximum(before, 0)]
        rows = rows[(before < 0) | (reach <= starts)]
        starts, ends = headers.starts[rows], headers.starts[rows] + headers.sizes[rows]
    found, reach_to = [], 0
    for row, start, end in zip(rows.tolist(), starts.tolist(), ends.tolist(), strict=True):
        if start >= reach_to:
            found.append(row)
            reach_to = end
    return found
