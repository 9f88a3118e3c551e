"""Files that are open for reading, by positions."""

import os
from contextlib import suppress
from typing import Protocol


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


def read_into(fd: int, into: memoryview, position: int) -> int:
    """Fill ``into`` with the bytes at ``position``; return how many: fewer at the file's end."""
    done = 0
    while done < len(into):
        count = os.preadv(fd, [into[done:]], position + done)
        if not count:
            break
        done += count
    return done
