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
from mqstore.files.log.commit_log import CommitLog
from mqstore.files.mapped_file_queue import MappedFile, MappedFileQueue
from mqstore.files.queue.consume_queue import ConsumeQueue, each_queue
from mqstore.files.safe_open import read_small
from mqstore.files.store_dir import StoreDir
from mqstore.format import dledger

_CHECKPOINT_BYTES: Final = 4096
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
        """Return 48 for a file of entries, 0 for one of the CommitLog before them."""
        found = self._heads.get(file.start)
        if found is None:
            word = int.from_bytes(self.read(file.start, _WORD_BYTES), "big", signed=True)
            # A plain record starts with its size, which is more than 1.
            is_entry = word in (dledger.ENTRY_MAGIC, dledger.BLANK_MAGIC)
            found = self._heads[file.start] = dledger.BODY_OFFSET if is_entry else 0
        return found

    @cached_property
    def committed_end(self) -> int:
        """Where the committed entries end; everything of a CommitLog before them is committed.

        Raises CorruptStoreError where there are entries, and neither the checkpoint nor a
        ConsumeQueue tells.
        """
        known = None if self._known is None else self._known.committed_end
        if known is not None:
            return known
        by_checkpoint = self._by_checkpoint()
        by_queues = max(self._queue_ends(), default=0)
        entries = next((f for f in self.files.files if self.head_bytes(f)), None)
        if entries is not None and by_checkpoint is None and by_queues <= entries.start:
            reason = (
                "which entries of the DLedger log are committed cannot be known: neither this "
                "file nor a ConsumeQueue tells"
            )
            raise CorruptStoreError(self._path(dledger.CHECKPOINT), 0, reason)
        divided = self.high if entries is None else entries.start
        return min(max(divided, by_checkpoint or 0, by_queues), self.high)

    @cached_property
    def index(self) -> MappedFileQueue:
        """DLedger's index units: byte 32 * i has that of entry i; no files if they are not there.

        Raises UnsafePathError, CorruptStoreError.
        """
        try:
            folder = f"{self._place.dledger}/{dledger.INDEX}"
            return MappedFileQueue.list([(self._place.root, folder)])
        except (FileNotFoundError, NotADirectoryError):
            return MappedFileQueue(())

    def index_unit(self, index: int) -> np.void | None:
        """Return the index unit of an entry; None if there is none, or it is of another."""
        data = self.index.read(index * dledger.UNIT.itemsize, dledger.UNIT.itemsize)
        unit = np.frombuffer(data, dledger.UNIT)[0] if len(data) == dledger.UNIT.itemsize else None
        is_its_own = unit is not None and (unit["magic"], unit["index"]) == (1, index)
        return unit if is_its_own else None

    def _by_checkpoint(self) -> int | None:
        """Return where the checkpoint's committed entry ends, 0 if none is; None if unknown."""
        index = self._committed_index()
        if index is None or index < 0:
            return None if index is None else 0
        with suppress(StoreError, OSError):
            unit = self.index_unit(index)
            if unit is not None:
                place = int(unit["position"])
                data = self.read(place, dledger.ENTRY.itemsize) if place >= 0 else b""
                if len(data) == dledger.ENTRY.itemsize:
                    entry = np.frombuffer(data, dledger.ENTRY)[0]
                    same = all(entry[name] == unit[name] for name in dledger.UNIT.names or ())
                    if same and dledger.MIN_ENTRY_BYTES <= entry["size"] <= dledger.HARD_ENTRY_BYTES:
                        return place + int(entry["size"])
        return None

    def _committed_index(self) -> int | None:
        """Return committedIndex of DLedger's checkpoint, or of its last one (IOUtils#string2File)."""
        for name in (dledger.CHECKPOINT, f"{dledger.CHECKPOINT}.bak"):
            data = read_small(self._place.root, f"{self._place.dledger}/{name}", _CHECKPOINT_BYTES)
            for line in (data or b"").decode("latin-1").splitlines():
                key, _, value = line.partition("=")
                digits = value.strip().removeprefix("-")
                is_number = key.strip() == dledger.COMMITTED_INDEX and digits.isascii()
                if is_number and digits.isdigit() and len(digits) < len(str(_LARGEST)):
                    return int(value)
        return None

    def _queue_ends(self) -> Iterator[int]:
        """Yield where the last record of each ConsumeQueue ends; what is damaged tells nothing."""
        with suppress(StoreError):
            for queue in each_queue(self._place):
                with suppress(StoreError, OSError):
                    yield ConsumeQueue(self._place, *queue).look(self.low).end

    def _path(self, name: str) -> str:
        return f"{self._place.root}/{self._place.dledger}/{name}"
