"""Directories of a store, or of another folder, read without ever leaving them.

Every component below the directory is opened relative to its parent with O_NOFOLLOW, so a symbolic
link anywhere in a store, wherever it points, is an UnsafePathError; so is anything that is not
a plain file where a file is expected (a FIFO or a device could block or answer for ever).

Names in a store are UTF-8 whatever the locale is, as topics are in its records.
"""

import errno
import os
import stat
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from itertools import groupby, islice

from mqstore.errors import StoreNotFoundError, UnsafePathError
from mqstore.files.base.folder import Entry, Folder, OnlyFile
from mqstore.files.base.read_file import LocalFile

_IS_UTF8 = sys.getfilesystemencoding() == "utf-8"  # Else that of the locale, such as GBK.
_DIRECTORY = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_FILE = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class Directory(Folder):
    """The directory ``below`` in ``root``, which may be a link: people mount stores that way.

    Nothing below the root may be one.
    """

    root: str
    below: str = ""

    @property
    def name(self) -> str:
        """The path, as the root was named."""
        return f"{self.root}/{self.below}" if self.below else self.root

    @property
    def real_path(self) -> str:
        """The path without links."""
        return os.path.realpath(self.name)

    def at(self, path: str) -> "Directory":
        """Return the directory ``path`` in it; nothing is looked at."""
        return Directory(self.root, self._path(path))

    def check_there(self, kind: str = "directory") -> None:
        """Raise StoreNotFoundError, with the ``kind`` of folder, unless it is a directory."""
        if not os.path.isdir(self.name):  # noqa: PTH112
            there = kind == "directory" and os.path.lexists(self.name)
            raise StoreNotFoundError(self.name, "not a directory" if there else f"no such {kind}")

    def open(self, path: str) -> LocalFile:
        """Return the plain file ``path``, open for reading.

        Raises FileNotFoundError if it is not there, UnsafePathError if it is not a plain file or a
        component is no directory, a symbolic link or ``..``.
        """
        directory, _, name = path.rpartition("/")
        where = f"{self.name}/{path}"
        try:
            with self._opened(directory) as parent:
                fd = _open(name, _FILE, parent, where)
        except NotADirectoryError as error:
            raise UnsafePathError(where, "a part of the path is no directory") from error
        if stat.S_ISREG(os.fstat(fd).st_mode):
            return LocalFile(fd)
        os.close(fd)
        raise UnsafePathError(where, "not a plain file")

    def local_path(self, path: str) -> str:
        """Return the path."""
        return os.path.abspath(f"{self.name}/{path}")  # noqa: PTH100

    def entries(self, path: str = "") -> list[Entry]:
        """Return the entries of the directory ``path``, sorted by name. Raises as ``Folder``."""
        found = []
        with self._opened(path) as fd, os.scandir(fd) as entries:
            for entry in entries:
                with suppress(FileNotFoundError):
                    found.append(_entry(entry, f"{self.name}/{path}"))
        return sorted(found, key=lambda e: e.name)

    def only_files(self, paths: Sequence[str], most: int) -> list[OnlyFile | None]:
        """Return what ``Folder`` says: folders that stand side by side cost little more than one.

        The folder that they are in is opened once, each of them relative to it, and what is in
        them is looked at where it is open.
        """
        split = (path.rpartition("/") for path in paths)
        grouped = [
            (parent, [name for _, _, name in some])
            for parent, some in groupby(split, lambda parts: parts[0])
        ]

        def of_parent(group: tuple[str, list[str]]) -> list[OnlyFile | None]:
            parent, names = group
            try:
                with self._opened(parent) as fd:
                    return [_only_file(fd, name, most) for name in names]
            except (OSError, UnsafePathError):
                return [None] * len(names)

        return [one for some in self.each(of_parent, grouped) for one in some]

    def survey(self, path: str = "") -> list[tuple[str, str, int]]:
        """Return (name, kind, bytes) of all in ``path``, sorted; none if it is not there."""
        found = []
        try:
            with self._opened(path) as fd, os.scandir(fd) as entries:
                for entry in entries:
                    with suppress(FileNotFoundError):  # Deleted meanwhile.
                        found.append(_surveyed(entry))
        except (FileNotFoundError, NotADirectoryError):
            return []
        return sorted(found)

    def names(self, path: str = "") -> list[str]:
        """Return the sorted names in ``path``, whatever they are; none if it is not there."""
        try:
            with self._opened(path) as fd:
                return sorted(map(_stored_name, os.listdir(fd)))  # noqa: PTH208 - a descriptor has no Path
        except (FileNotFoundError, NotADirectoryError):
            return []

    def exists(self, path: str = "") -> bool:
        """Tell whether ``path`` is there, as anything."""
        return os.path.lexists(f"{self.root}/{_system_path(self._path(path))}")

    def is_directory(self, path: str) -> bool:
        """Tell whether ``path`` is there as a real directory."""
        try:
            with self._opened(path):
                return True
        except (FileNotFoundError, NotADirectoryError):
            return False

    def _path(self, path: str) -> str:
        return "/".join(filter(None, (self.below, path)))

    @contextmanager
    def _opened(self, path: str) -> Iterator[int]:
        whole = self._path(path)
        fd = os.open(self.root, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            for part in whole.split("/") if whole else ():
                child = _open(part, _DIRECTORY, fd, f"{self.name}/{path}")
                os.close(fd)
                fd = child
            yield fd
        finally:
            os.close(fd)


def descriptor(folder: Folder, path: str) -> int:
    """Return a descriptor, open for reading, of the plain file ``path`` in a directory.

    Raises as ``Directory.open``, and OSError for a folder of an object store.
    """
    file = folder.open(path)
    if not isinstance(file, LocalFile):
        raise OSError(errno.EOPNOTSUPP, "not a file of this machine", f"{folder}/{path}")
    return file.fd


def folder_of(root: str | os.PathLike[str] | Folder) -> Folder:
    """Return ``root`` opened: a directory, which keeps its name if it is a link, or a Folder."""
    if isinstance(root, Folder):
        return root
    return Directory(os.path.abspath(root))  # noqa: PTH100


def _stored_name(name: str) -> str:
    """Return the name of a file in a store, of the name that Python lists."""
    return name if _IS_UTF8 else os.fsencode(name).decode("utf-8", "surrogateescape")


def _system_path(path: str) -> str:
    """Return a path below the root as Python has to be given it."""
    return path if _IS_UTF8 else os.fsdecode(path.encode("utf-8", "surrogateescape"))


def _surveyed(entry: "os.DirEntry[str]") -> tuple[str, str, int]:
    status = entry.stat(follow_symlinks=False)
    kinds = {stat.S_IFREG: "file", stat.S_IFDIR: "directory", stat.S_IFLNK: "link"}
    kind = kinds.get(stat.S_IFMT(status.st_mode), "special")
    return _stored_name(entry.name), kind, status.st_size if kind == "file" else 0


def _only_file(parent: int, name: str, most: int) -> OnlyFile | None:
    try:
        folder = _open(name, _DIRECTORY, parent, name)
        try:
            with os.scandir(folder) as entries:
                there = list(islice(entries, 2))
            if len(there) != 1 or not there[0].is_file(follow_symlinks=False):
                return None
            fd = _open(_stored_name(there[0].name), _FILE, folder, name)
        finally:
            os.close(folder)
    except (OSError, UnsafePathError):
        return None
    try:
        status = os.fstat(fd)
        is_plain = stat.S_ISREG(status.st_mode)
        return (
            OnlyFile(_stored_name(there[0].name), status.st_size, os.pread(fd, most, 0))
            if is_plain
            else None
        )
    finally:
        os.close(fd)


def _entry(entry: "os.DirEntry[str]", where: str) -> Entry:
    if entry.is_dir(follow_symlinks=False):
        return Entry(_stored_name(entry.name), True, 0)
    status = entry.stat(follow_symlinks=False)
    if stat.S_ISREG(status.st_mode):
        return Entry(_stored_name(entry.name), False, status.st_size)
    raise UnsafePathError(f"{where}/{entry.name}", "a symbolic link or special file")


def _open(name: str, flags: int, parent: int, path: str) -> int:
    if name in {"", ".", ".."} or "\0" in name:
        raise UnsafePathError(path, "not a name inside the store")
    try:
        return os.open(_system_path(name), flags, dir_fd=parent)
    except OSError as error:
        if error.errno in {errno.ELOOP, errno.ENXIO}:
            raise UnsafePathError(path, "a symbolic link or special file") from error
        if error.errno == errno.ENOTDIR and _is_link(name, parent):
            raise UnsafePathError(path, "a symbolic link") from error
        error.filename = path  # The system knows the last name of it.
        raise


def _is_link(name: str, parent: int) -> bool:
    return stat.S_ISLNK(os.stat(_system_path(name), dir_fd=parent, follow_symlinks=False).st_mode)
