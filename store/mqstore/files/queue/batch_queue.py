"""One batch ConsumeQueue (queue.type=BatchCQ), read as if each message had a unit of its own.

Such a unit has the place and size of the record that holds the message with others, and the
tagsCode of the record plus NO_HASH. Queue offsets without a message have gap units; a salvage puts
some into the files themselves (see batch_consume_queue).

Reference: BatchConsumeQueue#getBatchMsgIndexBuffer (which unit has a message), #correctMinOffset,
#reviseMaxOffsetInQueue (bounds).
"""

from bisect import bisect_right
from collections.abc import Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise
from typing import Final

import numpy as np

from mqstore.errors import CorruptStoreError
from mqstore.files.base.mapped_file_queue import MappedFile, MappedFileQueue
from mqstore.files.queue.consume_queue import mapped_files
from mqstore.files.queue.unit_blocks import PROBED_UNITS, UnitBlocks
from mqstore.files.queue.units import QueueExtent, Units
from mqstore.format import names
from mqstore.format.arrays import Int64s, Mask, Span, Structs
from mqstore.format.batch_consume_queue import BATCH_UNIT, NO_HASH, is_batch, is_batch_gap
from mqstore.format.client_message import LEAST_CLIENT_BYTES
from mqstore.format.consume_queue import GAP_SIZE, UNIT
from mqstore.format.message import MIN_RECORD_BYTES

_HIGHEST_END: Final = 2**62
_READ_UNITS: Final = 4096
_UNITS_GONE: Final = "units are missing that were there"
_DISORDER: Final = "the unit begins before the queue offsets of the one before it end"
_OVERLAP: Final = "the unit's record begins before the one of the unit before it ends"
_TOO_MANY_CLAIMED: Final = "the unit claims more messages than its record has room for"


@dataclass(frozen=True, slots=True)
class BatchFile:
    """A file with ``count`` units, at least one, for queue offsets in [low, high)."""

    file: MappedFile
    count: int
    low: int
    high: int

    @property
    def name(self) -> str:
        """The full path, for messages."""
        return self.file.name

    def is_before(self, other: "BatchFile") -> bool:
        """Tell whether it is full and ``other`` is the next one: between them nothing is lost."""
        is_full = self.count * BATCH_UNIT.itemsize == self.file.size
        return is_full and self.file.end == other.file.start

    def blocks(self) -> UnitBlocks:
        """Return what looks into it; ``close`` it."""
        return UnitBlocks(self.file, BATCH_UNIT)

    def behind(self, queue_offset: int) -> int:
        """Return the first unit with a message at or behind a queue offset; ``count`` if none."""
        with closing(self.blocks()) as blocks:
            return blocks.first(self.count, lambda units: _ends(units) > queue_offset)

    def read(self, first: int, end: int) -> Structs:
        """Return units [first, end), or those before the first that breaks a rule, at least one.

        Raises CorruptStoreError where the first does: how many rows a queue has is bounded by the
        bytes of the log that its units claim, each byte once.
        """
        width, begin = BATCH_UNIT.itemsize, max(first - 1, 0)  # The one before is compared with.
        with closing(self.file.open()) as opened:
            data = opened.read((end - begin) * width, begin * width)
        units = np.frombuffer(data[: len(data) // width * width], BATCH_UNIT)
        count, reason = len(units), _UNITS_GONE
        for wrong, broken in _rules(units, self.high):
            if wrong[:count].any():
                count, reason = int(np.argmax(wrong)), broken
        if begin + count <= first < end:
            raise CorruptStoreError(self.name, (begin + count) * width, reason)
        return units[first - begin : count]


@dataclass(frozen=True)
class BatchQueue(Units):
    """The units of messages, made out of the units of batches.

    How far a file is written is found once, when it is first needed.
    """

    @property
    def path(self) -> str:
        """The queue's directory below the root."""
        return f"{names.BATCH_CONSUME_QUEUE}/{self.topic}/{self.queue_id}"

    @cached_property
    def files(self) -> MappedFileQueue:
        """The queue's files; none if there is no such directory."""
        return mapped_files(self)

    @cached_property
    def batch_files(self) -> tuple[BatchFile, ...]:
        """The files with a unit. Raises CorruptStoreError where they are not in order."""
        found: list[BatchFile] = []
        for file in self.files.files:
            with closing(UnitBlocks(file, BATCH_UNIT)) as blocks:
                count = blocks.first(blocks.count, lambda units: ~is_batch(units))
                if not count:
                    continue
                low = int(bases_of(blocks.units(0, 1))[0])
                high = int(_ends(_unit(blocks, count - 1))[0])
            if low >= high or high > _HIGHEST_END or (found and found[-1].high > low):
                raise CorruptStoreError(file.name, 0, _DISORDER)
            found.append(BatchFile(file, count, low, high))
        return tuple(found)

    def file_ranges(self) -> list[Span]:
        """Return the queue offsets [low, high) that each file has units of."""
        return [(file.low, file.high) for file in self.batch_files]

    @property
    def room_low(self) -> int:
        """The queue offset of the first message that has a unit."""
        return self.batch_files[0].low if self.batch_files else 0

    @property
    def high(self) -> int:
        """The queue offset behind the last message."""
        return self.batch_files[-1].high if self.batch_files else 0

    def look(self, commit_log_low: int) -> QueueExtent:
        """Return the bounds. As the broker does: the first message is behind the last expired one.

        Both edges bisect.
        """
        for file in self.batch_files:
            with closing(file.blocks()) as blocks:
                live = blocks.first(file.count, lambda u: _reach(u) >= commit_log_low)
                while live < file.count and is_batch_gap(_unit(blocks, live))[0]:
                    live += 1
                if live == file.count:
                    continue
                low = int(_ends(_unit(blocks, live - 1))[0]) if live else file.low
            return QueueExtent(low, self.high, self._record_end())
        return QueueExtent(self.high, self.high)

    def read(self, start: int, end: int) -> Structs:
        """Return a unit for each queue offset of [start, end), big-endian.

        Raises CorruptStoreError where one is not there, FileNotFoundError where it expired.
        """
        units, error = self._fill(start, end)
        missing = start + len(units)
        if missing >= end:
            return units
        name = f"{self.place.root}/{self.path}"
        if missing < self.room_low or not self.batch_files:
            raise FileNotFoundError(f"{name}: queue offset {missing} expired")
        reason = f"no unit of queue offset {missing}: a file is missing or cut short"
        raise error or CorruptStoreError(name, 0, reason)

    def before_hole(self, start: int, end: int) -> Structs:
        """Return the units of [start, end) up to where a file is missing or damaged."""
        return self._fill(start, end)[0]

    def _fill(self, start: int, end: int) -> tuple[Structs, CorruptStoreError | None]:
        """Return the units of [start, end) that can be read, and why there are no more."""
        units = np.zeros(max(end - start, 0), UNIT)
        units["size"] = GAP_SIZE
        reach, before = start, None
        for file in self._files_from(start):
            if reach == end or (before is not None and not before.is_before(file)):
                break
            try:
                for batches in _batches(file, start, end):
                    _put(units, batches, start)
                    reach = min(end, int(_ends(batches)[-1]))
            except CorruptStoreError as error:
                return units[: reach - start], error
            reach = end if file.low >= end else min(end, max(reach, file.high))
            before = file
        return units[: reach - start], None

    def behind_gap(self, queue_offset: int) -> int:
        """Return the first message at or behind a queue offset; that itself, if none is known.

        Where a file is missing, nothing is known of what lies behind.
        """
        files = self._files_from(queue_offset)
        count = 1 + next(
            (n for n, pair in enumerate(pairwise(files)) if not pair[0].is_before(pair[1])),
            len(files),
        )
        try:
            found = _unit_behind(files[:count], queue_offset)
        except CorruptStoreError:
            return queue_offset
        return queue_offset if found is None else max(queue_offset, int(found["base"]))

    def next_start(self, queue_offset: int) -> int | None:
        """Return the first message of the first file behind ``queue_offset``, or None."""
        return next((file.low for file in self.batch_files if file.low > queue_offset), None)

    def chunks(self, most: int, end: int) -> Iterator[tuple[int, Structs]]:
        """Yield the units of all messages before ``end``, with the queue offset of the first."""
        start, high = self.room_low, min(self.high, end)
        while start < high:
            units = self.before_hole(start, min(high, start + most))
            if len(units):
                yield start, units
                start = self.behind_gap(start + len(units))
            else:
                start = self.next_start(start) or high

    def batches(self, most: int = _READ_UNITS) -> Iterator[tuple[BatchFile, int, Structs]]:
        """Yield the units of batches as they are, with their file and the number of the first."""
        for file in self.batch_files:
            first = 0
            while first < file.count:
                units = file.read(first, min(first + most, file.count))
                yield file, first, units
                first += len(units)

    def last_batches(self, most: int) -> Iterator[Structs]:
        """Yield the units of batches from the last on, up to ``most`` at a time."""
        step = 1
        for file in reversed(self.batch_files):
            end = file.count
            while end:
                first = max(0, end - step)
                units = file.read(first, end)
                if len(units) < end - first:
                    position = (first + len(units)) * BATCH_UNIT.itemsize
                    raise CorruptStoreError(file.name, position, _DISORDER)
                yield units[::-1]
                end, step = first, min(2 * step, most)

    def _behind_gap(self, queue_offset: int, high: int) -> np.void:
        found = _unit_behind(self._files_from(queue_offset), queue_offset)
        if found is None:
            return super()._behind_gap(queue_offset, high)
        unit = np.zeros(1, UNIT)
        for name in ("physical_offset", "size"):
            unit[name] = found[name]
        behind: np.void = unit[0]
        return behind

    def _files_from(self, queue_offset: int) -> tuple[BatchFile, ...]:
        """Return the files from the last that begins at or before a queue offset on."""
        lows = [file.low for file in self.batch_files]
        index = bisect_right(lows, queue_offset) - 1
        return self.batch_files[index:] if index >= 0 else ()

    def _record_end(self) -> int:
        last = self.batch_files[-1]
        with closing(last.blocks()) as blocks:
            unit = _unit(blocks, last.count - 1)[0]
        return int(unit["physical_offset"]) + int(unit["size"])


def _rules(units: Structs, high: int) -> Iterator[tuple[Mask, str]]:
    """Yield which units break a rule, and the rule; queue offsets end at ``high``."""
    bases, ends = bases_of(units), _ends(units)
    sizes = units["size"].astype(np.int64)
    places = units["physical_offset"].astype(np.int64)
    room = np.maximum(1, (sizes - MIN_RECORD_BYTES) // LEAST_CLIENT_BYTES)
    gaps = is_batch_gap(units)
    yield ~is_batch(units), _UNITS_GONE
    yield ~gaps & (units["count"] > room), _TOO_MANY_CLAIMED
    disorder = (ends <= bases) | (ends > high)
    disorder[1:] |= bases[1:] < ends[:-1]
    yield disorder, _DISORDER
    overlap, rows = np.zeros(len(units), np.bool_), np.flatnonzero(~gaps)
    before = places[rows[:-1]]
    overlap[rows[1:]] = places[rows[1:]] - sizes[rows[:-1]] < before
    yield overlap, _OVERLAP


def bases_of(units: Structs) -> Int64s:
    """Return the queue offset of the first message of each unit."""
    bases: Int64s = units["base"].astype(np.int64)
    return bases


def _reach(units: Structs) -> Int64s:
    """Return the places of records, and of gap units where the file of the next record starts.

    All records of the queue before a gap unit lie before that, or in the same file.
    """
    places: Int64s = units["physical_offset"].astype(np.int64) + is_batch_gap(units)
    return places


def _ends(units: Structs) -> Int64s:
    # A base near 2**63 wraps around, and the unit is out of order then.
    ends: Int64s = bases_of(units) + units["count"]
    return ends


def _unit(blocks: UnitBlocks, number: int) -> Structs:
    return blocks.units(number, number + 1)


def _unit_behind(files: Sequence[BatchFile], queue_offset: int) -> np.void | None:
    """Return the unit of the first message at or behind a queue offset."""
    for file in files:
        row = file.behind(queue_offset)
        while row < file.count:
            units = file.read(row, min(row + PROBED_UNITS, file.count))
            messages = np.flatnonzero(~is_batch_gap(units))
            if len(messages):
                found: np.void = units[messages[0]]
                return found
            row += len(units)
    return None


def _batches(file: BatchFile, start: int, end: int) -> Iterator[Structs]:
    """Yield the units of a file that have a message in [start, end)."""
    if file.low >= end or file.high <= start:
        return
    first = file.behind(start)
    while first < file.count:
        # Each unit is of one queue offset at least.
        units = file.read(first, min(file.count, first + min(end - start, _READ_UNITS)))
        yield units
        if int(_ends(units)[-1]) >= end:
            return
        first += len(units)


def _put(into: Structs, batches: Structs, start: int) -> None:
    """Put the units of the messages of ``batches`` into the range that begins at ``start``."""
    batches = batches[~is_batch_gap(batches)]
    lows = np.clip(bases_of(batches) - start, 0, len(into))
    highs = np.clip(_ends(batches) - start, 0, len(into))
    counts = highs - lows
    rows = np.repeat(np.arange(len(batches)), counts)
    places = np.arange(len(rows)) + np.repeat(lows - (np.cumsum(counts) - counts), counts)
    for name in ("physical_offset", "size"):
        into[name][places] = batches[name][rows]
    into["tags_code"][places] = batches["tags_code"][rows].astype(np.int64) + NO_HASH
