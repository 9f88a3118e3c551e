"""A disk that forgets: what a run of ours did to the file system, and what a power cut may leave.

`Recorder` stands in for `os` in the seam (mqstore.files.base.durable), does what is asked
of it and keeps a list. `Disk` plays that list up to any place and says what may be on the disk
then: all that was synced, and any of the rest. A write is cut into pieces of 512 bytes or 4 KiB,
each of which may be there or not; so may the growth of a file, and each change of a directory.
A rename is one change of names, which the sync of its target's directory makes durable. A file
that was synced has its bytes, and no name in a directory that was not.

`Disk.kill` ends the process and not the power: whoever comes next finds all that was written, and
goes on with a disk that has not got all of it yet.

That is less than ext4, XFS or Btrfs promise: whoever survives it survives those.
"""

import hashlib
import itertools
import os
import random
import sys
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from types import FrameType
from typing import Any

import numpy as np
import pytest

from mqstore.files.base import durable

ALL_SUBSETS = 6  # of at most that many pieces
_FRAMES = 4
_WINDOW = 20  # operations after a forgotten sync, after each of which what is left is looked at
_TEMPORARY = getattr(os, "O_TMPFILE", 0) & ~os.O_DIRECTORY


@dataclass(frozen=True, slots=True)
class Write:
    """Bytes of a file."""

    node: int
    position: int
    data: bytes


@dataclass(frozen=True, slots=True)
class Size:
    """The length of a file: set, or with `grows` only ever raised."""

    node: int
    size: int
    grows: bool


@dataclass(frozen=True, slots=True)
class Names:
    """One change of directories: each (directory, name) now leads to a node, or nowhere."""

    node: int  # the directory whose sync makes it durable
    changes: tuple[tuple[int, str, int | None], ...]


@dataclass(frozen=True, slots=True)
class Sync:
    """What was done to this file or directory is durable."""

    node: int


@dataclass(frozen=True, slots=True)
class Lost:
    """A sync failed: what was not durable of this file or directory never will be."""

    node: int


@dataclass(frozen=True, slots=True)
class Forgotten:
    """Here a sync was not made that ought to be: see `forgetting`."""

    node: int


@dataclass(frozen=True, slots=True)
class Mark:
    """A place in the list that a test knows by name."""

    name: str


Op = Write | Size | Names | Sync | Lost | Forgotten | Mark
Unit = Write | Size | Names


@dataclass
class Image:
    """Files and directories by number; 0 is the directory that all the others are in."""

    files: dict[int, bytes] = field(default_factory=dict)
    folders: dict[int, dict[str, int]] = field(default_factory=lambda: {0: {}})

    @classmethod
    def of(cls, base: Path) -> "Image":
        """Read what is there."""
        image = cls()
        image._read(base, 0)
        return image

    def _read(self, folder: Path, node: int) -> None:
        for path in sorted(folder.iterdir()):
            new = len(self.files) + len(self.folders)
            self.folders[node][path.name] = new
            if path.is_dir():
                self.folders[new] = {}
                self._read(path, new)
            else:
                self.files[new] = path.read_bytes()


@dataclass(frozen=True, slots=True)
class Earlier:
    """What a process did before it was killed."""

    start: Image
    ops: list[Op]
    seen: Image
    """Start and all operations: what is read, durable or not."""
    count: int
    """The highest number of a file or directory."""


_forgotten: set[str] = set()


def mapped_at(view: memoryview) -> tuple[str, int]:
    """Return the file that is mapped at the start of a buffer, and the position in it."""
    address = np.frombuffer(view, np.uint8).ctypes.data
    for line in Path("/proc/self/maps").read_text(encoding="utf-8").splitlines():
        # 7f1c8000-7f1c9000 rw-s 00001000 fe:00 1234   /path
        span, _, start, _, _, *path = line.split(maxsplit=5)
        low, high = (int(edge, 16) for edge in span.split("-"))
        if low <= address < high and path:
            return path[0], int(start, 16) + address - low
    raise AssertionError("no file is mapped there")


@contextmanager
def forgetting(*places: str) -> Iterator[None]:
    """Let the calls of those places (see `place`) not be made, as if the code had none there."""
    _forgotten.update(places)
    try:
        yield
    finally:
        _forgotten.difference_update(places)


def place(call: str) -> str:
    """Return where in mqstore a call of the seam comes from: function and line in it, innermost
    first, as in `fsync append.CommitLogAppender.publish:6 < apply.Application.publish:2`.
    """
    names: list[str] = []
    frame: FrameType | None = sys._getframe(2)
    while frame is not None and len(names) < _FRAMES:
        path = frame.f_code.co_filename
        if "/mqstore/" in path and not path.endswith("/durable.py"):
            line = frame.f_lineno - frame.f_code.co_firstlineno
            names.append(f"{Path(path).stem}.{frame.f_code.co_qualname}:{line}")
        elif path.endswith("/durable.py"):
            call = frame.f_code.co_name
        frame = frame.f_back
    return f"{call} {' < '.join(names)}"


class Passing:
    """Stands in for `os` in the seam and passes everything on, but for syncs: they cost time."""

    def __getattr__(self, name: str) -> Any:
        return getattr(os, name)

    def fsync(self, fd: int) -> None:
        """Do nothing: the disk that matters is the simulated one."""

    fdatasync = fsync

    def replace(self, source: str, target: str) -> None:
        if place("replace") in _forgotten:
            self._copy(source, target)
        else:
            os.replace(source, target)  # noqa: PTH105 - as the seam does

    def _copy(self, source: str, target: str) -> None:
        """Write what the file holds over the other: what a rename is there to avoid."""
        fd = self.open(target, os.O_RDWR | os.O_CREAT | os.O_TRUNC, 0o640)
        self.pwrite(fd, Path(source).read_bytes(), 0)
        self.close(fd)
        self.unlink(source)


class Recorder(Passing):
    """Stands in for `os` in the seam, and lists every change below `base`.

    With `earlier` the list goes on: that is how what lies below `base` came about.
    """

    def __init__(self, base: Path, earlier: Earlier | None = None) -> None:
        self.base = str(base)
        self.start = earlier.start if earlier else Image.of(base)
        self.ops: list[Op] = list(earlier.ops) if earlier else []
        self.since = len(self.ops)
        """How many operations were another process's, which was killed."""
        self.places: set[str] = set()
        """Where syncs and renames came from."""
        seen = earlier.seen if earlier else self.start
        self._folders = {n: dict(names) for n, names in seen.folders.items()}
        # A file that was made and not written to yet has no contents there.
        self._sizes = {n: 0 for names in seen.folders.values() for n in names.values()}
        self._sizes |= {n: len(data) for n, data in seen.files.items()}
        self._count = earlier.count if earlier else len(seen.folders) + len(seen.files)
        self._open: dict[int, int] = {}

    @property
    def folders(self) -> set[int]:
        """The numbers of all directories that there ever were."""
        return set(self._folders)

    @property
    def count(self) -> int:
        """The highest number of a file or directory."""
        return self._count

    def mark(self, name: str) -> None:
        """Name this place of the list."""
        self.ops.append(Mark(name))

    def open(self, path: str, flags: int, mode: int = 0o777) -> int:
        new = self._find(path) is None
        fd = os.open(path, flags, mode)
        if flags & _TEMPORARY:
            self._open[fd] = self._new_file()
        elif flags & os.O_CREAT and new:
            self._open[fd] = self._new_file()
            self._name(path, self._open[fd])
        elif (node := self._find(path)) is not None:
            self._open[fd] = node
            if flags & os.O_TRUNC:
                self._resize(node, 0, grows=False)
        return fd

    def close(self, fd: int) -> None:
        self._open.pop(fd, None)
        os.close(fd)

    def pwrite(self, fd: int, data: bytes | memoryview, position: int) -> int:
        done = os.pwrite(fd, data, position)
        node = self._open.get(fd)
        if node is not None:
            if position + done > self._sizes[node]:
                self._resize(node, position + done, grows=True)
            self.ops.append(Write(node, position, bytes(data[:done])))
        return done

    def preadv(self, fd: int, buffers: list[memoryview], position: int) -> int:
        """Note what was read into a mapping as written to the file that is mapped there."""
        done = os.preadv(fd, buffers, position)
        path, at = mapped_at(buffers[0])
        node = self._find(path)
        if node is not None:
            self.ops.append(Write(node, at, bytes(buffers[0][:done])))
        return done

    def ftruncate(self, fd: int, size: int) -> None:
        os.ftruncate(fd, size)
        if fd in self._open:
            self._resize(self._open[fd], size, grows=False)

    def posix_fallocate(self, fd: int, position: int, size: int) -> None:
        os.posix_fallocate(fd, position, size)
        node = self._open.get(fd)
        if node is not None and position + size > self._sizes[node]:
            self._resize(node, position + size, grows=True)

    def fsync(self, fd: int) -> None:
        node = self._node(fd)
        self.places.add(place("fsync"))
        if node is not None:
            self.ops.append((Forgotten if place("fsync") in _forgotten else Sync)(node))

    fdatasync = fsync

    def link(self, source: str, target: str, **how: Any) -> None:
        os.link(source, target, **how)
        node = self._open[int(source.rsplit("/", 1)[1])] if _is_fd(source) else self._find(source)
        self._name(target, node)

    def replace(self, source: str, target: str) -> None:
        self.places.add(place("replace"))
        super().replace(source, target)
        if place("replace") in _forgotten:
            self.ops.append(Forgotten(self._find(target) or 0))
            return
        node = self._find(source)
        self._change((target, node), (source, None))

    def unlink(self, path: str) -> None:
        os.unlink(path)  # noqa: PTH108
        self._name(path, None)

    def mkdir(self, path: str, mode: int = 0o777) -> None:
        os.mkdir(path, mode)  # noqa: PTH102
        node = self._count = self._count + 1
        self._folders[node] = {}
        self._name(path, node)

    def rmdir(self, path: str) -> None:
        os.rmdir(path)  # noqa: PTH106
        self._name(path, None)

    def _node(self, fd: int) -> int | None:
        """Return what a descriptor leads to, also one that was opened past the seam, to read."""
        known = self._open.get(fd)
        return self._find(path_of(fd)) if known is None else known

    def _new_file(self) -> int:
        self._count += 1
        self._sizes[self._count] = 0
        return self._count

    def _resize(self, node: int, size: int, *, grows: bool) -> None:
        self._sizes[node] = max(size, self._sizes[node]) if grows else size
        self.ops.append(Size(node, size, grows))

    def _name(self, path: str, node: int | None) -> None:
        self._change((path, node))

    def _change(self, *entries: tuple[str, int | None]) -> None:
        changes = []
        for path, node in entries:
            folder, _, name = path.rpartition("/")
            parent = self._find(folder)
            if parent is None:
                return  # Not on the disk that is looked at.
            changes.append((parent, name, node))
        for parent, name, node in changes:
            _enter(self._folders[parent], name, node)
        self.ops.append(Names(changes[0][0], tuple(changes)))

    def _find(self, path: str) -> int | None:
        if path != self.base and not path.startswith(f"{self.base}/"):
            return None
        node: int | None = 0
        for part in path[len(self.base) + 1 :].split("/"):
            if part:
                node = self._folders.get(-1 if node is None else node, {}).get(part)
        return node


@contextmanager
def standing_in(stand_in: Passing) -> Iterator[None]:
    """Let `stand_in` be the `os` of the seam."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(durable, "os", stand_in)
        yield


@dataclass(frozen=True, slots=True)
class State:
    """What one power cut left: contents by path, None for a directory."""

    prefix: int
    """How many of the recorded operations were done."""
    subset: int
    """Which of the pieces that were not synced are there: one bit each, the oldest lowest."""
    pending: int
    """How many such pieces there were."""
    tree: dict[str, bytes | None]
    marks: frozenset[str]
    """The marks that were passed."""

    def write(self, base: Path) -> None:
        """Make it so, below an empty directory."""
        for path, data in self.tree.items():
            where = f"{base}/{path}"
            if data is None:
                os.mkdir(where, 0o750)  # noqa: PTH102 - thousands of files a second
                continue
            fd = os.open(where, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o640)
            os.write(fd, data)
            os.close(fd)


class Disk:
    """All states that a power cut may leave of one recording."""

    def __init__(self, recorder: Recorder, piece_bytes: int = 512) -> None:
        self.ops = recorder.ops
        self.since = recorder.since
        """The first place of interest: before it, another process was at work."""
        self.start = recorder.start
        self._folders = recorder.folders
        self._count = recorder.count
        self._piece_bytes = piece_bytes

    def kill(self, prefix: int, base: Path) -> Recorder:
        """Make, below the empty directory `base`, what a process sees that comes after one that
        was killed there; return what lists all that it does.
        """
        image, pending, _ = self._play(prefix)
        seen = _with(image, pending, -1)
        State(prefix, -1, len(pending), _tree(seen), frozenset()).write(base)
        return Recorder(base, Earlier(self.start, self.ops[:prefix], seen, self._count))

    def states(self, rng: random.Random, samples: int) -> Iterator[State]:
        """Yield states, prefix by prefix; of one with many pieces, about that many."""
        for prefix in range(len(self.ops) + 1):
            yield from self.cut(prefix, rng, samples)

    def cut(self, prefix: int, rng: random.Random, samples: int) -> Iterator[State]:
        """Yield the states of a power cut at one place; some may be the same."""
        image, pending, marks = self._play(prefix)
        for subset in subsets(len(pending), rng, samples):
            yield self._state(prefix, subset, image, pending, marks)

    def draw(self, rng: random.Random) -> State:
        """Return any state; after a kill, one in four is of the end of what followed."""
        count = len(self.ops) + 1 - self.since
        prefix = self.since + rng.randrange(count * 4 // 3 if self.since else count)
        prefix = min(prefix, len(self.ops))
        image, pending, marks = self._play(prefix)
        subset = rng.choice(list(subsets(len(pending), rng, 2)))
        return self._state(prefix, subset, image, pending, marks)

    def without_the_forgotten(self) -> Iterator[State]:
        """Yield states in which what a forgotten sync was for is not there, or not all of it."""
        for index, op in enumerate(self.ops):
            if isinstance(op, Forgotten):
                first = max(index, self.since)
                near = range(first, min(first + _WINDOW, len(self.ops)))
                for prefix in [*near, *range(near.stop, len(self.ops), 6), len(self.ops)]:
                    image, pending, marks = self._play(prefix)
                    for subset in _lacking(pending, op.node):
                        yield self._state(prefix, subset, image, pending, marks)

    def state(self, prefix: int, subset: int) -> State:
        """Return one state again."""
        return self._state(prefix, subset, *self._play(prefix))

    def _play(self, prefix: int) -> tuple[Image, list[Unit], frozenset[str]]:
        """Return what is durable, the pieces that are not, and the marks passed."""
        files = dict(self.start.files)
        folders = {n: dict(self.start.folders.get(n, {})) for n in self._folders}
        image = Image(files, folders)
        pending: list[Unit] = []
        marks = set()
        for op in self.ops[:prefix]:
            if isinstance(op, Mark):
                marks.add(op.name)
            elif isinstance(op, Sync | Lost):
                for unit in pending:
                    if unit.node == op.node and isinstance(op, Sync):
                        _apply(image, unit)
                pending = [unit for unit in pending if unit.node != op.node]
            elif not isinstance(op, Forgotten):
                pending += self._pieces(op)
        return image, pending, frozenset(marks)

    def _pieces(self, op: Unit) -> Iterable[Unit]:
        if not isinstance(op, Write):
            return [op]
        size = self._piece_bytes
        end = op.position + len(op.data)
        edges = [op.position, *range(op.position // size * size + size, end, size), end]
        return [
            Write(op.node, a, op.data[a - op.position : b - op.position])
            for a, b in itertools.pairwise(edges)
        ]

    def _state(
        self, prefix: int, subset: int, image: Image, pending: list[Unit], marks: frozenset[str]
    ) -> State:
        left = _tree(_with(image, pending, subset))
        return State(prefix, subset, len(pending), left, marks)


def subsets(count: int, rng: random.Random, samples: int) -> Iterator[int]:
    """Yield subsets of that many pieces: all if they are few, else the telling ones and some."""
    if count <= ALL_SUBSETS:
        yield from range(1 << count)
        return
    everything = (1 << count) - 1
    yield from (0, everything)
    for _ in range(samples):
        kind = rng.randrange(5)
        if kind == 0:
            yield 1 << rng.randrange(count)
        elif kind == 1:
            yield everything & ~(1 << rng.randrange(count))
        else:
            share = (0.15, 0.5, 0.85)[kind - 2]
            yield sum(1 << bit for bit in range(count) if rng.random() < share)


def _lacking(pending: list[Unit], node: int) -> Iterator[int]:
    """Yield subsets that lack all pieces of a node, all but one, or one; none if it has none."""
    everything = (1 << len(pending)) - 1
    own = [1 << bit for bit, unit in enumerate(pending) if unit.node == node]
    if not own:
        return
    yield from {everything & ~sum(own), *(everything & ~(sum(own) - bit) for bit in own)}
    yield from {everything & ~bit for bit in own}


def digest(state: State, known: object = None) -> bytes:
    """Return a digest of all names and contents, and of what was promised and known by then."""
    told = hashlib.blake2b(repr((sorted(state.marks), known)).encode(), digest_size=16)
    for path, data in sorted(state.tree.items()):
        told.update(f"{path}\0{-1 if data is None else len(data)}\0".encode())
        told.update(data or b"")
    return told.digest()


def _with(image: Image, pending: list[Unit], subset: int) -> Image:
    """Return what is there with some of the pieces that were not synced."""
    left = Image(dict(image.files), {n: dict(names) for n, names in image.folders.items()})
    for bit, unit in enumerate(pending):
        if subset >> bit & 1:
            _apply(left, unit)
    return left


def _apply(image: Image, unit: Unit) -> None:
    if isinstance(unit, Names):
        for parent, name, node in unit.changes:
            _enter(image.folders[parent], name, node)
        return
    data = image.files.get(unit.node, b"")
    if isinstance(unit, Size):
        size = max(unit.size, len(data)) if unit.grows else unit.size
        image.files[unit.node] = data[:size].ljust(size, b"\0")
        return
    head = data[: unit.position].ljust(unit.position, b"\0")
    image.files[unit.node] = head + unit.data + data[unit.position + len(unit.data) :]


def _enter(names: dict[str, int], name: str, node: int | None) -> None:
    if node is None:
        names.pop(name, None)
    else:
        names[name] = node


def _tree(image: Image, node: int = 0, path: str = "") -> dict[str, bytes | None]:
    found: dict[str, bytes | None] = {}
    for name, child in image.folders.get(node, {}).items():
        where = f"{path}/{name}" if path else name
        if child in image.folders:
            found[where] = None
            found |= _tree(image, child, where)
        else:
            found[where] = image.files.get(child, b"")
    return found


def path_of(fd: int) -> str:
    """Return the path that a descriptor was opened by, or that its file was renamed to."""
    return str(Path(f"/proc/self/fd/{fd}").readlink())


def _is_fd(path: str) -> bool:
    return path.startswith("/proc/self/fd/")
