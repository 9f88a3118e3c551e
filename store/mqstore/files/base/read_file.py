"""Files open for reading, and folders that are no directories of this machine.

Everything that reads a store names its folders by strings, and opens and lists them through
``safe_open``. A ``RemoteFolder`` is such a string: the address of a folder in an object store. What
it needs to be read (a connection, a listing) is part of it, so that ``safe_open`` alone tells it
from a directory.
"""

import os
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable
from contextlib import suppress
from dataclasses import dataclass
from typing import Protocol, TypeVar

T = TypeVar("T")
R = TypeVar("R")


@dataclass(frozen=True, slots=True)
class Entry:
    """One name in a directory; ``size`` is in bytes, 0 for a directory."""

    name: str
    is_directory: bool
    size: int


class ReadFile(Protocol):
    """A file that is open for reading, by positions. ``close`` it."""

    @property
    def size(self) -> int:
        """The bytes that the file has now."""

    def read(self, size: int, position: int) -> bytes:
        """Return up to ``size`` bytes at ``position``: fewer at the file's end. Raises OSError."""

    def read_into(self, into: memoryview, position: int) -> int:
        """Fill ``into`` with the bytes at ``position``; return how many: fewer at the end."""

    def next_data(self, position: int, end: int) -> int:
        """Return the next position that is in no hole of the file; ``end`` if there is none."""

    def version(self) -> tuple[int, ...]:
        """Return numbers that differ once the file is another one, or was written to."""

    def close(self) -> None:
        """Close it."""


class LocalFile:
    """A ReadFile over a descriptor, which it closes."""

    __slots__ = ("fd",)

    def __init__(self, fd: int) -> None:
        self.fd = fd

    @property
    def size(self) -> int:
        """What fstat says."""
        return os.fstat(self.fd).st_size

    def read(self, size: int, position: int) -> bytes:
        """Read once."""
        return os.pread(self.fd, size, position)

    def read_into(self, into: memoryview, position: int) -> int:
        """Read until it is full, or the file ends."""
        return read_into(self.fd, into, position)

    def next_data(self, position: int, end: int) -> int:
        """Ask the file system; where it does not tell, there are no holes."""
        with suppress(OSError):  # ENXIO: nothing but a hole up to the end.
            return os.lseek(self.fd, position, os.SEEK_DATA)
        return end

    def version(self) -> tuple[int, ...]:
        """Return size, device, inode and both times in ns."""
        found = os.fstat(self.fd)
        return found.st_size, found.st_dev, found.st_ino, found.st_mtime_ns, found.st_ctime_ns

    def close(self) -> None:
        """Close the descriptor."""
        os.close(self.fd)


class RemoteFolder(str, ABC):
    """The address of a folder in an object store, which is read through it. Pickles.

    Equal to any other text of the same address. One folder is listed once: what is added to it
    afterwards is not seen. Its methods may be called by several threads at a time.
    """

    __slots__ = ()

    @abstractmethod
    def at(self, path: str) -> "RemoteFolder":
        """Return the folder ``path`` in it, read through the same connection."""

    @abstractmethod
    def entries(self, path: str = "") -> list[Entry]:
        """Return the entries of the folder ``path`` in it, sorted by name.

        Raises FileNotFoundError or NotADirectoryError, UnsafePathError for a name that no
        directory could have, and what the connection raises.
        """

    @abstractmethod
    def open(self, path: str) -> ReadFile:
        """Return the file ``path`` in it. Raises FileNotFoundError, UnsafePathError."""

    @abstractmethod
    def each(self, work: Callable[[T], R], items: Iterable[T]) -> list[R]:
        """Return what ``work`` returns for each item, in order; several at a time are done."""

    @abstractmethod
    def check_readable(self) -> None:
        """Raise StoreNotFoundError where nothing is; UncleanStoreError if it may be written to."""

    def entry(self, path: str) -> Entry | None:
        """Return the entry that ``path`` names, or None."""
        folder, _, name = path.rpartition("/")
        try:
            found = self.entries(folder)
        except (FileNotFoundError, NotADirectoryError):
            return None
        return next((entry for entry in found if entry.name == name), None)


def read_into(fd: int, into: memoryview, position: int) -> int:
    """Fill ``into`` with the bytes at ``position``; return how many: fewer at the file's end."""
    done = 0
    while done < len(into):
        count = os.preadv(fd, [into[done:]], position + done)
        if not count:
            break
        done += count
    return done


def each(folder: str, work: Callable[[T], R], items: Iterable[T]) -> list[R]:
    """Return what ``work``, which reads files of ``folder``, returns for each item, in order.

    Several are done at a time where each read waits for a network.
    """
    if isinstance(folder, RemoteFolder):
        return folder.each(work, items)
    return [work(item) for item in items]
