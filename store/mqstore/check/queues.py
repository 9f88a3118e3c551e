"""Check ConsumeQueues: their files, their units, and each unit against its record.

The walk over the CommitLog brings the records; a queue's units are read where they come. What
is kept of a queue is two numbers.
"""

from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Final

import numpy as np

from mqstore.arrays import Int64s, Mask, Structs
from mqstore.check.finding import ERROR, SHOWN, WARNING, Findings, Place
from mqstore.codec.dispatch import DispatchRecords, Queue
from mqstore.errors import CorruptStoreError
from mqstore.files.log.commit_log import CommitLog
from mqstore.files.queue.consume_queue import ConsumeQueue, list_queues
from mqstore.format import names
from mqstore.format.consume_queue import EXT_ADDRESS_MAX, FILLER_SIZE, UNIT

_CHUNK_UNITS: Final = 50_000
_NOWHERE: Final = 2**63 - 1


@dataclass
class _State:
    queue: ConsumeQueue
    end: int
    high: int
    """Before ``end`` where a commit is under way: its units need not be right yet."""
    live: int = 0
    matched: int = 0
    next: int = -1


@dataclass(frozen=True, slots=True)
class _Asked:
    """What units records ask for in one queue, in log order."""

    numbers: Int64s
    places: Int64s
    sizes: Int64s
    tags_codes: Int64s
    certain: Mask

    @classmethod
    def of(cls, records: DispatchRecords, rows: Int64s, numbers: Int64s) -> "_Asked":
        """Return what those rows ask for at those queue offsets."""
        codes, certain = records.tags_codes
        places, sizes = records.physical_offsets[rows], records.headers.sizes[rows]
        return cls(numbers, places, sizes, codes[rows], certain[rows])

    def take(self, kept: Mask) -> "_Asked":
        """Return those only."""
        return _Asked(
            self.numbers[kept],
            self.places[kept],
            self.sizes[kept],
            self.tags_codes[kept],
            self.certain[kept],
        )


class QueueCheck:
    """Feed it all records in log order, then ``finish``.

    From physical offset ``unfinished`` on, where a commit is under way, nothing need be right.
    What is wrong with a light queue is a warning: brokers drop such queues and make them anew.
    """

    def __init__(
        self, root: str, log: CommitLog, findings: Findings, *, unfinished: int | None = None
    ) -> None:
        self._root = root
        self._log = log
        self._findings = findings
        self._unfinished = _NOWHERE if unfinished is None else unfinished
        self._states: dict[Queue, _State] = {}
        sizes: dict[int, str] = {}
        for topic, queue_id in list_queues(root):
            queue = ConsumeQueue(root, topic, queue_id)
            for file in queue.files.files:
                sizes.setdefault(file.size, file.path)
            low, end = queue.bounds(log.low)
            high = end if unfinished is None else queue.first_behind(low, end, unfinished)
            state = self._states[topic, queue_id] = _State(queue, end, high)
            self._scan(topic, queue_id, state)
        if len(sizes) > 1:
            for size, path in sorted(sizes.items())[:-1]:
                problem = f"the file is {size} bytes long, others {max(sizes)}"
                findings.error(Place(path, size), problem)

    @property
    def queues(self) -> list[Queue]:
        """The queues that have a directory."""
        return list(self._states)

    def bounds(self) -> dict[Queue, tuple[int, int]]:
        """Return [low, high) of every queue's files, in queue offsets."""
        return {
            queue: (state.queue.files.low // UNIT.itemsize, state.high)
            for queue, state in self._states.items()
        }

    def log_end(self) -> int:
        """Return where the last record lies that a queue has: about the end of the log."""
        end = 0
        for state in self._states.values():
            with suppress(CorruptStoreError):  # It is found, and told, elsewhere.
                units = state.queue.read(max(state.high - 1, 0), state.high)
                end = max([end, *(units["physical_offset"].astype(np.int64) + units["size"])])
        return int(end)

    def feed(self, records: DispatchRecords) -> None:
        """Check that each record has its unit, and that the unit tells the truth."""
        if not len(records.physical_offsets):
            return
        kept = records.in_queue & (records.physical_offsets < self._unfinished)
        joined = records.topic_codes << 32 | (records.queue_ids & 0xFFFFFFFF)
        joined[~kept] = -1
        for value in np.unique(joined[joined >= 0]).tolist():
            rows = np.flatnonzero(joined == value)
            topic = records.topic_names[value >> 32]
            queue_id = int(np.int64(value & 0xFFFFFFFF).astype(np.int32))
            self._match((topic, queue_id), _Asked.of(records, rows, records.queue_offsets[rows]))
        light: dict[Queue, list[tuple[int, int]]] = {}
        for row, queue, number in records.light_queues():
            if kept[row]:
                light.setdefault(queue, []).append((row, number))
        for queue, asked in light.items():
            rows, numbers = np.array(asked, np.int64).T
            self._match_light(queue, _Asked.of(records, rows, numbers))

    def finish(self) -> None:
        """Report units that no record asked for."""
        for (topic, queue_id), state in self._states.items():
            if state.live != state.matched:
                self._orphans(topic, queue_id, state)

    def _match(self, queue: Queue, asked: _Asked) -> None:
        state = self._states.get(queue)
        if state is None:
            self._records(queue, "the queue has no ConsumeQueue", asked.places, asked.numbers)
            return
        numbers = asked.numbers
        self._check_dense(queue, state, numbers, asked.places)
        held = (numbers >= state.queue.files.low // UNIT.itemsize) & (numbers < state.high)
        self._records(queue, "the record has no unit", asked.places[~held], numbers[~held])
        if held.any():
            self._compare(queue, state, asked.take(held))

    def _compare(self, queue: Queue, state: _State, asked: _Asked) -> None:
        units, right = _units_at(state.queue, asked.numbers)
        right &= (units["physical_offset"] == asked.places) & (units["size"] == asked.sizes)
        state.matched += int(right.sum())
        problem = "the unit does not point to the queue's record"
        self._units(queue, problem, asked.numbers[~right])
        tags = units["tags_code"]
        wrong = right & (tags != asked.tags_codes) & (tags > EXT_ADDRESS_MAX)
        for certain in (True, False):
            rows = np.flatnonzero(wrong & (asked.certain == certain))
            problems = [
                f"tagsCode is {int(tags[row])}, the record says {int(asked.tags_codes[row])}"
                for row in rows[:SHOWN].tolist()
            ]
            rule = "tagsCode is not the record's"
            self._units(queue, rule, asked.numbers[rows], problems, certain=certain)

    def _match_light(self, queue: Queue, asked: _Asked) -> None:
        """Match what records name besides their own queue; brokers of 5.x: light queues only."""
        state = self._states.get(queue)
        if queue[0].startswith(names.LMQ_PREFIX):
            if state is not None or names.is_topic(queue[0]):
                self._match(queue, asked)
        elif state is not None:
            units, right = _units_at(state.queue, asked.numbers)
            right &= (units["physical_offset"] == asked.places) & (units["size"] == asked.sizes)
            state.matched += int(right.sum())

    def _check_dense(self, queue: Queue, state: _State, numbers: Int64s, places: Int64s) -> None:
        before = np.append(state.next - 1 if state.next >= 0 else numbers[0] - 1, numbers[:-1])
        rows = np.flatnonzero(numbers != before + 1)
        problems = [
            f"queueOffset {int(numbers[row])} comes after {int(before[row])}"
            for row in rows[:SHOWN].tolist()
        ]
        self._records(queue, "queueOffset is not the next", places[rows], numbers[rows], problems)
        state.next = int(numbers[-1]) + 1

    def _scan(self, topic: str, queue_id: int, state: _State) -> None:
        """Check the shape of a queue's files: filler* unit* zero*, ascending, none empty."""
        queue, last_place, started = (topic, queue_id), -1, False
        for first, units in _chunks(state.queue):
            sizes = units["size"].astype(np.int64)
            places = units["physical_offset"].astype(np.int64)
            filler = (sizes == FILLER_SIZE) & (places == 0)
            real = (sizes > 0) & ~filler
            settled = places < self._unfinished
            state.live += int((real & settled & (places >= self._log.low)).sum())
            numbers = np.arange(first, first + len(units))
            if (filler & started).any() or (filler & (numbers >= state.high)).any():
                self._unit(queue, first, "filler behind units")
            if filler.any() and self._log.low == 0:
                problem = "filler units in a store whose CommitLog starts at 0: brokers misread it"
                self._findings.error(self._unit_place(queue, first), problem)
            holes = ~real & ~filler & (numbers < state.high)
            self._units(queue, "an empty unit before the queue's end", numbers[holes])
            behind = real & settled & (numbers >= state.high)
            self._units(queue, "a unit behind the queue's end", numbers[behind])
            real &= settled
            ordered = places[real]
            steps = np.diff(np.append(last_place, ordered))
            self._units(queue, "physical offsets do not ascend", numbers[real][steps <= 0])
            last_place = int(ordered[-1]) if len(ordered) else last_place
            started = started or bool(real.any())
        self._check_files(topic, queue_id, state)

    def _check_files(self, topic: str, queue_id: int, state: _State) -> None:
        for before, after in zip(
            state.queue.files.files, state.queue.files.files[1:], strict=False
        ):
            if before.end != after.start:
                self._findings.error(
                    Place(after.path, 0, topic, queue_id), "the file before this one is missing"
                )
        for file in state.queue.files.files:
            if file.size % UNIT.itemsize:
                problem = f"{file.size} bytes are not a whole number of units"
                self._findings.error(Place(file.path, file.size, topic, queue_id), problem)
            elif file.start % file.size:
                problem = f"the name is no multiple of the file's {file.size} bytes"
                self._findings.error(Place(file.path, 0, topic, queue_id), problem)
            elif file.start // UNIT.itemsize >= state.end:
                problem = "a file without units: brokers take its first zeros for a message"
                self._findings.error(Place(file.path, 0, topic, queue_id), problem)

    def _orphans(self, topic: str, queue_id: int, state: _State) -> None:
        """Name the first units of a queue whose record is not in the log, and count the others."""
        queue, shown = (topic, queue_id), 0
        # A light queue's records are another topic's: their headers do not tell.
        is_light = topic.startswith(names.LMQ_PREFIX)
        for first, units in () if is_light else _chunks(state.queue):
            places = units["physical_offset"].astype(np.int64)
            live = (units["size"] > 0) & (places >= self._log.low) & (places < self._unfinished)
            for row in np.flatnonzero(live).tolist():
                header = self._log.header(int(places[row]))
                told = int(header["queue_offset"]) if header is not None else -1
                if told != first + row or header is None:
                    self._unit(queue, first + row, "the unit's record is not there")
                    shown += 1
                elif int(header["queue_id"]) != queue_id:
                    self._unit(queue, first + row, "a record of another queue")
                    shown += 1
                if shown >= SHOWN:
                    self._other_orphans(queue, state, first + row + 1)
                    return
        if not shown:
            problem = f"{state.live} live units, {state.matched} of them have their record"
            self._report(queue, Place(state.queue.path, None, *queue), problem)

    def _other_orphans(self, queue: Queue, state: _State, number: int) -> None:
        """Tell how many there are from queue offset ``number`` on; their records are not read."""
        more = state.live - state.matched - SHOWN
        if more > 0:
            span = f"from queue offset {number} to {state.end - 1}"
            problem = f"and {more} more {span}: no record has this unit"
            self._report(queue, Place(state.queue.path, None, *queue, number), problem)

    def _records(
        self,
        queue: Queue,
        rule: str,
        places: Int64s,
        numbers: Int64s,
        problems: Sequence[str] = (),
    ) -> None:
        """Report records that break a rule, where they lie in the log."""

        def told(row: int) -> tuple[Place, str]:
            path, position = self._log.where(int(places[row]))
            path = path.removeprefix(f"{self._root}/")
            place = Place(path, position, *queue, int(numbers[row]))
            return place, problems[row] if problems else rule

        self._several(queue, rule, numbers, told)

    def _units(
        self,
        queue: Queue,
        rule: str,
        numbers: Int64s,
        problems: Sequence[str] = (),
        *,
        certain: bool = True,
    ) -> None:
        """Report units that break a rule."""

        def told(row: int) -> tuple[Place, str]:
            place = self._unit_place(queue, int(numbers[row]))
            return place, problems[row] if problems else rule

        self._several(queue, rule, numbers, told, certain=certain)

    def _several(
        self,
        queue: Queue,
        rule: str,
        numbers: Int64s,
        told: Callable[[int], tuple[Place, str]],
        *,
        certain: bool = True,
    ) -> None:
        severity = WARNING if queue[0].startswith(names.LMQ_PREFIX) or not certain else ERROR
        path = f"{names.CONSUME_QUEUE}/{queue[0]}/{queue[1]}"
        self._findings.several(severity, Place(path, None, *queue), rule, numbers, told)

    def _unit(self, queue: Queue, number: int, problem: str) -> None:
        self._report(queue, self._unit_place(queue, number), problem)

    def _report(self, queue: Queue, place: Place, problem: str) -> None:
        is_light = queue[0].startswith(names.LMQ_PREFIX)
        report = self._findings.warning if is_light else self._findings.error
        report(place, problem)

    def _unit_place(self, queue: Queue, number: int) -> Place:
        state = self._states[queue]
        file = state.queue.files.find(number * UNIT.itemsize)
        path = file.path if file else state.queue.path
        position = number * UNIT.itemsize - (file.start if file else 0)
        return Place(path, position, *queue, number)


def _units_at(queue: ConsumeQueue, numbers: Int64s) -> tuple[Structs, Mask]:
    """Return the units of those queue offsets, and which of them could be read."""
    units = np.zeros(len(numbers), UNIT)
    found = np.zeros(len(numbers), np.bool_)
    edges = np.flatnonzero(np.diff(numbers) != 1) + 1
    for run in np.split(np.arange(len(numbers)), edges):
        try:
            units[run] = queue.read(int(numbers[run[0]]), int(numbers[run[-1]]) + 1)
            found[run] = True
        except CorruptStoreError:
            continue
    return units, found


def _chunks(queue: ConsumeQueue) -> Iterator[tuple[int, Structs]]:
    """Yield all units of a queue's files, zeros behind the end too, file by file."""
    for file in queue.files.files:
        first, end = file.start // UNIT.itemsize, file.end // UNIT.itemsize
        for start in range(first, end, _CHUNK_UNITS):
            try:
                units = queue.read(start, min(end, start + _CHUNK_UNITS))
            except CorruptStoreError:
                break
            yield start, units
