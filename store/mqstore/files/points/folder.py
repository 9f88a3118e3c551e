"""A point as the folder of a store: its files are made of parts of the repository's objects.

It is read as a store in an object store is, so every read takes it. Nothing of it
grows, and it has no ``abort``.
"""

import errno
import os
from bisect import bisect_right
from collections import OrderedDict
from collections.abc import Callable, Iterable
from typing import Final, TypeVar

from mqstore.errors import CorruptStoreError, StoreNotFoundError, UnsafePathError
from mqstore.files.base.folder import Entry, ListedFolder
from mqstore.files.base.read_file import ReadFile
from mqstore.files.points.backing import Backing
from mqstore.files.points.manifest import PointFile, PointManifest
from mqstore.files.points.repository import Repository, WantedPoint, object_path

T = TypeVar("T")
R = TypeVar("R")

_OPEN_OBJECTS: Final = 8


class PointFiles:
    """The files of one point. Pickles with the point's number, so that tasks read the same one."""

    lacks_files = False
    """Whether files may be missing amid the others."""

    def __init__(
        self, backing: Backing, wanted: WantedPoint, manifest: PointManifest | None = None
    ) -> None:
        """``manifest``: of a point that has no name yet."""
        self.backing = backing
        self._wanted = wanted
        self._manifest = manifest
        self._tree: dict[str, dict[str, Entry]] = {}

    def __reduce__(self) -> tuple[object, ...]:
        number = self.manifest.head.number
        return (PointFiles, (self.backing, WantedPoint("number", number, str(number))))

    @property
    def manifest(self) -> PointManifest:
        """The point, which is found when it is first needed. Raises as ``Repository.find``."""
        if self._manifest is None:
            repository = Repository(self.backing)
            self._manifest = repository.manifest(repository.find(self._wanted))
        return self._manifest

    def check_restorable(self) -> None:
        """Raise InvalidOptionError where they are no store for a broker: a point is one."""

    def version(self, path: str) -> int:
        """Return the number of the point that a file is of."""
        return self.manifest.head.number

    def folder(self, path: str) -> dict[str, Entry]:
        """Return the entries of a folder by name. Raises FileNotFoundError, NotADirectoryError."""
        if not self._tree:
            self._tree = _tree(self.manifest)
        if path in self._tree:
            return self._tree[path]
        if path in self.manifest.files:
            raise NotADirectoryError(errno.ENOTDIR, os.strerror(errno.ENOTDIR), path)
        raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), path)


class PartsFile:
    """A ReadFile over the parts of one file of a point. ``close`` it."""

    def __init__(self, backing: Backing, file: PointFile, version: int) -> None:
        self._backing = backing
        self._file = file
        self._starts = [part.position for part in file.parts]
        self._version = version
        self._open: OrderedDict[str, ReadFile] = OrderedDict()

    @property
    def size(self) -> int:
        """What the manifest says."""
        return self._file.size

    def read(self, size: int, position: int) -> bytes:
        """Return up to ``size`` bytes at ``position``."""
        wanted = max(min(size, self.size - position), 0)
        parts = self._file.parts
        at = bisect_right(self._starts, position) - 1
        if at >= 0 and parts[at].end >= position + wanted and wanted:
            return self._of_object(at, wanted, position)
        into = bytearray(wanted)
        self.read_into(memoryview(into), position)
        return bytes(into)

    def read_into(self, into: memoryview, position: int) -> int:
        """Fill ``into``, with zeros where no part is; return how many bytes."""
        count = max(min(len(into), self.size - position), 0)
        end = position + count
        into[:count] = bytes(count)
        at = max(bisect_right(self._starts, position) - 1, 0)
        for number in range(at, len(self._file.parts)):
            part = self._file.parts[number]
            if part.position >= end:
                break
            start, stop = max(part.position, position), min(part.end, end)
            if start < stop:
                data = self._of_object(number, stop - start, start)
                into[start - position : stop - position] = data
        return count

    def next_data(self, position: int, end: int) -> int:
        """Return where the next part begins, or ``position`` if it lies in one."""
        at = bisect_right(self._starts, position) - 1
        if at >= 0 and self._file.parts[at].end > position:
            return position
        following = self._starts[at + 1 : at + 2]
        return min([*following, end])

    def version(self) -> tuple[int, ...]:
        """Return the size and the number of the point."""
        return self.size, self._version

    def close(self) -> None:
        """Close the objects."""
        for file in self._open.values():
            file.close()
        self._open.clear()

    def _of_object(self, number: int, size: int, position: int) -> bytes:
        part = self._file.parts[number]
        start = part.start + position - part.position
        data = self._object(part.name).read(size, start)
        if len(data) < size:
            reason = (
                f"the object ends before byte {start + size} of it, which {self._file.path} has"
            )
            raise self._damaged(part.name, start + len(data), reason)
        return data

    def _object(self, name: str) -> ReadFile:
        found = self._open.pop(name, None)
        if found is None:
            try:
                found = self._backing.open(object_path(name))
            except FileNotFoundError:
                reason = f"the object is missing, which {self._file.path} needs"
                raise self._damaged(name, 0, reason) from None
            while len(self._open) >= _OPEN_OBJECTS:
                self._open.popitem(last=False)[1].close()
        self._open[name] = found
        return found

    def _damaged(self, name: str, position: int, reason: str) -> CorruptStoreError:
        advice = "the repository is damaged, or the point was pruned meanwhile"
        where = f"{self._backing.address}/{object_path(name)}"
        return CorruptStoreError(where, position, f"{reason}; {advice}")


class PointFolder(ListedFolder):
    """A folder of a point: the root of its store, or one below it."""

    is_remote = True

    def __init__(self, text: str, files: PointFiles, below: str = "") -> None:
        """Take the folder ``below`` the root, which is called ``text``; nothing is asked."""
        self._text, self.files, self._below = text, files, below

    def __reduce__(self) -> tuple[object, ...]:
        return (PointFolder, (self._text, self.files, self._below))

    @property
    def name(self) -> str:
        """The repository and the point, as they were named."""
        return f"{self._text}/{self._below}" if self._below else self._text

    @property
    def is_by_path(self) -> bool:
        """Whether the repository is a directory."""
        return "://" not in self.files.backing.address

    @property
    def lacks_files(self) -> bool:
        """Whether it is of all points: what brokers deleted between two is in none."""
        return self.files.lacks_files

    @property
    def broker_name(self) -> str | None:
        """The name that the broker had when the point was made."""
        return self.files.manifest.head.broker_name or None

    @property
    def moment_ms(self) -> int:
        """When the point was begun: what waits in it has waited until then."""
        return self.files.manifest.head.began_ms

    def at(self, path: str) -> "PointFolder":
        """Return the folder ``path`` in it."""
        return PointFolder(self._text, self.files, self.at_root(path))

    def listing(self, path: str) -> dict[str, Entry]:
        """Return what the manifest has."""
        return self.files.folder(path)

    def open(self, path: str) -> PartsFile:
        """Return a file of the point."""
        self.check_inside(path)
        where = f"{self}/{path}"
        manifest = self.files.manifest
        file = manifest.files.get(self.at_root(path))
        if file is not None:
            return PartsFile(self.files.backing, file, self.files.version(self.at_root(path)))
        if self.entry(path) is not None:
            raise UnsafePathError(where, "not a plain file")
        raise FileNotFoundError(errno.ENOENT, "no such file in the point", where)

    def each(self, work: Callable[[T], R], items: Iterable[T]) -> list[R]:
        """Do as the repository's place does."""
        return self.files.backing.each(work, items)

    def check_there(self, kind: str = "directory") -> None:
        """Raise NotARepositoryError, PointNotFoundError, StoreNotFoundError for an empty point."""
        if not self.files.folder(""):
            raise StoreNotFoundError(self.name, "the point has no files")

    def local_path(self, path: str) -> str | None:
        """Return a file of this machine with just the bytes of ``path``; None if there is none."""
        file = self.files.manifest.files.get(self.at_root(path))
        if file is None or len(file.parts) != 1:
            return None
        part = file.parts[0]
        if (part.start, part.position, part.length) != (0, 0, file.size) or "pack" in part.name:
            return None
        try:
            return self.files.backing.local_path(object_path(part.name))
        except FileNotFoundError:  # Who opens it is told which object is missing.
            return None

    def at_root(self, path: str) -> str:
        """Return ``path`` relative to the store's root."""
        return "/".join(filter(None, (self._below, path)))


def _tree(manifest: PointManifest) -> dict[str, dict[str, Entry]]:
    """Return the entries of all folders by their paths."""
    tree: dict[str, dict[str, Entry]] = {"": {}}

    def add(path: str, entry: Entry) -> None:
        parent, _, name = path.rpartition("/")
        if parent not in tree:
            tree[parent] = {}
            add(parent, Entry(parent.rpartition("/")[2], True, 0))
        tree[parent][name] = entry

    for folder in manifest.folders:
        tree.setdefault(folder, {})
        add(folder, Entry(folder.rpartition("/")[2], True, 0))
    for path, file in manifest.files.items():
        add(path, Entry(path.rpartition("/")[2], False, file.size))
    return tree


def point_folder(backing: Backing, wanted: WantedPoint, text: str) -> PointFolder:
    """Return the root of a point's store, which errors call ``text``; nothing is asked yet."""
    return PointFolder(text, PointFiles(backing, wanted))
