"""Which rows of a table are wanted: by topic and queue, by time."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from mqstore.read.offsets import AtTimestamp, Earliest, Latest, Position, resolve
from mqstore.read.plan import QueueSlice, slices_of
from mqstore.read.snapshot import QueueBounds, Snapshot


@dataclass(frozen=True, slots=True)
class RowChoice:
    """The rows of chosen topics and, if ``assign`` is given, of its queues. Pickles."""

    topics: frozenset[str]
    assign: Mapping[str, tuple[int, ...]] | None = None

    def passes(self, topic: str | None, queue_id: int | None) -> bool:
        """Tell whether a row of that topic and queue (None: not told by the table) is wanted."""
        if topic not in self.topics:
            return False
        return self.assign is None or queue_id is None or queue_id in self.assign[topic]


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
