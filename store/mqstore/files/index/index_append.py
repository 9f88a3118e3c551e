"""Append to IndexFiles: key hashes of records, in log order, rolling where a file is full.

The chains are built for many keys at once: sorted by slot, each key's ``previous`` is its
neighbour, or what the slot held before.

Reference: IndexFile#putKey, IndexService#getAndCreateLastIndexFile (a rolled file starts with
the end of the one before).
"""

import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np

from mqstore.files.base import durable
from mqstore.files.base.file_sizes import Layout
from mqstore.files.base.new_file import NewFile, opened, reserve_in
from mqstore.files.base.store_writer import StoreWriter
from mqstore.files.index.index_file import (
    IndexFile,
    list_index_files,
    other_layout,
    read_slot_pages,
    time_differences_s,
)
from mqstore.format.arrays import Int32s, Int64s, Mask, Structs
from mqstore.format.index_file import FIRST_UNIT, HEADER, SLOT, UNIT, file_size
from mqstore.format.names import INDEX

NextName: TypeAlias = Callable[[], str]

_PAGE_SLOTS = 1024  # slots of a 4 KiB page: what is read and kept together
_RUN_PAGES = 256  # of neighbours at most are written together
_IN_ORDER_LATER = -1  # Stands in a slot of several new keys until they are in order.
_NUMBER_BITS = 31  # of a key among those put at once; a slot's number takes as many


@dataclass(frozen=True, slots=True)
class IndexKeys:
    """Keys to index, in log order: each one's hash, its record's place and store time."""

    hashes: Int32s
    physical_offsets: Int64s
    store_timestamps_ms: Int64s

    def __len__(self) -> int:
        return len(self.hashes)

    def cut(self, start: int, end: int) -> "IndexKeys":
        """Return keys [start, end)."""
        part = slice(start, end)
        return IndexKeys(
            self.hashes[part], self.physical_offsets[part], self.store_timestamps_ms[part]
        )


class IndexAppender:
    """Puts keys into the last IndexFile of a store and into new ones.

    Raises CorruptStoreError if the last file is not of the layout in the writer's sizes.
    """

    def __init__(self, writer: StoreWriter) -> None:
        self._writer = writer
        self._layout = layout = writer.sizes.index
        self._new: list[NewFile] = []
        files = list_index_files(writer.place)
        self._last = _open_file(files[-1], layout) if files else None

    @property
    def last_name(self) -> str:
        """Name of the last file; empty if there is none."""
        return self._last.name if self._last else ""

    @property
    def last_physical_offset(self) -> int | None:
        """Place of the last record in the index; None if there is none."""
        last = self._last
        full = last is not None and last.count > FIRST_UNIT
        return int(last.header["end_physical_offset"]) if last and full else None

    def end_file(self) -> None:
        """Let the next key begin a new file, whatever room the last one has."""
        if self._last:
            self._last.units_max = 0

    def reserve(self, key_count: int) -> None:
        """Reserve disk space for the next ``key_count`` keys. Nothing visible changes."""
        left = key_count
        if self._last:
            room = min(left, self._last.room)
            path, layout = self._path(self._last), self._layout
            size = file_size(layout.slots, layout.units)
            slots_end = file_size(layout.slots, 0)
            if room:
                begin = file_size(layout.slots, self._last.count)
                reserve_in(path, 0, slots_end, file_size=size)
                reserve_in(path, begin, room * UNIT.itemsize, file_size=size)
            left -= room
        while left > 0:
            new = NewFile(self._writer, file_size(self._layout.slots, self._layout.units))
            keys = min(left, self._layout.units - FIRST_UNIT)
            new.reserve(0, file_size(self._layout.slots, FIRST_UNIT + keys))
            self._new.append(new)
            left -= keys

    def append(self, keys: IndexKeys, next_name: NextName) -> None:
        """Put ``keys`` into the last file, going on in new ones where it is full."""
        done = 0
        while done < len(keys):
            if self._last is None or not self._last.room:
                self._roll(next_name())
            assert self._last is not None
            count = min(self._last.room, len(keys) - done)
            kept = not self._writer.undo.is_ended
            self._last.put(keys.cut(done, done + count), kept=kept)
            self._write_units()
            done += count

    def close(self) -> None:
        """Write header and slots of the last file, durably."""
        if self._last and self._last.dirty:
            self._write_head(self._last)
            self._last.dirty = False

    def _roll(self, name: str) -> None:
        before = self._last
        if before:
            self.close()
        self._writer.make_directories(INDEX)
        made, new = _new_file(name, self._layout, before), self._new.pop(0)
        # A later appender of the file needs how it began, as in a file that a broker rolled.
        new.write(made.header.tobytes(), 0)
        new.put(self._path(made))
        self._last = made

    def _write_units(self) -> None:
        file = self._last
        assert file is not None
        path = self._path(file)
        if not file.dirty:
            self._remember(file, path)
        file.dirty = True
        position = file_size(self._layout.slots, file.first_pending)
        with opened(path) as fd:
            durable.write_at(fd, file.pending.view(np.uint8).data, position)

    def _remember(self, file: "_OpenFile", path: str) -> None:
        """Keep what the file's header and slots are, and where its units end."""
        end = file_size(self._layout.slots, file.first_pending)

        def restore() -> None:
            with opened(path) as fd:
                durable.write_at(fd, file.header_before, 0)
                for page, before in file.pages_before.items():
                    durable.write_at(fd, before, _slot_position(page * _PAGE_SLOTS))
                used = file_size(self._layout.slots, file.count)
                durable.write_zeros(fd, end, used - end)
                durable.fsync(fd)

        self._writer.undo.remember(restore)

    def _write_head(self, file: "_OpenFile") -> None:
        # Units, then header, then slots, each durable before the next: a slot that points past
        # index_count counts as empty, so that a crash between them loses no older key.
        with opened(self._path(file)) as fd:
            durable.fsync(fd)
            durable.write_at(fd, file.header.tobytes(), 0)
            durable.fsync(fd)
            for first, slots in file.changed_slots():
                durable.write_at(fd, slots, _slot_position(first))
            durable.fsync(fd)

    def _path(self, file: "_OpenFile") -> str:
        return self._writer.path(f"{INDEX}/{file.name}")


class _OpenFile:
    """The last IndexFile: its header and the slots read so far in memory, its units on disk."""

    def __init__(
        self, name: str, header: Structs, slot_count: int, source: IndexFile | None
    ) -> None:
        """``source`` has the slots; None if they are all empty."""
        self.name = name
        self.header = header
        self.slots = np.zeros(slot_count, np.int32)
        self._source = source
        self._is_read = np.full(-(-slot_count // _PAGE_SLOTS), source is None)
        self.units_max = 0
        self.dirty = False
        self.header_before = header.tobytes()
        self.pending = np.zeros(0, UNIT)
        self.first_pending = self.count
        self.pages_before: dict[int, bytes] = {}
        """Pages of slots that were changed, as they were, where that may be taken back."""
        self._is_changed = np.zeros(len(self._is_read), np.bool_)

    @property
    def count(self) -> int:
        """Number of the next unit."""
        return int(self.header["index_count"])

    @property
    def room(self) -> int:
        """Keys that still fit."""
        return max(0, self.units_max - self.count)

    def page(self, page: int) -> bytes:
        """Return a page of slots as it lies on disk."""
        begin = page * _PAGE_SLOTS
        return self.slots[begin : begin + _PAGE_SLOTS].astype(SLOT).tobytes()

    def changed_slots(self) -> Iterator[tuple[int, bytes]]:
        """Yield changed pages as they lie on disk, neighbours together: first slot, bytes."""
        pages = np.flatnonzero(self._is_changed)
        for run in np.split(pages, np.flatnonzero(np.diff(pages) > 1) + 1):
            for part in np.split(run, range(_RUN_PAGES, len(run), _RUN_PAGES)):
                begin, end = int(part[0]) * _PAGE_SLOTS, (int(part[-1]) + 1) * _PAGE_SLOTS
                yield begin, self.slots[begin:end].astype(SLOT).tobytes()

    def put(self, keys: IndexKeys, *, kept: bool) -> None:
        """Chain ``keys`` and leave their units in ``pending``; ``kept``: it may be taken back."""
        is_used = np.zeros_like(self._is_read)
        is_used[keys.hashes.astype(np.int64) % len(self.slots) // _PAGE_SLOTS] = True
        pages = np.flatnonzero(is_used)
        self._read_pages(pages)
        for page in pages[~self._is_changed[pages]].tolist() if kept else ():
            self.pages_before[page] = self.page(page)
        self._is_changed[pages] = True
        first, places = self.count, (keys.physical_offsets, self._seconds(keys.store_timestamps_ms))
        units, used = _chain(keys.hashes, places, self.slots, first)
        self.pending, self.first_pending = units, first
        self._count(keys, used=used)

    def _read_pages(self, pages: Int64s) -> None:
        missing = pages[~self._is_read[pages]]
        if self._source is not None and len(missing):
            read_slot_pages(self._source, self.slots, missing, _PAGE_SLOTS)
            self._is_read[missing] = True

    def _seconds(self, moments_ms: Int64s) -> Int64s:
        """Return whole seconds after the file's begin.

        As the broker does: the first unit of a file is measured from the begin that the file
        was made with (the end of the one before, or 0 for none), all others from its own time.
        """
        made = int(self.header["begin_timestamp_ms"])
        begin = made if self.count > FIRST_UNIT else int(moments_ms[0])
        seconds = time_differences_s(moments_ms, begin)
        if self.count <= FIRST_UNIT:
            seconds[0] = time_differences_s(moments_ms[:1], made)[0]
        return seconds

    def _count(self, keys: IndexKeys, *, used: int) -> None:
        if self.count <= FIRST_UNIT:
            self.header["begin_physical_offset"] = keys.physical_offsets[0]
            self.header["begin_timestamp_ms"] = keys.store_timestamps_ms[0]
        self.header["end_physical_offset"] = keys.physical_offsets[-1]
        self.header["end_timestamp_ms"] = keys.store_timestamps_ms[-1]
        self.header["hash_slot_count"] += used
        self.header["index_count"] += len(keys)


def next_name(last: str) -> str:
    """Return a name for an IndexFile made now, later than the ``last`` one's.

    Like a broker's it is in local time: the clock that the names of its other files tell.
    """
    now = time.time_ns() // 1_000_000
    name = time.strftime("%Y%m%d%H%M%S", time.localtime(now // 1000)) + f"{now % 1000:03d}"
    return max(name, f"{int(last) + 1:017d}") if last else name


def _chain(
    hashes: Int32s, places: tuple[Int64s, Int64s], slots: Int32s, first: int
) -> tuple[Structs, int]:
    """Let each slot point at its last key; return the units and how many slots were free."""
    numbers = np.arange(first, first + len(hashes))
    chosen = hashes.astype(np.int64) % len(slots)
    previous = slots[chosen].astype(np.int64)
    # As the broker does: a slot that points outside the file counts as empty. It also follows
    # one that points at the unit to come, which then is its own previous.
    previous[(previous < FIRST_UNIT) | (previous >= first)] = 0
    slots[chosen] = numbers
    # Of keys that share a slot one stands there now, whichever; of each slot one key does.
    stands = slots[chosen] == numbers
    used = int((previous[stands] == 0).sum())
    slots[chosen[~stands]] = _IN_ORDER_LATER
    shared = np.flatnonzero(slots[chosen] == _IN_ORDER_LATER)
    # Place and number in one integer: sorting those is many times faster than argsort.
    both = chosen[shared] << _NUMBER_BITS | shared
    both.sort()
    rows, heads = both & ((1 << _NUMBER_BITS) - 1), _changes(both >> _NUMBER_BITS)
    following = np.flatnonzero(~heads)
    previous[rows[following]] = numbers[rows[following - 1]]
    last = rows[np.roll(heads, -1)]
    slots[chosen[last]] = numbers[last]
    units = np.empty(len(hashes), UNIT)
    units["key_hash"], units["previous"] = hashes, previous
    units["physical_offset"], units["time_diff_s"] = places
    return units, used


def _changes(ascending: Int64s) -> Mask:
    """Tell where a value differs from the one before it; at the first it does."""
    changes = np.ones(len(ascending), np.bool_)
    np.not_equal(ascending[1:], ascending[:-1], out=changes[1:])
    return changes


def _open_file(file: IndexFile, layout: Layout) -> _OpenFile:
    if file.size != file_size(layout.slots, layout.units) or (
        file.count > FIRST_UNIT and not file.fits(layout)
    ):
        raise other_layout(file, layout)
    header = np.array(file.header, HEADER)
    header["index_count"] = max(FIRST_UNIT, file.count)  # A broker notes none before the first.
    opened_file = _OpenFile(file.name, header, layout.slots, file)
    opened_file.units_max = layout.units
    return opened_file


def _new_file(name: str, layout: Layout, before: _OpenFile | None) -> _OpenFile:
    header = np.zeros((), HEADER)
    header["index_count"] = FIRST_UNIT
    if before:
        for edge in ("begin", "end"):
            header[f"{edge}_timestamp_ms"] = before.header["end_timestamp_ms"]
            header[f"{edge}_physical_offset"] = before.header["end_physical_offset"]
    made = _OpenFile(name, header, layout.slots, None)
    made.units_max = layout.units
    return made


def _slot_position(slot: int) -> int:
    return HEADER.itemsize + slot * SLOT.itemsize
