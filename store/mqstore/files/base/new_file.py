"""New files of fixed size: filled where no broker looks, and linked in when they are whole.

A broker refuses a CommitLog or ConsumeQueue directory with a short file in it, and takes a
ConsumeQueue file of zeros for a message: so a new file gets its length, its reserved space and,
for a ConsumeQueue, its first units before it gets its name.

Reference: MappedFileQueue#load; ConsumeQueue#truncateDirtyLogicFiles (unit 0 counts always).
"""

import os
import secrets
from collections.abc import Iterator
from contextlib import contextmanager

from mqstore.errors import CorruptStoreError
from mqstore.files.base import durable
from mqstore.files.base.store_writer import StoreWriter

TEMP_FOLDER = "tmp"  # below .mqlog


class NewFile:
    """One new file of fixed size, not yet in its place. Nothing is held open."""

    def __init__(self, writer: StoreWriter, size: int) -> None:
        self._path = f"{writer.temp_dir}/{secrets.token_hex(16)}"
        self._undo = writer.undo
        self._undo.remember(lambda: durable.unlink(self._path))
        fd = durable.create(self._path)
        try:
            durable.truncate(fd, size)
        finally:
            durable.close(fd)

    def reserve(self, position: int, size: int) -> bool:
        """Reserve disk space; return whether the file system does. Raises NoSpaceError."""
        with opened(self._path) as fd:
            return durable.reserve(fd, position, size)

    def write(self, data: bytes | memoryview, position: int) -> None:
        """Write ``data`` at ``position``."""
        with opened(self._path) as fd:
            durable.write_at(fd, data, position)

    def put(self, target: str) -> None:
        """Give the file its name, durably. Raises FileExistsError if there is one already."""
        with opened(self._path) as fd:
            inode = os.fstat(fd).st_ino
            durable.fsync(fd)

        def withdraw() -> None:
            if durable.same_file(target, inode):
                durable.unlink(target)

        self._undo.remember(withdraw)
        durable.link(self._path, target)
        durable.unlink(self._path)
        durable.fsync_directory(os.path.dirname(target))  # noqa: PTH120 - strings at the seam


@contextmanager
def opened(path: str) -> Iterator[int]:
    """Hold the plain file ``path`` open for writing."""
    fd = durable.open_for_write(path)
    try:
        yield fd
    finally:
        durable.close(fd)


def reserve_in(path: str, position: int, size: int, *, file_size: int) -> bool:
    """Reserve disk space in an existing file of a sequence whose files have ``file_size``.

    Returns whether the file system does. Raises NoSpaceError; CorruptStoreError if the file has
    another size.
    """
    with opened(path) as fd:
        found = os.fstat(fd).st_size
        if found != file_size:
            reason = f"the file is {found} bytes long, the others {file_size}"
            raise CorruptStoreError(path, found, reason)
        return durable.reserve(fd, position, size)


def wipe(path: str, position: int, size: int) -> None:
    """Make bytes of an existing file zero again, durably.

    Bytes left behind an end could become records or units again: format.md, stale tail.
    """
    with opened(path) as fd:
        durable.write_zeros(fd, position, size)
        durable.fsync(fd)
