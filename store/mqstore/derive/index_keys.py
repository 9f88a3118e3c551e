"""Keys that records have, and units of IndexFiles beside the records that they point to.

Units lie in log order, as records do: both are read once, along with each other.

Reference: CommitLogDispatcherBuildIndex, IndexService#buildIndex, IndexFile#putKey.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from mqstore.codec.dispatch import DispatchRecords, record_keys
from mqstore.derive.index_chains import IndexUnits
from mqstore.derive.log_walk import LogWalk
from mqstore.files.index.index_file import time_differences_s
from mqstore.files.log.commit_log import CommitLog
from mqstore.format.arrays import Int64s, Mask
from mqstore.format.index_file import FIRST_UNIT


def has_keys(log: CommitLog, after: int, before: int, *, with_tags: bool) -> bool:
    """Tell whether records between those two places have keys, or might: where none can be read.

    With ``with_tags`` tags are keys, as brokers since 5.5.0 put them.
    """
    if after >= before:
        return False
    walk = LogWalk(log, max(after, log.low))
    for records in walk.records():
        keys = record_keys(records)
        places = records.physical_offsets[keys.rows[~keys.is_tag | with_tags]]
        if ((places > after) & (places < before)).any():
            return True
        if walk.tail >= before:
            return False
    return walk.tail < before


class IndexUnitStream:
    """Units of IndexFiles in log order, taken a chunk of records at a time."""

    def __init__(self, parts: Iterator[IndexUnits]) -> None:
        self._parts = parts
        self._next: IndexUnits | None = None

    def before(self, physical_offset: int) -> Iterator[IndexUnits]:
        """Yield the units not yet taken up to the first whose record is not before that place."""
        while (part := self._next or next(self._parts, None)) is not None:
            self._next = None
            beyond = part.units["physical_offset"].astype(np.int64) >= physical_offset
            count = int(np.argmax(beyond)) if beyond.any() else len(part.units)
            if count < len(part.units):
                self._next = IndexUnits(part.file, part.first + count, part.units[count:])
            if count:
                yield IndexUnits(part.file, part.first, part.units[:count])
            if self._next is not None:
                return


@dataclass(frozen=True)
class AlignedUnits:
    """Units of one IndexFile beside records, of which there is one at least."""

    part: IndexUnits
    records: DispatchRecords

    @cached_property
    def places(self) -> Int64s:
        """Physical offset of each unit's record."""
        return self.part.units["physical_offset"].astype(np.int64)

    @cached_property
    def hashes(self) -> Int64s:
        """The key hash of each unit."""
        return self.part.units["key_hash"].astype(np.int64)

    @cached_property
    def rows(self) -> Int64s:
        """Which record lies at each unit's place, or the next one if none does (`has_record`)."""
        rows = np.searchsorted(self.records.physical_offsets, self.places)
        return np.minimum(rows, len(self.records) - 1)

    @cached_property
    def has_record(self) -> Mask:
        """Whether a record lies at each unit's place."""
        there: Mask = self.records.physical_offsets[self.rows] == self.places
        return there

    @cached_property
    def store_timestamps_ms(self) -> Int64s:
        """Store timestamp of each unit's record."""
        return self.records.store_timestamps_ms[self.rows]

    @cached_property
    def has_wrong_seconds(self) -> Mask:
        """Which units have another time difference than their record's."""
        begin_ms = int(self.part.file.header["begin_timestamp_ms"])
        expected = time_differences_s(self.store_timestamps_ms, begin_ms)
        numbers = self.part.first + np.arange(len(self.part.units))
        # The first unit of a file is measured from the end of the file before it.
        differs: Mask = self.part.units["time_diff_s"] != expected
        return differs & (numbers > FIRST_UNIT)

    def wrong_edges(self) -> Iterator[tuple[str, int, int]]:
        """Yield begin and end of the file where its header has another time than the record.

        Each as (edge, row of its unit, what the header says), if the unit is among these.
        """
        file, first = self.part.file, self.part.first
        for edge, row in (("begin", FIRST_UNIT - first), ("end", file.count - 1 - first)):
            said_ms = int(file.header[f"{edge}_timestamp_ms"])
            if 0 <= row < len(self.places) and said_ms != self.store_timestamps_ms[row]:
                yield edge, row, said_ms
