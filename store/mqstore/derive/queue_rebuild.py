"""ConsumeQueues that say what the CommitLog says: every record its unit, no unit without one.

The records come in log order. What each queue must hold because of them waits in memory until
there is much of it; then units that are missing or differ are written. When the log has ended,
units that point behind the place the walk began at and are no record's are phantoms.

Reference: CommitLogDispatcherBuildConsumeQueue, ConsumeQueue#putMessagePositionInfo (a queue
offset that a unit has already is not given again), #fillPreBlank, #truncateDirtyLogicFiles.
"""

from collections import Counter
from dataclasses import dataclass
from itertools import pairwise
from typing import Final

import numpy as np

from mqstore.arrays import Int64s, Mask, Structs
from mqstore.codec.checksum import broken
from mqstore.codec.dispatch import DispatchRecords, Queue
from mqstore.codec.gather import RecordHeaders
from mqstore.derive.survey import read_record
from mqstore.errors import CorruptStoreError
from mqstore.files import durable
from mqstore.files.log.commit_log import CommitLog
from mqstore.files.mapped_file_queue import MappedFile
from mqstore.files.queue.consume_queue import list_queues
from mqstore.files.queue.queue_repair import QueueMender, are_empty, fillers
from mqstore.files.safe_open import list_names
from mqstore.format import names
from mqstore.format.consume_queue import EXT_ADDRESS_MAX, FILLER_SIZE, UNIT

_HELD_UNITS: Final = 1 << 18  # 5 MiB of units
_CHUNK_UNITS: Final = 50_000


class EarlierUnitsLostError(Exception):
    """Units before the first one that the walk brought are lost too: walk from further back."""


@dataclass(frozen=True, slots=True)
class Claims:
    """Structs that records ask for, in log order: ``units[i]`` at ``numbers[i]`` of a queue."""

    queues: list[Queue]
    codes: Int64s
    """Which of ``queues`` each one is for."""
    numbers: Int64s
    units: Structs
    delayed_from: Int64s
    """Store timestamp of a message that waits for its delivery; 0 for all others."""

    def __len__(self) -> int:
        return len(self.codes)


@dataclass(slots=True)
class _State:
    mender: QueueMender
    next: int
    """No unit before this one is any record's of the walk but those that were claimed."""
    first: int = -1
    """First queue offset claimed; -1 for none yet."""


class QueueRebuild:
    """Feed it all records from ``start`` on, then ``finish``."""

    def __init__(
        self, root: str, log: CommitLog, start: int, *, file_size: int, temp_dir: str, fsync: bool
    ) -> None:
        self._root = root
        self._log = log
        self._start = start
        self._file_size = file_size
        self._temp_dir = temp_dir
        self._fsync = fsync
        self._is_extended = bool(list_names(root, names.CONSUME_QUEUE_EXT))
        self._states: dict[Queue, _State] = {}
        self._held: list[Claims] = []
        self._held_count = 0
        self.written = 0
        self.zeroed = 0
        self.left = 0
        self.removed = 0
        self._menders = {queue: self._mender(queue) for queue in list_queues(root)}
        self._check_size()
        self.removed += sum(mender.repair_files() for mender in self._menders.values())

    def _check_size(self) -> None:
        """Raise CorruptStoreError if files agree on another size than the one that was given."""
        sizes = Counter(size for mender in self._menders.values() for size in mender.sizes())
        usual, count = max(sizes.items(), key=lambda item: item[1], default=(self._file_size, 0))
        if usual != self._file_size and count > 1:
            reason = f"ConsumeQueue files are {usual} bytes long, not {self._file_size}"
            raise CorruptStoreError(f"{self._root}/{names.CONSUME_QUEUE}", 0, reason)

    def feed(self, records: DispatchRecords) -> None:
        """Take the next records. Raises EarlierUnitsLostError, NoSpaceError, OSError."""
        claims = claims_of(records)
        self._held.append(claims)
        self._held_count += len(claims)
        if self._held_count >= _HELD_UNITS:
            self._flush()

    def finish(self) -> None:
        """Write what is left, and remove units that are no record's."""
        self._flush()
        for queue in [*self._menders, *(q for q in self._states if q not in self._menders)]:
            self._remove_phantoms(self._state(queue))
        if self._fsync:
            self._sync()

    def _sync(self) -> None:
        """Make all units of the walk durable: one found right may be in memory only.

        Whoever wrote it was killed before it was synced, perhaps.
        """
        folder = f"{self._root}/{names.CONSUME_QUEUE}"
        topics = set()
        for (topic, _), state in self._states.items():
            if state.first < 0:
                state.mender.sync_last()
            else:
                state.mender.sync(state.first, state.next)
                topics.add(topic)
        for topic in sorted(topics):
            durable.fsync_directory(f"{folder}/{topic}")
        if topics:
            durable.fsync_directory(folder)
            durable.fsync_directory(self._root)

    def _flush(self) -> None:
        held, self._held, self._held_count = self._held, [], 0
        if not held:
            return
        numbered: dict[Queue, int] = {}
        codes = []
        for claims in held:
            local = [numbered.setdefault(queue, len(numbered)) for queue in claims.queues]
            codes.append(np.array(local, np.int64)[claims.codes])
        joined = np.concatenate(codes)
        order = np.argsort(joined, kind="stable")
        # Joined as bytes: of structures, numpy would make the machine's byte order.
        units = np.concatenate([c.units.view(np.uint8) for c in held]).view(UNIT)[order]
        numbers = np.concatenate([c.numbers for c in held])[order]
        delayed_from = np.concatenate([c.delayed_from for c in held])[order]
        ends = np.cumsum(np.bincount(joined, minlength=len(numbered))).tolist()
        start = 0
        for queue, end in zip(numbered, ends, strict=True):
            if end > start:
                part = slice(start, end)
                self._claim(queue, numbers[part], units[part], delayed_from[part])
            start = end

    def _claim(self, queue: Queue, numbers: Int64s, units: Structs, delayed_from: Int64s) -> None:
        """Give a queue the units that records ask for, in log order."""
        state = self._state(queue)
        # Of two records with one queue offset the first in the log keeps it, and a queue offset
        # below one given already is never given: as the broker does.
        highest = np.maximum.accumulate(np.append(state.next - 1, numbers[:-1]))
        kept = numbers > highest
        if not kept.any():
            return
        numbers, units, delayed_from = numbers[kept], units[kept], delayed_from[kept]
        runs = []
        if state.first < 0:
            runs += self._before_first(state, int(numbers[0]))
            state.first = state.next = int(numbers[0])
        self._clear_between(state, queue, numbers)
        state.next = int(numbers[-1]) + 1
        edges = np.flatnonzero(np.diff(numbers) != 1) + 1
        for low, high in pairwise([0, *edges.tolist(), len(numbers)]):
            first = int(numbers[low])
            runs += self._differing(state.mender, first, units[low:high], delayed_from[low:high])
        if runs:
            state.mender.write(runs)
            self.written += sum(len(run) for _, run in runs)

    def _differing(
        self, mender: QueueMender, start: int, units: Structs, delayed_from: Int64s
    ) -> list[tuple[int, Structs]]:
        """Return the runs of ``units`` that the queue does not have yet."""
        runs = []
        for begin in range(0, len(units), _CHUNK_UNITS):
            wanted = units[begin : begin + _CHUNK_UNITS]
            found = mender.read(start + begin, start + begin + len(wanted))
            tags = found["tags_code"].astype(np.int64)
            right = (found["physical_offset"] == wanted["physical_offset"]) & (
                found["size"] == wanted["size"]
            )
            right &= (
                (tags == wanted["tags_code"])
                # Delivery times follow the broker's own delay levels.
                | _are_delivery_times(tags, delayed_from[begin : begin + len(wanted)])
                | ((tags <= EXT_ADDRESS_MAX) & self._is_extended)
            )
            rows = np.flatnonzero(~right)
            for run in np.split(rows, np.flatnonzero(np.diff(rows) != 1) + 1):
                if len(run):
                    low, high = int(run[0]), int(run[-1]) + 1
                    runs.append((start + begin + low, wanted[low:high]))
        return runs

    def _before_first(self, state: _State, first: int) -> list[tuple[int, Structs]]:
        """Return what must stand before the first unit of a queue, where nothing does.

        A broker reads a queue up to its first empty unit, and fills what is before a queue's
        first message with units of its own.
        """
        mender = state.mender
        if first <= state.next or self._are_kept(mender.read(first - 1, first))[0]:
            return []
        if self._start > self._log.low:
            raise EarlierUnitsLostError
        low = max(mender.file_start(first), state.next)
        if low >= first:
            return []
        kept = np.flatnonzero(self._are_kept(mender.read(low, first)))
        low += int(kept[-1]) + 1 if len(kept) else 0
        return [(low, fillers(first - low))]

    def _clear_between(self, state: _State, queue: Queue, numbers: Int64s) -> None:
        """Clear what stands between units whose records follow each other in the queue.

        A broker reads a queue up to its first empty unit. So a unit stays that leads to a sound
        record of another queue: a byte of its name has changed, perhaps, and more than that one
        message would be lost.
        """
        low, high = state.next, int(numbers[-1]) + 1
        if high - low == len(numbers):
            return
        for file in state.mender.files.files:
            if file.end <= low * UNIT.itemsize or file.start >= high * UNIT.itemsize:
                continue
            for first, units in state.mender.chunks(file):
                there = np.arange(first, first + len(units))
                wrong = (there >= low) & (there < high) & ~are_empty(units)
                wrong &= ~np.isin(there, numbers)
                for row in np.flatnonzero(wrong).tolist():
                    wrong[row] = not self._is_of_another(queue, units[row])
                    self.left += int(not wrong[row])
                if wrong.any():
                    state.mender.zero(file, there[wrong])
                    self.zeroed += int(wrong.sum())

    def _is_of_another(self, queue: Queue, unit: np.void) -> bool:
        """Tell whether a sound record lies where a unit says, and says that it is another's."""
        record = read_record(self._log, int(unit["physical_offset"]))
        return (
            record is not None
            and record.size == int(unit["size"])
            and (record.topic, record.queue_id) != queue
        )

    def _remove_phantoms(self, state: _State) -> None:
        at_end = True
        for file in reversed(state.mender.files.files):
            wrong, left, earlier = self._judge(state, file)
            self.zeroed += len(wrong)
            if at_end and not left:
                state.mender.remove(file)
                self.removed += 1
            elif len(wrong):
                state.mender.zero(file, wrong)
            at_end = at_end and not left
            if earlier:
                return

    def _judge(self, state: _State, file: MappedFile) -> tuple[Int64s, int, bool]:
        """Return a file's phantoms, how many units are none, and whether all before are older."""
        found, left, earlier = [], 0, False
        for first, units in state.mender.chunks(file):
            numbers = np.arange(first, first + len(units))
            used, kept = ~are_empty(units), self._are_kept(units)
            if state.first < 0 and not state.next and not self._log.low:
                # Filler stands for records that have expired; here none ever were, and a broker
                # would take it for a queue's first message.
                kept &= units["size"] != FILLER_SIZE
            claimed = (state.first >= 0) & (numbers >= state.first) & (numbers < state.next)
            behind = (state.first >= 0) & (numbers >= state.next)
            wrong = used & ~claimed & (behind | ~kept)
            found.append(numbers[wrong])
            left += int((used & ~wrong).sum())
            older = kept & ~wrong & ~claimed & (units["size"] != FILLER_SIZE)
            earlier = earlier or bool(older.any())
        return np.concatenate([*found, np.zeros(0, np.int64)]), left, earlier

    def _are_kept(self, units: Structs) -> Mask:
        """Tell which units that no record of the walk asked for may stay: older ones, filler."""
        places = units["physical_offset"].astype(np.int64)
        sizes = units["size"].astype(np.int64)
        filler = (sizes == FILLER_SIZE) & (places == 0)
        kept: Mask = filler | ((sizes > 0) & (places >= 0) & (places < self._start))
        return kept

    def _state(self, queue: Queue) -> _State:
        state = self._states.get(queue)
        if state is None:
            mender = self._menders.get(queue) or self._mender(queue)
            state = self._states[queue] = _State(mender, self._known_end(queue, mender))
        return state

    def _known_end(self, queue: Queue, mender: QueueMender) -> int:
        """Return the queue offset behind the last unit of a record before the walk.

        0 if there is none: a unit whose record has expired proves nothing.
        """
        if self._start <= self._log.low:
            return 0
        for file in reversed(mender.files.files):
            candidates: list[Int64s] = []
            for first, units in mender.chunks(file):
                places = units["physical_offset"].astype(np.int64)
                older = (units["size"] > 0) & (places >= self._log.low) & (places < self._start)
                candidates.append(first + np.flatnonzero(older))
            for number in np.concatenate([*candidates, np.zeros(0, np.int64)])[::-1].tolist():
                if self._is_told(queue, number, mender.read(number, number + 1)[0]):
                    return int(number) + 1
        return 0

    def _is_told(self, queue: Queue, number: int, unit: np.void) -> bool:
        """Tell whether a unit's record is there, sound, and asks for that unit."""
        place = np.array([unit["physical_offset"]], np.int64)
        size = np.array([unit["size"]], np.int64)
        if not self._log.holds(place, size)[0]:
            return False
        gathered = self._log.gather(place, size)
        headers = RecordHeaders(gathered.buffer, gathered.starts, size)
        if headers.problems() or broken(headers).any():
            return False
        claims = claims_of(DispatchRecords(headers, place))
        asked = zip(claims.codes.tolist(), claims.numbers.tolist(), strict=True)
        return any((claims.queues[code], told) == (queue, number) for code, told in asked)

    def _mender(self, queue: Queue) -> QueueMender:
        return QueueMender(
            self._root,
            *queue,
            file_size=self._file_size,
            temp_dir=self._temp_dir,
            fsync=self._fsync,
        )


def claims_of(records: DispatchRecords) -> Claims:
    """Return the units that records ask for, in log order.

    A record whose queue could not be a directory's name asks for none.
    """
    known = np.array([names.is_topic(name) for name in records.topic_names], np.bool_)
    queue_ids, numbers = records.queue_ids, records.queue_offsets
    lawful = records.in_queue & known[records.topic_codes] & (numbers >= 0)
    lawful &= (queue_ids >= 0) & (queue_ids <= names.MAX_QUEUE_ID)
    rows = np.flatnonzero(lawful)
    joined, codes = np.unique(
        records.topic_codes[rows] << 32 | queue_ids[rows], return_inverse=True
    )
    queues = [(records.topic_names[v >> 32], v & 0xFFFFFFFF) for v in joined.tolist()]
    numbers = numbers[rows]
    light = [one for one in records.light_queues() if _is_lawful(one[1])]
    if light:
        place = {queue: code for code, queue in enumerate(queues)}
        more = [place.setdefault(queue, len(place)) for _, queue, _ in light]
        queues = list(place)
        rows = np.append(rows, [row for row, _, _ in light])
        order = np.argsort(rows, kind="stable")
        rows = rows[order]
        codes = np.append(codes, more)[order]
        numbers = np.append(numbers, [number for _, _, number in light])[order]
    tags, certain = records.tags_codes
    units = np.zeros(len(rows), UNIT)
    units["physical_offset"] = records.physical_offsets[rows]
    units["size"] = records.headers.sizes[rows]
    units["tags_code"] = tags[rows]
    delayed_from = np.where(certain, 0, records.store_timestamps_ms)[rows]
    return Claims(queues, codes.astype(np.int64), numbers, units, delayed_from)


def _is_lawful(queue: Queue) -> bool:
    return names.is_topic(queue[0]) and 0 <= queue[1] <= names.MAX_QUEUE_ID


def _are_delivery_times(tags: Int64s, delayed_from: Int64s) -> Mask:
    """Tell which tagsCodes can be times to deliver at: whole seconds after the store's own."""
    waits = tags - delayed_from
    times: Mask = (delayed_from > 0) & (waits > 0) & (waits % 1000 == 0)
    return times
