"""A point in the making: what takes the files of a store into a repository.

Full files become objects of their own, by a hard link where that can be. A file that only grows
gives the bytes behind those of the point before. Of any other file the cells that differ are
written, of 256 KiB each. All bytes of one point go to one object, its pack.
"""

import hashlib
import logging
import os
from collections.abc import Iterable, Iterator
from typing import Final

from mqstore.files.base.directory import descriptor
from mqstore.files.base.folder import Folder
from mqstore.files.base.read_file import LocalFile
from mqstore.files.copy_target import data_ranges
from mqstore.files.points.backing import Backing, NewObject
from mqstore.files.points.damaged_parts import DamagedParts
from mqstore.files.points.manifest import (
    DIGEST_CHARS,
    PointFile,
    PointManifest,
    PointPart,
    digest_of,
)
from mqstore.files.points.repository import OBJECT_FOLDERS, object_folder, object_path
from mqstore.files.points.seal import seal_start

_LOG: Final = logging.getLogger(__name__)
_CHANGED: Final = (
    "%s: its bytes are not those of the point before, and a full file never changes: the disk, or "
    "something else, changed it. mqlog verify STORE says which messages that harms"
)
_CELL_BYTES: Final = 256 << 10
_BYTES_AT_ONCE: Final = 1 << 20
_MOST_PART_BYTES: Final = 64 << 20
_PACK: Final = "pack"


class PointTarget:
    """A CopyTarget that is the point ``number``; ``before`` is the point before it, if any.

    ``linked_bytes`` and ``written_bytes`` count what was taken anew, in the objects ``made``.
    Nothing of it counts before a manifest names it.
    """

    def __init__(
        self,
        backing: Backing,
        number: int,
        before: PointManifest | None,
        damaged: DamagedParts | None = None,
    ) -> None:
        """Look which objects of the point before are there: what is missing is taken anew.

        So is what ``damaged`` names.
        """
        self._backing = backing
        self._number = number
        self._before = before.files if before is not None else {}
        needed = before.objects() if before is not None else set()
        self._sizes = {
            f"{folder}/{entry.name}": entry.size
            for folder in {name.partition("/")[0] for name in needed}
            for entry in backing.entries(f"{OBJECT_FOLDERS}/{folder}")
        }
        self._damaged = damaged or DamagedParts()
        self._suffix = backing.new_suffix()
        self._pack: NewObject | None = None
        self._pack_bytes = 0
        self._own = 0
        self._has_folder = False
        self._folders: dict[str, None] = {}
        self.files: dict[str, PointFile] = {}
        self.made: set[str] = set()
        self.linked_bytes = 0
        self.written_bytes = 0

    @property
    def folders(self) -> tuple[str, ...]:
        """The folders that were made."""
        return tuple(self._folders)

    def link(self, folder: Folder, path: str, as_path: str) -> None:
        """Take a full file: the object that the point before has, a link, or its bytes."""
        with _SourceFile(folder, path) as source:
            old = self._old(as_path)
            if old is not None and old.size == source.size:
                if old.seen == source.seen:
                    self.files[as_path] = old
                    return
                if self._is_unchanged(old, source):
                    self.files[as_path] = PointFile(as_path, old.size, old.parts, source.seen)
                    return
            name = self._next_name()
            if self._backing.link(folder, path, object_path(name)):
                whole = source.digest(0, source.size)
                self._warn_of_changed(f"{folder}/{path}", as_path, source, whole)
                made = [PointPart(name, 0, 0, source.size, whole)] if source.size else []
                parts = tuple(made)
                self.linked_bytes += source.size
            elif old is not None and old.grown:
                parts = self._grown(source, old, source.size)
            else:
                parts = self._object(name, source)
            self.files[as_path] = PointFile(as_path, source.size, parts, source.seen)

    def take(self, folder: Folder, path: str, as_path: str, *, end: int | None = None) -> None:
        """Take a file that grows (``end`` given), or one that may change anywhere."""
        with _SourceFile(folder, path) as source:
            if end is None:
                self.compose(as_path, source.size, source.pieces(0, source.size))
                return
            cut = min(end, source.size)
            parts = self._grown(source, self._old(as_path), cut)
            seal = source.seal(cut)
            self.files[as_path] = PointFile(as_path, source.size, parts, (), cut, seal)

    def put(self, as_path: str, data: bytes) -> None:
        """Make a file of ``data``."""
        self.compose(as_path, len(data), [(0, data)])

    def compose(self, as_path: str, size: int, pieces: Iterable[tuple[int, bytes]]) -> None:
        """Take the cells of a file that are not those of the point before."""
        old = self._old(as_path)
        known = {(p.position, p.length, p.digest): p for p in old.parts} if old is not None else {}
        parts = []
        for position, data in _cells(pieces):
            digest = digest_of(data)
            part = known.get((position, len(data), digest))
            if part is None:
                part = PointPart(self._pack_name, self._pack_bytes, position, len(data), digest)
                self._write(data)
            parts.append(part)
        self.files[as_path] = PointFile(as_path, size, tuple(parts))

    def make_directory(self, path: str) -> None:
        """Note a folder."""
        self._folders.setdefault(path)

    def drop(self, folder: str = "") -> None:
        """Forget the files that were taken, or those below a folder: they are taken again."""
        for path in [path for path in self.files if not folder or path.startswith(f"{folder}/")]:
            del self.files[path]

    def finish(self) -> None:
        """Make all that was taken durable."""
        if self._pack is not None:
            pack, self._pack = self._pack, None
            pack.close()
        if self._has_folder:
            self._backing.sync(object_folder(self._number))
            self._backing.sync(OBJECT_FOLDERS)

    def leave(self) -> None:
        """Give the pack up."""
        if self._pack is not None:
            self._pack.leave()

    def _old(self, path: str) -> PointFile | None:
        """Return the file of the point before, if all of its objects are there."""
        old = self._before.get(path)
        if old is None:
            return None
        there = (self._sizes.get(p.name, -1) >= p.start + p.length for p in old.parts)
        return old if all(there) and not any(map(self._damaged.has, old.parts)) else None

    def _warn_of_changed(self, where: str, path: str, source: "_SourceFile", whole: str) -> None:
        """Warn where a full file that was taken by a link has other bytes now, in the store too."""
        old = self._before.get(path)
        if old is None or old.seen != source.seen or [part.digest for part in old.parts] == [whole]:
            return
        if len(old.parts) == 1 and old.parts[0].length == source.size:
            _LOG.warning(_CHANGED, where)

    def _is_unchanged(self, old: PointFile, source: "_SourceFile") -> bool:
        """Tell whether a file has the bytes of the point before, though its times differ."""
        if not old.seen or not old.parts or old.parts[-1].end != old.size:
            return False
        return all(source.digest(p.position, p.end) == p.digest for p in old.parts)

    def _grown(
        self, source: "_SourceFile", old: PointFile | None, cut: int
    ) -> tuple[PointPart, ...]:
        """Return the parts of the bytes before ``cut``: those there were, and what is new.

        A log that was cut and written again differs in the last record before the old end: it
        has another store timestamp. One that is shorter now is taken whole.
        """
        parts: list[PointPart] = []
        done = 0
        may_go_on = old is not None and 0 < old.grown <= cut and old.size == source.size
        if old is not None and may_go_on and source.seal(old.grown) == old.seal:
            parts, done = list(old.parts), old.grown
        for start, stop in source.ranges(done, cut):
            for position in range(start, stop, _MOST_PART_BYTES):
                parts.append(
                    self._appended(source, position, min(position + _MOST_PART_BYTES, stop))
                )
        return tuple(parts)

    def _appended(self, source: "_SourceFile", start: int, stop: int) -> PointPart:
        made, first = hashlib.sha256(), self._pack_bytes
        for _, data in source.pieces(start, stop, skips_holes=False):
            made.update(data)
            self._write(data)
        digest = made.hexdigest()[:DIGEST_CHARS]
        return PointPart(self._pack_name, first, start, self._pack_bytes - first, digest)

    def _object(self, name: str, source: "_SourceFile") -> tuple[PointPart, ...]:
        """Copy a whole file to an object of its own."""
        made, written = hashlib.sha256(), self._backing.create(object_path(name))
        try:
            for _, data in source.pieces(0, source.size, skips_holes=False):
                made.update(data)
                written.write(data)
                self.written_bytes += len(data)
        except BaseException:
            written.leave()
            raise
        written.close()
        digest = made.hexdigest()[:DIGEST_CHARS]
        return (PointPart(name, 0, 0, source.size, digest),) if source.size else ()

    @property
    def _pack_name(self) -> str:
        return f"{self._number:08d}/{_PACK}{self._suffix}"

    def _write(self, data: bytes) -> None:
        if self._pack is None:
            self._make_folder()
            self._pack = self._backing.create(object_path(self._pack_name))
            self.made.add(self._pack_name)
        self._pack.write(data)
        self._pack_bytes += len(data)
        self.written_bytes += len(data)

    def _next_name(self) -> str:
        self._make_folder()
        self._own += 1
        name = f"{self._number:08d}/{self._own}{self._suffix}"
        self.made.add(name)
        return name

    def _make_folder(self) -> None:
        if not self._has_folder:
            self._backing.make_folder(object_folder(self._number))
            self._has_folder = True


class _SourceFile:
    """A file of the store, open to be taken. Raises FileNotFoundError, UnsafePathError."""

    def __init__(self, folder: Folder, path: str) -> None:
        self._file = LocalFile(descriptor(folder, path))
        self.size, device, inode, mtime, _ = self._file.version()
        self.seen = (device, inode, max(mtime, 0))

    def __enter__(self) -> "_SourceFile":
        return self

    def __exit__(self, *_: object) -> None:
        self._file.close()

    def ranges(self, start: int, end: int) -> Iterator[tuple[int, int]]:
        """Yield the parts of [start, end) that are no holes."""
        for first, stop in data_ranges(self._file.fd, end):
            if stop > start:
                yield max(first, start), stop

    def pieces(
        self, start: int, end: int, *, skips_holes: bool = True
    ) -> Iterator[tuple[int, bytes]]:
        """Yield positions and bytes, a MiB at most at a time."""
        found = self.ranges(start, end) if skips_holes else [(start, end)]
        for first, stop in found:
            position = first
            while position < stop:
                data = os.pread(self._file.fd, min(_BYTES_AT_ONCE, stop - position), position)
                if not data:  # It was cut short meanwhile.
                    raise FileNotFoundError(2, "the file became shorter while it was read")
                yield position, data
                position += len(data)

    def seal(self, end: int) -> str:
        """Return the digest of the last bytes before ``end``."""
        return self.digest(seal_start(end), end)

    def digest(self, start: int, end: int) -> str:
        """Return the digest of [start, end)."""
        made = hashlib.sha256()
        for _, data in self.pieces(start, end, skips_holes=False):
            made.update(data)
        return made.hexdigest()[:DIGEST_CHARS]


def _cells(pieces: Iterable[tuple[int, bytes]]) -> Iterator[tuple[int, bytes]]:
    """Yield the cells that have a byte other than zero; pieces ascend, a cell ends at its last."""
    cell, held = -1, bytearray()
    for position, data in pieces:
        done = 0
        while done < len(data):
            number, inside = divmod(position + done, _CELL_BYTES)
            if number != cell:
                if any(held):
                    yield cell * _CELL_BYTES, bytes(held)
                cell, held = number, bytearray()
            held += bytes(inside - len(held))
            step = min(_CELL_BYTES - inside, len(data) - done)
            held += data[done : done + step]
            done += step
    if any(held):
        yield cell * _CELL_BYTES, bytes(held)
