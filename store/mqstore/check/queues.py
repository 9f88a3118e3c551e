"""Check ConsumeQueues: their files, their units, and each unit against its record.

The walk over the CommitLog brings the records; a queue's units are read where they come. What
stays in memory of a queue is a few numbers.
"""

from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from itertools import pairwise
from typing import Final

import numpy as np

from mqstore.check.causes import Causes
from mqstore.check.earlier import EarlierMessages, MessagesWithoutQueue
from mqstore.check.finding import ERROR, SHOWN, WARNING, FindingPlace, Findings
from mqstore.check.gaps import is_all_gap, wrong_gaps
from mqstore.check.log import log_place
from mqstore.check.unnamed import UnnamedMessages
from mqstore.codec.dispatch import DispatchRecords
from mqstore.derive.queue_units import (
    ExpectedUnits,
    by_queue,
    compare,
    is_filler,
    is_gap,
    is_possible,
    units_of,
)
from mqstore.errors import CorruptStoreError
from mqstore.files.queue.units import Units
from mqstore.files.store import Store
from mqstore.format import names
from mqstore.format.arrays import Int64s, Mask, Span, Structs, TopicQueue
from mqstore.format.consume_queue import UNIT

_CHUNK_UNITS: Final = 50_000
_NOWHERE: Final = 2**63 - 1
_NO_QUEUE: Final = "the queue has no ConsumeQueue"


@dataclass
class _QueueWalk:
    queue: Units
    end: int
    high: int
    """Before ``end`` where a commit is under way: its units need not be right yet."""
    live: int = 0
    matched: int = 0
    damaged: int = 0
    """Live units whose record is damaged."""
    gaps: int = 0
    """Units that stand for records that were lost."""
    next: int = -1


class QueueCheck:
    """Feed it all records in log order, then ``finish``.

    From physical offset ``unfinished`` on, where a commit is under way, nothing need be right.
    What is wrong with a light queue is a warning: brokers drop such queues and make them anew.
    """

    def __init__(
        self,
        store: Store,
        findings: Findings,
        causes: Causes,
        earlier: EarlierMessages,
        *,
        unfinished: int | None = None,
    ) -> None:
        self._store = store
        self._log = store.log
        self._findings = findings
        self._causes = causes
        self._unfinished = _NOWHERE if unfinished is None else unfinished
        self._unnamed = UnnamedMessages(findings)
        self._earlier = earlier
        self._states: dict[TopicQueue, _QueueWalk] = {}
        sizes: dict[int, str] = {}
        self._batches = store.batch_topics
        for topic, queue_id in store.queues:
            if topic in self._batches:
                continue  # See BatchCheck.
            queue = store.queue(topic, queue_id)
            for file in queue.files.files:
                sizes.setdefault(file.size, f"{queue.path}/{file.path}")
            low, end = queue.bounds(store.log.low)
            high = end if unfinished is None else queue.first_behind(low, end, unfinished)
            state = self._states[topic, queue_id] = _QueueWalk(queue, end, high)
            self._scan((topic, queue_id), state)
            earlier.look(self._log, (topic, queue_id), queue)
        if len(sizes) > 1:
            for size, path in sorted(sizes.items())[:-1]:
                problem = f"the file is {size} bytes long, others {max(sizes)}"
                findings.error(FindingPlace(path, size), problem)

    def bounds(self) -> dict[TopicQueue, Span]:
        """Return [low, high) of every queue's files, in queue offsets."""
        return {queue: (state.queue.room_low, state.high) for queue, state in self._states.items()}

    def log_end(self) -> int:
        """Return where the last record lies that a queue has: about the end of the log."""
        end = 0
        for state in self._states.values():
            with suppress(CorruptStoreError):  # Reported by other checks.
                units = state.queue.read(max(state.high - 1, 0), state.high)
                end = max([end, *(units["physical_offset"].astype(np.int64) + units["size"])])
        return int(end)

    def feed(self, records: DispatchRecords) -> None:
        """Compare the units of these records with those that the records imply."""
        for queue, units in by_queue([units_of(records)]):
            if queue[0] in self._batches:
                continue
            settled = units.take(units.units["physical_offset"] < self._unfinished)
            own = settled.take(~settled.is_second)
            if len(own):
                self._match(queue, own)
            second = settled.take(settled.is_second)
            if len(second):
                self._match_second(queue, second)

    def finish(self) -> None:
        """Report units that no record implies, and queues that are not there."""
        topics = {topic for (topic, _), state in self._states.items() if state.end}
        for queue, lost in self._earlier.report(topics):
            self._without_queue(queue, lost)
        self._unnamed.report()
        for queue, state in self._states.items():
            if state.live != state.matched and not self._are_explained(queue, state):
                self._orphans(queue, state)

    def _match(self, queue: TopicQueue, expected: ExpectedUnits) -> None:
        state = self._states.get(queue)
        if state is None or not state.end:
            if not self._earlier.hold(queue, expected):
                self._records(queue, _NO_QUEUE, expected)
            return
        places = expected.units["physical_offset"].astype(np.int64)
        expected = expected.take(~self._earlier.are_earlier(queue, places))
        if not len(expected):
            return
        numbers = expected.queue_offsets
        self._check_dense(queue, state, expected)
        held = (numbers >= state.queue.room_low) & (numbers < state.high)
        self._records(queue, "the record has no unit", expected.take(~held))
        missed = ~held
        if held.any():
            missed[held] = self._compare(queue, state, expected.take(held))
        self._unnamed.add(queue, state.queue, state.high, expected.take(missed))

    def _without_queue(self, queue: TopicQueue, lost: MessagesWithoutQueue) -> None:
        self._records(queue, _NO_QUEUE, lost.shown)
        if lost.more:
            first, last = lost.more[0], lost.more[-1]
            path = f"{names.CONSUME_QUEUE}/{queue[0]}/{queue[1]}"
            more = f"and {lost.count - len(lost.shown)} more from queue offset {first} to {last}"
            self._report(queue, FindingPlace(path, None, *queue, first), f"{more}: {_NO_QUEUE}")
        self._unnamed.add_all(queue, int(lost.shown.queue_offsets[0]), lost.count)

    def _compare(self, queue: TopicQueue, state: _QueueWalk, expected: ExpectedUnits) -> Mask:
        """Report units that differ from the expected ones; tell which name another record."""
        found, is_read = _units_at(state.queue, expected.queue_offsets)
        differ = compare(found, expected, is_extended=True)
        wrong = differ.misplaced | ~is_read
        state.matched += int((~wrong).sum())
        problem = "the unit does not point to the queue's record"
        self._units(queue, problem, expected.queue_offsets[wrong])
        is_delayed = expected.delayed_from_ms > 0
        # Delivery times depend on the broker's own delay levels.
        for severity, is_of in ((ERROR, ~is_delayed), (WARNING, is_delayed)):
            rows = np.flatnonzero(is_of & is_read & (differ.tags_code | differ.delivery_time))
            has, implied = found["tags_code"][rows], expected.units["tags_code"][rows]
            problems = [
                f"tagsCode is {unit}, the record says {record}"
                for unit, record in zip(has[:SHOWN].tolist(), implied[:SHOWN].tolist(), strict=True)
            ]
            rule = "tagsCode is not the record's"
            self._units(queue, rule, expected.queue_offsets[rows], problems, severity=severity)
        return wrong

    def _match_second(self, queue: TopicQueue, expected: ExpectedUnits) -> None:
        """Match units of records of other queues; brokers of 5.x make them in light queues only."""
        state = self._states.get(queue)
        if queue[0].startswith(names.LMQ_PREFIX):
            if state is not None or is_possible(queue):
                self._match(queue, expected)
        elif state is not None:
            found, is_read = _units_at(state.queue, expected.queue_offsets)
            differ = compare(found, expected, is_extended=True)
            state.matched += int((is_read & ~differ.misplaced).sum())

    def _check_dense(self, queue: TopicQueue, state: _QueueWalk, expected: ExpectedUnits) -> None:
        numbers = expected.queue_offsets
        before = np.append(state.next - 1 if state.next >= 0 else numbers[0] - 1, numbers[:-1])
        rows = np.flatnonzero(numbers != before + 1)
        if len(rows) and state.gaps:
            spans = zip((before[rows] + 1).tolist(), numbers[rows].tolist(), strict=True)
            rows = rows[[not is_all_gap(state.queue, *span) for span in spans]]
        if len(rows) <= len(self._causes):
            rows = np.array(
                [r for r in rows.tolist() if not self._skips(queue, state, before[r], numbers[r])],
                np.int64,
            )
        problems = [
            f"queueOffset {int(numbers[row])} comes after {int(before[row])}"
            for row in rows[:SHOWN].tolist()
        ]
        self._records(queue, "queueOffset is not the next", expected.take(rows), problems)
        state.next = int(numbers[-1]) + 1

    def _skips(self, queue: TopicQueue, state: _QueueWalk, before: int, number: int) -> bool:
        """Tell whether the queue offsets between these two are of damaged records, and count it."""
        if not state.queue.room_low <= before + 1 < number:
            return False
        first = np.zeros(0, np.int64)
        for start in range(int(before) + 1, min(int(number), state.end), _CHUNK_UNITS):
            try:
                units = state.queue.read(start, min(int(number), start + _CHUNK_UNITS))
            except CorruptStoreError:
                return False
            places = units["physical_offset"].astype(np.int64)
            if not self._causes.covers(places).all():
                return False
            first = first if len(first) else places[:1]
        return self._causes.explain(first, self._severity(queue)) > 0

    def _are_explained(self, queue: TopicQueue, state: _QueueWalk) -> bool:
        """Count units of damaged records at their causes; tell whether these are all orphans."""
        for _, units in state.queue.chunks(_CHUNK_UNITS, state.end):
            places = units["physical_offset"].astype(np.int64)
            live = self._is_live(units, places)
            state.damaged += self._causes.explain(places[live], self._severity(queue))
        return state.live == state.matched + state.damaged

    def _is_live(self, units: Structs, places: Int64s) -> Mask:
        is_real = (units["size"] > 0) & ~is_filler(units) & ~is_gap(units)
        return np.asarray(is_real & (places >= self._log.low) & (places < self._unfinished))

    def _scan(self, queue: TopicQueue, state: _QueueWalk) -> None:
        """Check the shape of a queue's files: filler* unit* zero*, ascending, none empty."""
        last_place, started = -1, False
        for first, units in state.queue.chunks(_CHUNK_UNITS, state.end):
            sizes = units["size"].astype(np.int64)
            places = units["physical_offset"].astype(np.int64)
            filler = is_filler(units)
            gap = is_gap(units)
            real = (sizes > 0) & ~filler & ~gap
            settled = places < self._unfinished
            state.live += int(self._is_live(units, places).sum())
            numbers = np.arange(first, first + len(units))
            if (filler & started).any() or (filler & (numbers >= state.high)).any():
                self._unit(queue, first, "filler behind units")
            if filler.any() and self._log.low == 0:
                problem = "filler units in a store whose CommitLog starts at 0: brokers misread it"
                self._findings.error(self._unit_place(queue, first), problem)
            if gap.any():
                state.gaps += int(gap.sum())
                for rule, wrong in wrong_gaps(self._log, units, real, state.high - first):
                    self._units(queue, rule, numbers[wrong])
            holes = ~real & ~filler & ~gap & (numbers < state.high)
            self._units(queue, "an empty unit before the queue's end", numbers[holes])
            behind = real & settled & (numbers >= state.high)
            self._units(queue, "a unit behind the queue's end", numbers[behind])
            real &= settled
            ordered = places[real]
            steps = np.diff(np.append(last_place, ordered))
            self._units(queue, "physical offsets do not ascend", numbers[real][steps <= 0])
            last_place = int(ordered[-1]) if len(ordered) else last_place
            started = started or bool(real.any())
        self._check_files(queue, state)

    def _check_files(self, queue: TopicQueue, state: _QueueWalk) -> None:
        folder, files = state.queue.path, state.queue.files.files
        for before, after in pairwise(files):
            if before.end != after.start:
                place = FindingPlace(f"{folder}/{after.path}", 0, *queue)
                self._findings.error(place, "the file before this one is missing")
        for file in files:
            path = f"{folder}/{file.path}"
            if file.size % UNIT.itemsize:
                problem = f"{file.size} bytes are not a whole number of units"
                self._findings.error(FindingPlace(path, file.size, *queue), problem)
            elif file.start % file.size:
                problem = f"the name is no multiple of the file's {file.size} bytes"
                self._findings.error(FindingPlace(path, 0, *queue), problem)
            elif file.start // UNIT.itemsize >= state.end:
                problem = "a file without units: brokers take its first zeros for a message"
                self._findings.error(FindingPlace(path, 0, *queue), problem)

    def _orphans(self, queue: TopicQueue, state: _QueueWalk) -> None:
        """Name the first units of a queue whose record is not in the log, and count the others."""
        (topic, queue_id), shown = queue, 0
        # The records of a light queue are another topic's: their headers do not name it.
        is_light = topic.startswith(names.LMQ_PREFIX)
        for first, units in () if is_light else state.queue.chunks(_CHUNK_UNITS, state.end):
            places = units["physical_offset"].astype(np.int64)
            live = self._is_live(units, places) & ~self._causes.covers(places)
            for row in np.flatnonzero(live).tolist():
                header = self._log.header(int(places[row]))
                if header is None or int(header["queue_offset"]) != first + row:
                    self._unit(queue, first + row, "the unit's record is not there")
                    shown += 1
                elif int(header["queue_id"]) != queue_id:
                    self._unit(queue, first + row, "a record of another queue")
                    shown += 1
                if shown >= SHOWN:
                    self._other_orphans(queue, state, first + row + 1)
                    return
        if not shown:
            expected = state.live - state.damaged
            problem = f"{expected} live units, {state.matched} of them have their record"
            self._report(queue, FindingPlace(state.queue.path, None, *queue), problem)

    def _other_orphans(self, queue: TopicQueue, state: _QueueWalk, number: int) -> None:
        """Report how many there are from queue offset ``number`` on; their records are not read."""
        more = state.live - state.damaged - state.matched - SHOWN
        if more > 0:
            span = f"from queue offset {number} to {state.end - 1}"
            problem = f"and {more} more {span}: no record has this unit"
            self._report(queue, FindingPlace(state.queue.path, None, *queue, number), problem)

    def _records(
        self, queue: TopicQueue, rule: str, expected: ExpectedUnits, problems: Sequence[str] = ()
    ) -> None:
        """Report records that break a rule, where they lie in the log."""
        places, numbers = expected.units["physical_offset"], expected.queue_offsets

        def finding(row: int) -> tuple[FindingPlace, str]:
            place = log_place(self._store, int(places[row]), (*queue, int(numbers[row])))
            return place, problems[row] if problems else rule

        self._several(queue, rule, numbers, finding)

    def _units(
        self,
        queue: TopicQueue,
        rule: str,
        numbers: Int64s,
        problems: Sequence[str] = (),
        *,
        severity: str = ERROR,
    ) -> None:
        """Report units that break a rule."""

        def finding(row: int) -> tuple[FindingPlace, str]:
            place = self._unit_place(queue, int(numbers[row]))
            return place, problems[row] if problems else rule

        self._several(queue, rule, numbers, finding, severity=severity)

    def _several(
        self,
        queue: TopicQueue,
        rule: str,
        numbers: Int64s,
        finding: Callable[[int], tuple[FindingPlace, str]],
        *,
        severity: str = ERROR,
    ) -> None:
        severity = self._severity(queue) if severity == ERROR else severity
        path = f"{names.CONSUME_QUEUE}/{queue[0]}/{queue[1]}"
        self._findings.several(severity, FindingPlace(path, None, *queue), rule, numbers, finding)

    def _unit(self, queue: TopicQueue, number: int, problem: str) -> None:
        self._report(queue, self._unit_place(queue, number), problem)

    def _report(self, queue: TopicQueue, place: FindingPlace, problem: str) -> None:
        is_error = self._severity(queue) == ERROR
        (self._findings.error if is_error else self._findings.warning)(place, problem)

    @staticmethod
    def _severity(queue: TopicQueue) -> str:
        return WARNING if queue[0].startswith(names.LMQ_PREFIX) else ERROR

    def _unit_place(self, queue: TopicQueue, number: int) -> FindingPlace:
        state = self._states[queue]
        file = state.queue.files.find(number * UNIT.itemsize)
        path = f"{state.queue.path}/{file.path}" if file else state.queue.path
        position = number * UNIT.itemsize - (file.start if file else 0)
        return FindingPlace(path, position, *queue, number)


def _units_at(queue: Units, numbers: Int64s) -> tuple[Structs, Mask]:
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
