"""Messages of topics that were deleted: the log has them until they expire, and no queue does.

A topic that is made again counts from queue offset 0 again. So records of a queue that lie before
its record of queue offset 0 are not of that queue any more. As a queue that was lost and begun
anew looks the same, a warning tells of each topic.

Reference: AdminBrokerProcessor#deleteTopic; DefaultMessageStore#cleanUnusedTopic, #deleteTopics.
"""

from collections import Counter
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import Final

import numpy as np

from mqstore.check.finding import SHOWN, FindingPlace, Findings
from mqstore.derive.queue_units import ExpectedUnits
from mqstore.derive.records import is_of_unit
from mqstore.errors import StoreError
from mqstore.files.config.broker_config import TopicConfig
from mqstore.files.log.commit_log import CommitLog
from mqstore.files.queue.units import Units
from mqstore.format import names
from mqstore.format.arrays import Int64s, Mask, TopicQueue
from mqstore.format.consume_queue import UNIT

_MOST_HELD_QUEUES: Final = 10_000
_MADE_AGAIN: Final = (
    "{} messages of the log lie before the first of their queue, and are in no queue: the topic "
    "was deleted and made again, or its queues were lost and begun anew"
)
_DELETED: Final = (
    "{} messages of a topic, or of queues of it, that topics.json does not have, and that are in "
    "no queue: it was deleted"
)


@dataclass(slots=True)
class MessagesWithoutQueue:
    """Messages of a queue without a ConsumeQueue: the first ten, and how many there are."""

    shown: ExpectedUnits
    count: int = 0
    more: range = range(0)
    """The queue offsets of the others lie in here."""
    last_place: int = -1


class EarlierMessages:
    """Counts messages of deleted topics, so that they are no broken rule of their queues."""

    def __init__(self, findings: Findings, topics: Mapping[str, TopicConfig]) -> None:
        """``topics`` is what topics.json has; empty: nothing is known about it."""
        self._findings = findings
        self._topics = topics
        self._begins: dict[TopicQueue, int] = {}
        self._latest: dict[str, int] = {}
        self._before_queues: Counter[str] = Counter()
        self._held: dict[TopicQueue, MessagesWithoutQueue] = {}

    def look(self, log: CommitLog, name: TopicQueue, queue: Units) -> None:
        """Note where a queue's record of queue offset 0 lies, if the log has it."""
        if name[0].startswith(names.LMQ_PREFIX):
            return
        with suppress(StoreError, OSError):  # Reported by other checks.
            unit = queue.read(0, 1)[0] if not queue.room_low else np.zeros((), UNIT)
            place, size = int(unit["physical_offset"]), int(unit["size"])
            if place >= log.low and is_of_unit(log, place, size, (*name, 0)):
                self._begins[name] = place
                self._latest[name[0]] = max(place, self._latest.get(name[0], 0))

    def are_earlier(self, queue: TopicQueue, places: Int64s) -> Mask:
        """Tell which records of a queue lie before its first one, and count them."""
        found: Mask = places < self._begins.get(queue, 0)
        if found.any():
            self._before_queues[queue[0]] += int(found.sum())
        return found

    def hold(self, queue: TopicQueue, expected: ExpectedUnits) -> bool:
        """Keep messages of a queue without a ConsumeQueue for ``rest``; False: of too many."""
        held = self._held.get(queue)
        if held is None:
            if len(self._held) >= _MOST_HELD_QUEUES:
                return False
            first = expected.take(slice(0, SHOWN))
            held = self._held[queue] = MessagesWithoutQueue(first)
        more = expected.queue_offsets[0 if held.count else SHOWN :]
        if len(more):
            ends = [*held.more[:1], *held.more[-1:], int(more.min()), int(more.max())]
            held.more = range(min(ends), max(ends) + 1)
        held.count += len(expected)
        held.last_place = int(expected.units["physical_offset"][-1])
        return True

    def report(self, topics: set[str]) -> list[tuple[TopicQueue, MessagesWithoutQueue]]:
        """Report deleted topics; return the queues that lack a ConsumeQueue for another reason.

        ``topics`` are those that have ConsumeQueues.
        """
        deleted: Counter[str] = Counter()
        rest = []
        for queue, held in self._held.items():
            if self._was_made_again(queue, held.last_place):
                self._before_queues[queue[0]] += held.count
            elif self._was_deleted(queue, topics):
                deleted[queue[0]] += held.count
            else:
                rest.append((queue, held))
        for counts, text in ((self._before_queues, _MADE_AGAIN), (deleted, _DELETED)):
            for topic, count in counts.items():
                place = FindingPlace(f"{names.CONSUME_QUEUE}/{topic}", None, topic)
                self._findings.warning(place, text.format(count))
        return rest

    def _was_made_again(self, queue: TopicQueue, last_place: int) -> bool:
        """Tell whether all messages of a queue lie before the first ones of its topic's others."""
        topic = queue[0]
        return topic in self._before_queues and last_place < self._latest[topic]

    def _was_deleted(self, queue: TopicQueue, topics: set[str]) -> bool:
        topic, queue_id = queue
        own = names.is_system_topic(topic) and not topic.startswith(_OF_GROUPS)
        if own or not self._topics:
            return False
        known = self._topics.get(topic)
        if known is None:
            return topic not in topics
        return queue_id >= max(known.read_queue_nums, known.write_queue_nums)


_OF_GROUPS: Final = (names.RETRY_PREFIX, names.DLQ_PREFIX)
