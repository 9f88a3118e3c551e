"""The seam: every call that changes a file system, one function each.

All writes, syncs, links, renames, truncations, removals, locks and leases of mqlog go through this
module and nowhere else, so that tests can make the k-th of them fail, or forget what was not
synced, and so that the order of a commit's steps can be read off a list of these calls.

Only the kernel stores into a mapping (``WriteMapping``): what it cannot store is an error to it,
and to an instruction of ours a signal that kills the process.
"""

import ctypes
import errno
import fcntl
import mmap
import os
import signal
import stat
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from contextvars import ContextVar
from typing import Final

import numpy as np

from mqstore.errors import NoSpaceError, UnsafePathError

FILE_MODE: Final = 0o640
DIRECTORY_MODE: Final = 0o750
_OPEN_FLAGS: Final = os.O_RDWR | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
_SYNCED: Final = ContextVar("synced", default=True)
NO_SPACE: Final = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EFBIG})
_ZEROS: Final = bytes(1 << 20)
_SYNC_FILE_RANGE_WRITE: Final = 2  # linux/fs.h
# struct flock of fcntl(2), for locks that belong to the open file and not to the process.
_FLOCK: Final = np.dtype(
    [("type", "i2"), ("whence", "i2"), ("start", "i8"), ("length", "i8"), ("pid", "i4")],
    align=True,
)


def create(path: str) -> int:
    """Return a descriptor of the new, empty file ``path``. Raises FileExistsError.

    It belongs to whom its directory belongs to: a broker must be able to open what root wrote.
    """
    fd = os.open(path, _OPEN_FLAGS | os.O_CREAT | os.O_EXCL, FILE_MODE)
    try:
        _hand_over(path, fd)
    except BaseException:
        os.close(fd)
        os.unlink(path)  # noqa: PTH108 - the seam speaks in strings
        raise
    return fd


def open_for_write(path: str) -> int:
    """Return a descriptor of the plain file ``path``. Raises UnsafePathError for anything else.

    A file with a second name is refused: writing to it would change something outside.
    """
    return _open_plain(path, {1})


def close(fd: int) -> None:
    """Close a descriptor: no data is made durable by it."""
    os.close(fd)


def write_at(fd: int, data: bytes | memoryview, position: int) -> None:
    """Write all of ``data`` at ``position``. Raises NoSpaceError, OSError."""
    view = memoryview(data).cast("B")
    done = 0
    while done < len(view):
        try:
            done += os.pwrite(fd, view[done:], position + done)
        except OSError as error:
            raise _told(error, len(view)) from error


def write_zeros(fd: int, position: int, size: int) -> None:
    """Write ``size`` zero bytes at ``position``."""
    for begin in range(position, position + size, len(_ZEROS)):
        write_at(fd, _ZEROS[: min(len(_ZEROS), position + size - begin)], begin)


class WriteMapping:
    """An open file, mapped whole; the kernel copies what is written out of a file in memory.

    A page that cannot be had (disk full, file cut short, device gone) is EFAULT, and no SIGBUS.
    """

    _PIECE: Final = 1 << 17

    def __init__(self, fd: int) -> None:
        self._pages = mmap.mmap(fd, 0)
        self._source = os.memfd_create("mqlog")

    def write_at(self, data: bytes | memoryview, position: int) -> None:
        """Write all of ``data`` at ``position``. Raises OSError."""
        view = memoryview(data).cast("B")
        for begin in range(0, len(view), self._PIECE):
            piece = view[begin : begin + self._PIECE]
            write_at(self._source, piece, 0)
            done, target = 0, memoryview(self._pages)[position + begin :][: len(piece)]
            while done < len(piece):
                if not (copied := os.preadv(self._source, [target[done:]], done)):
                    raise OSError(errno.EFAULT, os.strerror(errno.EFAULT))
                done += copied

    def close(self) -> None:
        """Take the mapping away: no data is made durable by it."""
        os.close(self._source)
        with suppress(BufferError):  # An error that is on its way holds the pages: they go with it.
            self._pages.close()


def reserve(fd: int, position: int, size: int) -> bool:
    """Make the disk set aside ``size`` bytes at ``position``; what a read gives is unchanged.

    Returns whether it does; not every file system can. Raises NoSpaceError.
    """
    try:
        if size > 0:
            os.posix_fallocate(fd, position, size)
    except OSError as error:
        if error.errno not in {errno.EOPNOTSUPP, errno.ENOSYS, errno.EINVAL}:
            raise _told(error, size) from error
        return False
    return True


def truncate(fd: int, size: int) -> None:
    """Set the length of the file: what is added is a hole of zeros."""
    os.ftruncate(fd, size)


def set_mode(fd: int, mode: int) -> None:
    """Set who may read and write the file."""
    os.fchmod(fd, mode)


def copy_range(source: int, fd: int, position: int, size: int) -> int:
    """Copy up to ``size`` bytes at ``position`` of ``source`` to the same place; return how many.

    Fewer are copied where ``source`` ends. Raises NoSpaceError, OSError.
    """
    done = 0
    while done < size:
        data = os.pread(source, min(len(_ZEROS), size - done), position + done)
        if not data:
            break
        write_at(fd, data, position + done)
        done += len(data)
    return done


class WriteBack:
    """Lets the disk write what is appended to one open file while the next is made ready.

    A hint: nothing is durable by it, and nothing is waited for. Before the file is synced the
    kernel may write any of it, or none, as it may without the hint. It has no error either:
    SYNC_FILE_RANGE_WRITE alone neither reports nor clears the one that the file's next ``fsync``
    must report, where a sync in the background would have taken it away (sync_file_range(2);
    mm/filemap.c, errseq).
    """

    STEP: Final = 16 << 20
    """Bytes handed to the kernel at once; the last sync has no more than these left to write."""

    def __init__(self) -> None:
        self._start = self._end = 0

    def wrote(self, fd: int, position: int, size: int) -> None:
        """Take note of bytes that were written, and let them be, each once there are many."""
        if position != self._end:
            self._start = position
        self._end = position + size
        if self._end - self._start >= self.STEP and _SYNCED.get() and _SYNC_FILE_RANGE:
            _SYNC_FILE_RANGE(fd, self._start, self._end - self._start, _SYNC_FILE_RANGE_WRITE)
            self._start = self._end


def fsync(fd: int) -> None:
    """Return when the file's bytes and length would survive a power cut; its times need not."""
    if not _SYNCED.get():
        return
    if hasattr(os, "fdatasync"):
        os.fdatasync(fd)
    else:
        os.fsync(fd)


def fsync_directory(path: str) -> None:
    """Return when the names in the directory would survive a power cut."""
    if not _SYNCED.get():
        return
    fd = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)


def forget(fd: int, position: int, size: int) -> None:
    """Let the system take the memory of bytes that are on the disk and not read again: a hint.

    What is written next finds that memory free. Bytes that were not to be synced are kept: this
    would begin to write them.
    """
    if _SYNCED.get() and hasattr(os, "posix_fadvise"):
        with suppress(OSError):
            os.posix_fadvise(fd, position, size, os.POSIX_FADV_DONTNEED)


@contextmanager
def synced(*, wanted: bool) -> Iterator[None]:
    """Let ``fsync`` and ``fsync_directory`` do nothing in the block, unless ``wanted``."""
    token = _SYNCED.set(wanted)
    try:
        yield
    finally:
        _SYNCED.reset(token)


def link(source: str, target: str) -> None:
    """Give the file ``source`` the second name ``target``. Raises FileExistsError."""
    os.link(source, target, follow_symlinks=False)


def replace(source: str, target: str) -> None:
    """Rename ``source`` to ``target``, in one step, over what was there."""
    os.replace(source, target)  # noqa: PTH105 - the seam speaks in strings


def unlink(path: str) -> None:
    """Remove the name ``path`` if it is there."""
    with suppress(FileNotFoundError):
        os.unlink(path)  # noqa: PTH108


def make_directory(path: str) -> None:
    """Make the directory ``path``, of its parent's owner. Raises FileExistsError."""
    os.mkdir(path, DIRECTORY_MODE)  # noqa: PTH102
    _hand_over(path, path)


def remove_directory(path: str) -> None:
    """Remove the directory ``path`` if it is there and empty."""
    try:
        os.rmdir(path)  # noqa: PTH106
    except OSError as error:
        if error.errno not in {errno.ENOENT, errno.ENOTEMPTY, errno.EEXIST}:
            raise


def open_lock(path: str, data: bytes) -> int:
    """Return a descriptor of the lock file ``path``, made with ``data`` in it if it is missing.

    It may lose its name at any moment: look at ``same_file`` once it is locked. Raises
    UnsafePathError for what is no plain file, BlockingIOError if somebody has a lease on it.
    """
    while True:
        try:
            return _open_plain(path, {0, 1})
        except FileNotFoundError:
            with suppress(FileExistsError):
                return _create_with(path, data)


def _create_with(path: str, data: bytes) -> int:
    fd = create(path)
    try:
        if data:
            write_at(fd, data, 0)
    except BaseException:
        os.close(fd)
        os.unlink(path)  # noqa: PTH108
        raise
    return fd


def lock_byte(fd: int) -> bool:
    """Lock byte 0 of the open file for writing; tell whether nobody else has.

    It conflicts with java.nio's FileLock, both ways. The lock belongs to the open file where the
    kernel can (F_OFD_SETLK), so that closing another descriptor of the file in this process does
    not lose it; elsewhere to the process.
    """
    try:
        _set_lock(fd, fcntl.F_WRLCK)
    except OSError as error:
        if error.errno in {errno.EAGAIN, errno.EACCES}:
            return False
        raise
    return True


def unlock_byte(fd: int) -> None:
    """Give up the lock of byte 0, for every descriptor that shares this open file."""
    _set_lock(fd, fcntl.F_UNLCK)


def take_lease(fd: int) -> bool:
    """Take a write lease: until it is dropped, a process that opens the file blocks in open(2).

    Returns False if another process has it open. Raises OSError where there are no leases, or not
    for us: only the file's owner may take one. A break sends no signal, as its default action
    would end the process; until the lease has lost its owner, a signal that does nothing is set.
    """
    if not hasattr(fcntl, "F_SETLEASE"):
        raise OSError(errno.EOPNOTSUPP, "this system has no leases")
    try:
        fcntl.fcntl(fd, fcntl.F_SETSIG, signal.SIGURG)
        fcntl.fcntl(fd, fcntl.F_SETLEASE, fcntl.F_WRLCK)
        fcntl.fcntl(fd, fcntl.F_SETOWN, 0)
    except OSError as error:
        if error.errno == errno.EAGAIN:
            return False
        raise
    return True


def has_lease(fd: int) -> bool:
    """Tell whether the write lease is whole: no process is blocked by it, or got past it."""
    return bool(fcntl.fcntl(fd, fcntl.F_GETLEASE) == fcntl.F_WRLCK)


def drop_lease(fd: int) -> None:
    """Give up the lease, if it is not lost already: a process blocked in open(2) goes on."""
    with suppress(BlockingIOError):  # There is none any more.
        fcntl.fcntl(fd, fcntl.F_SETLEASE, fcntl.F_UNLCK)


def _set_lock(fd: int, kind: int) -> None:
    request = np.zeros((), _FLOCK)
    request["type"], request["whence"], request["length"] = kind, os.SEEK_SET, 1
    if hasattr(fcntl, "F_OFD_SETLK"):
        fcntl.fcntl(fd, fcntl.F_OFD_SETLK, request.tobytes())
    elif kind == fcntl.F_UNLCK:
        fcntl.lockf(fd, fcntl.LOCK_UN, 1, 0, os.SEEK_SET)
    else:
        fcntl.lockf(fd, fcntl.LOCK_EX | fcntl.LOCK_NB, 1, 0, os.SEEK_SET)


def _open_plain(path: str, links: set[int]) -> int:
    """Open a plain file that has so many names."""
    try:
        fd = os.open(path, _OPEN_FLAGS)
    except OSError as error:
        if error.errno in {errno.ELOOP, errno.ENXIO, errno.EISDIR}:
            raise UnsafePathError(path, "not a plain file") from error
        raise
    status = os.fstat(fd)
    if stat.S_ISREG(status.st_mode) and status.st_nlink in links:
        return fd
    os.close(fd)
    raise UnsafePathError(path, "not a plain file, or a hard link to one")


def _hand_over(path: str, made: int | str) -> None:
    """Give what was made at ``path`` to the owner of the directory it is in."""
    if os.geteuid() == 0:
        parent = os.stat(os.path.dirname(path))  # noqa: PTH116, PTH120
        if parent.st_uid or parent.st_gid:
            os.chown(made, parent.st_uid, parent.st_gid)


def _told(error: OSError, size: int) -> Exception:
    if error.errno in NO_SPACE:
        return NoSpaceError(f"no room for {size} bytes: {os.strerror(error.errno or 0)}")
    return error


def _sync_file_range() -> Callable[[int, int, int, int], int] | None:
    """Return the call of that name, None where the system has none: only Linux does."""
    try:
        found = ctypes.CDLL(None).sync_file_range
    except (AttributeError, OSError, TypeError):
        return None
    found.argtypes = [ctypes.c_int, ctypes.c_int64, ctypes.c_int64, ctypes.c_uint]
    return found


_SYNC_FILE_RANGE: Final = _sync_file_range()


def is_directory(path: str) -> bool:
    """Tell whether ``path`` is a directory, and no link to one."""
    try:
        return stat.S_ISDIR(os.lstat(path).st_mode)
    except FileNotFoundError:
        return False


def same_file(path: str, inode: int) -> bool:
    """Tell whether ``path`` is still the file of that inode."""
    try:
        return os.lstat(path).st_ino == inode
    except FileNotFoundError:
        return False
