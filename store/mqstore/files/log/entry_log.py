"""The CommitLog of a broker in a DLedger group: entries with records in them, up to the committed.

Which entries are committed, two files of the disk tell, each with a delay: DLedger's checkpoint,
which is written every three seconds and when the broker stops, and the ConsumeQueues, which a
broker fills with committed messages only. The later of the two counts.

Reference: DLedgerMmapFileStore#persistCheckPoint, #updateCommittedIndex; DLedgerCommitLog#getData
and DefaultMessageStore.ReputMessageService#doReput, which dispatch up to the committed position.
"""

from collections.abc import Iterator
from contextlib import suppress
from functools import cached_property
from typing import Final

import numpy as np

from mqstore.errors import CorruptStoreError, StoreError
from mqstore.files.base.mapped_file_queue import MappedFile, MappedFileQueue
from mqstore.files.base.store_dir import StoreDir
from mqstore.files.log.commit_log import CommitLog
from mqstore.files.log.replica_log import ReplicaLog
from mqstore.files.queue.consume_queue import ConsumeQueue, each_queue
from mqstore.format.arrays import Structs
from mqstore.format.dledger import (
    BODY_OFFSET,
    CHECKPOINT,
    COMMITTED_INDEX,
    ENTRY,
    ENTRY_MAGIC,
    INDEX,
    UNIT,
)
from mqstore.format.message import BLANK_MAGIC, RECORD_MAGICS

_CHECKPOINT_BYTES: Final = 4096
_SHARED: Final = UNIT.names or ()
_LARGEST: Final = 2**63 - 1
_WORD_BYTES: Final = 4


def open_log(
    place: StoreDir, read_mode: str = "pread", known: CommitLog | None = None
) -> CommitLog:
    """Return the CommitLog of a store, of whatever kind. Raises as ``CommitLog``.

    ``known`` is one of the same store, whose committed end the new one has.
    """
    if place.dledger:
        return EntryLog(place, read_mode, known)
    if place.is_replica and not place.takes_unconfirmed:
        return ReplicaLog(place, read_mode, known)
    return CommitLog(place.commit_log, read_mode)


class EntryLog(CommitLog):
    """Reads the entries of ``place.dledger``, and the plain files of a CommitLog before them."""

    def __init__(
        self, place: StoreDir, read_mode: str = "pread", known: CommitLog | None = None
    ) -> None:
        super().__init__(place.commit_log, read_mode)
        self._known = known
        self._place = place
        self._heads: dict[int, int] = {}

    def head_bytes(self, file: MappedFile) -> int:
        """Return 48 for a file of entries, 0 for one of the CommitLog before them.

        A plain record has its magic where an entry has its size.
        Reference: DLedgerCommitLog#checkMessageAndReturnSize.
        """
        found = self._heads.get(file.start)
        if found is None:
            word = int.from_bytes(self.read(file.start + _WORD_BYTES, _WORD_BYTES), "big")
            is_plain = word - 2**32 in (*RECORD_MAGICS, BLANK_MAGIC)
            found = self._heads[file.start] = 0 if is_plain else BODY_OFFSET
        return found

    @cached_property
    def committed_end(self) -> int:
        """Where the committed entries end; everything of a CommitLog before them is committed."""
        known = None if self._known is None else self._known.committed_end
        if known is not None:
            return known
        return min(max(self._divided, self._by_checkpoint or 0, self._by_queues), self.high)

    def check_committed(self) -> None:
        """Raise CorruptStoreError where there are entries and nothing tells which are committed."""
        is_known = self._by_checkpoint is not None or self._by_queues > self._divided
        if self._divided < self.high and not is_known:
            reason = (
                "which entries of the DLedger log are committed cannot be known: neither this "
                "file nor a ConsumeQueue tells"
            )
            path = f"{self._place.root}/{self._place.dledger}/{CHECKPOINT}"
            raise CorruptStoreError(path, 0, reason)

    @cached_property
    def _divided(self) -> int:
        """Where the first entry lies or will lie: DLedgerCommitLog#dividedCommitlogOffset."""
        files = (file.start for file in self.files.files if self.head_bytes(file))
        return next(files, self.high)

    @property
    def index_path(self) -> str:
        """The folder of ``index``, below the root."""
        return f"{self._place.dledger}/{INDEX}"

    @cached_property
    def index(self) -> MappedFileQueue:
        """DLedger's index units: byte 32 * i has that of entry i; no files if they are not there.

        Raises UnsafePathError, CorruptStoreError.
        """
        try:
            return MappedFileQueue.list([self._place.folder.at(self.index_path)])
        except (FileNotFoundError, NotADirectoryError):
            return MappedFileQueue(())

    def index_units(self, first: int, end: int) -> Structs:
        """Return the index units of entries [first, end); fewer where a file ends or is missing."""
        position, stop, parts = first * UNIT.itemsize, end * UNIT.itemsize, []
        while position < stop:
            data = self.index.read(position, stop - position)
            data = data[: len(data) // UNIT.itemsize * UNIT.itemsize]
            if not data:
                break
            parts.append(data)
            position += len(data)
        return np.frombuffer(b"".join(parts), UNIT)

    def has_head(self, physical_offset: int, size: int) -> bool:
        """Tell whether the head of an entry with a record of that size is before it."""
        file = self.files.find(physical_offset)
        if file is None or not self.head_bytes(file):
            return file is not None
        head = self._entry(physical_offset - ENTRY.itemsize)
        said = None if head is None else (int(head["magic"]), int(head["size"]))
        return said == (ENTRY_MAGIC, ENTRY.itemsize + size)

    def _entry(self, position: int) -> np.void | None:
        data = self.read(position, ENTRY.itemsize) if position >= 0 else b""
        return np.frombuffer(data, ENTRY)[0] if len(data) == ENTRY.itemsize else None

    @cached_property
    def _by_checkpoint(self) -> int | None:
        """Return where the checkpoint's committed entry ends, 0 if none is; None if unknown."""
        index = self._committed_index()
        if index is None or index < 0:
            return None if index is None else 0
        with suppress(StoreError, OSError):
            for unit in self.index_units(index, index + 1):
                entry = self._entry(int(unit["position"]))
                if entry is not None and all(entry[name] == unit[name] for name in _SHARED):
                    return int(unit["position"]) + max(int(entry["size"]), 0)
        return None

    def _committed_index(self) -> int | None:
        """Return committedIndex of DLedger's checkpoint, else of the one before it, its .bak.

        Reference: IOUtils#string2File.
        """
        for name in (CHECKPOINT, f"{CHECKPOINT}.bak"):
            path = f"{self._place.dledger}/{name}"
            data = self._place.folder.read_small(path, _CHECKPOINT_BYTES)
            for line in (data or b"").decode("latin-1").splitlines():
                key, _, value = line.partition("=")
                digits = value.strip().removeprefix("-")
                is_number = key.strip() == COMMITTED_INDEX and digits.isascii()
                if is_number and digits.isdigit() and len(digits) < len(str(_LARGEST)):
                    return int(value)
        return None

    @cached_property
    def _by_queues(self) -> int:
        """Return where the last record ends that a ConsumeQueue names; 0 if none names any."""
        return max(self._queue_ends(), default=0)

    def _queue_ends(self) -> Iterator[int]:
        """Yield where the last record of each ConsumeQueue ends; what is damaged tells nothing."""
        with suppress(StoreError):
            for queue in each_queue(self._place):
                with suppress(StoreError, OSError):
                    yield ConsumeQueue(self._place, *queue).look(self.low).end
