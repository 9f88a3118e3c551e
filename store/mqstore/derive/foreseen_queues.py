"""What a rebuild will make of the queues, found before it changes anything.

A record gets no unit if its queue offset is not above all that came before it in its queue, or if
no queue can have its name or number. Where the log ends with such records, no writer could go on:
they would be messages that no consumer gets, behind the last one that a queue has.

Reference: ConsumeQueue#putMessagePositionInfo (build consume queue repeatedly).
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

import numpy as np

from mqstore.derive.generations import Generations
from mqstore.derive.queue_units import NamedOffsets, is_possible
from mqstore.files.log.commit_log import CommitLog
from mqstore.format.arrays import TopicQueue


@dataclass(slots=True)
class _Foreseen:
    highest: int
    """Queue offset given so far."""
    first: int = -1
    """First queue offset that is given."""
    last_place: int = -1
    with_unit: int = -1
    """Physical offset of the last record that gets a unit."""
    without: int = -1
    """Physical offset of the last record that gets none."""


class ForeseenQueues:
    """Takes the records of queues in log order."""

    def __init__(self, ends: Mapping[TopicQueue, int], limit: int) -> None:
        """Take where queues end before the walk; queue offsets are below ``limit``."""
        self._ends = ends
        self._limit = limit
        self._generations = Generations()
        self._seen: dict[TopicQueue, _Foreseen] = {}

    def take(self, queue: TopicQueue, named: NamedOffsets) -> None:
        """Take the next records that name a queue."""
        seen = self._seen.get(queue)
        if seen is None:
            seen = self._seen[queue] = _Foreseen(self._ends.get(queue, 0) - 1)
        own = ~named.is_second
        numbers, places = named.queue_offsets, named.physical_offsets
        can_be = (numbers < self._limit) & is_possible(queue)
        highest = np.maximum.accumulate(np.append(seen.highest, np.where(can_be, numbers, -1)))
        given = can_be & (numbers > highest[:-1])
        seen.highest = int(highest[-1])
        if given.any() and seen.first < 0:
            seen.first = int(numbers[np.argmax(given)])
        seen.with_unit = int(places[given & own].max(initial=seen.with_unit))
        seen.without = int(places[~given & own].max(initial=seen.without))
        seen.last_place = int(places[own].max(initial=seen.last_place))
        if is_possible(queue):
            self._generations.take(queue, numbers[own], places[own])

    def begins(self) -> dict[TopicQueue, int]:
        """Return where the newest generation of each queue begins that has more than one."""
        return self._generations.begins()

    def begin_at(self, queue: TopicQueue) -> None:
        """Let a queue have its newest generation only: all records of it get a unit."""
        seen = self._seen[queue]
        seen.with_unit, seen.without = seen.last_place, -1

    def left(self) -> list[TopicQueue]:
        """Return the queues that got no message since their topic was made again."""
        return self._generations.left()

    def leave(self, queue: TopicQueue) -> None:
        """Let a queue have no message."""
        seen = self._seen[queue]
        seen.first = seen.with_unit = seen.without = -1

    def firsts(self) -> Iterator[tuple[TopicQueue, int]]:
        """Yield the queues that get a unit, and the queue offset of the first one."""
        for queue, seen in self._seen.items():
            if seen.first >= 0:
                yield queue, seen.first

    def refuse_rest(self, log: CommitLog) -> None:
        """Raise CorruptStoreError if the log ends with a record that gets no unit."""
        last = max((seen.with_unit for seen in self._seen.values()), default=-1)
        for (topic, queue_id), seen in self._seen.items():
            if seen.without > last:
                raise log.corrupt(seen.without, _NO_UNIT.format(f"{topic}/{queue_id}"))


_NO_UNIT = (
    "the log ends with a record of {} that no queue can have: an earlier one has its queue offset, "
    "or its name or number is impossible. Nothing was changed. mqlog salvage makes a store without "
    "it, and reports it"
)
