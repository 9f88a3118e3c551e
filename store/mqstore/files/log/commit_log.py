"""The CommitLog: records of all topics, addressed by physical offset; read only.

Records of one queue lie scattered among those of others. ``gather`` fetches many with few
reads: neighbours whose gap is small come in one read, and what it returns is one buffer with
the place of each record in it. Nothing is mapped unless readMode=mmap, and nothing on a network's
file system, so that a file that shrinks or a disk that fails is a short read or an OSError,
never a signal.
"""

import mmap
import os
from collections import Counter, OrderedDict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import Final, NamedTuple

import numpy as np

from mqstore.errors import CorruptStoreError, InvalidOptionError
from mqstore.files.base.directory import Directory, descriptor
from mqstore.files.base.folder import Folder
from mqstore.files.base.mapped_file_queue import MappedFile, MappedFileQueue
from mqstore.files.base.read_file import ReadFile
from mqstore.files.lock.file_system import is_remote
from mqstore.files.log.runs import Run, is_ascending, of_few_files, pieces, runs_of
from mqstore.format.arrays import Bytes, Int64s, Mask
from mqstore.format.message import (
    HARD_RECORD_BYTES,
    HEADER,
    HEADERS,
    HOST_VARIANT_MASK,
    HOST_VARIANT_SHIFT,
    MIN_BLANK_BYTES,
    MIN_RECORD_BYTES,
)

READ_MODES = ("pread", "mmap")
OPEN_FILES: Final = 32
"""At most so many files of a log are open for reading."""
_SCRATCH_BYTES = 48 * 1024 * 1024
_BLOCK_BYTES = 512 * 1024
_FAR_PART_BYTES: Final = 1 << 20
_FAR_BLOCK_BYTES: Final = 8 << 20


@dataclass(frozen=True, slots=True)
class Gathered:
    """Records in memory: record i is ``buffer[starts[i] : starts[i] + size]``.

    Starts ascend and records do not overlap.
    """

    buffer: Bytes
    starts: Int64s


class Block(NamedTuple):
    """Records [first, last) of those asked for, in memory that stands until the next block.

    Record i starts at ``buffer[positions[i - first] - base]``.
    """

    first: int
    last: int
    buffer: Bytes
    positions: Int64s
    base: int


class Scratch:
    """Memory that is used again for every batch: fresh pages cost more than the copy into them."""

    def __init__(self) -> None:
        self._held: Bytes = np.empty(0, np.uint8)
        self._times_taken = 0

    @property
    def times_taken(self) -> int:
        """How often memory was taken: bytes that were read stay valid until the number changes."""
        return self._times_taken

    def take(self, size: int) -> Bytes:
        """Return ``size`` bytes with anything in them; what was taken before is overwritten."""
        self._times_taken += 1
        if size > _SCRATCH_BYTES:
            return np.empty(size, np.uint8)
        if size > len(self._held):
            self._held = np.empty(min(2 * size, _SCRATCH_BYTES), np.uint8)
        return self._held[:size]


class _Fetched(NamedTuple):
    """The records that came last over a network: the same are often wanted twice in a row."""

    physical_offsets: Int64s
    sizes: Int64s
    scratch: Scratch
    times_taken: int
    gathered: Gathered

    def is_of(self, physical_offsets: Int64s, sizes: Int64s, scratch: Scratch | None) -> bool:
        """Tell whether these are the records wanted, and their memory still has them."""
        return (
            scratch is self.scratch
            and scratch.times_taken == self.times_taken
            and np.array_equal(physical_offsets, self.physical_offsets)
            and np.array_equal(sizes, self.sizes)
        )


class CommitLog:
    """Reads a CommitLog as its files stood when it was opened.

    A context manager: it keeps up to 32 descriptors (or mappings) open while records are read.
    """

    def __init__(
        self,
        folders: Sequence[Folder],
        read_mode: str = "pread",
        files: MappedFileQueue | None = None,
    ) -> None:
        """Take ``files`` in place of the mapped files of ``folders``."""
        if read_mode not in READ_MODES:
            raise InvalidOptionError("readMode", read_mode, f"accepted: {', '.join(READ_MODES)}")
        self._folder = folders[0] if folders else Directory("")
        self._is_far = self._folder.is_remote
        self.block_bytes = _FAR_BLOCK_BYTES if self._is_far else _BLOCK_BYTES
        """How many bytes to read at a time: a cache's worth, or what one request is worth."""
        is_near = not (self._is_far or any(is_remote(folder.name) for folder in folders))
        self._mapped = read_mode == "mmap" and is_near
        self.files = files or _without_twins(MappedFileQueue.list(folders))
        self._starts = np.array([file.start for file in self.files.files], np.int64)
        self._ends = np.array([file.end for file in self.files.files], np.int64)
        self._open: OrderedDict[int, ReadFile] = OrderedDict()
        self._maps: OrderedDict[int, Bytes] = OrderedDict()
        self._fetched: _Fetched | None = None

    def __enter__(self) -> "CommitLog":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Close what is open; the next read opens again."""
        while self._open:
            self._open.popitem()[1].close()
        self._maps.clear()  # A mapping ends when the last array on it is gone.

    @property
    def committed_end(self) -> int | None:
        """Physical offset behind the last committed entry; None: all that is written counts."""
        return None

    def check_committed(self) -> None:
        """Raise CorruptStoreError where ``committed_end`` cannot be known."""

    def head_bytes(self, file: MappedFile) -> int:
        """Return how many bytes are before each record of a file: those of its entry's head."""
        return 0

    def has_head(self, physical_offset: int, size: int) -> bool:
        """Tell whether a record is in an entry of its size; True where records are in none."""
        return True

    @property
    def low(self) -> int:
        """Physical offset of the first byte held."""
        return self.files.low

    @property
    def high(self) -> int:
        """Physical offset after the last file: the log's own end lies before it."""
        return self.files.high

    def where(self, physical_offset: int) -> tuple[str, int]:
        """Return the file and the position in it, for messages."""
        file = self.files.find(physical_offset)
        if file is None:
            return f"{self._folder}/", physical_offset
        return file.name, physical_offset - file.start

    def corrupt(self, physical_offset: int, reason: str) -> CorruptStoreError:
        """Return the error that says ``reason`` about the record at ``physical_offset``."""
        return CorruptStoreError(*self.where(physical_offset), reason)

    def holds(self, physical_offsets: Int64s, sizes: Int64s) -> Mask:
        """Tell for each record whether one file holds all of it and its size is believable."""
        if not len(self._starts):
            return np.zeros(len(sizes), np.bool_)
        index = self._indexes(physical_offsets)
        sane = (index >= 0) & (sizes >= MIN_RECORD_BYTES) & (sizes <= HARD_RECORD_BYTES)
        room = self._ends[np.maximum(index, 0)] - physical_offsets
        return sane & (sizes <= room)

    def read(self, physical_offset: int, size: int) -> bytes:
        """Return up to ``size`` bytes: fewer at a file's end, none outside the log."""
        opened, position, room = self._opened_at(physical_offset)
        return opened.read(min(size, room), position) if opened is not None else b""

    def read_into(self, physical_offset: int, into: memoryview) -> int:
        """Fill ``into`` as ``read`` does; return how many bytes were read."""
        opened, position, room = self._opened_at(physical_offset)
        return opened.read_into(into[:room], position) if opened is not None else 0

    def header(self, physical_offset: int) -> np.void | None:
        """Return the record header there, of its host families; None where the log has no room.

        Nothing is checked: compare what it says with what is expected.
        """
        data = self.read(physical_offset, HEADERS[-1].itemsize)
        if len(data) < HEADER.itemsize:
            return None
        flag = int(np.frombuffer(data, HEADER, 1)[0]["sys_flag"])
        layout = HEADERS[(flag & HOST_VARIANT_MASK) >> HOST_VARIANT_SHIFT]
        if len(data) < layout.itemsize:
            return None
        header: np.void = np.frombuffer(data, layout, 1)[0]
        return header

    def gather(
        self, physical_offsets: Int64s, sizes: Int64s, scratch: Scratch | None = None
    ) -> Gathered:
        """Return the records at those places, all of which must be held (see ``holds``).

        With ``scratch`` they stand until the next call that is given the same.
        The buffer takes at most about five times the bytes of the records. Raises CorruptStoreError
        if a file ends before its size said, FileNotFoundError if the broker deleted it.
        """
        index = self._indexes(physical_offsets)
        ends = physical_offsets + sizes
        if (
            self._mapped
            and len(index)
            and index[0] == index[-1]
            and is_ascending(physical_offsets, ends)
        ):
            file = int(index[0])
            return Gathered(self._mapping(file), physical_offsets - self._starts[file])
        fetched = self._fetched
        if fetched is not None and fetched.is_of(physical_offsets, sizes, scratch):
            return fetched.gathered
        first, last = runs_of(index, physical_offsets, ends, is_far=self._is_far)
        run_bytes = ends[last] - physical_offsets[first]
        run_starts = np.concatenate(([0], np.cumsum(run_bytes)))
        buffer = (scratch or Scratch()).take(int(run_starts[-1]))
        view = buffer.data
        places = zip(index[first].tolist(), physical_offsets[first].tolist(), strict=True)
        runs = (
            (file, begin, view[low:high])
            for (file, begin), low, high in zip(
                places, run_starts[:-1].tolist(), run_starts[1:].tolist(), strict=True
            )
        )
        if self._is_far:
            self._read_side_by_side(runs)
        else:
            for run in runs:
                self._read_into(*run)
        moved = np.repeat(run_starts[:-1] - physical_offsets[first], last - first + 1)
        gathered = Gathered(buffer, physical_offsets + moved)
        if self._is_far and scratch is not None:
            taken = scratch.times_taken
            self._fetched = _Fetched(physical_offsets, sizes, scratch, taken, gathered)
        return gathered

    def blocks(self, physical_offsets: Int64s, sizes: Int64s, scratch: Scratch) -> Iterator[Block]:
        """Yield the same records as ``gather`` would, about half a MiB at a time.

        So much stays in the processor's cache between the read and what is done with it. A
        mapped file is one block; from an object store 8 MiB come at a time, in several requests.
        """
        index = self._indexes(physical_offsets)
        ends = physical_offsets + sizes
        one_file = bool(len(index)) and bool((index == index[0]).all())
        if one_file and self._mapped:
            file = int(index[0])
            start = int(self._starts[file])
            yield Block(0, len(sizes), self._mapping(file), physical_offsets, start)
        elif one_file and not self._is_far and len(runs_of(index, physical_offsets, ends)[0]) == 1:
            file = int(index[0])
            for first, last in pieces(_BLOCK_BYTES, ends, int(physical_offsets[0])):
                start = int(physical_offsets[first])
                buffer = scratch.take(int(ends[last - 1]) - start)
                self._read_into(file, start, buffer.data)
                yield Block(first, last, buffer, physical_offsets[first:last], start)
        else:
            for first, last in pieces(self.block_bytes, np.cumsum(sizes), 0):
                piece = slice(first, last)
                gathered = self.gather(physical_offsets[piece], sizes[piece], scratch)
                yield Block(first, last, gathered.buffer, gathered.starts, 0)

    def _indexes(self, physical_offsets: Int64s) -> Int64s:
        """Return which file each place is in; -1 before the first. Most often one for all."""
        if len(physical_offsets):
            edges = (physical_offsets.min(), physical_offsets.max())
            first, last = np.searchsorted(self._starts, edges, side="right") - 1
            if first == last:
                return np.full(len(physical_offsets), first)
        return np.searchsorted(self._starts, physical_offsets, side="right") - 1

    def _read_into(self, index: int, physical_offset: int, into: memoryview) -> None:
        self._fill(self._opened(index), index, physical_offset, into)

    def _read_side_by_side(self, runs: Iterable[Run]) -> None:
        """Read runs in parts, several at a time; their files are opened before, by this thread."""
        for some in of_few_files(runs, OPEN_FILES):
            parts = [
                (self._opened(index), index, begin + low, into[low : low + _FAR_PART_BYTES])
                for index, begin, into in some
                for low in range(0, len(into), _FAR_PART_BYTES)
            ]
            self._folder.each(lambda part: self._fill(*part), parts)

    def _fill(self, opened: ReadFile, index: int, physical_offset: int, into: memoryview) -> None:
        file = self.files.files[index]
        position = physical_offset - file.start
        done = opened.read_into(into, position)
        if done < len(into):
            reason = f"the file ends here; it was {file.size} bytes long when it was listed"
            raise CorruptStoreError(file.name, position + done, reason)

    def _opened_at(self, physical_offset: int) -> tuple[ReadFile | None, int, int]:
        """Return the file that holds a place, the position in it, and the bytes from there on."""
        index = int(np.searchsorted(self._starts, physical_offset, side="right")) - 1
        if index < 0 or physical_offset >= (file := self.files.files[index]).end:
            return None, 0, 0
        return self._opened(index), physical_offset - file.start, file.end - physical_offset

    def _opened(self, index: int) -> ReadFile:
        opened = self._open.pop(index, None)
        if opened is None:
            if len(self._open) >= OPEN_FILES:
                self._open.popitem(last=False)[1].close()
            opened = self.files.files[index].open()
        self._open[index] = opened
        return opened

    def _mapping(self, index: int) -> Bytes:
        mapping = self._maps.pop(index, None)
        if mapping is None:
            if len(self._maps) >= OPEN_FILES:
                self._maps.popitem(last=False)
            mapping = _map(self.files.files[index])
        self._maps[index] = mapping
        return mapping


def _without_twins(found: MappedFileQueue) -> MappedFileQueue:
    """Return the files without those that have no record where another folder's file has some.

    A broker with several folders makes the next file ahead in one, and may begin it in another.
    Reference: MultiPathMappedFileQueue#tryCreateMappedFile.
    """
    starts = Counter(file.start for file in found.files)
    files = []
    for start, same in groupby(found.files, key=lambda file: file.start):
        twins = list(same)
        if starts[start] > 1:
            twins = [file for file in twins if _begins_with_record(file)] or twins[:1]
        files += twins
    return MappedFileQueue(files)


def _begins_with_record(file: MappedFile) -> bool:
    opened = file.open()
    try:
        return any(opened.read(MIN_BLANK_BYTES, 0))
    finally:
        opened.close()


def _map(file: MappedFile) -> Bytes:
    fd = descriptor(file.folder, file.path)
    try:
        # Map only what was just seen to be there: beyond it, a read would be a SIGBUS.
        size = min(file.size, os.fstat(fd).st_size)
        if size < file.size:
            raise CorruptStoreError(file.name, size, f"the file was {file.size} bytes long before")
        return np.frombuffer(mmap.mmap(fd, size, prot=mmap.PROT_READ), np.uint8)
    finally:
        os.close(fd)
