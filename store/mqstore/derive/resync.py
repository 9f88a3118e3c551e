"""Finds the next whole record behind damage of a CommitLog.

A record counts if it is whole, says its own place, and was not stored before those that precede
it: older ones are remains of a log that a broker once cut off, and no messages any more.
"""

from typing import Final

from mqstore.codec.walk import places_of_headers
from mqstore.derive.records import IN_PLACE, fetch_at
from mqstore.files.base.mapped_file_queue import MappedFile
from mqstore.files.log.commit_log import CommitLog
from mqstore.format.message import HEADER

_RESYNC_WINDOW_BYTES: Final = 1 << 20
_MOST_HEADERS: Final = 100_000


class Resync:
    """Finds the next record behind damage in one log file.

    Bytes that imitate headers cannot keep it busy: of one file it reads the records of at most
    100,000 headers, and at most twice the file's bytes.
    """

    def __init__(self, log: CommitLog, file: MappedFile) -> None:
        self._log = log
        self._file = file
        self._headers = _MOST_HEADERS
        self._bytes = 2 * file.size
        self._head_bytes = log.head_bytes(file)

    def after(self, physical_offset: int, not_before_ms: int) -> int | None:
        """Return where the first record at or behind that place starts; None if none is found.

        A record of a DLedger log starts with its entry.
        ``not_before_ms`` is the store timestamp of the last record before the damage. Raises
        OSError.
        """
        opened = self._file.open()
        try:
            position = physical_offset - self._file.start
            while True:
                position = opened.next_data(position, self._file.size)
                data = opened.read(_RESYNC_WINDOW_BYTES, position)
                if len(data) < HEADER.itemsize:
                    return None
                start = self._file.start + position
                for row in places_of_headers(data, start).tolist():
                    if start + row - self._head_bytes < physical_offset:
                        continue
                    found = self._is_record(start + row, not_before_ms)
                    if found is None:
                        return None
                    if found:
                        return start + int(row) - self._head_bytes
                position += len(data) - HEADER.itemsize + 1
        finally:
            opened.close()

    def is_at(self, physical_offset: int, not_before_ms: int) -> bool:
        """Tell whether a record starts at that place, by the same rules as ``after``."""
        return bool(self._is_record(physical_offset + self._head_bytes, not_before_ms))

    def _is_record(self, place: int, not_before_ms: int) -> bool | None:
        """Tell whether a record starts there; None if enough was looked at."""
        head = self._log.header(place)
        if head is None:
            return False
        self._headers -= 1
        self._bytes -= int(head["total_size"])
        if self._headers < 0 or self._bytes < 0:
            return None
        if not self._log.has_head(place, int(head["total_size"])):
            return False
        found = fetch_at(self._log, place, IN_PLACE)
        if found is None:
            return False
        return int(found.field("store_timestamp_ms")[0]) >= not_before_ms
