"""IndexFiles, read: from the hash of a key to the places of records that may have it.

An IndexFile does not tell how many slots it has: its size is 4 S + 20 N + 40 for many S and N.
The layout is the one under which the newest unit is where its own slot says.

Reference: org.apache.rocketmq.store.index.IndexFile#selectPhyOffset, IndexService#queryOffset.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import Final

import numpy as np

from mqstore.errors import CorruptStoreError
from mqstore.files.base.file_sizes import Layout
from mqstore.files.base.read_file import ReadFile
from mqstore.files.base.store_dir import StoreDir
from mqstore.format import names
from mqstore.format.arrays import Bytes, Int32s, Int64s, Structs
from mqstore.format.index_file import (
    FIRST_UNIT,
    HEADER,
    MAX_HASH_SLOT_NUM,
    MAX_INDEX_NUM,
    SLOT,
    UNIT,
    file_size,
)

_SEARCHED_BYTES: Final = 64 * 1024 * 1024  # Odd layouts are looked for in files up to this size.
_MOST_TRIED: Final = 16  # Of 400 files with any keys 68 fitted another layout too, none over four.
_MAX_SECONDS: Final = 2**31 - 1
_USUAL_RATIO: Final = MAX_INDEX_NUM // MAX_HASH_SLOT_NUM


@dataclass(frozen=True)
class IndexFile:
    """One file of index/. Nothing is held open between calls."""

    place: StoreDir
    name: str
    size: int

    @property
    def path(self) -> str:
        """The file's path with the store's root."""
        return f"{self.place.root}/{names.INDEX}/{self.name}"

    def open(self) -> ReadFile:
        """Return the file, open for reading. Raises FileNotFoundError, UnsafePathError."""
        return self.place.folder.open(f"{names.INDEX}/{self.name}")

    @cached_property
    def header(self) -> np.void:
        """The file's header; all zero where the file is too short to have one."""
        data = self._read(0, HEADER.itemsize)
        header: np.void = np.frombuffer(data.ljust(HEADER.itemsize, b"\0"), HEADER)[0]
        return header

    @property
    def count(self) -> int:
        """Units in use, counting the unused unit 0: the number of the next one."""
        return int(self.header["index_count"])

    @cached_property
    def layout(self) -> Layout | None:
        """How the file is cut into slots and units; None if no layout fits its content."""
        if self.count <= FIRST_UNIT:
            return None
        even, rest = divmod(
            self.size - HEADER.itemsize, SLOT.itemsize + _USUAL_RATIO * UNIT.itemsize
        )
        usual = Layout(even, even * _USUAL_RATIO)
        small = self.size <= _SEARCHED_BYTES
        sure = not rest and self.fits(usual)
        if small:
            sure = sure and self._agrees(usual, self._read(0, self.size))
            return usual if sure else self._search()
        return usual if sure else None

    def find(self, key_hash: int) -> Iterator[int]:
        """Yield the physical offsets put under ``key_hash``, newest first.

        Hashes collide: look into each record whether it has the key. A chain that does not
        go strictly back ends, as a broken one would never.
        """
        yield from self.search(key_hash)[0]

    def search(self, key_hash: int) -> tuple[list[int], bool]:
        """Return what ``find`` yields, and whether all units on the way to it are sound.

        They are in the slot of their hash, say a place that the header has, and none lies behind
        that of the unit after it. A unit that says that none was before it is believed.
        """
        layout = self.layout
        if layout is None:
            return [], False
        low, above = int(self.header["begin_physical_offset"]), self.end_physical_offset
        found, number = [], self._head(layout, key_hash % layout.slots)
        is_sound = number < self.count
        for number, unit in self._chain(key_hash):
            place, its_hash = int(unit["physical_offset"]), int(unit["key_hash"])
            before = int(unit["previous"])
            is_sound &= its_hash >= 0 and its_hash % layout.slots == key_hash % layout.slots
            is_sound &= low <= place <= above and 0 <= before < number
            above = min(above, place)
            if its_hash == key_hash:
                found.append(place)
        return found, is_sound

    def chain(self, key_hash: int) -> Iterator[int]:
        """Yield the numbers of the units in the slot of ``key_hash``, newest first."""
        for number, _ in self._chain(key_hash):
            yield number

    def units(self, start: int, end: int) -> Structs:
        """Return the units numbered [start, end), big-endian; fewer where the file ends."""
        layout = self.layout
        if layout is None:
            return np.empty(0, UNIT)
        data = self._read(file_size(layout.slots, start), (end - start) * UNIT.itemsize)
        return np.frombuffer(data, UNIT, len(data) // UNIT.itemsize)

    def _chain(self, key_hash: int) -> Iterator[tuple[int, np.void]]:
        layout = self.layout
        if layout is None:
            return
        opened = self.open()
        try:
            number = self._slot(opened, key_hash % layout.slots)
            last = min(self.count, layout.units)
            while FIRST_UNIT <= number < last:
                last = number
                unit = self._unit(opened, layout, number)
                yield number, unit
                number = int(unit["previous"])
        finally:
            opened.close()

    def fits(self, layout: Layout) -> bool:
        """Tell whether the newest unit, under ``layout``, is where its own slot says."""
        newest = self.count - 1
        if not (layout.slots > 0 and newest < layout.units):
            return False
        if file_size(layout.slots, layout.units) != self.size:
            return False
        opened = self.open()
        try:
            unit = self._unit(opened, layout, newest)
            key_hash = int(unit["key_hash"])
            # Zeros look like a key of hash 0 of the record at 0: they are units not used yet.
            return (
                bool(unit.tobytes().strip(b"\0"))
                and key_hash >= 0
                and int(unit["previous"]) < newest
                and self._slot(opened, key_hash % layout.slots) == newest
            )
        finally:
            opened.close()

    def _search(self) -> Layout | None:
        """Try every S there can be: the newest unit of each is the next 20 bytes of the file."""
        newest = self.count - 1
        words = (self.size - HEADER.itemsize) // SLOT.itemsize
        least = words % (UNIT.itemsize // SLOT.itemsize)
        data = self._read(0, self.size)
        first = file_size(least, newest)
        count = (len(data) - first) // UNIT.itemsize if len(data) > first else 0
        if count <= 0:
            return None
        units = np.frombuffer(data, UNIT, count, first)
        slots = least + np.arange(count) * (UNIT.itemsize // SLOT.itemsize)
        hashes = units["key_hash"].astype(np.int64)
        table = np.frombuffer(data, SLOT, words, HEADER.itemsize)
        points = table[hashes % np.maximum(slots, 1)] == newest
        low, high = int(self.header["begin_physical_offset"]), self.end_physical_offset
        held = (units["physical_offset"] >= low) & (units["physical_offset"] <= high)
        fits = points & held & (hashes >= 0) & (slots > 0) & (units["previous"] < newest)
        fits &= units != np.zeros((), UNIT)
        layouts = (
            Layout(found, (self.size - file_size(found, 0)) // UNIT.itemsize)
            for found in slots[fits][:_MOST_TRIED].tolist()
        )
        return next((layout for layout in layouts if self._agrees(layout, data)), None)

    def _agrees(self, layout: Layout, data: bytes) -> bool:
        """Tell whether every slot in use points at a unit that falls into it."""
        units = np.frombuffer(data, UNIT, self.count, file_size(layout.slots, 0))
        table = np.frombuffer(data, SLOT, layout.slots, HEADER.itemsize)
        used = np.flatnonzero(table)
        heads = table[used]
        if len(used) != int(self.header["hash_slot_count"]) or units[0].tobytes().strip(b"\0"):
            return False
        if not bool(((heads > 0) & (heads < self.count)).all()):
            return False
        empty = units[FIRST_UNIT:] == np.zeros((), UNIT)
        return not empty.any() and bool((units["key_hash"][heads] % layout.slots == used).all())

    @property
    def end_physical_offset(self) -> int:
        """Place of the record whose key was put last."""
        return int(self.header["end_physical_offset"])

    def _slot(self, opened: ReadFile, slot: int) -> int:
        data = opened.read(SLOT.itemsize, HEADER.itemsize + slot * SLOT.itemsize)
        return int.from_bytes(data, signed=True) if len(data) == SLOT.itemsize else 0

    def _head(self, layout: Layout, slot: int) -> int:
        assert 0 <= slot < layout.slots
        opened = self.open()
        try:
            return self._slot(opened, slot)
        finally:
            opened.close()

    def _unit(self, opened: ReadFile, layout: Layout, number: int) -> np.void:
        data = opened.read(UNIT.itemsize, file_size(layout.slots, number))
        unit: np.void = np.frombuffer(data.ljust(UNIT.itemsize, b"\0"), UNIT)[0]
        return unit

    def _read(self, position: int, size: int) -> bytes:
        opened = self.open()
        try:
            return opened.read(size, position)
        finally:
            opened.close()


def list_index_files(place: StoreDir) -> list[IndexFile]:
    """Return the files of index/, oldest first; empty ones and other names are left out."""
    try:
        entries = place.folder.entries(names.INDEX)
    except (FileNotFoundError, NotADirectoryError):
        return []
    return [
        IndexFile(place, entry.name, entry.size)
        for entry in entries
        if not entry.is_directory and entry.size and names.is_index_file_name(entry.name)
    ]


def other_layout(file: IndexFile, layout: Layout) -> CorruptStoreError:
    """Return the error for a file that does not have ``layout``, the one of the store's."""
    reason = (
        f"not an IndexFile of {layout.slots} slots and {layout.units} units: give "
        "maxHashSlotNum and maxIndexNum as in broker.conf, or set buildIndex=false"
    )
    return CorruptStoreError(file.path, 0, reason)


def read_slots(file: IndexFile, layout: Layout) -> Int32s:
    """Return all slots. Raises CorruptStoreError if the file ends before they do."""
    slots = np.empty(layout.slots, SLOT)
    _read_into(file, slots.view(np.uint8), HEADER.itemsize)
    return slots.astype(np.int32)


def read_slot_pages(file: IndexFile, slots: Int32s, pages: Int64s, page_slots: int) -> None:
    """Read those pages of ``page_slots`` slots each, ascending, into ``slots``.

    Raises CorruptStoreError if the file ends before they do.
    """
    runs = np.split(pages, np.flatnonzero(np.diff(pages) != 1) + 1)
    opened = file.open()
    try:
        for run in runs:
            begin, end = int(run[0]) * page_slots, (int(run[-1]) + 1) * page_slots
            size = min(end, len(slots)) - begin
            position = HEADER.itemsize + begin * SLOT.itemsize
            data = opened.read(size * SLOT.itemsize, position)
            if len(data) < size * SLOT.itemsize:
                raise CorruptStoreError(file.path, position, "the file ends here")
            slots[begin:end] = np.frombuffer(data, SLOT)
    finally:
        opened.close()


def read_units(file: IndexFile, layout: Layout, most: int) -> Iterator[tuple[int, Structs]]:
    """Yield the units in use, at most ``most`` at a time, each time with the first one's number."""
    end = min(file.count, layout.units)
    for first in range(FIRST_UNIT, end, most):
        units = np.empty(min(most, end - first), UNIT)
        _read_into(file, units.view(np.uint8), file_size(layout.slots, first))
        yield first, units


def chain(slots: Int32s, places: Int64s, numbers: Int64s) -> tuple[Int64s, int]:
    """Put units into ``slots``, in place; return each one's previous and slots newly used.

    ``places`` are the slots that the units numbered ``numbers`` fall into.
    """
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


def time_differences_s(store_timestamps_ms: Int64s, begin_timestamp_ms: int) -> Int64s:
    """Return whole seconds after a file's begin, at least 0; 0 too if the file has no begin.

    Reference: IndexFile#putKey.
    """
    if begin_timestamp_ms <= 0:
        return np.zeros_like(store_timestamps_ms)
    return np.clip((store_timestamps_ms - begin_timestamp_ms) // 1000, 0, _MAX_SECONDS)


def _read_into(file: IndexFile, into: Bytes, position: int) -> None:
    opened = file.open()
    try:
        done = opened.read_into(into.data, position)
    finally:
        opened.close()
    if done < len(into):
        raise CorruptStoreError(file.path, position + done, "the file ends here")
