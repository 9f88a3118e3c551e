"""A folder that is opened to be read: a directory, or a folder of an object store.

What a store's files are read with is part of the value, so that who has a ``Folder`` lists and
reads what is in it without knowing which of both it is.
"""

import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar, NamedTuple, TypeVar

from mqstore.errors import UnsafePathError
from mqstore.files.base.read_file import ReadFile
from mqstore.files.base.side_by_side import each_beside
from mqstore.format.config import MAX_CONFIG_BYTES

T = TypeVar("T")
R = TypeVar("R")


@dataclass(frozen=True, slots=True)
class Entry:
    """One name in a folder; ``size`` is in bytes, 0 for a directory."""

    name: str
    is_directory: bool
    size: int


class OnlyFile(NamedTuple):
    """The one thing in a folder: a plain file, its size in bytes, and the first bytes of it."""

    name: str
    size: int
    head: bytes


class Folder(ABC):
    """A folder, and how what is in it is read. Pickles; equal to any other of the same name.

    A ``path`` is relative to the folder; the empty one is the folder itself. Each method raises
    UnsafePathError for a path that leads elsewhere. Several threads may use one at a time.
    """

    __slots__ = ()

    is_remote: ClassVar[bool] = False
    """Whether every read of a file waits for a network."""
    opens_databases: ClassVar[bool] = True
    """Whether RocksDB databases in it are read."""

    @property
    def is_by_path(self) -> bool:
        """Whether it is what lies under a path on this host; not so of a service's address."""
        return True

    @property
    def lacks_files(self) -> bool:
        """Whether files may be missing amid those of a store, as is known and told."""
        return False

    @property
    @abstractmethod
    def name(self) -> str:
        """The folder's full path or address, for messages; as text, a folder is its name."""

    @property
    def real_path(self) -> str:
        """The one name of the folder: two names of one folder have the same."""
        return self.name

    @property
    def broker_name(self) -> str | None:
        """The name of the broker whose store this is, where it is known beside the store."""
        return None

    @property
    def moment_ms(self) -> int | None:
        """The moment (epoch ms) that the folder is of, if it is not what it is now."""
        return None

    def now_ms(self) -> int:
        """Return the time that ages are counted to: the folder's moment, else the clock's."""
        moment_ms = self.moment_ms
        return time.time_ns() // 1_000_000 if moment_ms is None else moment_ms

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.name!r})"

    def __str__(self) -> str:
        return self.name

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Folder) and self.name == other.name

    def __hash__(self) -> int:
        return hash(self.name)

    @abstractmethod
    def at(self, path: str) -> "Folder":
        """Return the folder ``path`` in it; nothing is looked at."""

    @abstractmethod
    def check_there(self, kind: str = "directory") -> None:
        """Raise StoreNotFoundError, with the ``kind`` of folder, if it is not there.

        Raises UncleanStoreError where nothing may be read because a broker may be writing.
        """

    @abstractmethod
    def open(self, path: str) -> ReadFile:
        """Return the plain file ``path``, open for reading. Raises FileNotFoundError."""

    @abstractmethod
    def entries(self, path: str = "") -> list[Entry]:
        """Return the entries of the folder ``path``, sorted by name.

        What a running broker deletes meanwhile is left out. Raises FileNotFoundError or
        NotADirectoryError; UnsafePathError for a symbolic link or special file among the entries.
        """

    @abstractmethod
    def survey(self, path: str = "") -> list[tuple[str, str, int]]:
        """Return (name, kind, bytes) of all in ``path``, sorted; none if it is not there.

        ``kind`` is ``file``, ``directory``, ``link`` or ``special``; links are not followed.
        """

    @abstractmethod
    def names(self, path: str = "") -> list[str]:
        """Return the sorted names in ``path``, whatever they are; none if it is not there."""

    @abstractmethod
    def exists(self, path: str = "") -> bool:
        """Tell whether ``path`` is there, as anything."""

    @abstractmethod
    def is_directory(self, path: str) -> bool:
        """Tell whether ``path`` is there as a real directory."""

    def read_small(self, path: str, most: int = MAX_CONFIG_BYTES) -> bytes | None:
        """Return the first ``most`` bytes of the file ``path``, or None if it is not there."""
        try:
            file = self.open(path)
        except FileNotFoundError:
            return None
        try:
            return file.read(min(file.size, most), 0)
        finally:
            file.close()

    def only_files(self, paths: Sequence[str], most: int) -> list[OnlyFile | None]:
        """Return the one file in each of the folders ``paths``, with its first ``most`` bytes.

        None for a folder that has anything else or cannot be read, and for all of them where to
        list and read each costs no more: then that tells what is there.
        """
        del most
        return [None] * len(paths)

    def local_path(self, path: str) -> str | None:
        """Return the path of a file on this machine that has the bytes of ``path``, or None."""
        return None

    def each(self, work: Callable[[T], R], items: Iterable[T]) -> list[R]:
        """Return what ``work``, which reads files in it, returns for each item, in order.

        Several are done at a time where each read waits: for a network, or for a disk.
        """
        return each_beside(work, items)


class ListedFolder(Folder):
    """A folder in a listing that has all names and sizes: it does not grow while it is read."""

    __slots__ = ()

    @abstractmethod
    def listing(self, path: str) -> Mapping[str, Entry]:
        """Return the entries of ``path`` by name. Raises FileNotFoundError, NotADirectoryError."""

    @abstractmethod
    def at_root(self, path: str) -> str:
        """Return ``path`` as the listing has it: relative to the store's root."""

    def entries(self, path: str = "") -> list[Entry]:
        """Return what the listing has."""
        return sorted(self.listing(self.at_root(path)).values(), key=lambda entry: entry.name)

    def survey(self, path: str = "") -> list[tuple[str, str, int]]:
        """Return what the listing has; none if the folder is not there."""
        return [
            (entry.name, "directory" if entry.is_directory else "file", entry.size)
            for entry in self.known(path)
        ]

    def names(self, path: str = "") -> list[str]:
        """Return the names in the listing; none if the folder is not there."""
        return [entry.name for entry in self.known(path)]

    def exists(self, path: str = "") -> bool:
        """Tell whether the listing has ``path``."""
        return self.entry(path) is not None

    def is_directory(self, path: str) -> bool:
        """Tell whether the listing has ``path`` as a folder."""
        found = self.entry(path)
        return found is not None and found.is_directory

    def known(self, path: str) -> list[Entry]:
        """Return the entries of ``path``; none if it is not there."""
        try:
            return self.entries(path)
        except (FileNotFoundError, NotADirectoryError):
            return []

    def entry(self, path: str) -> Entry | None:
        """Return what the listing has of one name."""
        where = self.at_root(path)
        if not where:
            return Entry("", True, 0)
        folder, _, name = where.rpartition("/")
        try:
            return self.listing(folder).get(name)
        except (FileNotFoundError, NotADirectoryError):
            return None

    def check_inside(self, path: str) -> None:
        """Raise UnsafePathError for a ``path`` that is no name in the folder."""
        if {"", ".", ".."} & set(path.split("/")) or "\0" in path:
            raise UnsafePathError(f"{self}/{path}", "not a name inside the store")
