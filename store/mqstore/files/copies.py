"""A directory in the making that becomes a copy of a store: names and bytes of another one.

What never changes any more gets a second name (a hard link); where that cannot be, across file
systems or where the system forbids it, its bytes are copied. All of it is made under another
name beside the target, which gets its own when all is done: half a copy never has the name.
"""

import errno
import os
from typing import Final

from mqstore.errors import InvalidOptionError
from mqstore.files import durable
from mqstore.files.safe_open import open_file

_UNLINKABLE: Final = frozenset(
    {errno.EXDEV, errno.EPERM, errno.EACCES, errno.EMLINK, errno.EOPNOTSUPP, errno.ENOSYS}
)


class Copy:
    """The copy while it is made, a context manager. An error removes all of it.

    ``linked_bytes`` and ``copied_bytes`` count what was done.
    """

    def __init__(self, target: str) -> None:
        self._target = os.path.abspath(target)  # noqa: PTH100 - keeps links as named
        self._root = f"{self._target}.partial"
        self._directories: list[str] = []
        self._files: list[str] = []
        self.linked_bytes = 0
        self.copied_bytes = 0

    def __enter__(self) -> "Copy":
        for path in (self._target, self._root):
            if os.path.lexists(path):
                raise InvalidOptionError("DEST", path, "is there already; name a new directory")
        try:
            durable.make_directory(self._root)
        except FileNotFoundError as error:
            parent = os.path.dirname(self._target)  # noqa: PTH120
            raise InvalidOptionError("DEST", self._target, f"there is no {parent}") from error
        self._directories.append("")
        return self

    def __exit__(self, kind: object, *_: object) -> None:
        if kind is None:
            self._sync()
            durable.replace(self._root, self._target)
            durable.fsync_directory(os.path.dirname(self._target))  # noqa: PTH120
            return
        for path in reversed(self._files):
            durable.unlink(f"{self._root}/{path}")
        for path in reversed(self._directories):
            durable.remove_directory(f"{self._root}/{path}")

    def link(self, root: str, path: str, as_path: str) -> None:
        """Take the file ``root/path`` as it is. Raises FileNotFoundError if it is gone."""
        target = self._make_room(as_path)
        try:
            durable.link(f"{root}/{path}", target)
        except OSError as error:
            if error.errno not in _UNLINKABLE:
                raise
        else:
            self._files.append(as_path)
            self.linked_bytes += os.stat(target).st_size  # noqa: PTH116
            return
        self.take(root, path, as_path)

    def take(self, root: str, path: str, as_path: str, *, end: int | None = None) -> None:
        """Copy the bytes of ``root/path`` before ``end`` (all if None); the rest reads as zeros.

        The length stays, holes stay holes. Raises FileNotFoundError if it is gone.
        """
        source = open_file(root, path)
        try:
            size = os.fstat(source).st_size
            fd = self.create(as_path)
            try:
                for start, stop in _data(source, size if end is None else min(end, size)):
                    self.copied_bytes += durable.copy_range(source, fd, start, stop - start)
                durable.truncate(fd, size)
            finally:
                durable.close(fd)
        finally:
            os.close(source)

    def put(self, as_path: str, data: bytes) -> None:
        """Make a file of ``data``."""
        fd = self.create(as_path)
        try:
            durable.write_at(fd, data, 0)
        finally:
            durable.close(fd)
        self.copied_bytes += len(data)

    def create(self, as_path: str) -> int:
        """Return a descriptor of a new, empty file of the copy."""
        fd = durable.create(self._make_room(as_path))
        self._files.append(as_path)
        return fd

    def make_directory(self, path: str) -> None:
        """Make a directory of the copy, and those it is in, where they are not there yet."""
        parts = path.split("/")
        for count in range(1, len(parts) + 1):
            folder = "/".join(parts[:count])
            if folder not in self._directories:
                durable.make_directory(f"{self._root}/{folder}")
                self._directories.append(folder)

    @property
    def root(self) -> str:
        """Where the copy lies while it is made."""
        return self._root

    def _sync(self) -> None:
        """Make all of it durable; a linked file too, whose bytes a broker may not have synced."""
        for path in self._files:
            fd = open_file(self._root, path)
            try:
                durable.fsync(fd)
            finally:
                os.close(fd)
        for path in self._directories:
            durable.fsync_directory(f"{self._root}/{path}")

    def _make_room(self, path: str) -> str:
        folder = path.rpartition("/")[0]
        if folder:
            self.make_directory(folder)
        return f"{self._root}/{path}"


def _data(fd: int, end: int) -> list[tuple[int, int]]:
    """Return the parts of [0, end) that are no holes."""
    found = []
    position = 0
    while position < end:
        try:
            start = os.lseek(fd, position, os.SEEK_DATA)
        except OSError as error:
            if error.errno == errno.ENXIO:  # Nothing but a hole up to the end.
                break
            return [(0, end)]  # The file system does not tell.
        position = min(os.lseek(fd, start, os.SEEK_HOLE), end)
        if start < position:
            found.append((start, position))
        else:
            break
    return found
