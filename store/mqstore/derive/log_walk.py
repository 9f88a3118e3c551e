"""Walk a CommitLog from a record on to where the log ends, as a broker's recovery does.

The log ends at the first record that is not whole: bad magic, lengths that do not add up, a CRC
that differs. More than the broker, a record must also say that it lies where it lies: bytes that
a broker once cut off say something else.

Reference: CommitLog#recoverAbnormally, #checkMessageAndReturnSize.
"""

from collections.abc import Iterator
from typing import Final

import numpy as np

from mqstore.codec.checksum import broken
from mqstore.codec.dispatch import DispatchRecords
from mqstore.codec.gather import RecordHeaders
from mqstore.codec.walk import BLANK_RECORD, CUT, Walked, follow
from mqstore.files.log.commit_log import CommitLog
from mqstore.files.log.log_end import after_blank
from mqstore.format.message import HARD_RECORD_BYTES

_WINDOW_BYTES: Final = 1 << 20


class LogWalk:
    """Walks once; ``tail``, ``count``, ``last_ms``, ``last`` tell of what was yielded so far."""

    def __init__(self, log: CommitLog, start: int) -> None:
        """``start`` is where a record starts, or a file."""
        self._log = log
        self.tail = start
        """Where the next record lies or may lie: behind a blank record, the next file's start."""
        self.count = 0
        self.last_ms = 0
        """Store timestamp of the last record; 0 if there was none."""
        self.last = -1
        """Where the last record starts; -1 if there was none."""

    def records(self) -> Iterator[DispatchRecords]:
        """Yield the records in log order, those of about a MiB at a time."""
        window = _WINDOW_BYTES
        while True:
            data = self._log.read(self.tail, window)
            walked = follow(data)
            if len(walked.starts):
                found = self._sound(walked)
                if len(found):
                    yield found
                if len(found) < len(walked.starts):
                    return
            if walked.why == BLANK_RECORD:
                self.tail = after_blank(self._log, self.tail)
            elif walked.why != CUT or len(data) < window or window > HARD_RECORD_BYTES:
                return
            else:
                window = _WINDOW_BYTES if walked.end else window * 4

    def _sound(self, walked: Walked) -> DispatchRecords:
        """Return the records before the first that is broken; the log goes on behind them."""
        headers = RecordHeaders(walked.buffer, walked.starts, walked.sizes)
        places = self.tail + walked.starts
        bad = list(headers.problems())
        count = min(bad, default=len(headers))
        if count < len(headers):
            headers, places = headers.take(np.arange(count)), places[:count]
        wrong = broken(headers) | (headers.field("physical_offset") != places)
        if wrong.any():
            count = int(np.argmax(wrong))
            headers, places = headers.take(np.arange(count)), places[:count]
        found = DispatchRecords(headers, places)
        if count:
            self.tail = int(places[-1] + headers.sizes[-1])
            self.count += count
            self.last_ms = int(found.store_timestamps_ms[-1])
            self.last = int(places[-1])
        return found
