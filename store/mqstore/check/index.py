"""Check IndexFiles: their chains, and each unit against the record it points to.

Units lie in log order, so they are read along with the records and compared as they come. In
memory are one file's slots (20 MB in a broker's default size) and a chunk of units.
"""

from collections.abc import Iterator, Sequence
from typing import Final

import numpy as np

from mqstore.check.causes import Causes
from mqstore.check.finding import SHOWN, WARNING, FindingPlace, Findings
from mqstore.codec.dispatch import DispatchRecords, record_keys
from mqstore.derive.index_chains import ChainedUnits, ChainWalk, IndexUnits
from mqstore.derive.index_epochs import IndexEpochs
from mqstore.derive.index_keys import AlignedUnits, IndexUnitStream
from mqstore.errors import StoreError
from mqstore.files.config.epochs import load_epochs
from mqstore.files.index.index_file import IndexFile
from mqstore.files.store import Store
from mqstore.format.arrays import Int64s, Mask
from mqstore.format.index_file import FIRST_UNIT
from mqstore.format.names import INDEX

_NOWHERE: Final = 2**63 - 1
_NO_RECORD: Final = "no record there"


class IndexCheck:
    """Feed it all records in log order, then ``finish``.

    From physical offset ``unfinished`` on, where a commit is under way, no key need be there yet.
    """

    def __init__(
        self, store: Store, findings: Findings, causes: Causes, *, unfinished: int | None = None
    ) -> None:
        self._low = store.log.low
        self._high = _NOWHERE if unfinished is None else unfinished
        self._findings = findings
        self._causes = causes
        self._files = store.index_files
        self._cut = _cut_files(store, self._files)
        self._ends = {file.name: file.end_physical_offset for file in self._files}
        self._units = IndexUnitStream(self._read_all())
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
        for part in self._units.before(high):
            units = AlignedUnits(part, records)
            joined = units.rows << 32 | units.hashes
            right = units.has_record & np.isin(joined, known)
            seen.append(joined[right])
            wrong = self._unexplained(units.places, self._is_live(units.places) & ~right)
            for row in np.flatnonzero(wrong)[:SHOWN].tolist():
                problem = "the record has no such key" if units.has_record[row] else _NO_RECORD
                self._doubt(part.file, part.first + row, problem)
            self._check_times(units, right)
        of_key = records.physical_offsets[keys.rows]
        covered = (of_key >= self._begin) & (of_key < min(self._end, self._high)) & ~keys.is_tag
        found = np.concatenate(seen) if seen else np.zeros(0, np.int64)
        self._missing += int((covered & ~np.isin(known, found)).sum())

    def finish(self) -> None:
        """Report units of no record, and how many keys are in no file."""
        for part in self._units.before(_NOWHERE):
            places = part.units["physical_offset"].astype(np.int64)
            live = self._unexplained(places, self._is_live(places))
            for row in np.flatnonzero(live)[:SHOWN].tolist():
                self._doubt(part.file, part.first + row, _NO_RECORD)
        if self._missing:
            problem = f"{self._missing} keys of messages are in no IndexFile"
            self._findings.warning(FindingPlace(INDEX), problem)

    def _is_live(self, places: Int64s) -> Mask:
        return (places >= self._low) & (places < self._high)

    def _unexplained(self, places: Int64s, wrong: Mask) -> Mask:
        """Count the units of damaged records at their causes; return which others are wrong."""
        self._causes.explain(places[wrong], WARNING)
        return wrong & ~self._causes.covers(places)

    def _check_times(self, units: AlignedUnits, right: Mask) -> None:
        """Check the times of units, and that the header has those of its first and last record."""
        file = units.part.file
        for row in np.flatnonzero(right & units.has_wrong_seconds)[:SHOWN].tolist():
            self._complain(file, units.part.first + row, "time difference is not the record's")
        for edge, row, said_ms in units.wrong_edges():
            if right[row]:
                record_ms = int(units.store_timestamps_ms[row])
                problem = f"{edge}Timestamp is {said_ms}, its record's time {record_ms}"
                self._error(FindingPlace(f"{INDEX}/{file.name}", 0), problem)

    def _read_all(self) -> Iterator[IndexUnits]:
        """Yield the units of all files; check chains and headers on the way."""
        for file in self._files:
            if file.layout is not None:
                walk = ChainWalk(file, file.layout)
                for part in walk.units():
                    self._check_chains(part)
                    yield part
                self._check_head(file, walk)
            elif file.count > FIRST_UNIT:
                problem = "no number of slots and units fits the file's content"
                self._error(FindingPlace(f"{INDEX}/{file.name}"), problem)

    def _check_chains(self, part: ChainedUnits) -> None:
        for wrong, problem in (
            (part.is_broken, "the chain of its slot is broken here"),
            (part.goes_back, "its record is before the last one's"),
        ):
            for row in np.flatnonzero(wrong)[:SHOWN].tolist():
                self._complain(part.file, part.first + row, problem)

    def _check_head(self, file: IndexFile, walk: ChainWalk) -> None:
        """Check slots and header against what the units say."""
        place = FindingPlace(f"{INDEX}/{file.name}")
        last, used = walk.last_physical_offset, walk.slots_used
        if not walk.are_slots_right():
            self._error(place, "slots do not point to the newest units")
        if file.count > FIRST_UNIT and file.end_physical_offset != last:
            problem = f"the last record is at {last}, the header says {file.end_physical_offset}"
            self._error(place, problem)
        said = int(file.header["hash_slot_count"])
        if said != used:
            self._findings.warning(place, f"{used} slots are in use, the header says {said}")

    def _doubt(self, file: IndexFile, number: int, problem: str) -> None:
        # Records that a broker cut off keep their keys, and every look-up checks the record again.
        self._findings.warning(FindingPlace(f"{INDEX}/{file.name}"), f"unit {number}: {problem}")

    def _complain(self, file: IndexFile, number: int, problem: str) -> None:
        self._error(FindingPlace(f"{INDEX}/{file.name}"), f"unit {number}: {problem}")

    def _error(self, place: FindingPlace, problem: str) -> None:
        # A commit under way may have written half of the last file, and completes it; a replica
        # that cut its log cuts no IndexFile.
        underway = self._high < _NOWHERE and place.file == f"{INDEX}/{self._files[-1].name}"
        is_cut = place.file.removeprefix(f"{INDEX}/") in self._cut
        report = self._findings.warning if underway or is_cut else self._findings.error
        report(place, problem)


def _cut_files(store: Store, files: Sequence[IndexFile]) -> frozenset[str]:
    """Return the names of files that a replica, or what it was a copy of, kept when it was cut."""
    try:
        known = IndexEpochs(store.log, load_epochs(store.place))
    except StoreError:  # Reported.
        return frozenset(file.name for file in files)
    return frozenset(file.name for file in files if known.covered(file) is None)
