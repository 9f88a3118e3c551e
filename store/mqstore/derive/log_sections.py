"""Units of ConsumeQueues that the records of one CommitLog file imply, queue by queue.

A walk over the file yields sections: the units of at most half a million records that follow each
other in the log, in the order of queue, queue offset and place. So memory does not depend on the
file. Damage ends no walk: it goes on with the next record that is whole and in its place.

Reference: CommitLog#checkMessageAndReturnSize, CommitLogDispatcherBuildConsumeQueue.
"""

import time
from collections.abc import Generator, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import islice
from typing import Final

import numpy as np

from mqstore.codec.dispatch import DispatchRecords
from mqstore.codec.walk import BLANK_RECORD, CUT, NO_RECORD, ZERO
from mqstore.derive.log_walk import LogChunk, log_chunks
from mqstore.derive.queue_units import is_possible, units_of
from mqstore.derive.quick_units import LEFT, QuickWalk
from mqstore.derive.resync import Resync
from mqstore.files.base.mapped_file_queue import MappedFile
from mqstore.files.log.commit_log import CommitLog
from mqstore.format.arrays import Int64s, Mask, TopicQueue
from mqstore.format.consume_queue import HIGHEST_QUEUE_OFFSET
from mqstore.format.message import MIN_BLANK_BYTES
from mqstore.format.names import LMQ_PREFIX
from mqstore.format.sys_flag import INNER_BATCH
from mqstore.native.walk import GatheredUnits

SECTION_ROWS: Final = 1 << 19
MOST_DAMAGES: Final = 100  # of one file that are listed; more are counted

_BROKEN_OFF: Final = "no record starts here, and the log does not end here either"
_MISPLACED: Final = "PHYSICALOFFSET is not the record's own place"
_TORN_LOOKS: Final = 3
_WRITTEN_S: Final = 0.02  # Far more than a broker takes to write a record.
_FEW_QUEUES: Final = 1 << 16
_QUICK_BYTES: Final = 1 << 23
_MOST_CHUNKS: Final = 64


@dataclass(frozen=True, slots=True)
class LogDamage:
    """Physical offsets [start, end) of a CommitLog file without a whole record, and why."""

    start: int
    end: int
    reason: str


@dataclass(frozen=True, slots=True)
class LogUnits:
    """n units of messages, as int64[n]: where each belongs, and where its record lies.

    ``holds_several`` marks records that hold several messages (inner batches).
    """

    queue_offsets: Int64s
    physical_offsets: Int64s
    sizes: Int64s
    tags_codes: Int64s
    store_timestamps_ms: Int64s
    holds_several: Mask

    def __len__(self) -> int:
        return len(self.queue_offsets)

    def columns(self) -> tuple[Int64s, ...]:
        """Return the five columns of integers."""
        return (
            self.queue_offsets,
            self.physical_offsets,
            self.sizes,
            self.tags_codes,
            self.store_timestamps_ms,
        )

    def take(self, rows: Int64s | Mask | slice) -> "LogUnits":
        """Return those units only."""
        return self.of([column[rows] for column in self.columns()], self.holds_several[rows])

    @classmethod
    def joined(cls, parts: "Sequence[LogUnits]") -> "LogUnits":
        """Return the units of one part after another; none of no part."""
        if not parts:
            return cls.of([np.zeros(0, np.int64)] * 5, np.zeros(0, np.bool_))
        columns = zip(*(part.columns() for part in parts), strict=True)
        several = np.concatenate([part.holds_several for part in parts])
        return cls.of([np.concatenate(column) for column in columns], several)

    @classmethod
    def of(cls, columns: Sequence[Int64s], several: Mask) -> "LogUnits":
        """Return the units with those five columns of integers."""
        numbers, places, sizes, codes, times = columns
        return cls(numbers, places, sizes, codes, times, several)


@dataclass(frozen=True, slots=True)
class Section:
    """Units of a stretch of the log: those of ``queues[i]`` are rows ``edges[i]`` to the next."""

    queues: list[TopicQueue]
    edges: Int64s
    units: LogUnits


class FileWalk:
    """Walks once over one file; its attributes are final when ``sections`` are exhausted."""

    def __init__(
        self, log: CommitLog, file: MappedFile, limit: int | None = None, start: int = 0
    ) -> None:
        """Leave out records from physical offset ``limit`` on: those of a commit under way.

        The walk begins at physical offset ``start``, where a record starts, if it is in the file.
        """
        self._log = log
        self._file = file
        self._start = max(start, file.start)
        self._limit = file.end if limit is None else limit
        self._last_ms = 0
        self.end = self._start
        """Behind the last record."""
        self.is_closed = False
        """Whether a blank record ends the file, or it has no room for another record."""
        self.has_rest = False
        """Whether bytes that are no record, nor zero, lie where the file's records end."""
        self.damages: list[LogDamage] = []
        """The first of them, in log order."""
        self.damaged = 0
        """How many there are."""

    def sections(self, most: int = SECTION_ROWS) -> Iterator[Section]:
        """Yield the units, about ``most`` at a time. Raises OSError."""
        pending: list[_Part] = []
        count = 0
        for part in self._parts(most):
            pending.append(part)
            count += len(part[2])
            if count >= most:
                yield _section(pending)
                pending, count = [], 0
        if pending:
            yield _section(pending)

    @staticmethod
    def nothing() -> Section:
        """Return a section without units."""
        return Section([], np.zeros(1, np.int64), LogUnits.joined([]))

    def _parts(self, most: int) -> Iterator["_Part"]:
        resync, position = Resync(self._log, self._file), self._start
        is_quick = QuickWalk.is_for(self._log, self._file)
        quick = QuickWalk(self._log, self._file, self._limit, most) if is_quick else None
        while True:
            self.end = position
            why, torn = yield from self._stretch(quick)
            self.is_closed = why == BLANK_RECORD or self._is_full(self.end)
            if self.is_closed or self.end >= self._limit:
                return
            behind, reason = torn or (self.end, _BROKEN_OFF)
            following = resync.after(behind, self._last_ms)
            if self._is_written_by_now(resync, following, is_torn=torn is not None):
                position = self.end
            elif following is None or following >= self._limit:
                self.has_rest = why != ZERO
                if torn:
                    self._damage(self.end, self.end + 1, reason)
                    self.end = behind
                return
            else:
                self._damage(self.end, following, reason)
                position = following

    def _is_written_by_now(self, resync: Resync, following: int | None, *, is_torn: bool) -> bool:
        """Tell whether the record that was not there, or not whole, at ``end`` is there now.

        A broker that runs writes one record after the other: where a ``following`` one is found,
        all before it are whole. The last one may be under way; it is looked at a few times.
        """
        if following is not None:
            return resync.is_at(self.end, self._last_ms)
        for _ in range(_TORN_LOOKS if is_torn else 0):
            time.sleep(_WRITTEN_S)
            if resync.is_at(self.end, self._last_ms):
                return True
        return False

    def _stretch(
        self, quick: QuickWalk | None
    ) -> Generator["_Part", None, tuple[str, "_Torn | None"]]:
        """Yield the units of records that follow each other from ``end`` on.

        Return what lies behind them, and the torn record there. Where the kernel leaves one record
        after the other to numpy, it is asked less and less.
        """
        chunks, why, torn = 1, CUT, None
        while why == CUT and self.end < self._limit:
            if quick is not None:
                before = self.end
                yield from map(_of_kernel, quick.parts(before))
                self.end, why = quick.end, quick.why
                self._last_ms = max(self._last_ms, quick.last_ms)
                if why != LEFT:
                    break
                chunks = 1 if self.end - before >= _QUICK_BYTES else min(2 * chunks, _MOST_CHUNKS)
            why = ZERO
            for found in islice(log_chunks(self._log, self.end), chunks if quick else None):
                chunk, torn = _before_torn(found)
                yield _units_of(self._sound(chunk))
                self.end, why = chunk.end, chunk.why
                if why == BLANK_RECORD or self.end >= self._limit:
                    break
            if quick is None:
                break
        return why, torn

    def _is_full(self, end: int) -> bool:
        return self._file.end - end < MIN_BLANK_BYTES

    def _sound(self, chunk: LogChunk) -> DispatchRecords:
        for place, reason in chunk.problems.items():
            self._damage(place, place + 1, reason)
        records = chunk.records
        misplaced = records.stated_offsets != records.physical_offsets
        for place in records.physical_offsets[misplaced].tolist():
            self._damage(place, place + 1, _MISPLACED)
        wrong = misplaced | (records.physical_offsets >= self._limit)
        if wrong.any():
            kept = np.flatnonzero(~wrong)
            headers = records.headers.take(kept)
            records = DispatchRecords(headers, records.physical_offsets[kept])
        if len(records):
            self._last_ms = max(self._last_ms, int(records.store_timestamps_ms[-1]))
        return records

    def _damage(self, start: int, end: int, reason: str) -> None:
        self.damaged += 1
        if len(self.damages) < MOST_DAMAGES:
            self.damages.append(LogDamage(start, end, reason))


_Part = tuple[list[TopicQueue], Int64s, LogUnits]
_Torn = tuple[int, str]  # The physical offset behind a record that is not whole, and the reason.


def _before_torn(chunk: LogChunk) -> tuple[LogChunk, _Torn | None]:
    """Return a chunk up to its last record, if that breaks a rule and none follows it.

    A broker may write that record now. Of a DLedger log, what is committed is whole.
    """
    last = max(chunk.problems, default=-1)
    records = chunk.records.physical_offsets
    is_last = last >= 0 and not (len(records) and records[-1] > last)
    if not is_last or chunk.why not in (ZERO, NO_RECORD) or chunk.heads is not None:
        return chunk, None
    whole = {place: reason for place, reason in chunk.problems.items() if place != last}
    torn = chunk.end, chunk.problems[last]
    return replace(chunk, problems=whole, end=last, why=NO_RECORD), torn


def _of_kernel(found: GatheredUnits) -> _Part:
    units = LogUnits.of(found.columns, found.holds_several)
    possible = np.array([is_possible(queue) for queue in found.queues], np.bool_)
    if possible.all():
        return found.queues, found.codes, units
    kept = possible[found.codes]
    return found.queues, found.codes[kept], units.take(kept)


def _units_of(records: DispatchRecords) -> _Part:
    """Return queues, which of them each unit is of, and the units, in log order.

    A queue that no broker would make a directory for is left out, a queue offset that no file
    could have, and records that name another topic's queue beside their own: only light queues
    have such units.
    """
    found = units_of(records)
    expected, units = found.expected, found.expected.units
    possible = np.array([is_possible(queue) for queue in found.queues], np.bool_)
    light = np.array([topic.startswith(LMQ_PREFIX) for topic, _ in found.queues], np.bool_)
    places = units["physical_offset"].astype(np.int64)
    kept = (expected.queue_offsets >= 0) & (expected.queue_offsets <= HIGHEST_QUEUE_OFFSET)
    if len(found.queues):
        kept &= possible[found.codes] & (light[found.codes] | ~expected.is_second)
    rows: Int64s | slice = slice(None)
    if not np.array_equal(places, records.physical_offsets):
        rows = np.searchsorted(records.physical_offsets, places)
    flags = records.sys_flags[rows] & INNER_BATCH
    of_all = LogUnits(
        expected.queue_offsets,
        places,
        units["size"].astype(np.int64),
        units["tags_code"].astype(np.int64),
        records.store_timestamps_ms[rows],
        flags != 0,
    )
    if kept.all():
        return found.queues, found.codes, of_all
    return found.queues, found.codes[kept], of_all.take(kept)


def _section(parts: Sequence[_Part]) -> Section:
    numbers: dict[TopicQueue, int] = {}
    joined = []
    for queues, codes, _ in parts:
        of_part = [numbers.setdefault(queue, len(numbers)) for queue in queues]
        joined.append(np.array(of_part, np.int64)[codes] if of_part else codes)
    codes = joined[0] if len(joined) == 1 else np.concatenate(joined)
    units = parts[0][2] if len(parts) == 1 else LogUnits.joined([of for _, _, of in parts])
    if (codes[1:] < codes[:-1]).any():
        # A stable sort of 16-bit numbers is a radix sort: ten times as fast.
        few = codes.astype(np.uint16) if len(numbers) <= _FEW_QUEUES else codes
        order = np.argsort(few, kind="stable")
        codes, units = codes[order], units.take(order)
    back = (np.diff(units.queue_offsets) < 0) & (np.diff(codes) == 0)
    if back.any():
        units = units.take(np.lexsort((units.queue_offsets, codes)))
    counts = np.bincount(codes, minlength=1)
    there = np.flatnonzero(counts)
    names = list(numbers)
    edges = np.append(0, np.cumsum(counts[there])).astype(np.int64)
    return Section([names[code] for code in there.tolist()], edges, units)
