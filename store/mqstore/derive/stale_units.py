"""Units in RocksDB of records that a replica cut off its log, before others are flushed over them.

A replica that comes back cuts its log where an epoch of the new master begins. Of a queue in
RocksDB it then takes a lower end into memory; units and the checkpoint on disk stay until others
are written over them. Those are written in the order of the log, so the units of a queue that are
stale come behind all that are not. Where the new log is shorter, what was cut may still lie behind
its end.

Reference: AutoSwitchHAClient#doTruncate; RocksDBConsumeQueueStore#truncateDirty.
"""

from bisect import bisect_left
from collections.abc import Mapping
from contextlib import suppress

from mqstore.derive.records import is_of_unit
from mqstore.errors import CorruptStoreError
from mqstore.files.base.store_dir import StoreDir
from mqstore.files.config.epochs import load_epochs
from mqstore.files.log.commit_log import CommitLog
from mqstore.files.log.replica_log import ReplicaLog
from mqstore.files.rocksdb.unit_table import UnitTable
from mqstore.format.arrays import TopicQueue
from mqstore.format.epochs import Epoch


class StaleUnits:
    """Finds them in the database of a replica's store, or of a copy of one; no other has any."""

    def __init__(self, place: StoreDir, table: UnitTable, log: CommitLog) -> None:
        self._table, self._log = table, log
        self._epochs: tuple[Epoch, ...] | None = None
        with suppress(CorruptStoreError):  # Then any epoch may begin anywhere.
            self._epochs = load_epochs(place)

    def without(
        self, ends: Mapping[TopicQueue, int], checkpoint: int
    ) -> tuple[dict[TopicQueue, int], int]:
        """Return where queues end before stale units, and from where the log tells the others.

        ``ends`` are the queue offsets behind the last unit of each queue, ``checkpoint`` is the
        physical offset behind the last record that has one. Reads a unit and a header a queue.
        """
        sound = dict(ends)
        if self._epochs is not None and len(self._epochs) < 2:  # No cut can have been.
            return sound, checkpoint
        starts = []
        for queue, end in ends.items():
            last = self._table.last(queue, 0, end)
            if last is None or self._is_sound(queue, last):
                continue
            sound[queue] = self._first_stale(queue, last)
            starts.append(self._start_of(queue, sound[queue]))
        if not starts:
            return sound, checkpoint
        epochs = [epoch.start for epoch in self._epochs or () if epoch.start <= min(starts)]
        return sound, min(checkpoint, max(self._log.low, max(epochs, default=0)))

    def _first_stale(self, queue: TopicQueue, last: int) -> int:
        first = self._table.first(queue, 0, last) or 0

        def is_stale(queue_offset: int) -> bool:
            return not self._is_sound(queue, queue_offset)

        return first + bisect_left(range(first, last), True, key=is_stale)

    def _is_sound(self, queue: TopicQueue, queue_offset: int) -> bool:
        units = self._table.units(queue, queue_offset, queue_offset + 1)
        if not len(units):
            return True  # A hole, which is told where it is read.
        place, size = int(units["physical_offset"][0]), int(units["size"][0])
        if place < self._log.low:
            return True  # It expired.
        if not is_of_unit(self._log, place, size, (*queue, queue_offset)):
            return False
        log, head = self._log, self._log.header(place)
        if not isinstance(log, ReplicaLog) or head is None:
            return True
        return not log.is_left_over(place, int(head["store_timestamp_ms"]))

    def _start_of(self, queue: TopicQueue, queue_offset: int) -> int:
        """Return a place that the record which belongs to a stale unit does not lie before."""
        stale = self._table.units(queue, queue_offset, queue_offset + 1)
        before = self._table.units(queue, queue_offset - 1, queue_offset) if queue_offset else ()
        ends = [int(unit["physical_offset"]) + int(unit["size"]) for unit in before]
        return min([int(stale["physical_offset"][0]), *ends])
