"""The CommitLog of a replica of a controller's group, up to where its group agreed.

A master enters records into queues, and consumers get them, up to the confirm offset; what lies
behind it, some replicas have and no producer was told of. Whether the group ever had it, no file of
this disk tells. How far it agreed, two places tell, each with a delay: confirmPhyOffset of the
checkpoint, which is written once a minute and when the broker stops, and which stands still on a
master that is alone in its set of replicas; and what was entered into the queues. The later of the
two counts, so a read by the log ends where a read by queues does.

Queues in RocksDB are flushed seldom. There an IndexFile may tell more: a broker puts the keys of a
record when it enters it into its queue. Where a replica cut its log, both may still name what was
cut, and its bytes may still lie behind the new end: they were stored before the epoch began.

Reference: CommitLog#getConfirmOffset, #recoverAbnormally;
DefaultMessageStore.ReputMessageService#getReputEndOffset; RocksDBConsumeQueueStore.
"""

# ruff: noqa: PLC0415

from collections.abc import Iterator
from contextlib import suppress
from functools import cached_property
from typing import TYPE_CHECKING, Final

import numpy as np

from mqstore.errors import CorruptStoreError, StoreError
from mqstore.files.base.store_dir import StoreDir, rocksdb_queues
from mqstore.files.config import checkpoint
from mqstore.files.config.epochs import load_epochs
from mqstore.files.log.commit_log import CommitLog
from mqstore.files.queue.batch_queue import BatchQueue
from mqstore.files.queue.consume_queue import ConsumeQueue, each_queue
from mqstore.files.queue.units import Units
from mqstore.format import names
from mqstore.format.epochs import Epoch
from mqstore.format.index_file import HEADER
from mqstore.format.message import RECORD_MAGICS

if TYPE_CHECKING:
    from mqstore.files.rocksdb.unit_table import UnitTable

READ_UNCOMMITTED: Final = "readUnCommitted"
_CONFIRM_POSITION: Final = 32


class ReplicaLog(CommitLog):
    """Reads the plain files of ``place``; ``committed_end`` is where its group agreed."""

    def __init__(
        self, place: StoreDir, read_mode: str = "pread", known: CommitLog | None = None
    ) -> None:
        super().__init__(place.commit_log, read_mode)
        self._known = known
        self._place = place

    @cached_property
    def committed_end(self) -> int:
        """The later of the confirm offset and the end of what was entered into queues."""
        known = None if self._known is None else self._known.committed_end
        if known is not None:
            return known
        return min(max(self.confirmed or 0, self.entered, self.low), self.high)

    def check_committed(self) -> None:
        """Raise CorruptStoreError where there are records and nothing tells which are agreed on."""
        if self.files.files and self.confirmed is None and self.entered <= self.low:
            reason = (
                "how far its group agreed on this replica's log cannot be known: neither this file "
                f"nor a ConsumeQueue tells. {READ_UNCOMMITTED}=true reads all that it has"
            )
            path = f"{self._place.root}/{names.CHECKPOINT}"
            raise CorruptStoreError(path, _CONFIRM_POSITION, reason)

    @cached_property
    def confirmed(self) -> int | None:
        """ConfirmPhyOffset of the checkpoint: behind the last confirmed record; None if unknown."""
        record = checkpoint.load(self._place)
        confirmed = -1 if record is None else int(record["confirm_phy_offset"])
        return confirmed if confirmed >= 0 else None

    @cached_property
    def entered(self) -> int:
        """Where the last record ends that was entered into queues; 0 if nothing tells."""
        with suppress(StoreError, OSError):
            path = rocksdb_queues(self._place)
            if path is not None:
                return max(self._by_database(path), self._by_index)
            return self._by_queues
        return 0

    def _by_database(self, path: str) -> int:
        """Return the database's checkpoint; 0 where it cannot be opened."""
        from mqstore.files.rocksdb.unit_table import UnitTable

        table = UnitTable(self._place.folder, path)
        with suppress(StoreError, OSError):
            try:
                return min(table.checkpoint(), self._last_sound(table))
            finally:
                table.close()
        return 0

    def _last_sound(self, table: "UnitTable") -> int:
        """Return where the last record ends that a unit names, if a cut of the log left stale ones.

        Else a place behind all records: the checkpoint is right.
        """
        last_units = (table.units(queue, end - 1, end) for queue, end in table.ends().items())
        ends = [
            self._unit_end(int(unit["physical_offset"]), int(unit["size"]))
            for units in last_units
            for unit in units
        ]
        return max(ends) if 0 in ends else self.high

    def _unit_end(self, place: int, size: int) -> int:
        """Return where the record of a unit ends; its place if it expired, 0 if it is not there."""
        if place < self.low:
            return place
        head, end = self.header(place), self._record_end(place, size=size)
        if head is None or self.is_left_over(place, int(head["store_timestamp_ms"])):
            return 0
        return end

    @cached_property
    def _by_index(self) -> int:
        """Return where the record ends whose keys were put last, if it lies where the index says.

        An index that lost records to a cut of the log names what is not there any more.
        """
        listed = self._place.folder.names(names.INDEX)
        for name in sorted(filter(names.is_index_file_name, listed), reverse=True):
            data = self._place.folder.read_small(f"{names.INDEX}/{name}", HEADER.itemsize)
            for header in np.frombuffer(data or b"", HEADER, len(data or b"") // HEADER.itemsize):
                place, its_ms = int(header["end_physical_offset"]), int(header["end_timestamp_ms"])
                if place > 0 and not self.is_left_over(place, its_ms):
                    end = self._record_end(place, stored_ms=its_ms)
                    if end:
                        return end
        return 0

    def is_left_over(self, place: int, stored_ms: int) -> bool:
        """Tell whether a record at that place was cut off: it is older than the epoch there."""
        start = max(
            (epoch.start for epoch in self._later_epochs if epoch.start <= place), default=-1
        )
        first = self.header(start) if self.low <= start < self.high else None
        if first is None or int(first["magic"]) not in RECORD_MAGICS:
            return False
        is_first = int(first["physical_offset"]) == start
        return is_first and stored_ms < int(first["store_timestamp_ms"])

    @cached_property
    def _later_epochs(self) -> tuple[Epoch, ...]:
        """All epochs but the log's first one; none where they cannot be known."""
        with suppress(StoreError):
            return load_epochs(self._place)[1:]
        return ()

    @cached_property
    def _by_queues(self) -> int:
        """Return where the last record ends that a ConsumeQueue names and that lies there."""
        ends = sorted(self._queue_ends(), key=lambda one: -one[0])
        for _, queue, high in ends:
            with suppress(StoreError, OSError):
                for unit in queue.read(high - 1, high):
                    end = self._record_end(int(unit["physical_offset"]), size=int(unit["size"]))
                    if end:
                        return end
        return 0

    def _queue_ends(self) -> Iterator[tuple[int, Units, int]]:
        """Yield for each queue where its last record ends, and the queue offset behind it."""
        for folder, kind in (
            (names.CONSUME_QUEUE, ConsumeQueue),
            (names.BATCH_CONSUME_QUEUE, BatchQueue),
        ):
            with suppress(StoreError):
                for name in each_queue(self._place, folder):
                    with suppress(StoreError, OSError):
                        queue = kind(self._place, *name)
                        look = queue.look(self.low)
                        if look.low < look.high:
                            yield look.end, queue, look.high

    def _record_end(self, place: int, *, size: int = 0, stored_ms: int = -1) -> int:
        """Return where the record ends that lies there and is as expected; 0 if it is not."""
        header = self.header(place) if self.low <= place < self.high else None
        if header is None or int(header["magic"]) not in RECORD_MAGICS:
            return 0
        its_size, its_ms = int(header["total_size"]), int(header["store_timestamp_ms"])
        is_here = int(header["physical_offset"]) == place and its_size > 0
        is_expected = its_size == (size or its_size) and its_ms == (
            its_ms if stored_ms < 0 else stored_ms
        )
        return place + its_size if is_here and is_expected else 0
