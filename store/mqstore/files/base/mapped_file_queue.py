"""Fixed-size files under one running byte count: the shape of CommitLog and ConsumeQueue.

Each file is named after the position of its first byte (20 digits). Nothing is held open: a
queue is a list of places, read with positioned reads that return short where a file ends.

Reference: org.apache.rocketmq.store.MappedFileQueue#load, MultiPathMappedFileQueue.
"""

from bisect import bisect_right
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

from mqstore.errors import CorruptStoreError, UnsafePathError
from mqstore.files.base.folder import Folder
from mqstore.files.base.read_file import ReadFile
from mqstore.format.names import parse_mapped_file_name

_MOST_BYTES: Final = 2**31 - 1  # MappedFile#getFileSize is an int; a sparse file costs nothing.


@dataclass(frozen=True, slots=True)
class MappedFile:
    """One file: ``folder/path`` holds bytes [start, start + size) of its sequence."""

    folder: Folder
    path: str
    start: int
    size: int

    @property
    def end(self) -> int:
        """Position of the first byte after the file."""
        return self.start + self.size

    @property
    def name(self) -> str:
        """The full path, for messages."""
        return f"{self.folder}/{self.path}"

    def open(self) -> ReadFile:
        """Return the file, open for reading. Raises FileNotFoundError if it was deleted."""
        return self.folder.open(self.path)


def mapped_file(folder: Folder, name: str, size: int) -> MappedFile | None:
    """Return the file of that name and size in ``folder``; None if it is no mapped file's name.

    Raises CorruptStoreError as ``MappedFileQueue.list``.
    """
    start = parse_mapped_file_name(name)
    if start is None:
        return None
    if size > _MOST_BYTES:
        reason = f"{size} bytes, more than a broker can map"
        raise CorruptStoreError(f"{folder}/{name}", _MOST_BYTES, reason)
    if start + size >= 2**63:
        reason = "its name and size put its end behind all positions of a log"
        raise CorruptStoreError(f"{folder}/{name}", 0, reason)
    return MappedFile(folder, name, start, size)


class MappedFileQueue:
    """The files of one CommitLog or of one queue, sorted by their start."""

    def __init__(self, files: Iterable[MappedFile]) -> None:
        """Take files, some of which may be empty: a broker creates one so, then sets its length."""
        ordered = sorted(files, key=lambda file: file.start)
        self.files = tuple(file for file in ordered if file.size)
        self.empty = tuple(file for file in ordered if not file.size)
        self._starts = [file.start for file in self.files]

    @classmethod
    def list(cls, folders: Iterable[Folder]) -> "MappedFileQueue":
        """Return the mapped files of the folders.

        Names that are no mapped file's are left out; empty files are in ``empty``. Raises
        FileNotFoundError, UnsafePathError, and CorruptStoreError for a file larger than any that a
        broker can map, or named so high that its end is no position.
        """
        files = []
        for folder in folders:
            for entry in folder.entries():
                file = mapped_file(folder, entry.name, entry.size)
                if file is not None and entry.is_directory:
                    raise UnsafePathError(file.name, "a directory named like a mapped file")
                if file is not None:
                    files.append(file)
        return cls(files)

    @property
    def low(self) -> int:
        """Position of the first byte held; 0 if there is no file."""
        return self.files[0].start if self.files else 0

    @property
    def high(self) -> int:
        """Position after the last byte of the last file; 0 if there is no file."""
        return self.files[-1].end if self.files else 0

    def find(self, position: int) -> MappedFile | None:
        """Return the file that holds ``position``, or None."""
        index = bisect_right(self._starts, position) - 1
        if index < 0 or position >= self.files[index].end:
            return None
        return self.files[index]

    def read(self, position: int, size: int) -> bytes:
        """Return up to ``size`` bytes at ``position``: fewer at a file's end, none outside.

        A file that is too long ends where the next one starts.
        """
        file = self.find(position)
        if file is None:
            return b""
        behind = bisect_right(self._starts, position)
        end = min([file.end, *self._starts[behind : behind + 1]])
        opened = file.open()
        try:
            return opened.read(min(size, end - position), position - file.start)
        finally:
            opened.close()


def check_sizes(queues: Iterable[MappedFileQueue]) -> None:
    """Raise CorruptStoreError unless all files of these queues have one size.

    As the broker does: MappedFileQueue#load refuses a store with a file of another length.
    """
    files = [file for queue in queues for file in queue.files]
    sizes = Counter(file.size for file in files)
    if len(sizes) <= 1:
        return
    usual = max(sizes, key=lambda size: (sizes[size], size))
    odd = next(file for file in files if file.size != usual)
    raise CorruptStoreError(
        odd.name, odd.size, f"the file is {odd.size} bytes long, the others {usual}: truncated?"
    )
