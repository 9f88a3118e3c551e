"""The places of the messages of a write: acknowledged by brokers, or found by a search."""

from dataclasses import dataclass, field

import numpy as np

from mqstore.format.arrays import Int64s
from mqstore.live.send.requests import Parcel, Queue

NOWHERE = -1


@dataclass(frozen=True, slots=True)
class StoredPlaces:
    """``queues[places[n]]`` and ``queue_offsets[n]`` of message n; NOWHERE where not known."""

    queues: tuple[Queue, ...]
    places: Int64s
    queue_offsets: Int64s


@dataclass(slots=True)
class Receipts:
    """Notes where messages are, each by its number. What is noted last of a message counts."""

    _numbers: dict[Queue, int] = field(default_factory=dict)
    _noted: list[tuple[int, Int64s, int]] = field(default_factory=list)

    def stored(self, parcel: Parcel, queue_offset: int) -> None:
        """Note a parcel that was acknowledged with the queue offset of its first message."""
        if parcel.rows is not None:
            self._note(parcel.queue, parcel.rows, queue_offset)

    def found(self, number: int, queue: Queue, queue_offset: int) -> None:
        """Note a message that is in a queue."""
        self._note(queue, np.array([number], np.int64), queue_offset)

    def places(self, count: int) -> StoredPlaces:
        """Return where the messages 0 to ``count`` - 1 are."""
        places, queue_offsets = np.full((2, count), NOWHERE, np.int64)
        for queue, rows, first in self._noted:
            places[rows] = queue
            queue_offsets[rows] = np.arange(first, first + len(rows))
        return StoredPlaces(tuple(self._numbers), places, queue_offsets)

    def _note(self, queue: Queue, rows: Int64s, first: int) -> None:
        number = self._numbers.setdefault(queue, len(self._numbers))
        self._noted.append((number, rows, first))
