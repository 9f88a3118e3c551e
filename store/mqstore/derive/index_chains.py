"""The chains of IndexFiles, followed: which units of a file can be believed.

Reference: IndexFile#putKey (each unit says which one was in its slot before it), IndexService#load.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

import numpy as np

from mqstore.files.base.file_sizes import Layout
from mqstore.files.index.index_file import (
    IndexFile,
    chain,
    other_layout,
    read_slots,
    read_units,
)
from mqstore.files.index.index_repair import place_of, units_of
from mqstore.format.arrays import Mask, Structs
from mqstore.format.index_file import FIRST_UNIT, UNIT, file_size

INDEX_CHUNK_UNITS: Final = 50_000


@dataclass(frozen=True, slots=True)
class IndexUnits:
    """Units of one IndexFile that follow each other, from number ``first`` on."""

    file: IndexFile
    first: int
    units: Structs


@dataclass(frozen=True, slots=True)
class ChainedUnits(IndexUnits):
    """Units as they lie, and which of them break a rule."""

    is_broken: Mask
    """The previous unit is not the one that was in the slot, or the hash is negative."""
    goes_back: Mask
    """The record lies before that of the unit before."""


class ChainWalk:
    """Follows all chains of one file, with slots of its own: 20 MB in a broker's default size."""

    def __init__(self, file: IndexFile, layout: Layout) -> None:
        self._file = file
        self._layout = layout
        self._slots = np.zeros(layout.slots, np.int32)
        self.slots_used = 0
        self.last_physical_offset = -1

    def units(self) -> Iterator[ChainedUnits]:
        """Yield all units, some thousand at a time. Raises CorruptStoreError, OSError."""
        for first, units in read_units(self._file, self._layout, INDEX_CHUNK_UNITS):
            numbers = np.arange(first, first + len(units))
            hashes = units["key_hash"].astype(np.int64)
            previous, newly_used = chain(self._slots, hashes % self._layout.slots, numbers)
            self.slots_used += newly_used
            places = units["physical_offset"].astype(np.int64)
            goes_back = np.diff(places, prepend=self.last_physical_offset) < 0
            self.last_physical_offset = int(places[-1])
            is_broken = (units["previous"] != previous) | (hashes < 0)
            yield ChainedUnits(self._file, first, units, is_broken, goes_back)

    def are_slots_right(self) -> bool:
        """Tell whether the file's slots are those of the units that were walked."""
        return np.array_equal(self._slots, read_slots(self._file, self._layout))


@dataclass(frozen=True, slots=True)
class SoundPart:
    """The units of an IndexFile that can be believed."""

    file: IndexFile
    count: int
    """Those before this number can, counting the unused unit 0."""
    is_whole: bool
    """All of the file's units can, and so can its slots and its header."""

    @classmethod
    def none(cls, file: IndexFile) -> "SoundPart":
        """Return the part of a file of which nothing can be believed."""
        return cls(file, FIRST_UNIT, is_whole=False)


def sound_parts(files: list[IndexFile], layout: Layout, start: int) -> list[SoundPart]:
    """Examine, of all files, those with units of records from ``start`` on, and the one before.

    Behind a unit that is wrong no unit can be believed. Raises CorruptStoreError where no file is
    of that layout.
    """
    if files and not any(_has_size(file, layout) for file in files):
        raise other_layout(files[-1], layout)
    found: list[SoundPart] = []
    for file in reversed(files):
        part = sound_part(file, layout)
        if part.count < file.count:
            found = [SoundPart.none(later.file) for later in found]
        found.insert(0, part)
        if part.count > FIRST_UNIT and place_of(file, layout, FIRST_UNIT) < start:
            break
    return _in_order(found, layout)


def sound_part(file: IndexFile, layout: Layout) -> SoundPart:
    """Follow all chains of a file: where they do not lead back, its units end."""
    if not _has_size(file, layout):
        return SoundPart.none(file)
    walk, count = ChainWalk(file, layout), FIRST_UNIT
    for part in walk.units():
        # Zeros look like a key of hash 0 of the record at 0: they are units not written yet.
        wrong = part.is_broken | part.goes_back | (part.units == np.zeros((), UNIT))
        if wrong.any():
            return SoundPart(file, part.first + int(np.argmax(wrong)), is_whole=False)
        count = part.first + len(part.units)
    unused = units_of(file, layout, 0, FIRST_UNIT).tobytes() == bytes(UNIT.itemsize)
    is_whole = unused and walk.are_slots_right() and _is_header_right(file.header, count, walk)
    return SoundPart(file, count, is_whole=is_whole)


def _is_header_right(header: np.void, count: int, walk: ChainWalk) -> bool:
    if int(header["hash_slot_count"]) != walk.slots_used:
        return False
    end = int(header["end_physical_offset"])
    if count == FIRST_UNIT:  # Just made: both ends are that of the file before.
        return int(header["begin_physical_offset"]) == end and int(header["index_count"]) <= count
    return (int(header["index_count"]), end) == (count, walk.last_physical_offset)


def _in_order(found: list[SoundPart], layout: Layout) -> list[SoundPart]:
    """Believe no file whose first record is before the last of the file before."""
    last = -1
    for number, part in enumerate(found):
        if part.count > FIRST_UNIT:
            if place_of(part.file, layout, FIRST_UNIT) < last:
                return [*found[:number], *(SoundPart.none(p.file) for p in found[number:])]
            last = place_of(part.file, layout, part.count - 1)
    return found


def _has_size(file: IndexFile, layout: Layout) -> bool:
    return file.size == file_size(layout.slots, layout.units)
