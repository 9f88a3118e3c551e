"""The queues of a store that keeps them in RocksDB: what is flushed there, and the log behind it.

A broker flushes units when it stops, and while it runs only every few million: of a store whose
broker runs, or was killed, the newest units are nowhere. They are made from the CommitLog, from
where the database's checkpoint says that its units end, as the broker does when it starts.

Reference: RocksDBConsumeQueueStore, RocksDBConsumeQueueOffsetTable#getMinCqOffset;
DefaultMessageStore#recover (dispatchFromPhyOffset).
"""

from bisect import bisect_left
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Final

import numpy as np

from mqstore.derive.log_queues import LogQueues
from mqstore.derive.log_sections import LogUnits
from mqstore.derive.queue_units import join_units, make_units
from mqstore.derive.records import fetch_at
from mqstore.derive.section_files import QueueTotals
from mqstore.derive.stale_units import StaleUnits
from mqstore.derive.walked_log import open_log_queues
from mqstore.errors import CorruptStoreError
from mqstore.files.base.store_dir import BY_LOG, StoreDir
from mqstore.files.log.entry_log import open_log
from mqstore.files.log.log_end import after_blank
from mqstore.files.queue.units import QueueExtent, Units
from mqstore.files.rocksdb.unit_table import UnitTable
from mqstore.format.arrays import Structs, TopicQueue
from mqstore.format.consume_queue import UNIT

_FAR: Final = 2**62


@dataclass(frozen=True, slots=True)
class _Found:
    """Behind which queue offset each queue ends in a database, and what the log has behind it."""

    ends: dict[TopicQueue, int]
    log: LogQueues | None
    has_expired: bool
    """Whether records behind what the database has, and before what the log has, expired."""


class RocksQueues:
    """A QueueStore over a RocksDB ConsumeQueue, and the CommitLog behind its checkpoint.

    Both are looked at when something is first asked; any method but ``close`` raises as UnitTable
    and ``open_log_queues``.
    """

    def __init__(self, place: StoreDir, path: str, cache: str, known: Sequence[str] = ()) -> None:
        """``path`` is the database's folder below the root.

        What a walk of the log finds is kept in the directory ``cache``; ``known`` are keys of log
        files as a read was planned with.
        """
        self.place = place
        self.table = UnitTable(place.folder, path)
        self._cache, self._known = cache, known

    @cached_property
    def _found(self) -> _Found:
        # The database first: what a broker flushes in between is then in both.
        ends, checkpoint = self.table.ends(), self.table.checkpoint()
        with open_log(self.place) as log:
            stale = StaleUnits(self.place, self.table, log)
            ends, checkpoint = stale.without(ends, checkpoint)
            has_expired = log.low > checkpoint
        return _Found(ends, _behind(self.place, checkpoint, self._cache, self._known), has_expired)

    def close(self) -> None:
        """Close the database and the cached units; a later read opens them again."""
        self.table.close()
        if "_found" in self.__dict__ and self._found.log is not None:
            self._found.log.close()

    @property
    def ends(self) -> dict[TopicQueue, int]:
        """Return for each queue the queue offset behind its last message in the database."""
        return self._found.ends

    @property
    def log(self) -> LogQueues | None:
        """The queues of the log behind what the database has; None if nothing is there."""
        return self._found.log

    def has_expired(self, queue: TopicQueue, queue_offset: int) -> bool:
        """Tell whether the log behind the database lost that message of a queue: it expired."""
        if not self._found.has_expired or queue_offset < self.ends.get(queue, 0):
            return False
        behind = [] if self.log is None else self.log.totals(queue)
        return queue_offset < min((totals.low for totals in behind), default=queue_offset + 1)

    @property
    def keys(self) -> tuple[str, ...]:
        """The keys of the log files that may grow and that were walked."""
        return () if self.log is None else self.log.keys

    @property
    def queues(self) -> list[TopicQueue]:
        """Every (topic, queueId) that has, or had, a message; sorted."""
        behind = () if self.log is None else self.log.queues
        return sorted({*self.ends, *behind})

    def queue(self, topic: str, queue_id: int) -> "RocksQueue":
        """Return one queue; one that is not there has no units."""
        return RocksQueue(self.place, topic, queue_id, self)


def _behind(place: StoreDir, checkpoint: int, cache: str, known: Sequence[str]) -> LogQueues | None:
    """Return the queues of the log behind a checkpoint; None if no record is there."""
    with open_log(place) as log:
        start = max(checkpoint, log.low)
        start, end = after_blank(log, start), log.committed_end
        if fetch_at(log, start) is None or (end is not None and start >= end):
            return None
    return open_log_queues(place, cache, known, start=start)


@dataclass(frozen=True)
class RocksQueue(Units):
    """The units of a queue in a database and in the log behind it.

    Up to ``end`` units are the database's, from there on the log's. A database is read as it was
    when it was opened.
    """

    held: RocksQueues = field(repr=False, compare=False)

    @property
    def path(self) -> str:
        """The queue, as errors name it."""
        folder = self.held.table.where.removeprefix(f"{self.place.root}/")
        return f"{folder}: {self.topic}/{self.queue_id}"

    @cached_property
    def end(self) -> int:
        """The queue offset behind the last message that the database knows."""
        return self.held.ends.get(self._name, 0)

    @property
    def room_low(self) -> int:
        """The first queue offset that has a unit."""
        first = self.next_start(-1)
        return self.end if first is None else first

    def look(self, commit_log_low: int) -> QueueExtent:
        """Return the bounds: the first unit whose record is held, and the last message.

        Reference: RocksDBConsumeQueueOffsetTable#getMinCqOffset, #getMaxCqOffset.
        """
        table, end = self.held.table, self.end
        first = table.first(self._name, 0, end) if end else None
        high = end
        if first is not None:
            high = (table.last(self._name, first, end) or first) + 1

        def is_live(queue_offset: int) -> bool:
            units = table.units(self._name, queue_offset, queue_offset + 1)
            return len(units) > 0 and int(units["physical_offset"][0]) >= commit_log_low

        low = high if first is None else first
        if first is not None and not is_live(first):
            low = first + bisect_left(range(first, high), True, key=is_live)
        behind = self._of_log(end, _FAR, 1)
        if len(behind):
            low = low if low < high else int(behind.queue_offsets[0])
            high = max(totals.high for totals in self._totals) + 1
        return QueueExtent(low, high, self._record_end(high) if low < high else 0)

    def read(self, start: int, end: int) -> Structs:
        """Return the units of queue offsets [start, end), big-endian as in a file.

        Raises CorruptStoreError where one is not there, FileNotFoundError where it expired.
        """
        units = self.before_hole(start, end)
        missing = start + len(units)
        if missing >= end:
            return units
        if missing < self.room_low or self.held.has_expired(self._name, missing):
            raise FileNotFoundError(f"{self.held.table.where}: queue offset {missing} expired")
        reason = f"no unit of queue offset {missing} of {self.topic}/{self.queue_id}. {BY_LOG}"
        raise CorruptStoreError(self.held.table.where, 0, reason)

    def before_hole(self, start: int, end: int) -> Structs:
        """Return the units of [start, end) up to the first that is missing."""
        parts = []
        inside = min(end, self.end)
        if start < inside:
            parts.append(self.held.table.units(self._name, start, inside))
            if len(parts[0]) < inside - start:
                return parts[0]
        if max(start, inside) < end:
            parts.append(_dense(self._of_log(max(start, inside), end), max(start, inside)))
        return join_units(parts) if parts else np.empty(0, UNIT)

    def chunks(self, most: int, end: int) -> Iterator[tuple[int, Structs]]:
        """Yield all units, with the queue offset of the first."""
        start: int | None = self.room_low
        high = max([self.end, *(totals.high + 1 for totals in self._totals)])
        while start is not None and start < high:
            units = self.before_hole(start, min(high, start + most))
            if len(units):
                yield start, units
                start += len(units)
            else:
                start = self.next_start(start)

    def next_start(self, queue_offset: int) -> int | None:
        """Return the first queue offset after ``queue_offset`` that has a unit, or None."""
        after = queue_offset + 1
        if after < self.end:
            found = self.held.table.first(self._name, after, self.end)
            if found is not None:
                return found
        behind = self._of_log(max(after, self.end), _FAR, 1)
        return int(behind.queue_offsets[0]) if len(behind) else None

    @property
    def _name(self) -> TopicQueue:
        return self.topic, self.queue_id

    @property
    def _totals(self) -> list[QueueTotals]:
        log = self.held.log
        return [] if log is None else [t for t in log.totals(self._name) if t.high >= self.end]

    def _of_log(self, start: int, end: int, most: int | None = None) -> LogUnits:
        """Return the units of [start, end) that the log implies; with ``most`` the first ones."""
        log = self.held.log
        if log is None or start >= end:
            return LogUnits.joined([])
        if most is not None:
            found = next(log.units(self._name, start, end, most), None)
            return LogUnits.joined([] if found is None else [found])
        return LogUnits.joined(list(log.units(self._name, start, end)))

    def _record_end(self, high: int) -> int:
        units = self.before_hole(high - 1, high)
        if not len(units):
            return 0
        return int(units["physical_offset"][0]) + int(units["size"][0])


def _dense(units: LogUnits, start: int) -> Structs:
    """Return units from ``start`` on that follow each other: the last of those with one number."""
    numbers = units.queue_offsets
    if len(numbers):
        units = units.take(np.append(np.diff(numbers) > 0, True))
        numbers = units.queue_offsets
    dense = numbers == np.arange(start, start + len(numbers))
    if not dense.all():
        units = units.take(slice(0, int(np.argmin(dense))))
    return make_units(units.physical_offsets, units.sizes, units.tags_codes)
