"""What the IndexFiles of a replica cover, in a group with a controller.

A replica that comes back cuts its log where an epoch of the new master begins, and its queues with
it. Its IndexFiles stay as they are: units name what is not there any more, and a broker puts none
of a record before the last one that a file names. So the records that the new master wrote over
what was cut are in no index, and never will be.

A replica that follows a new master may also leave out the record at which it began to enter records
again (seen on 5.5.1). That lies shortly before the new epoch, at its confirm offset of that time.

Reference: IndexService#buildIndex; AutoSwitchHAClient#doTruncate.
"""

from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Final

import numpy as np

from mqstore.files.index.index_file import IndexFile
from mqstore.files.log.commit_log import CommitLog
from mqstore.format.arrays import Span
from mqstore.format.epochs import Epoch
from mqstore.format.index_file import FIRST_UNIT
from mqstore.format.message import RECORD_MAGICS

_NEAR_BYTES: Final = 64 << 20
"""So far before an epoch a replica may have begun again to enter records."""


@dataclass(frozen=True)
class IndexEpochs:
    """Tells how far IndexFiles can be believed; ``epochs`` are those of the log, none if plain."""

    log: CommitLog
    epochs: Sequence[Epoch]

    def covered(self, file: IndexFile) -> Span | None:
        """Return from where to where no record lacks its units: [low, high) of physical offsets.

        None where an epoch begins inside or shortly behind it, and where the records at both ends
        are not those that the header names.
        """
        low, end = int(file.header["begin_physical_offset"]), file.end_physical_offset
        if not self._starts:
            return low, end
        if not (self._is_first_right(file, low) and self._is_at(file, end, "end_timestamp_ms")):
            return None
        is_near = any(low < start < end + _NEAR_BYTES for start in self._starts)
        return None if is_near else (low, end)

    @cached_property
    def _starts(self) -> list[int]:
        """Where epochs begin that may have followed a cut: all but the log's first one."""
        return [
            epoch.start
            for number, epoch in enumerate(self.epochs)
            if number or 0 < epoch.start < self.log.low
        ]

    def _is_at(self, file: IndexFile, place: int, timestamp: str) -> bool:
        record_ms = self._stored_ms(place)
        return record_ms is not None and record_ms == int(file.header[timestamp])

    def _is_first_right(self, file: IndexFile, place: int) -> bool:
        """Look at the first record that is still held: those before it expired with the log."""
        if place >= self.log.low:
            return self._is_at(file, place, "begin_timestamp_ms")
        numbers = range(FIRST_UNIT, file.count)
        number = FIRST_UNIT + bisect_left(
            numbers, self.log.low, key=lambda number: _place(file, number)
        )
        units = file.units(number, number + 1)
        if not len(units):
            return False
        record_ms = self._stored_ms(int(units["physical_offset"][0]))
        if record_ms is None:
            return False
        begin_ms = int(file.header["begin_timestamp_ms"])
        return max(0, (record_ms - begin_ms) // 1000) == int(units["time_diff_s"][0])

    def _stored_ms(self, place: int) -> int | None:
        """Return the storeTimestamp of the record at that place; None if none lies there."""
        header = self.log.header(place)
        if header is None or int(header["magic"]) not in RECORD_MAGICS:
            return None
        is_here = int(header["physical_offset"]) == place
        return int(header["store_timestamp_ms"]) if is_here else None


def _place(file: IndexFile, number: int) -> int:
    units = file.units(number, number + 1)
    return int(units["physical_offset"][0]) if len(units) else np.iinfo(np.int64).max
