"""Open files and list directories of a store, or of another folder, without ever leaving it.

Every component below the folder is opened relative to its parent with O_NOFOLLOW, so a symbolic
link anywhere in a store, wherever it points, is an UnsafePathError; so is anything that is not
a plain file where a file is expected (a FIFO or a device could block or answer for ever).
"""

import errno
import os
import stat
from collections.abc import Iterator
from contextlib import contextmanager, suppress

from mqstore.errors import UnsafePathError
from mqstore.files.base.read_file import Entry, LocalFile, ReadFile, RemoteFolder
from mqstore.format.config import MAX_CONFIG_BYTES

_DIRECTORY = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_FILE = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC


def open_file(folder: str, path: str) -> int:
    """Return a descriptor, open for reading, of the plain file ``folder/path``.

    Raises FileNotFoundError if it is not there, UnsafePathError if it is not a plain file or a
    component is no directory, a symbolic link or ``..``.
    """
    directory, _, name = path.rpartition("/")
    try:
        with _directory(folder, directory) as parent:
            fd = _open(name, _FILE, parent, f"{folder}/{path}")
    except NotADirectoryError as error:
        raise UnsafePathError(f"{folder}/{path}", "a part of the path is no directory") from error
    if stat.S_ISREG(os.fstat(fd).st_mode):
        return fd
    os.close(fd)
    raise UnsafePathError(f"{folder}/{path}", "not a plain file")


def open_to_read(folder: str, path: str) -> ReadFile:
    """Return the plain file ``folder/path``, open for reading. Raises as ``open_file``."""
    if isinstance(folder, RemoteFolder):
        return folder.open(path)
    return LocalFile(open_file(folder, path))


def read_small(folder: str, path: str, most: int = MAX_CONFIG_BYTES) -> bytes | None:
    """Return the first ``most`` bytes of the file ``folder/path``, or None if it is not there."""
    try:
        file = open_to_read(folder, path)
    except FileNotFoundError:
        return None
    try:
        return file.read(min(file.size, most), 0)
    finally:
        file.close()


def list_directory(folder: str, path: str = "") -> list[Entry]:
    """Return the entries of the directory ``folder/path``, sorted by name.

    What a running broker deletes meanwhile is left out. Raises FileNotFoundError or
    NotADirectoryError; UnsafePathError for a symbolic link or a special file among the entries.
    """
    if isinstance(folder, RemoteFolder):
        return folder.entries(path)
    found = []
    with _directory(folder, path) as fd, os.scandir(fd) as entries:
        for entry in entries:
            with suppress(FileNotFoundError):
                found.append(_entry(entry, f"{folder}/{path}"))
    return sorted(found, key=lambda e: e.name)


def survey(folder: str, path: str = "") -> list[tuple[str, str, int]]:
    """Return (name, kind, bytes) of all in ``folder/path``, sorted; none if it is not there.

    ``kind`` is ``file``, ``directory``, ``link`` or ``special``; links are not followed.
    """
    if isinstance(folder, RemoteFolder):
        return [
            (entry.name, "directory" if entry.is_directory else "file", entry.size)
            for entry in _entries(folder, path)
        ]
    found = []
    try:
        with _directory(folder, path) as fd, os.scandir(fd) as entries:
            for entry in entries:
                with suppress(FileNotFoundError):  # Deleted meanwhile.
                    found.append(_surveyed(entry))
    except (FileNotFoundError, NotADirectoryError):
        return []
    return sorted(found)


def list_names(folder: str, path: str = "") -> list[str]:
    """Return the sorted names in ``folder/path``, whatever they are; none if it is not there."""
    if isinstance(folder, RemoteFolder):
        return [entry.name for entry in _entries(folder, path)]
    try:
        with _directory(folder, path) as fd:
            return sorted(os.listdir(fd))  # noqa: PTH208 - a descriptor has no Path
    except (FileNotFoundError, NotADirectoryError):
        return []


def exists(folder: str, path: str) -> bool:
    """Tell whether ``folder/path`` is there, as anything."""
    if isinstance(folder, RemoteFolder):
        return folder.entry(path) is not None
    return os.path.lexists(f"{folder}/{path}")


def is_directory(folder: str, path: str) -> bool:
    """Tell whether ``folder/path`` is there as a real directory."""
    if isinstance(folder, RemoteFolder):
        found = folder.entry(path)
        return found is not None and found.is_directory
    try:
        with _directory(folder, path):
            return True
    except (FileNotFoundError, NotADirectoryError):
        return False


def is_taken(folder: str, path: str) -> bool:
    """Tell whether something that is no directory has the name ``folder/path``.

    One look at the name: a directory that another process removes or makes meanwhile is none.
    """
    try:
        return not stat.S_ISDIR(os.lstat(f"{folder}/{path}").st_mode)
    except (FileNotFoundError, NotADirectoryError):
        return False


def within(folder: str, path: str) -> str:
    """Return the folder ``folder/path``, to be listed and read as ``folder`` is."""
    return folder.at(path) if isinstance(folder, RemoteFolder) else f"{folder}/{path}"


def real_path(folder: str) -> str:
    """Return the one name of a folder: two names of one directory have the same."""
    return str(folder) if isinstance(folder, RemoteFolder) else os.path.realpath(folder)


def _entries(folder: RemoteFolder, path: str) -> list[Entry]:
    try:
        return folder.entries(path)
    except (FileNotFoundError, NotADirectoryError):
        return []


def _surveyed(entry: "os.DirEntry[str]") -> tuple[str, str, int]:
    status = entry.stat(follow_symlinks=False)
    kinds = {stat.S_IFREG: "file", stat.S_IFDIR: "directory", stat.S_IFLNK: "link"}
    kind = kinds.get(stat.S_IFMT(status.st_mode), "special")
    return entry.name, kind, status.st_size if kind == "file" else 0


def _entry(entry: "os.DirEntry[str]", where: str) -> Entry:
    status = entry.stat(follow_symlinks=False)
    if stat.S_ISDIR(status.st_mode):
        return Entry(entry.name, True, 0)
    if stat.S_ISREG(status.st_mode):
        return Entry(entry.name, False, status.st_size)
    raise UnsafePathError(f"{where}/{entry.name}", "a symbolic link or special file")


@contextmanager
def _directory(folder: str, path: str) -> Iterator[int]:
    # The folder itself may be a link (people mount stores that way); nothing below it may.
    fd = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        for part in path.split("/") if path else ():
            child = _open(part, _DIRECTORY, fd, f"{folder}/{path}")
            os.close(fd)
            fd = child
        yield fd
    finally:
        os.close(fd)


def _open(name: str, flags: int, parent: int, path: str) -> int:
    if name in {"", ".", ".."} or "\0" in name:
        raise UnsafePathError(path, "not a name inside the store")
    try:
        return os.open(name, flags, dir_fd=parent)
    except OSError as error:
        if error.errno in {errno.ELOOP, errno.ENXIO}:
            raise UnsafePathError(path, "a symbolic link or special file") from error
        if error.errno == errno.ENOTDIR and _is_link(name, parent):
            raise UnsafePathError(path, "a symbolic link") from error
        error.filename = path  # The system knows the last name of it.
        raise


def _is_link(name: str, parent: int) -> bool:
    return stat.S_ISLNK(os.stat(name, dir_fd=parent, follow_symlinks=False).st_mode)
