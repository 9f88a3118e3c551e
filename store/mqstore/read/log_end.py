"""The end of what is written of a CommitLog: as long as it stands, no queue has a new message.

A broker fills its files with zeros, and maps them, so that neither their lengths nor their times
tell of a message. What lies behind the last byte that is not zero does: a record begins with its
size.

Reference: CommitLog#asyncPutMessage; MappedFile#appendMessage.
"""

from contextlib import closing
from typing import Final

import numpy as np

from mqstore.files.base.store_dir import StoreDir
from mqstore.files.log.commit_log import CommitLog

_CHUNK_BYTES: Final = 1 << 20
_AHEAD_BYTES: Final = 64 * 1024
"""What is looked at. A record that ends with more zeros hides the next one from such a look."""


class LogEnd:
    """Where the written part of a store's CommitLog ended when it was last marked."""

    def __init__(self, place: StoreDir) -> None:
        self._place = place
        self._name = ""
        self._position = 0

    def mark(self) -> None:
        """Find the end as it is now. Raises FileNotFoundError if a broker deletes the file."""
        with CommitLog(self._place.commit_log) as log:
            last = log.files.files[-1] if log.files.files else None
        if last is None:
            self._name = ""
            return
        low = self._position if last.name == self._name else 0
        with closing(last.open()) as file:
            end = file.size
            while end > low:
                start = max(low, end - _CHUNK_BYTES)
                written = np.flatnonzero(np.frombuffer(file.read(end - start, start), np.uint8))
                if len(written):
                    low = start + int(written[-1]) + 1
                    break
                end = start
        self._name, self._position = last.name, low

    def is_same(self) -> bool:
        """Tell whether nothing is written behind the end that was marked.

        False where it cannot be told: a next file has begun, or there is none.
        """
        with CommitLog(self._place.commit_log) as log:
            last = log.files.files[-1] if log.files.files else None
        if last is None or last.name != self._name:
            return False
        with closing(last.open()) as file:
            count = min(_AHEAD_BYTES, file.size - self._position)
            return not any(file.read(count, self._position)) if count > 0 else False
