"""Check batch ConsumeQueues: their units, each against its record.

The walk over the CommitLog brings the records; a queue's units are read on up to where it is.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Final

import numpy as np

from mqstore.check.causes import Causes
from mqstore.check.earlier import EarlierMessages
from mqstore.check.finding import ERROR, FindingPlace, Findings
from mqstore.check.gaps import wrong_gaps
from mqstore.check.log import log_place
from mqstore.codec.dispatch import DispatchRecords
from mqstore.codec.inner_batch import message_counts
from mqstore.errors import CorruptStoreError, StoreError
from mqstore.files.queue.batch_queue import BatchQueue, bases_of
from mqstore.files.store import Store
from mqstore.format import names
from mqstore.format.arrays import Int64s, Span, Structs, TopicQueue
from mqstore.format.batch_consume_queue import BATCH_UNIT, is_batch_gap, make_batch_units

_NOWHERE: Final = 2**63 - 1
_IMPLIED: Final = ("size", "base", "count", "tags_code", "store_timestamp_ms")


@dataclass
class _BatchWalk:
    queue: BatchQueue
    units: Iterator[Structs]
    ahead: Structs
    """Units that were read and lie behind all records that came."""


class BatchCheck:
    """Feed it all records in log order, then ``finish``.

    From physical offset ``unfinished`` on, where a commit is under way, nothing need be right.
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
        self._findings = findings
        self._causes = causes
        self._earlier = earlier
        self._unfinished = _NOWHERE if unfinished is None else unfinished
        self.topics = store.batch_topics
        self._walks: dict[TopicQueue, _BatchWalk] = {}
        for topic, queue_id in store.queues if self.topics else ():
            queue = store.queue(topic, queue_id)
            if isinstance(queue, BatchQueue):
                units = self._units_of(queue)
                self._walks[topic, queue_id] = _BatchWalk(queue, units, np.empty(0, BATCH_UNIT))
                earlier.look(store.log, (topic, queue_id), queue)

    def bounds(self) -> dict[TopicQueue, Span]:
        """Return [low, high) of every queue's units, in queue offsets; none of a damaged queue."""
        found = {}
        for name, walk in self._walks.items():
            try:
                found[name] = walk.queue.room_low, walk.queue.high
            except StoreError:
                continue  # A finding of its own.
        return found

    def feed(self, records: DispatchRecords) -> None:
        """Compare the units of these records with those that the records imply."""
        topics = records.topic_names
        chosen = np.array([name in self.topics for name in topics], np.bool_)
        if not chosen.any():
            return
        settled = records.in_queue & (records.physical_offsets < self._unfinished)
        rows = np.flatnonzero(chosen[records.topic_codes] & settled)
        expected = _expected(records, rows)
        queues, of = records.queues_of(rows)
        for number, queue in enumerate(queues):
            self._match(queue, expected[of == number])

    def finish(self) -> None:
        """Report units that no record implies."""
        for queue, walk in self._walks.items():
            self._orphans(queue, self._up_to(walk, self._unfinished - 1))

    def _match(self, queue: TopicQueue, expected: Structs) -> None:
        walk = self._walks.get(queue)
        places = _places(expected)
        if walk is None:
            self._records(queue, "the queue has no batch ConsumeQueue", expected)
            return
        expected = expected[~self._earlier.are_earlier(queue, places)]
        places = _places(expected)
        if not len(expected):
            return
        units = self._up_to(walk, int(places[-1]))
        there = _places(units)
        self._orphans(queue, units[~np.isin(there, places)])
        has_unit = np.isin(places, there)
        self._records(queue, "the record has no unit", expected[~has_unit])
        first = np.searchsorted(there, places[has_unit])
        for has, implied in zip(units[first], expected[has_unit], strict=True):
            wrong = [name for name in _IMPLIED if has[name] != implied[name]]
            if wrong:
                name = wrong[0]
                problem = f"{name} is {has[name]}, the record says {implied[name]}"
                self._findings.error(_place(queue, int(has["base"])), problem)

    def _up_to(self, walk: _BatchWalk, place: int) -> Structs:
        """Return the units up to a physical offset that were not returned yet."""
        parts = [walk.ahead]
        while not len(parts[-1]) or int(parts[-1]["physical_offset"][-1]) <= place:
            units = next(walk.units, None)
            if units is None:
                break
            parts.append(units)
        units = np.concatenate([part.view(np.uint8) for part in parts]).view(BATCH_UNIT)
        count = int(np.searchsorted(_places(units), place, "right"))
        walk.ahead = units[count:]
        return units[:count]

    def _units_of(self, queue: BatchQueue) -> Iterator[Structs]:
        """Yield a queue's units, and report where they break off."""
        last = -1
        try:
            left = sum(file.count for file in queue.batch_files)
            for file, first, found in queue.batches():
                self._check_gaps(queue, found, left)
                left -= len(found)
                units = found[~is_batch_gap(found)]
                places = np.concatenate(([last], _places(units)))
                if (np.diff(places) <= 0).any():
                    position = first * BATCH_UNIT.itemsize
                    raise CorruptStoreError(file.name, position, "physical offsets do not ascend")
                last = int(places[-1])
                yield units
        except (StoreError, OSError) as error:
            self._findings.error(_place((queue.topic, queue.queue_id)), str(error))

    def _check_gaps(self, queue: BatchQueue, units: Structs, left: int) -> None:
        name, bases = (queue.topic, queue.queue_id), bases_of(units)
        for rule, wrong in wrong_gaps(self._store.log, units, ~is_batch_gap(units), left):
            found = bases[wrong]
            self._several(name, rule, found, lambda row: _place(name, int(found[row])))  # noqa: B023

    def _orphans(self, queue: TopicQueue, units: Structs) -> None:
        places = _places(units)
        units = units[(places >= self._store.log.low) & ~self._causes.covers(places)]
        self._causes.explain(places, ERROR)
        rule, bases = "no record has this unit", bases_of(units)
        self._several(queue, rule, bases, lambda row: _place(queue, int(bases[row])))

    def _records(self, queue: TopicQueue, rule: str, expected: Structs) -> None:
        """Report records that break a rule, where they lie in the log."""
        places, bases = _places(expected), bases_of(expected)

        def place(row: int) -> FindingPlace:
            return log_place(self._store, int(places[row]), (*queue, int(bases[row])))

        self._several(queue, rule, bases, place)

    def _several(
        self, queue: TopicQueue, rule: str, bases: Int64s, place: Callable[[int], FindingPlace]
    ) -> None:
        self._findings.several(ERROR, _place(queue), rule, bases, lambda row: (place(row), rule))


def _place(queue: TopicQueue, base: int | None = None) -> FindingPlace:
    folder = f"{names.BATCH_CONSUME_QUEUE}/{queue[0]}/{queue[1]}"
    return FindingPlace(folder, None, *queue, base)


def _places(units: Structs) -> Int64s:
    places: Int64s = units["physical_offset"].astype(np.int64)
    return places


def _expected(records: DispatchRecords, rows: Int64s) -> Structs:
    """Return the units that records imply. Reference: CommitLog#setBatchSizeIfNeeded."""
    columns = (
        records.physical_offsets[rows],
        records.headers.sizes[rows],
        records.tags_codes[0][rows],
        records.store_timestamps_ms[rows],
    )
    counts = message_counts(records.headers.take(rows))
    return make_batch_units(columns, records.queue_offsets[rows], counts)
