"""Check IndexFiles: their chains, and each unit against the record it points to.

Units lie in log order, so they are read along with the records and compared as they come. In
memory are one file's slots (20 MB in a broker's default size) and a chunk of units.
"""

from collections.abc import Iterator
from typing import Final, TypeAlias

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from mqstore.check.finding import Findings, Place
from mqstore.check.log import Records
from mqstore.codec.hashing import hash_strings, hash_text, key_hashes
from mqstore.files.index_file import IndexFile, Layout, list_index_files
from mqstore.files.index_units import read_slots, read_units
from mqstore.format.index_file import FIRST_UNIT, KEY_SEPARATOR, TAG_KEY_PREFIX
from mqstore.format.names import INDEX
from mqstore.format.properties import KEY_SEPARATOR as SPACE
from mqstore.format.properties import KEYS, TAGS, UNIQ_KEY
from mqstore.format.sys_flag import TRANSACTION_ROLLBACK

Int64s: TypeAlias = NDArray[np.int64]
Units: TypeAlias = NDArray[np.void]

_CHUNK_UNITS: Final = 50_000
_SHOWN: Final = 10
_MAX_SECONDS: Final = 2**31 - 1


class IndexCheck:
    """Feed it all records in log order, then ``finish``."""

    def __init__(self, root: str, low: int, findings: Findings) -> None:
        self._root = root
        self._low = low
        self._findings = findings
        self._files = list_index_files(root)
        self._ends = {file.name: file.end_physical_offset for file in self._files}
        self._stream = self._read_all()
        self._held: list[tuple[IndexFile, int, Units]] = []
        begins = [int(file.header["begin_physical_offset"]) for file in self._files]
        self._begin = min(begins, default=0)
        self._end = max(self._ends.values(), default=-1)
        self._missing = 0

    def feed(self, records: Records) -> None:
        """Compare the units of these records with the keys the records have."""
        if not self._files or not len(records.physical_offsets):
            return
        high = int(records.physical_offsets[-1]) + 1
        owners, hashes, needed = _keys(records)
        known = owners << 32 | hashes
        seen: list[Int64s] = []
        for file, first, units in self._until(high):
            places = units["physical_offset"].astype(np.int64)
            live = places >= self._low
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
        covered = (records.physical_offsets[owners] >= self._begin) & (
            records.physical_offsets[owners] < self._end
        )
        found = np.concatenate(seen) if seen else np.zeros(0, np.int64)
        self._missing += int((covered & needed & ~np.isin(known, found)).sum())

    def finish(self) -> None:
        """Report what the records did not ask for, and keys that are in no file."""
        for file, first, units in self._until(2**63 - 1):
            live = units["physical_offset"].astype(np.int64) >= self._low
            for unit in np.flatnonzero(live)[:_SHOWN].tolist():
                self._doubt(file, first + unit, "no record there")
        if self._missing:
            problem = f"{self._missing} keys of messages are in no IndexFile"
            self._findings.warning(Place(INDEX), problem)

    def _check_seconds(
        self, file: IndexFile, first: int, units: Units, moments: Int64s, right: NDArray[np.bool_]
    ) -> None:
        begin = int(file.header["begin_timestamp_ms"])
        expected = np.clip((moments - begin) // 1000, 0, _MAX_SECONDS) if begin > 0 else 0 * moments
        numbers = np.arange(first, first + len(units))
        # The first unit of a file is measured from the end of the file before it.
        wrong = right & (units["time_diff_s"] != expected) & (numbers > FIRST_UNIT)
        for unit in np.flatnonzero(wrong)[:_SHOWN].tolist():
            self._complain(file, first + unit, "time difference is not the record's")

    def _until(self, high: int) -> Iterator[tuple[IndexFile, int, Units]]:
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

    def _read_all(self) -> Iterator[tuple[IndexFile, int, Units]]:
        for file in self._files:
            if file.layout is None:
                if file.count > FIRST_UNIT:
                    problem = "no number of slots and units fits the file's content"
                    self._findings.error(Place(f"{INDEX}/{file.name}"), problem)
                continue
            yield from self._read_file(file, file.layout)

    def _read_file(self, file: IndexFile, layout: Layout) -> Iterator[tuple[IndexFile, int, Units]]:
        """Yield the units of one file; check its chains on the way."""
        slots = np.zeros(layout.slots, np.int32)
        used = 0
        for first, units in read_units(file, layout, _CHUNK_UNITS):
            numbers = np.arange(first, first + len(units))
            places = units["key_hash"].astype(np.int64) % layout.slots
            expected, newly = _chain(slots, places, numbers)
            used += newly
            wrong = (units["previous"] != expected) | (units["key_hash"] < 0)
            for unit in np.flatnonzero(wrong)[:_SHOWN].tolist():
                self._complain(file, first + unit, "the chain of its slot is broken here")
            yield file, first, units
        place = Place(f"{INDEX}/{file.name}")
        if not np.array_equal(slots, read_slots(file, layout)):
            self._findings.error(place, "slots do not point to the newest units")
        if int(file.header["hash_slot_count"]) != used:
            told = int(file.header["hash_slot_count"])
            self._findings.warning(place, f"{used} slots are in use, the header says {told}")

    def _doubt(self, file: IndexFile, number: int, problem: str) -> None:
        # Records that a broker cut off keep their keys, and every look-up asks the record again.
        self._findings.warning(Place(f"{INDEX}/{file.name}"), f"unit {number}: {problem}")

    def _complain(self, file: IndexFile, number: int, problem: str) -> None:
        place = Place(f"{INDEX}/{file.name}")
        self._findings.error(place, f"unit {number}: {problem}")


def _chain(slots: NDArray[np.int32], places: Int64s, numbers: Int64s) -> tuple[Int64s, int]:
    """Put units into ``slots``, in place; return each one's previous and slots newly used."""
    order = np.argsort(places, kind="stable")
    ordered = places[order]
    heads = np.ones(len(order), np.bool_)
    heads[1:] = ordered[1:] != ordered[:-1]
    previous = np.empty(len(order), np.int64)
    previous[1:] = numbers[order][:-1]
    before = slots[ordered[heads]].astype(np.int64)
    previous[heads] = before
    tails = np.append(heads[1:], True)
    slots[ordered[tails]] = numbers[order][tails]
    unsorted = np.empty(len(order), np.int64)
    unsorted[order] = previous
    return unsorted, int((before == 0).sum())


def _keys(records: Records) -> tuple[Int64s, Int64s, NDArray[np.bool_]]:
    """Return row and hash of every key of the records, and whether every broker indexes it."""
    known = [str(name) for name in records.topics.dictionary.to_pylist()]
    topics = records.topics.indices.to_numpy(zero_copy_only=False)
    indexed = records.transactions != TRANSACTION_ROLLBACK
    plain = np.array([hash_text(f"{n}{KEY_SEPARATOR}") for n in known], np.uint32)
    tagged = np.array([hash_text(f"{n}{KEY_SEPARATOR}{TAG_KEY_PREFIX}") for n in known], np.uint32)
    owners, hashes, needed = [], [], []
    for name, prefixes, always in (
        (UNIQ_KEY, plain, True),
        (KEYS, plain, True),
        (TAGS, tagged, False),
    ):
        rows, strings = _words(records.properties.column(name), split=name == KEYS)
        kept = indexed[rows]
        rows, strings = rows[kept], strings.filter(pa.array(kept))
        hashed = hash_strings(strings).after(prefixes[topics[rows]]).values
        owners.append(rows)
        hashes.append(key_hashes(hashed).astype(np.int64))
        needed.append(np.full(len(rows), always))
    return np.concatenate(owners), np.concatenate(hashes), np.concatenate(needed)


def _words(column: pa.StringArray, *, split: bool) -> tuple[Int64s, pa.StringArray]:
    rows = np.flatnonzero(column.is_valid().to_numpy(zero_copy_only=False))
    present = column.drop_null()
    if split:
        lists = pc.split_pattern(present, SPACE)
        rows = rows[pc.list_parent_indices(lists).to_numpy(zero_copy_only=False)]
        present = lists.flatten()
        filled = pc.greater(pc.binary_length(present), 0)
        rows, present = rows[filled.to_numpy(zero_copy_only=False)], present.filter(filled)
    return rows, present
