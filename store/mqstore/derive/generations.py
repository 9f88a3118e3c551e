"""Where the newest generation of a queue begins in the CommitLog.

Deleting a topic removes its ConsumeQueues; its records stay in the log until they expire. If the
topic is made again, its queues count from queue offset 0 again: the log then has two records for
the same queue offset, and only the later one is a message. So the last record of queue offset 0
that follows others of its queue begins the newest generation. A changed bit may make any queue
offset a 0: the next record of the queue shows that, because it goes on where the others were.
A queue that got no message since has old records only: all lie before another queue begins anew.

Reference: AdminBrokerProcessor#deleteTopic; DefaultMessageStore#cleanUnusedTopic (4.9),
#deleteTopics (5.x), which forget the queue's next offset.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Final

import numpy as np

from mqstore.codec.dispatch import DispatchRecords
from mqstore.derive.queue_units import NamedOffsets, group_by_queue, named_offsets
from mqstore.format.arrays import Int64s, Mask, TopicQueue
from mqstore.format.names import LMQ_PREFIX

_PENDING_OFFSETS: Final = 1 << 18


@dataclass(slots=True)
class _QueueSeen:
    first_place: int
    last_place: int = -1
    highest: int = -1
    """Queue offset."""
    last_old: int = -1
    """Place of the record before ``begin``."""
    begin: int = 0
    is_open: bool = False
    """Whether the record at ``begin`` is the queue's last so far; it may be taken back."""
    before: tuple[int, int] = (0, -1)
    """``begin`` and ``last_old`` without it."""


class Generations:
    """Takes the records of queues in log order; ``begins`` is final when there are no more."""

    def __init__(self) -> None:
        self._seen: dict[TopicQueue, _QueueSeen] = {}

    def take(
        self,
        queue: TopicQueue,
        queue_offsets: Int64s,
        physical_offsets: Int64s,
        *,
        has_batches: bool = False,
    ) -> None:
        """Take the next records of one queue: int64[n] each. Light queues have one generation.

        In a batch ConsumeQueue any queue offset may follow 0.
        """
        if not len(queue_offsets) or queue[0].startswith(LMQ_PREFIX):
            return
        seen = self._seen.get(queue)
        if seen is None:
            seen = self._seen[queue] = _QueueSeen(int(physical_offsets[0]))
        highest = np.maximum.accumulate(np.append(seen.highest, queue_offsets))
        follows = has_batches or _goes_on_from_0(queue_offsets[:1], highest[:1])[0]
        if seen.is_open and not follows:
            seen.begin, seen.last_old = seen.before
        is_first = (queue_offsets == 0) & (highest[:-1] >= 0)
        anew = is_first.copy()
        if not has_batches:
            anew[:-1] &= _goes_on_from_0(queue_offsets[1:], highest[:-2])
        seen.is_open = bool(anew[-1])
        before = np.append(seen.last_place, physical_offsets)
        for row in np.flatnonzero(anew)[-2:].tolist():
            seen.before = seen.begin, seen.last_old
            seen.begin, seen.last_old = int(physical_offsets[row]), int(before[row])
        seen.highest, seen.last_place = int(highest[-1]), int(physical_offsets[-1])

    def begins(self) -> dict[TopicQueue, int]:
        """Return where the newest generation of each queue begins that has more than one."""
        return {queue: seen.begin for queue, seen in self._seen.items() if seen.begin}

    def left(self) -> list[TopicQueue]:
        """Return the queues that got no message since their topic was made again."""
        topics: dict[str, tuple[int, int]] = {}
        for (topic, _), seen in self._seen.items():
            if seen.begin:
                begin, last_old = topics.get(topic, (seen.begin, seen.last_old))
                topics[topic] = min(begin, seen.begin), max(last_old, seen.last_old)
        found = []
        for queue, seen in self._seen.items():
            begin, last_old = topics.get(queue[0], (0, -1))
            if not seen.begin and seen.first_place < last_old and seen.last_place < begin:
                found.append(queue)
        return found


def _goes_on_from_0(following: Int64s, highest: Int64s) -> Mask:
    """Tell which queue offsets follow a 0, and not the highest one before that 0."""
    goes_on: Mask = (following == 1) | (following <= highest)
    return goes_on


def offsets_by_queue(
    walked: Iterable[DispatchRecords],
) -> Iterator[tuple[TopicQueue, NamedOffsets]]:
    """Yield the queue offsets that records name, some of each queue at a time, in log order."""
    pending: list[tuple[list[TopicQueue], Int64s, NamedOffsets]] = []
    count = 0
    for records in walked:
        pending.append(named_offsets(records))
        count += len(pending[-1][1])
        if count >= _PENDING_OFFSETS:
            yield from _grouped(pending)
            pending, count = [], 0
    if pending:
        yield from _grouped(pending)


def _grouped(
    parts: list[tuple[list[TopicQueue], Int64s, NamedOffsets]],
) -> Iterator[tuple[TopicQueue, NamedOffsets]]:
    order, queues = group_by_queue([(names, codes) for names, codes, _ in parts])
    joined = NamedOffsets.joined([found for _, _, found in parts]).take(order)
    for queue, rows in queues:
        yield queue, joined.take(rows)
