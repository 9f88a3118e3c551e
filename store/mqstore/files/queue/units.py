"""The units of one queue, whatever they are kept in: what a broker knows of its messages."""

from abc import ABC, abstractmethod
from bisect import bisect_left
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

import numpy as np

from mqstore.files.base.mapped_file_queue import MappedFileQueue
from mqstore.files.base.store_dir import StoreDir
from mqstore.files.queue.unit_blocks import PROBED_UNITS
from mqstore.format.arrays import Span, Structs
from mqstore.format.consume_queue import GAP_SIZE


class QueueExtent(NamedTuple):
    """What one look at a queue tells: it holds queue offsets [low, high).

    ``end`` is the physical offset behind the last record, 0 of an empty queue. ``bytes`` are
    those of all records held and ``place`` is where the first lies, if the look came upon all
    of their units and all are sane; else None and 0.
    """

    low: int
    high: int
    end: int = 0
    bytes: int | None = None
    place: int = 0


@dataclass(frozen=True)
class Units(ABC):
    """The units of one (topic, queueId) by queue offset, to be read; never writes.

    A kind of queue says where its units are: in files of a ConsumeQueue, in those of a batch
    ConsumeQueue, or in RocksDB. Searches over them are the same for all.
    """

    place: StoreDir
    topic: str
    queue_id: int

    @property
    @abstractmethod
    def path(self) -> str:
        """The queue as errors name it, below the root."""

    @property
    @abstractmethod
    def room_low(self) -> int:
        """The first queue offset that there is room for."""

    @abstractmethod
    def look(self, commit_log_low: int) -> QueueExtent:
        """Return the bounds, and what else the reads of a short queue tell.

        Units whose records lie before ``commit_log_low`` have expired.
        """

    @abstractmethod
    def read(self, start: int, end: int) -> Structs:
        """Return the units of queue offsets [start, end), big-endian as in a file.

        Raises CorruptStoreError where one is not there, FileNotFoundError where it expired: a
        broker deletes the oldest, and all of a topic that is deleted.
        """

    @abstractmethod
    def before_hole(self, start: int, end: int) -> Structs:
        """Return the first units of [start, end), up to a missing one; there may be none."""

    @abstractmethod
    def next_start(self, queue_offset: int) -> int | None:
        """Return where units go on behind a hole at ``queue_offset``; None if nowhere."""

    @abstractmethod
    def chunks(self, most: int, end: int) -> Iterator[tuple[int, Structs]]:
        """Yield all units, at most ``most`` at a time, with the queue offset of the first.

        ``end`` is the queue's; behind it units of zeros may be left out.
        """

    @cached_property
    def files(self) -> MappedFileQueue:
        """The files of units, listed once; none where units are not kept in files."""
        return MappedFileQueue(())

    @property
    def file_sizes(self) -> set[int]:
        """The bytes that its files have: a broker makes all of one size."""
        return {file.size for file in self.files.files}

    def file_ranges(self) -> list[Span]:
        """Return the queue offsets [start, end) that each file has room for; none without files."""
        return []

    def behind_gap(self, queue_offset: int) -> int:
        """Return the queue offset, or where a long stretch without messages ends that it is in."""
        return queue_offset

    def bounds(self, commit_log_low: int) -> Span:
        """Return (low, high): the first queue offset whose record is held, and the next to come.

        Units whose records lie before ``commit_log_low`` have expired. Both edges bisect: of a
        short queue one small read tells both, of a long one about 20 do.
        Reference: ConsumeQueue#correctMinOffset, #getMaxOffsetInQueue.
        """
        return self.look(commit_log_low)[:2]

    def first(self, low: int, high: int, holds: Callable[[np.void], bool]) -> int:
        """Return the first queue offset in [low, high) whose unit ``holds``; ``high`` if none.

        Bisects: the condition is false before that place and true from there on. A gap unit stands
        for the unit behind it. Raises as ``read`` does.
        """

        def test(queue_offset: int) -> bool:
            return holds(self._behind_gap(queue_offset, high))

        return low + bisect_left(range(low, high), True, key=test)

    def _behind_gap(self, queue_offset: int, high: int) -> np.void:
        """Return the unit of ``queue_offset``; of a gap the one behind it, if it is below high."""
        units = self.read(queue_offset, queue_offset + 1)
        while units["size"][0] == GAP_SIZE and queue_offset + len(units) < high:
            queue_offset += len(units)
            units = self.before_hole(queue_offset, min(high, queue_offset + PROBED_UNITS))
            if not len(units):
                units = self.read(queue_offset, queue_offset + 1)
            gap = int(np.argmax(units["size"] != GAP_SIZE))
            queue_offset, units = queue_offset + gap, units[gap:]
        found: np.void = units[0]
        return found

    def first_behind(self, low: int, high: int, physical_offset: int) -> int:
        """Return the first queue offset in [low, high) whose record is not before that place."""
        return self.first(low, high, lambda unit: int(unit["physical_offset"]) >= physical_offset)
