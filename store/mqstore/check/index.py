"""Check IndexFiles: their chains, and each unit against the record it points to.

Structs lie in log order, so they are read along with the records and compared as they come. In
memory are one file's slots (20 MB in a broker's default size) and a chunk of units.
"""

from collections.abc import Iterator
from typing import Final

import numpy as np

from mqstore.arrays import Int32s, Int64s, Mask, Structs
from mqstore.check.finding import Findings, Place
from mqstore.codec.dispatch import DispatchRecords, record_keys
from mqstore.files.index.index_file import IndexFile, Layout, list_index_files
from mqstore.files.index_units import chain, read_slots, read_units
from mqstore.format.index_file import FIRST_UNIT
from mqstore.format.names import INDEX

_CHUNK_UNITS: Final = 50_000
_SHOWN: Final = 10
_NOWHERE: Final = 2**63 - 1
_MAX_SECONDS: Final = 2**31 - 1


class IndexCheck:
    """Feed it all records in log order, then ``finish``.

    From physical offset ``unfinished`` on, where a commit is under way, no key need be there yet.
    """

    def __init__(
        self, root: str, low: int, findings: Findings, *, unfinished: int | None = None
    ) -> None:
        self._root = root
        self._low = low
        self._high = _NOWHERE if unfinished is None else unfinished
        self._findings = findings
        self._files = list_index_files(root)
        self._ends = {file.name: file.end_physical_offset for file in self._files}
        self._stream = self._read_all()
        self._held: list[tuple[IndexFile, int, Structs]] = []
        begins = [int(file.header["begin_physical_offset"]) for file in self._files]
        self._begin = min(begins, default=0)
        self._end = max(self._ends.values(), default=-1)
        self._missing = 0

    def feed(self, records: DispatchRecords) -> None:
        """Compare the units of these records with the keys the records have."""
        if not self._files or not len(records.physical_offsets):
            return
        high = int(records.physical_offsets[-1]) + 1
        keys = record_keys(records)
        known = keys.rows << 32 | keys.hashes
        seen: list[Int64s] = []
        for file, first, units in self._until(high):
            places = units["physical_offset"].astype(np.int64)
            live = (places >= self._low) & (places < self._high)
            rows = np.searchsorted(records.physical_offsets, places)
            rows = np.minimum(rows, len(records.physical_offsets) - 1)
            there = records.physical_offsets[rows] == places
            joined = rows << 32 | units["key_hash"].astype(np.int64)
            right = there & np.isin(joined, known)
            seen.append(joined[right])
            for unit in np.flatnonzero(live & ~right)[:_SHOWN].tolist():
                problem = "the record has no such key" if there[unit] else "no record there"
                self._doubt(file, first + unit, problem)
            moments = records.store_timestamps_ms[rows]
            self._check_seconds(file, first, units, moments, right)
            self._check_ends(file, first, moments, right)
        of_key = records.physical_offsets[keys.rows]
        covered = (of_key >= self._begin) & (of_key < min(self._end, self._high)) & ~keys.is_tag
        found = np.concatenate(seen) if seen else np.zeros(0, np.int64)
        self._missing += int((covered & ~np.isin(known, found)).sum())

    def finish(self) -> None:
        """Report what the records did not ask for, and keys that are in no file."""
        for file, first, units in self._until(_NOWHERE):
            places = units["physical_offset"].astype(np.int64)
            live = (places >= self._low) & (places < self._high)
            for unit in np.flatnonzero(live)[:_SHOWN].tolist():
                self._doubt(file, first + unit, "no record there")
        if self._missing:
            problem = f"{self._missing} keys of messages are in no IndexFile"
            self._findings.warning(Place(INDEX), problem)

    def _check_seconds(
        self, file: IndexFile, first: int, units: Structs, moments: Int64s, right: Mask
    ) -> None:
        begin = int(file.header["begin_timestamp_ms"])
        expected = np.clip((moments - begin) // 1000, 0, _MAX_SECONDS) if begin > 0 else 0 * moments
        numbers = np.arange(first, first + len(units))
        # The first unit of a file is measured from the end of the file before it.
        wrong = right & (units["time_diff_s"] != expected) & (numbers > FIRST_UNIT)
        for unit in np.flatnonzero(wrong)[:_SHOWN].tolist():
            self._complain(file, first + unit, "time difference is not the record's")

    def _check_ends(self, file: IndexFile, first: int, moments: Int64s, right: Mask) -> None:
        """Check that the header has the times of the file's first record and of its last."""
        for edge, row in (("begin", FIRST_UNIT - first), ("end", file.count - 1 - first)):
            if not 0 <= row < len(moments) or not right[row]:
                continue
            told = int(file.header[f"{edge}_timestamp_ms"])
            if told != int(moments[row]):
                problem = f"{edge}Timestamp is {told}, its record's time {int(moments[row])}"
                self._error(Place(f"{INDEX}/{file.name}", 0), problem)

    def _until(self, high: int) -> Iterator[tuple[IndexFile, int, Structs]]:
        """Yield the units not yet seen whose records lie before ``high``, as they lie."""
        while True:
            held = self._held.pop() if self._held else next(self._stream, None)
            if held is None:
                return
            file, first, units = held
            beyond = np.flatnonzero(units["physical_offset"].astype(np.int64) >= high)
            count = int(beyond[0]) if len(beyond) else len(units)
            if count:
                yield file, first, units[:count]
            if count < len(units):
                self._held.append((file, first + count, units[count:]))
                return

    def _read_all(self) -> Iterator[tuple[IndexFile, int, Structs]]:
        for file in self._files:
            if file.layout is None:
                if file.count > FIRST_UNIT:
                    problem = "no number of slots and units fits the file's content"
                    self._error(Place(f"{INDEX}/{file.name}"), problem)
                continue
            yield from self._read_file(file, file.layout)

    def _read_file(
        self, file: IndexFile, layout: Layout
    ) -> Iterator[tuple[IndexFile, int, Structs]]:
        """Yield the units of one file; check its chains on the way."""
        slots = np.zeros(layout.slots, np.int32)
        used, last = 0, -1
        for first, units in read_units(file, layout, _CHUNK_UNITS):
            numbers = np.arange(first, first + len(units))
            places = units["key_hash"].astype(np.int64) % layout.slots
            expected, newly = chain(slots, places, numbers)
            used += newly
            wrong = (units["previous"] != expected) | (units["key_hash"] < 0)
            for unit in np.flatnonzero(wrong)[:_SHOWN].tolist():
                self._complain(file, first + unit, "the chain of its slot is broken here")
            behind = units["physical_offset"].astype(np.int64)
            for unit in np.flatnonzero(np.diff(behind, prepend=last) < 0)[:_SHOWN].tolist():
                self._complain(file, first + unit, "its record is before the last one's")
            last = int(behind[-1])
            yield file, first, units
        self._check_head(file, layout, slots, used, last)

    def _check_head(
        self, file: IndexFile, layout: Layout, slots: Int32s, used: int, last: int
    ) -> None:
        """Check slots and header against what the units say."""
        place = Place(f"{INDEX}/{file.name}")
        if not np.array_equal(slots, read_slots(file, layout)):
            self._error(place, "slots do not point to the newest units")
        if file.count > FIRST_UNIT and file.end_physical_offset != last:
            problem = f"the last record is at {last}, the header says {file.end_physical_offset}"
            self._error(place, problem)
        if int(file.header["hash_slot_count"]) != used:
            told = int(file.header["hash_slot_count"])
            self._findings.warning(place, f"{used} slots are in use, the header says {told}")

    def _doubt(self, file: IndexFile, number: int, problem: str) -> None:
        # Records that a broker cut off keep their keys, and every look-up asks the record again.
        self._findings.warning(Place(f"{INDEX}/{file.name}"), f"unit {number}: {problem}")

    def _complain(self, file: IndexFile, number: int, problem: str) -> None:
        self._error(Place(f"{INDEX}/{file.name}"), f"unit {number}: {problem}")

    def _error(self, place: Place, problem: str) -> None:
        # While a commit is under way the last file may be half-written: it is mended with it.
        underway = self._high < _NOWHERE and place.file == f"{INDEX}/{self._files[-1].name}"
        report = self._findings.warning if underway else self._findings.error
        report(place, problem)
