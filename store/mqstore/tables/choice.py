"""Which rows of a table are wanted: by topic and queue, by time."""

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from mqstore.format.names import is_system_topic
from mqstore.read.offsets import AtTimestamp, Earliest, Latest, Position, resolve
from mqstore.read.plan import QueueSlice, slices_of
from mqstore.read.snapshot import QueueBounds, Snapshot


@dataclass(frozen=True, slots=True)
class RowChoice:
    """The rows of ``topics`` and, if ``assign`` is given, of its queues. Pickles.

    Without ``topics``, the rows of any topic, there or gone, whose whole name ``pattern``
    matches; of RocketMQ's own only ``with_system``.
    """

    topics: frozenset[str] | None = None
    assign: Mapping[str, tuple[int, ...]] | None = None
    pattern: str | None = None
    with_system: bool = True

    def passes(self, topic: str | None, queue_id: int | None) -> bool:
        """Tell whether a row of that topic and queue (None: not told by the table) is wanted."""
        if topic is None or not self._has(topic):
            return False
        return self.assign is None or queue_id is None or queue_id in self.assign[topic]

    def _has(self, topic: str) -> bool:
        if self.topics is not None:
            return topic in self.topics
        if not self.with_system and is_system_topic(topic):
            return False
        return self.pattern is None or re.fullmatch(self.pattern, topic, re.DOTALL) is not None


@dataclass(frozen=True, slots=True)
class Window:
    """Messages stored at or after ``start_ms`` and before ``end_ms``, where given (epoch)."""

    start_ms: int | None = None
    end_ms: int | None = None


def slices(
    snapshot: Snapshot, topics: Callable[[str], bool], window: Window | None = None
) -> list[QueueSlice]:
    """Return what the window leaves of the queues of those topics, none empty.

    Raises CorruptStoreError where a record that a bisection needs cannot be read.
    """
    window = window or Window()
    start: Position = Earliest() if window.start_ms is None else AtTimestamp(window.start_ms)
    end: Position = Latest() if window.end_ms is None else AtTimestamp(window.end_ms)

    def ask(queue: QueueBounds) -> tuple[Position, Position]:
        return (start, end) if topics(queue.topic) else (Latest(), Latest())

    return slices_of(snapshot, resolve(snapshot, ask))
