"""Find all whole records of one file of a DLedger log, wherever damage lies between them.

The head of an entry leads from one record to the next. A file of the CommitLog that a broker had
before it joined a group has plain records.

Reference: DLedgerMmapFileStore#recover; DLedgerCommitLog#dividedCommitlogOffset.
"""

from collections.abc import Generator
from typing import Final

import numpy as np

from mqstore.codec.entries import follow_entries
from mqstore.codec.gather import RecordHeaders
from mqstore.codec.walk import BLANK_RECORD, CUT
from mqstore.derive.whole_records import Stretch, WholeRecords, count_whole, stretches_of
from mqstore.format.dledger import ENTRY_MAGIC, HARD_ENTRY_BYTES

_FIRST_BYTES: Final = 1 << 16
_NEXT_BYTES: Final = 1 << 22
_MAGIC_BYTES: Final = 4


class WholeEntries(WholeRecords):
    """Walks over a file's bytes once: iterate over it. Raises OSError."""

    def _follow(self, position: int) -> Generator[Stretch, None, int]:
        magic = int.from_bytes(self._file.read(_MAGIC_BYTES, position), "big", signed=True)
        if magic != ENTRY_MAGIC:
            return (yield from super()._follow(position))
        window = _FIRST_BYTES
        while True:
            room = self._size - position
            walked = follow_entries(self._file.read(min(window, room), position)).walked
            headers = RecordHeaders(walked.buffer, walked.starts, walked.sizes)
            count = count_whole(headers)
            yield from stretches_of(position, headers.take(np.arange(count)))
            if count < len(headers):
                return position + int(headers.starts[count])
            position += walked.end
            is_last = window >= room or (window >= HARD_ENTRY_BYTES and not walked.end)
            if walked.why == BLANK_RECORD and self._closes(position, position + _MAGIC_BYTES):
                return self._size
            if walked.why != CUT or is_last:
                return position
            window = _NEXT_BYTES if walked.end and window >= _NEXT_BYTES else 4 * window
