"""Repair of ConsumeQueues: every record gets its unit, and units without a record go.

The records come in log order. What each queue must hold because of them waits in memory until
there is much of it; then units that are missing or differ are written. When the log has ended,
units that point behind the place the walk began at and are no record's are phantoms.

A walk before that one changes nothing: ``foreseen_queues`` finds what cannot be done, and where
the newest generation of a queue begins.

Reference: CommitLogDispatcherBuildConsumeQueue, ConsumeQueue#putMessagePositionInfo (a queue
offset that a unit has already is not given again), #fillPreBlank, #truncateDirtyLogicFiles.
"""

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from itertools import pairwise
from typing import Final

import numpy as np

from mqstore.codec.dispatch import DispatchRecords
from mqstore.derive.foreseen_queues import ForeseenQueues
from mqstore.derive.generations import offsets_by_queue
from mqstore.derive.queue_units import (
    ExpectedUnits,
    QueueUnits,
    by_queue,
    compare,
    is_filler,
    is_gap,
    is_possible,
    units_of,
)
from mqstore.derive.records import SOUND_CHECKS, fetch
from mqstore.derive.sound_record import read_record
from mqstore.errors import CorruptStoreError
from mqstore.files.base import durable
from mqstore.files.base.mapped_file_queue import MappedFile
from mqstore.files.base.store_writer import StoreWriter
from mqstore.files.log.commit_log import CommitLog
from mqstore.files.queue.consume_queue import list_queues
from mqstore.files.queue.queue_repair import QueueRepair, are_empty, fillers
from mqstore.format import names
from mqstore.format.arrays import Int64s, Mask, Structs, TopicQueue
from mqstore.format.consume_queue import FILLER_SIZE, UNIT

_PENDING_UNITS: Final = 1 << 18  # 5 MiB of units
_CHUNK_UNITS: Final = 50_000
_MAX_POSITION: Final = 2**63 - 1


class EarlierUnitsLostError(Exception):
    """Units of records before the walk are lost too: walk again from further back."""


@dataclass(slots=True)
class _RepairedQueue:
    repair: QueueRepair
    next: int
    """Queue offset behind the last unit that the records imply so far."""
    first: int = -1
    """First queue offset that a record of the walk implies; -1 for none yet."""
    begin: int = 0
    """Physical offset of the first record that counts; those before are of a deleted topic."""


class QueueRebuild:
    """Repairs all queues: ``foresee`` and ``begin``, ``feed`` it all records, then ``finish``.

    The records are those from ``start`` on. Nothing is changed before ``begin``.
    """

    def __init__(self, writer: StoreWriter, log: CommitLog, start: int) -> None:
        self._writer = writer
        self._root = writer.root
        self._log = log
        self._start = start
        self._file_size = writer.sizes.consume_queue
        self._queue_offsets_end = (_MAX_POSITION - self._file_size) // UNIT.itemsize
        self._is_extended = bool(writer.place.folder.names(names.CONSUME_QUEUE_EXT))
        self._states: dict[TopicQueue, _RepairedQueue] = {}
        self._pending: list[QueueUnits] = []
        self._pending_count = 0
        self.written = 0
        self.zeroed = 0
        self.left = 0
        self.removed = 0
        self._repairs = {queue: self._repair_of(queue) for queue in list_queues(writer.place)}
        self._check_size()
        for repair in self._repairs.values():
            repair.check_files()

    def _check_size(self) -> None:
        """Raise CorruptStoreError if the files agree on another size than the writer's."""
        sizes = Counter(size for repair in self._repairs.values() for size in repair.sizes())
        usual, count = max(sizes.items(), key=lambda item: item[1], default=(self._file_size, 0))
        if usual != self._file_size and count > 1:
            reason = f"ConsumeQueue files are {usual} bytes long, not {self._file_size}"
            raise CorruptStoreError(f"{self._root}/{names.CONSUME_QUEUE}", 0, reason)

    def foresee(self, walked: Iterable[DispatchRecords]) -> ForeseenQueues:
        """Take all records, and return what the queues will be.

        Raises EarlierUnitsLostError.
        """
        ends = {queue: self._known_end(queue, repair) for queue, repair in self._repairs.items()}
        found = ForeseenQueues(ends, self._queue_offsets_end)
        for queue, named in offsets_by_queue(walked):
            found.take(queue, named)
        for queue, place in found.begins().items():
            if not self._has_older_first(queue, place):
                self._states[queue] = _RepairedQueue(self._repair_or_new(queue), 0, begin=place)
                found.begin_at(queue)
        for queue in found.left():
            repair = self._repair_or_new(queue)
            if not repair.files.files:
                self._states[queue] = _RepairedQueue(repair, 0, begin=_MAX_POSITION)
                found.leave(queue)
        for queue, first in found.firsts():
            if queue not in self._states:
                state = _RepairedQueue(self._repair_or_new(queue), ends.get(queue, 0))
                self._check_before(state, first)
                self._states[queue] = state
        return found

    def begin(self) -> None:
        """Put the files right that no broker would start with."""
        self.removed += sum(repair.repair_files() for repair in self._repairs.values())

    def feed(self, records: DispatchRecords) -> None:
        """Take the next records. Raises EarlierUnitsLostError, NoSpaceError, OSError."""
        units = units_of(records)
        self._pending.append(units)
        self._pending_count += len(units.expected)
        if self._pending_count >= _PENDING_UNITS:
            self._flush()

    def finish(self) -> None:
        """Write what is left, and remove units that are no record's."""
        self._flush()
        for queue in [*self._repairs, *(q for q in self._states if q not in self._repairs)]:
            self._remove_phantoms(self._state(queue))
        self._sync()

    def _sync(self) -> None:
        """Make all units of the walk durable.

        A unit that was found right may be in memory only: its writer may have been killed before
        it was synced.
        """
        folder = f"{self._root}/{names.CONSUME_QUEUE}"
        topics = set()
        for (topic, _), state in self._states.items():
            if state.first < 0:
                state.repair.sync_last()
            else:
                state.repair.sync(state.first, state.next)
                topics.add(topic)
        for topic in sorted(topics):
            durable.fsync_directory(f"{folder}/{topic}")
        if topics:
            durable.fsync_directory(folder)
            durable.fsync_directory(self._root)

    def _flush(self) -> None:
        pending, self._pending, self._pending_count = self._pending, [], 0
        for queue, expected in by_queue(pending) if pending else ():
            if is_possible(queue):
                self._put(queue, expected)

    def _put(self, queue: TopicQueue, expected: ExpectedUnits) -> None:
        """Give a queue the units that records imply."""
        state = self._state(queue)
        expected = expected.take(expected.units["physical_offset"] >= state.begin)
        # No file can hold a unit whose position is no int64: its name would stop every broker.
        expected = expected.take(expected.queue_offsets < self._queue_offsets_end)
        # Of two records with one queue offset the first in the log keeps it, and a queue offset
        # below one given already is never given: as the broker does.
        numbers = expected.queue_offsets
        highest = np.maximum.accumulate(np.append(state.next - 1, numbers[:-1]))
        expected = expected.take(numbers > highest)
        numbers = expected.queue_offsets
        if not len(numbers):
            return
        runs = []
        if state.first < 0:
            runs += self._before_first(state, int(numbers[0]))
            state.first = state.next = int(numbers[0])
        self._clear_between(state, queue, numbers)
        state.next = int(numbers[-1]) + 1
        edges = np.flatnonzero(np.diff(numbers) != 1) + 1
        for low, high in pairwise([0, *edges.tolist(), len(numbers)]):
            for begin in range(low, high, _CHUNK_UNITS):
                part = slice(begin, min(high, begin + _CHUNK_UNITS))
                runs += self._differing(state.repair, expected.take(part))
        if runs:
            state.repair.write(runs)
            self.written += sum(len(run) for _, run in runs)

    def _differing(self, repair: QueueRepair, expected: ExpectedUnits) -> list[tuple[int, Structs]]:
        """Return the runs of consecutive ``expected`` units that the queue does not have yet."""
        start = int(expected.queue_offsets[0])
        found = repair.read(start, start + len(expected))
        differ = compare(found, expected, is_extended=self._is_extended)
        rows = np.flatnonzero(differ.misplaced | differ.tags_code)
        runs = np.split(rows, np.flatnonzero(np.diff(rows) != 1) + 1)
        return [(start + int(run[0]), expected.units[run]) for run in runs if len(run)]

    def _before_first(self, state: _RepairedQueue, first: int) -> list[tuple[int, Structs]]:
        """Return filler for the queue offsets before the first unit, where no unit is.

        A broker reads a queue up to its first empty unit, and fills what is before a queue's
        first message with units of its own.
        """
        repair = state.repair
        if not self._lacks_before(state, first):
            return []
        low = max(repair.file_start(first), state.next)
        if low >= first:
            return []
        staying = np.flatnonzero(self._may_stay(repair.read(low, first)))
        low += int(staying[-1]) + 1 if len(staying) else 0
        return [(low, fillers(first - low))]

    def _lacks_before(self, state: _RepairedQueue, first: int) -> bool:
        if first <= state.next:
            return False
        return not self._may_stay(state.repair.read(first - 1, first))[0]

    def _check_before(self, state: _RepairedQueue, first: int) -> None:
        if self._start > self._log.low and self._lacks_before(state, first):
            raise EarlierUnitsLostError

    def _has_older_first(self, queue: TopicQueue, place: int) -> bool:
        """Tell whether the queue has a record before ``place`` for queue offset 0.

        Then it is the witness that records from ``place`` on are no newer generation.
        """
        repair = self._repairs.get(queue)
        unit = repair.read(0, 1)[0] if repair else None
        if unit is None or not self._log.low <= int(unit["physical_offset"]) < place:
            return False
        return self._is_implied(queue, 0, unit)

    def _clear_between(self, state: _RepairedQueue, queue: TopicQueue, numbers: Int64s) -> None:
        """Clear units between those of two records that follow each other in the queue.

        A broker reads a queue up to its first empty unit. So a unit stays that leads to a sound
        record of another queue: a byte of its name has changed, perhaps, and more than that one
        message would be lost.
        """
        low, high = state.next, int(numbers[-1]) + 1
        if high - low == len(numbers):
            return
        for file in state.repair.files.files:
            if file.end <= low * UNIT.itemsize or file.start >= high * UNIT.itemsize:
                continue
            for first, units in state.repair.chunks(file):
                there = np.arange(first, first + len(units))
                wrong = (there >= low) & (there < high) & ~are_empty(units)
                wrong &= ~np.isin(there, numbers) & ~is_gap(units)
                for row in np.flatnonzero(wrong).tolist():
                    wrong[row] = not self._is_of_another(queue, units[row])
                    self.left += int(not wrong[row])
                if wrong.any():
                    state.repair.zero(file, there[wrong])
                    self.zeroed += int(wrong.sum())

    def _is_of_another(self, queue: TopicQueue, unit: np.void) -> bool:
        """Tell whether a sound record of another queue lies where a unit points."""
        record = read_record(self._log, int(unit["physical_offset"]))
        return (
            record is not None
            and record.size == int(unit["size"])
            and (record.topic, record.queue_id) != queue
        )

    def _remove_phantoms(self, state: _RepairedQueue) -> None:
        at_end = True
        for file in reversed(state.repair.files.files):
            wrong, left, earlier = self._phantoms_in(state, file)
            self.zeroed += len(wrong)
            if at_end and not left:
                state.repair.remove(file)
                self.removed += 1
            elif len(wrong):
                state.repair.zero(file, wrong)
            at_end = at_end and not left
            if earlier:
                return

    def _phantoms_in(self, state: _RepairedQueue, file: MappedFile) -> tuple[Int64s, int, bool]:
        """Return a file's phantoms, the number of its other units, and whether any is older."""
        found, left, earlier = [], 0, False
        for first, units in state.repair.chunks(file):
            numbers = np.arange(first, first + len(units))
            used, may_stay = ~are_empty(units), self._may_stay(units)
            if state.first < 0 and not state.next and not self._log.low:
                # Filler stands for records that have expired; here none ever were, and a broker
                # would take it for a queue's first message.
                may_stay &= units["size"] != FILLER_SIZE
            implied = (state.first >= 0) & (numbers >= state.first) & (numbers < state.next)
            behind = (state.first >= 0) & (numbers >= state.next)
            wrong = used & ~implied & (behind | ~may_stay)
            found.append(numbers[wrong])
            left += int((used & ~wrong).sum())
            older = may_stay & ~wrong & ~implied & (units["size"] != FILLER_SIZE)
            earlier = earlier or bool(older.any())
        return np.concatenate([*found, np.zeros(0, np.int64)]), left, earlier

    def _may_stay(self, units: Structs) -> Mask:
        """Tell which units that no record of the walk implies may stay: older ones, filler."""
        places = units["physical_offset"].astype(np.int64)
        sizes = units["size"].astype(np.int64)
        is_older: Mask = (sizes > 0) & (places >= 0) & (places < self._start)
        return is_older | is_filler(units)

    def _state(self, queue: TopicQueue) -> _RepairedQueue:
        state = self._states.get(queue)
        if state is None:
            repair = self._repair_or_new(queue)
            state = self._states[queue] = _RepairedQueue(repair, self._known_end(queue, repair))
        return state

    def _repair_or_new(self, queue: TopicQueue) -> QueueRepair:
        return self._repairs.get(queue) or self._repair_of(queue)

    def _known_end(self, queue: TopicQueue, repair: QueueRepair) -> int:
        """Return the queue offset behind the last unit of a record before the walk.

        0 if there is none: a unit whose record has expired proves nothing.
        """
        if self._start <= self._log.low:
            return 0
        for file in reversed(repair.files.files):
            candidates: list[Int64s] = []
            for first, units in repair.chunks(file):
                places = units["physical_offset"].astype(np.int64)
                older = (units["size"] > 0) & (places >= self._log.low) & (places < self._start)
                candidates.append(first + np.flatnonzero(older))
            for number in np.concatenate([*candidates, np.zeros(0, np.int64)])[::-1].tolist():
                if self._is_implied(queue, number, repair.read(number, number + 1)[0]):
                    return int(number) + 1
        return 0

    def _is_implied(self, queue: TopicQueue, number: int, unit: np.void) -> bool:
        """Tell whether a unit's record is there, is sound, and implies that unit."""
        place, size = (np.array([unit[name]], np.int64) for name in ("physical_offset", "size"))
        found = fetch(self._log, place, size, SOUND_CHECKS)
        if not len(found):
            return False
        return any(
            other == queue and number in units.queue_offsets
            for other, units in by_queue([units_of(DispatchRecords(found.headers, place))])
        )

    def _repair_of(self, queue: TopicQueue) -> QueueRepair:
        return QueueRepair(self._writer, *queue)
