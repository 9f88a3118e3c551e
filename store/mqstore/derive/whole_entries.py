"""Find all whole records of one file of a DLedger log, wherever damage lies between them.

The head of an entry leads from one record to the next. A file of the CommitLog that a broker had
before it joined a group has plain records.

Reference: DLedgerMmapFileStore#recover; DLedgerCommitLog#dividedCommitlogOffset.
"""

from collections.abc import Generator
from typing import Final

from mqstore.codec.entries import follow_entries
from mqstore.codec.walk import Walked
from mqstore.derive.whole_records import Chain, Stretch, WholeRecords
from mqstore.format.dledger import ENTRY_MAGIC, HARD_ENTRY_BYTES

_MAGIC_BYTES: Final = 4


def _follow(data: bytes) -> Walked:
    return follow_entries(data).walked


_ENTRIES: Final = Chain(_follow, HARD_ENTRY_BYTES, _MAGIC_BYTES)


class WholeEntries(WholeRecords):
    """Walks over a file's bytes once: iterate over it. Raises OSError."""

    def _follow(self, position: int) -> Generator[Stretch, None, int]:
        magic = int.from_bytes(self._file.read(_MAGIC_BYTES, position), "big", signed=True)
        if magic != ENTRY_MAGIC:
            return (yield from super()._follow(position))
        return (yield from self._follow_by(_ENTRIES, position))
