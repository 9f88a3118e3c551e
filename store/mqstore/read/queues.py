"""Bounds, ranges and sizes of queues, as plain values that pickle into tasks."""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TypeAlias

from mqstore.format.arrays import TopicQueue

QueueRange: TypeAlias = tuple[TopicQueue, int, int]
"""(topic, queueId), and queue offsets [start, end) of it."""

Bounds: TypeAlias = dict[TopicQueue, tuple[int, int]]
"""(topic, queueId) → [low, high)."""


@dataclass(frozen=True, slots=True)
class Weight:
    """The bytes of records [start, end), as one look found; ``place`` is where the first lies."""

    start: int
    end: int
    bytes: int
    place: int


@dataclass(frozen=True, slots=True)
class QueueBounds:
    """One queue: its broker holds queue offsets [low, high); ``weight`` is only a hint."""

    topic: str
    queue_id: int
    low: int
    high: int
    weight: Weight | None = field(default=None, compare=False, repr=False)
    count: int | None = field(default=None, compare=False, repr=False)
    named: int | None = field(default=None, compare=False, repr=False)
    """How many messages its ConsumeQueue names, of a queue made from the log."""
    tier_low: int | None = field(default=None, compare=False, repr=False)
    """The first queue offset that tiered storage has; None: it has none of the queue."""
    local_low: int | None = field(default=None, compare=False, repr=False)
    """Where the local log begins, if ``low`` is that of tiered storage; None: not tiered."""

    @property
    def readable_low(self) -> int:
        """Where what can be read begins: the local log, if tiered storage was not named."""
        if self.tier_low is None or self.local_low is None:
            return self.low
        return self.local_low

    @property
    def messages(self) -> int:
        """How many messages it has: of a queue made from the log not ``high - low``."""
        return self.high - self.low if self.count is None else self.count


@dataclass(frozen=True, slots=True)
class QueueFilter:
    """Which queues to look at: those of topics that pass ``topics`` and that ``queues`` passes."""

    topics: Callable[[str], bool] | None = None
    queues: Callable[[str, int], bool] | None = None

    def passes(self, topic: str, queue_id: int) -> bool:
        """Tell whether that queue, there or not, is one of them."""
        chosen = self.topics is None or self.topics(topic)
        return chosen and (self.queues is None or self.queues(topic, queue_id))
