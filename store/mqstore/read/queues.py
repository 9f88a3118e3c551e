"""Bounds, slices and sizes of queues, as plain values that pickle into tasks."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, TypeAlias

from mqstore.arrays import Int64s

if TYPE_CHECKING:
    from mqstore.read.source import Origin

QueueRange: TypeAlias = tuple[tuple[str, int], int, int]
"""(topic, queueId), and queue offsets [start, end) of it."""

Bounds: TypeAlias = dict[tuple[str, int], tuple[int, int]]
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

    @property
    def messages(self) -> int:
        """How many messages it has: of a queue made from the log not ``high - low``."""
        return self.high - self.low if self.count is None else self.count


@dataclass(frozen=True, slots=True)
class Snapshot:
    """The queues of one broker at one moment. Plain values: it pickles into tasks.

    ``low`` and ``high`` are the physical offsets of the CommitLog's first byte and of the end
    of its last file; ``taken_ms`` is epoch ms; ``is_unclean`` says that ``abort`` was there.
    """

    origin: "Origin"
    broker_name: str
    low: int
    high: int
    queues: tuple[QueueBounds, ...]
    taken_ms: int
    is_unclean: bool

    def queue(self, topic: str, queue_id: int) -> QueueBounds | None:
        """Return the bounds of one queue, or None if it has no ConsumeQueue."""
        wanted = (topic, queue_id)
        return next((q for q in self.queues if (q.topic, q.queue_id) == wanted), None)


@dataclass(frozen=True, slots=True)
class QueueSlice:
    """Queue offsets [start, end) of one queue of one broker. Plain values: it pickles."""

    origin: "Origin"
    broker_name: str
    topic: str
    queue_id: int
    start: int
    end: int
    weight: Weight | None = field(default=None, compare=False, repr=False)
    """What is known of its bytes before it is weighed; does not travel."""


@dataclass(frozen=True, slots=True)
class Weighed:
    """A slice and how its bytes grow: ``bytes[i]`` CommitLog bytes before ``edges[i]``.

    ``edges`` ascend from the slice's start to its end; about there, records of the slice lie at
    the physical offsets ``places``, which never go back.
    """

    slice: QueueSlice
    edges: Int64s
    bytes: Int64s
    places: Int64s
    again: "Callable[[], Weighed] | None" = None
    """Weighs it exactly: not done yet for a few bytes, which most often are in one partition."""

    @property
    def total(self) -> int:
        """Bytes of the whole slice."""
        return int(self.bytes[-1])


@dataclass(frozen=True, slots=True)
class QueueFilter:
    """Which queues to look at: those of topics that pass ``topics`` and that ``queues`` passes."""

    topics: Callable[[str], bool] | None = None
    queues: Callable[[str, int], bool] | None = None

    def passes(self, topic: str, queue_id: int) -> bool:
        """Tell whether that queue, there or not, is one of them."""
        chosen = self.topics is None or self.topics(topic)
        return chosen and (self.queues is None or self.queues(topic, queue_id))


def slices_of(
    snapshot: Snapshot, ranges: Iterable[tuple[QueueBounds, int, int]] | None = None
) -> list[QueueSlice]:
    """Return the slices of (queue, start, end) ranges, half-open; of all that is held if None.

    Empty ranges are left out.
    """
    if ranges is None:
        ranges = ((queue, queue.low, queue.high) for queue in snapshot.queues)
    origin, broker_name = snapshot.origin, snapshot.broker_name
    return [
        QueueSlice(origin, broker_name, queue.topic, queue.queue_id, start, end, queue.weight)
        for queue, start, end in ranges
        if start < end
    ]
