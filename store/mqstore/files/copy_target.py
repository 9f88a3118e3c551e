"""A directory in the making that becomes a copy of a store: names and bytes of another one.

What never changes any more gets a second name (a hard link); where that cannot be, across file
systems or where the system forbids it, its bytes are copied. All of it is made in a directory
beside the target, and gets the target's name when all is done: half a copy never has the name.

    TARGET.partial/mqlog-copy-in-progress    the mark, made first and removed last
    TARGET.partial/copy/                     the copy, which is renamed to TARGET

The process that makes the copy has the mark locked. So the directory of a copy that was killed can
be recognized, and the next copy to the same target removes it and begins anew.
"""

import errno
import os
import stat
from collections.abc import Iterable
from typing import Final, Protocol

from mqstore.errors import InvalidOptionError, shown
from mqstore.files.base import durable
from mqstore.files.base.directory import Directory, descriptor
from mqstore.files.base.folder import Folder
from mqstore.files.base.store_above import store_above
from mqstore.files.lock.processes import openers
from mqstore.format.names import COPY_MARK

UNLINKABLE: Final = frozenset(
    {errno.EXDEV, errno.EPERM, errno.EACCES, errno.EMLINK, errno.EOPNOTSUPP, errno.ENOSYS}
)
"""What ``durable.link`` fails with where a file cannot have a second name."""
_THERE: Final = frozenset({errno.EEXIST, errno.ENOTEMPTY, errno.ENOTDIR})
_NO_LOCKS: Final = frozenset({errno.ENOLCK, errno.EOPNOTSUPP, errno.ENOSYS, errno.EINVAL})
_COPY_FOLDER: Final = "copy"
_MARK_TEXT: Final = (
    b"A copy of a store is made here by mqlog. If no process does, remove the directory.\n"
)


class CopyTarget(Protocol):
    """What takes the files of a store: a Copy, or a point of a repository."""

    def link(self, folder: Folder, path: str, as_path: str) -> None:
        """Take a file that never changes again. Raises FileNotFoundError if it is gone."""

    def take(self, folder: Folder, path: str, as_path: str, *, end: int | None = None) -> None:
        """Take the bytes before ``end`` (all if None); the rest reads as zeros.

        With ``end`` the file is one that only grows. Raises FileNotFoundError if it is gone.
        """

    def put(self, as_path: str, data: bytes) -> None:
        """Make a file of ``data``."""

    def compose(self, as_path: str, size: int, pieces: Iterable[tuple[int, bytes]]) -> None:
        """Make a file of ``size`` bytes from pieces at ascending positions."""

    def make_directory(self, path: str) -> None:
        """Make a directory, and those it is in, where they are not there yet."""

    def drop(self) -> None:
        """Forget the files that were taken: all are taken again."""


class Copy:
    """The copy while it is made, a context manager. An error removes all of it.

    ``linked_bytes`` and ``copied_bytes`` count what was done. Raises InvalidOptionError for a
    target that is there, or that another process makes, and for a ``TARGET.partial`` that is not
    what a killed copy left.
    """

    def __init__(self, target: str) -> None:
        self._place = _Workplace(os.path.abspath(target))  # noqa: PTH100 - keeps links as named
        self._root = self._place.root
        self._directories: list[str] = []
        self._files: list[str] = []
        self.linked_bytes = 0
        self.copied_bytes = 0

    def __enter__(self) -> "Copy":
        self._place.take()
        self._directories.append("")
        return self

    def __exit__(self, kind: object, *_: object) -> None:
        try:
            if kind is None:
                self._sync()
                self._place.give_name()
        finally:
            self._place.leave()

    def link(self, folder: Folder, path: str, as_path: str) -> None:
        """Take the file ``folder/path`` as it is. Raises FileNotFoundError if it is gone."""
        target = self._make_room(as_path)
        try:
            durable.link(f"{folder}/{path}", target)
        except OSError as error:
            if error.errno not in UNLINKABLE:
                raise
        else:
            self._files.append(as_path)
            self.linked_bytes += os.stat(target).st_size  # noqa: PTH116
            return
        self.take(folder, path, as_path)

    def take(self, folder: Folder, path: str, as_path: str, *, end: int | None = None) -> None:
        """Copy the bytes of ``folder/path`` before ``end`` (all if None); the rest reads as zeros.

        The length stays, holes stay holes. Raises FileNotFoundError if it is gone.
        """
        source = descriptor(folder, path)
        try:
            size = os.fstat(source).st_size
            fd = self.create(as_path)
            try:
                for start, stop in data_ranges(source, size if end is None else min(end, size)):
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

    def compose(self, as_path: str, size: int, pieces: Iterable[tuple[int, bytes]]) -> None:
        """Make a file of ``size`` bytes from pieces at their positions; the rest is zeros."""
        fd = self.create(as_path)
        try:
            for position, data in pieces:
                durable.write_at(fd, data, position)
                self.copied_bytes += len(data)
            durable.truncate(fd, size)
        finally:
            durable.close(fd)

    def create(self, as_path: str) -> int:
        """Return a descriptor of a new, empty file of the copy."""
        fd = durable.create(self._make_room(as_path))
        self._files.append(as_path)
        return fd

    def rename(self, path: str, as_path: str) -> None:
        """Give a file of the copy another name, in the same directory."""
        durable.replace(f"{self._root}/{path}", f"{self._root}/{as_path}")
        self._files[self._files.index(path)] = as_path

    def make_directory(self, path: str) -> None:
        """Make a directory of the copy, and those it is in, where they are not there yet."""
        parts = path.split("/")
        for count in range(1, len(parts) + 1):
            folder = "/".join(parts[:count])
            if folder not in self._directories:
                durable.make_directory(f"{self._root}/{folder}")
                self._directories.append(folder)

    def drop(self) -> None:
        """Remove all that was made: it is made again."""
        self._place.empty()
        self._directories, self._files = [""], []
        self.linked_bytes = self.copied_bytes = 0

    @property
    def root(self) -> str:
        """Where the copy lies while it is made."""
        return self._root

    def _sync(self) -> None:
        """Make all of it durable; a linked file too, whose bytes a broker may not have synced."""
        for path in self._files:
            fd = descriptor(Directory(self._root), path)
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


def workplace(target: str) -> str:
    """Return the directory that a copy to ``target`` is made in."""
    return f"{os.path.abspath(target)}.partial"  # noqa: PTH100 - keeps links as named


class _Workplace:
    """``TARGET.partial``: where a copy is made, by one process at a time."""

    def __init__(self, target: str) -> None:
        self._target = target
        self._parent = os.path.dirname(target)  # noqa: PTH120
        self._path = workplace(target)
        self._mark = f"{self._path}/{COPY_MARK}"
        self._fd = -1
        self.root = f"{self._path}/{_COPY_FOLDER}"

    def take(self) -> None:
        """Make it anew, also where a copy that was killed left one. Raises InvalidOptionError."""
        while not self._lock():
            pass  # The process that made a copy there has just removed it.
        try:
            self._check_target()  # It may have got its name since we looked.
            durable.fsync(self._fd)
            durable.fsync_directory(self._path)
            self.empty()
        except BaseException:
            self.leave()
            raise

    def empty(self) -> None:
        """Leave nothing but an empty directory for the copy."""
        remove_tree(self._path, _COPY_FOLDER)
        durable.make_directory(self.root)

    def give_name(self) -> None:
        """Give what was made the target's name, durably."""
        durable.fsync_directory(self._path)
        try:
            durable.replace(self.root, self._target)
        except OSError as error:
            if error.errno in _THERE:
                raise self._refusal("was made by another process meanwhile") from error
            raise
        durable.fsync_directory(self._parent)

    def leave(self) -> None:
        """Remove it, with what did not get the target's name."""
        try:
            remove_tree(self._path, _COPY_FOLDER)
            durable.unlink(self._mark)
            durable.remove_directory(self._path)
        finally:
            durable.close(self._fd)

    def _lock(self) -> bool:
        """Make the directory and its mark, and lock it; False if they were removed meanwhile."""
        is_new = self._make()
        try:
            self._fd = durable.open_lock(self._mark, _MARK_TEXT)
        except FileNotFoundError:
            return False
        try:
            self._check_alone(is_new=is_new)
            if durable.same_file(self._mark, os.fstat(self._fd).st_ino):
                return True
        except BaseException:
            durable.close(self._fd)
            raise
        durable.close(self._fd)
        return False

    def _make(self) -> bool:
        """Make the directory; False if there is one, of a copy. Raises InvalidOptionError."""
        self._check_target()
        if not os.path.isdir(self._parent):  # noqa: PTH112
            raise self._refusal(f"there is no directory {self._parent}")
        try:
            durable.make_directory(self._path)
        except FileExistsError:
            problem = self._foreign()
            if problem:
                text = f"{self._path}, where the copy would be made, is there and {problem}"
                raise self._refusal(f"{text}. Remove it, or name another directory") from None
            return False
        return True

    def _check_target(self) -> None:
        if os.path.lexists(self._target):
            raise self._refusal("is there already; name a new directory")
        found = store_above(self._target)
        if found is not None:
            raise self._refusal(f"lies in {shown(found)}, which is a store or a repository")

    def _foreign(self) -> str:
        """Tell why what is there may be no copy's; nothing if it is a copy's, or gone again."""
        try:
            status = os.lstat(self._path)
        except FileNotFoundError:
            return ""
        if not stat.S_ISDIR(status.st_mode):
            return "no directory"
        if status.st_uid not in {os.geteuid(), os.stat(self._parent).st_uid}:  # noqa: PTH116
            return f"belongs to user {status.st_uid}, this process is user {os.geteuid()}"
        found = set(Directory(self._path).names())
        if found and COPY_MARK not in found:
            return f"has no mark of ours ({COPY_MARK}) in it"
        more = found - {COPY_MARK, _COPY_FOLDER}
        if more:
            return f"has more in it than a copy: {shown(min(more))}"
        return "" if not found or self._is_marked() else f"the file {COPY_MARK} in it is not ours"

    def _is_marked(self) -> bool:
        """Tell whether the mark is ours; if it was just being made, it is empty or zeros."""
        try:
            fd = descriptor(Directory(self._path), COPY_MARK)
        except FileNotFoundError:
            return True
        try:
            return _MARK_TEXT.startswith(os.pread(fd, len(_MARK_TEXT) + 1, 0).rstrip(b"\0"))
        finally:
            os.close(fd)

    def _check_alone(self, *, is_new: bool) -> None:
        """Lock the mark. Raises InvalidOptionError if another process works there, or may."""
        try:
            if durable.lock_byte(self._fd):
                return
        except OSError as error:
            if error.errno not in _NO_LOCKS:
                raise
            if is_new:
                return
            text = f"{self._path} is there: of a copy that was killed, or that is made now"
            reason = f"{text} (its file system has no locks to tell). If none is, remove it"
            raise self._refusal(reason) from error
        who = ", ".join(map(str, openers(self._mark))) or "another process"
        reason = f"{who} makes a copy there now; let it finish, or name another directory"
        raise self._refusal(reason)

    def _refusal(self, reason: str) -> InvalidOptionError:
        return InvalidOptionError("DEST", self._target, reason)


def remove_tree(parent: str, path: str) -> None:
    """Remove ``parent/path``, if it is there, and all that is in it; links are not followed."""
    if not durable.is_directory(f"{parent}/{path}"):
        return
    folders = [path]
    for folder in folders:
        for name, kind, _ in Directory(parent).survey(folder):
            if kind == "directory":
                folders.append(f"{folder}/{name}")
            else:
                durable.unlink(f"{parent}/{folder}/{name}")
    for folder in reversed(folders):
        durable.remove_directory(f"{parent}/{folder}")


def data_ranges(fd: int, end: int) -> list[tuple[int, int]]:
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
