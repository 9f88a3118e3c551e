"""Where a repository lies: what its directory, or its folder in an object store, can do."""

import os
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager, contextmanager, suppress
from typing import Protocol, TypeVar

from mqstore.errors import InvalidOptionError, NoSpaceError, StoreLockedError, UnsafePathError
from mqstore.files.base import durable
from mqstore.files.base.directory import Directory
from mqstore.files.base.folder import Entry, Folder
from mqstore.files.base.read_file import ReadFile
from mqstore.files.copy_target import UNLINKABLE
from mqstore.files.lock.processes import openers

T = TypeVar("T")
R = TypeVar("R")

LOCK_FILE = "lock"


class NewObject(Protocol):
    """An object in the making, which counts once a manifest names it."""

    def write(self, data: bytes | memoryview) -> None:
        """Append bytes. Raises NoSpaceError, StoreUnavailableError, OSError."""

    def close(self) -> None:
        """Make it durable, with its name."""

    def leave(self) -> None:
        """Give it up."""


class Backing(ABC):
    """The files of a repository by their paths below it. A small value: it pickles."""

    address: str

    @abstractmethod
    def entries(self, folder: str = "") -> list[Entry]:
        """Return what is in a folder, as it is now; nothing where it is not there."""

    @abstractmethod
    def open(self, path: str) -> ReadFile:
        """Return a file. Raises FileNotFoundError, UnsafePathError, StoreUnavailableError."""

    @abstractmethod
    def make(self) -> None:
        """Make the folder itself, where that is needed."""

    @abstractmethod
    def make_folder(self, path: str) -> None:
        """Make a folder below it, where that is needed; none that is there is an error."""

    @abstractmethod
    def create(self, path: str) -> NewObject:
        """Begin a new file."""

    @abstractmethod
    def put(self, path: str, data: bytes) -> None:
        """Make or replace a file in one step, durably: nobody sees half of it."""

    @abstractmethod
    def link(self, folder: Folder, path: str, target: str) -> bool:
        """Give the file ``folder/path`` a second name here, durably; False where it cannot be.

        Raises FileNotFoundError if it is gone.
        """

    @abstractmethod
    def move(self, path: str, name: str) -> bool:
        """Give a file another name in its folder, durably, without room for a new one.

        False where a file cannot be renamed in one step.
        """

    @abstractmethod
    def remove(self, paths: Iterable[str]) -> None:
        """Remove files, which need not be there."""

    @abstractmethod
    def remove_folder(self, path: str) -> None:
        """Remove an empty folder."""

    @abstractmethod
    def sync(self, folder: str) -> None:
        """Make the names in a folder durable."""

    @abstractmethod
    def locked(self) -> AbstractContextManager[Callable[[], None]]:
        """Hold the repository for one process; the function raises if it is held no more.

        Raises StoreLockedError, which names the other process.
        """

    @abstractmethod
    def held_bytes(self, path: str) -> int:
        """Return the bytes of disk that only this file holds: 0 while a store has it too."""

    def new_suffix(self) -> str:
        """Return what the names of one point's new objects end in."""
        return ""

    def local_path(self, path: str) -> str | None:
        """Return the path of a file on this machine; None in an object store.

        Raises FileNotFoundError, UnsafePathError.
        """
        return None

    def each(self, work: Callable[[T], R], items: Iterable[T]) -> list[R]:
        """Return what ``work`` returns for each item, in order."""
        return [work(item) for item in items]


@contextmanager
def full_disk_named(where: str) -> Iterator[None]:
    """Raise NoSpaceError, which names ``where``, for any call of the block that finds no room."""
    try:
        yield
    except NoSpaceError as error:
        raise NoSpaceError(f"{where}: {error.what}") from error
    except OSError as error:
        if error.errno not in durable.NO_SPACE:
            raise
        raise NoSpaceError(f"{where}: {os.strerror(error.errno or 0)}") from error


class LocalObject:
    """A NewObject in a directory."""

    def __init__(self, path: str, repository: str) -> None:
        self._path, self._repository = path, repository
        with full_disk_named(repository):
            self._fd = durable.create(path)
        self._size = 0
        self._back = durable.WriteBack()

    def write(self, data: bytes | memoryview) -> None:
        """Append bytes."""
        with full_disk_named(self._repository):
            durable.write_at(self._fd, data, self._size)
        self._back.wrote(self._fd, self._size, len(data))
        self._size += len(data)

    def close(self) -> None:
        """Sync it; its name is synced with its folder."""
        try:
            with full_disk_named(self._repository):
                durable.fsync(self._fd)
        finally:
            durable.close(self._fd)

    def leave(self) -> None:
        """Close and remove it."""
        durable.close(self._fd)
        durable.unlink(self._path)


class LocalBacking(Backing):
    """A repository in a directory."""

    def __init__(self, address: str) -> None:
        self.address = os.path.abspath(address)  # noqa: PTH100 - keeps links as named

    def __reduce__(self) -> tuple[object, ...]:
        return (LocalBacking, (self.address,))

    def entries(self, folder: str = "") -> list[Entry]:
        """List the directory."""
        with suppress(FileNotFoundError, NotADirectoryError):
            return Directory(self.address).entries(folder)
        return []

    def open(self, path: str) -> ReadFile:
        """Open the file; no link is followed."""
        return Directory(self.address).open(path)

    def make(self) -> None:
        """Make the directory. Raises InvalidOptionError where its parent is not there."""
        parent = os.path.dirname(self.address)  # noqa: PTH120
        try:
            with full_disk_named(self.address):
                durable.make_directory(self.address)
        except FileExistsError:
            if not durable.is_directory(os.path.realpath(self.address)):
                raise InvalidOptionError("REPO", self.address, "is no directory") from None
        except FileNotFoundError:
            reason = f"there is no directory {parent}"
            if os.path.isdir(parent):  # noqa: PTH112 - as in /proc
                reason = f"no directory can be made in {parent}"
            raise InvalidOptionError("REPO", self.address, reason) from None
        else:
            durable.fsync_directory(parent)

    def make_folder(self, path: str) -> None:
        """Make the directory, and its name durable."""
        with suppress(FileExistsError), full_disk_named(self.address):
            durable.make_directory(self._at(path))
            self.sync(path.rpartition("/")[0])

    def create(self, path: str) -> LocalObject:
        """Create the file."""
        return LocalObject(self._at(path), self.address)

    def put(self, path: str, data: bytes) -> None:
        """Write it beside, sync it, and rename it."""
        beside = f"{path}.new"
        durable.unlink(self._at(beside))
        made = self.create(beside)
        try:
            made.write(data)
        except BaseException:
            made.leave()
            raise
        made.close()
        self._rename(beside, path)

    def move(self, path: str, name: str) -> bool:
        """Rename it."""
        self._rename(path, f"{path.rpartition('/')[0]}/{name}")
        return True

    def _rename(self, path: str, target: str) -> None:
        with full_disk_named(self.address):
            durable.replace(self._at(path), self._at(target))
        self.sync(target.rpartition("/")[0])

    def link(self, folder: Folder, path: str, target: str) -> bool:
        """Make a hard link, and sync the bytes: a broker may not have."""
        try:
            with full_disk_named(self.address):
                durable.link(f"{folder}/{path}", self._at(target))
        except OSError as error:
            if error.errno not in UNLINKABLE:
                raise
            return False
        try:
            made = os.open(self._at(target), os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC)
            try:
                with full_disk_named(self.address):
                    durable.fsync(made)
            finally:
                os.close(made)
        except BaseException:
            durable.unlink(self._at(target))
            raise
        return True

    def remove(self, paths: Iterable[str]) -> None:
        """Unlink them."""
        for path in paths:
            durable.unlink(self._at(path))

    def remove_folder(self, path: str) -> None:
        """Remove the directory if it is empty."""
        durable.remove_directory(self._at(path))

    def sync(self, folder: str) -> None:
        """Sync the directory."""
        with full_disk_named(self.address):
            durable.fsync_directory(self._at(folder) if folder else self.address)

    def locked(self) -> AbstractContextManager[Callable[[], None]]:
        """Lock the file ``lock``: the kernel ends the lock with the process."""
        return _LocalLock(self._at(LOCK_FILE))

    def held_bytes(self, path: str) -> int:
        """Return the allocated bytes of a file without another name."""
        with suppress(FileNotFoundError):
            status = os.lstat(self._at(path))
            return status.st_blocks * 512 if status.st_nlink == 1 else 0
        return 0

    def local_path(self, path: str) -> str:
        """Return the path, once it was seen to be a plain file of the repository."""
        self.open(path).close()
        return self._at(path)

    def _at(self, path: str) -> str:
        if {"", ".", ".."} & set(path.split("/")):
            raise UnsafePathError(f"{self.address}/{path}", "not a name inside the repository")
        return f"{self.address}/{path}"


class _LocalLock:
    """The lock of a directory, as a context manager."""

    def __init__(self, path: str) -> None:
        self._path = path
        self._fd = -1

    def __enter__(self) -> Callable[[], None]:
        with full_disk_named(os.path.dirname(self._path)):  # noqa: PTH120
            self._fd = durable.open_lock(self._path, b"")
        try:
            is_ours = durable.lock_byte(self._fd)
        except BaseException:
            durable.close(self._fd)
            raise
        if not is_ours:
            durable.close(self._fd)
            who = ", ".join(map(str, openers(self._path))) or "another process"
            reason = f"{who} works on this repository now; let it finish"
            raise StoreLockedError(f"{os.path.dirname(self._path)}: {reason}")  # noqa: PTH120
        return lambda: None

    def __exit__(self, *_: object) -> None:
        durable.close(self._fd)
