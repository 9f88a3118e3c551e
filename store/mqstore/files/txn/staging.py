"""The staging directory of a job: tasks write files into it, the commit reads them back.

    <staging>/<job>/NONCE                                   proof that a directory is shared
    <staging>/<job>/<partition>-<attempt>-<random>.mqb      one attempt of one task

Names are not to be guessed, files are created with O_EXCL and made durable before a task says
that it is done. Nothing outside the job's directory is touched.
"""

import os
import re
import secrets
import time
from collections.abc import Iterable
from contextlib import suppress

from mqstore.errors import UnsafePathError
from mqstore.files.base import durable
from mqstore.files.base.directory import Directory, descriptor
from mqstore.files.base.read_file import read_into
from mqstore.files.txn.errors import CorruptStagingError, StagingNotSharedError
from mqstore.format.arrays import Recycled
from mqstore.format.staged import NONCE, SUFFIX

_NONCE_BYTES = 64
_ABANDONED_S = 24 * 3600
_TRIES = 100
JOB_ID = re.compile(r"[0-9a-f]{32}")


def make(directory: str, nonce: str, *others: str | None) -> list[str]:
    """Make the job's directory, with its NONCE, and ``others``; return what was not there before.

    Directories above that are missing are made as well. Raises OSError if one cannot be made;
    then none is left.
    """
    made = make_directories(directory, *others)
    try:
        fd = durable.create(f"{directory}/{NONCE}")
        try:
            durable.write_at(fd, nonce.encode(), 0)
            durable.fsync(fd)
        finally:
            durable.close(fd)
    except BaseException:
        remove(directory)
        remove_directories(made)
        raise
    return made


def make_directories(*paths: str | None) -> list[str]:
    """Make the directories, and those above that are missing; return what was not there before.

    Raises OSError if one cannot be made; then none is left.
    """
    made: list[str] = []
    try:
        for path in paths:
            if path:
                _make_all(path, made)
    except BaseException:
        remove_directories(made)
        raise
    return made


def _make_all(path: str, made: list[str]) -> None:
    """Make a directory and what is missing above it; a job that ends removes what is empty."""
    for tries_left in reversed(range(_TRIES)):
        try:
            _make_missing(path, made)
        except FileNotFoundError:
            if not tries_left:
                raise
        else:
            return


def _make_missing(path: str, made: list[str]) -> None:
    missing = []
    while not os.path.isdir(path):  # noqa: PTH112 - paths are strings at the seam
        missing.append(path)
        path = os.path.dirname(path)  # noqa: PTH120
    # A directory that is there may be in memory only, if the process that made it was killed. A
    # process that may not read the directory above made nothing in it.
    with suppress(PermissionError):
        durable.fsync_directory(os.path.dirname(path))  # noqa: PTH120
    for path in reversed(missing):
        made.append(path)  # Before: a call that fails may have done its work.
        try:
            durable.make_directory(path)
        except FileExistsError:  # Another job made it just now; then it is not ours.
            made.pop()
        durable.fsync_directory(os.path.dirname(path))  # noqa: PTH120


def check_shared(directory: str, nonce: str) -> None:
    """Raise StagingNotSharedError unless this process sees the driver's NONCE."""
    try:
        fd = descriptor(Directory(directory), NONCE)
    except OSError as error:
        raise StagingNotSharedError(_NOT_SHARED.format(directory, error.strerror)) from error
    try:
        found = os.pread(fd, _NONCE_BYTES, 0)
    finally:
        os.close(fd)
    if found != nonce.encode():
        raise StagingNotSharedError(_NOT_SHARED.format(directory, "another file NONCE"))


_NOT_SHARED = (
    "{}: this task does not see what the driver wrote there ({}). Driver and executors must "
    "share the directory: set stagingDir to one they do"
)


def segment_name(partition: int, attempt: int) -> str:
    """Return a name for a segment of that task's attempt, which cannot be guessed."""
    return f"{partition}-{attempt}-{secrets.token_hex(16)}{SUFFIX}"


class StagedWriter:
    """Writes one staged file from its start to its end; not there if it was not finished."""

    def __init__(self, directory: str, name: str) -> None:
        """Create the file. Raises FileExistsError."""
        self.name = name
        self._directory = directory
        self._fd = durable.create(f"{directory}/{name}")
        self._written = durable.WriteBack()
        self.size = 0

    def append(self, data: bytes | memoryview) -> None:
        """Write ``data`` after what was written. Raises NoSpaceError, OSError."""
        size = memoryview(data).nbytes
        durable.write_at(self._fd, data, self.size)
        self._written.wrote(self._fd, self.size, size)
        self.size += size

    def finish(self) -> None:
        """Return when the file would survive a power cut."""
        durable.fsync(self._fd)
        durable.close(self._fd)
        durable.fsync_directory(self._directory)

    def discard(self) -> None:
        """Remove the file."""
        with suppress(OSError):
            durable.close(self._fd)
        durable.unlink(f"{self._directory}/{self.name}")


class StagedReader:
    """Reads one staged file by position. A context manager."""

    def __init__(
        self, directory: str, name: str, size: int, memory: Recycled | None = None
    ) -> None:
        """Open the file. Raises CorruptStagingError if it is not there or not of that size.

        What is read lies in ``memory``.
        """
        self._memory = memory or Recycled(most=1)
        self.path = f"{directory}/{name}"
        try:
            self._fd = descriptor(Directory(directory), name)
        except OSError as error:
            raise CorruptStagingError(f"{self.path}: {error.strerror}") from error
        status = os.fstat(self._fd)
        if status.st_size != size or status.st_nlink != 1:
            os.close(self._fd)
            found = f"{status.st_size} bytes and {status.st_nlink} names"
            raise CorruptStagingError(f"{self.path}: {found}, its task wrote {size} bytes")
        self.size = size

    def __enter__(self) -> "StagedReader":
        return self

    def __exit__(self, *_: object) -> None:
        os.close(self._fd)

    def read(self, position: int, size: int) -> memoryview:
        """Return exactly ``size`` bytes, to be changed at will.

        Raises CorruptStagingError at the file's end.
        """
        view = self._memory.take(size)
        done = read_into(self._fd, view, position)
        if done < size:
            raise CorruptStagingError(f"{self.path}: ends at byte {position + done}")
        return view

    def read_few(self, position: int, size: int) -> bytes:
        """Return exactly ``size`` bytes of their own, which are few: the memory is kept for more.

        Raises CorruptStagingError at the file's end.
        """
        data = os.pread(self._fd, size, position)
        if len(data) < size:
            raise CorruptStagingError(f"{self.path}: ends at byte {position + len(data)}")
        return data

    def forget(self, position: int, size: int) -> None:
        """Let go of bytes that are not read again, unless the commit fails."""
        durable.forget(self._fd, position, size)


def remove(directory: str) -> None:
    """Remove the job's directory with the files in it, as far as they can be removed.

    A symbolic link in its place is left alone: it may lead out of the staging directory.
    """
    with suppress(OSError, UnsafePathError):
        for name in Directory(*os.path.split(directory)).names():
            durable.unlink(f"{directory}/{name}")
        durable.remove_directory(directory)


def collect(folder: str) -> None:
    """Remove the directories of jobs that staged nothing for a day: their drivers were killed.

    The caller holds the store, and no commit of it is decided and not finished.
    """
    latest = time.time() - _ABANDONED_S
    with suppress(OSError):
        for name in filter(JOB_ID.fullmatch, Directory(folder).names()):
            directory = f"{folder}/{name}"
            paths = [directory, *(f"{directory}/{found}" for found in _names(folder, name))]
            if max(os.lstat(path).st_mtime for path in paths) < latest:
                remove(directory)


def _names(folder: str, name: str) -> list[str]:
    with suppress(UnsafePathError):
        return Directory(folder).names(name)
    return []


def remove_directories(made: Iterable[str]) -> None:
    """Remove the directories that ``make`` made, the innermost first, where they are empty."""
    for path in reversed(list(made)):
        with suppress(OSError):
            durable.remove_directory(path)


class StagedSink:
    """A staged file as the Python file object that PyArrow's writers want."""

    def __init__(self, directory: str, name: str) -> None:
        self._writer = StagedWriter(directory, name)
        self.closed = False

    def write(self, data: bytes) -> int:
        """Append ``data``."""
        self._writer.append(data)
        return memoryview(data).nbytes

    def tell(self) -> int:
        """Return how many bytes were written."""
        return self._writer.size

    def flush(self) -> None:
        """Do nothing: bytes are made durable by ``finish``."""

    def close(self) -> None:
        """Do nothing: see ``finish``."""

    def finish(self) -> None:
        """Return when the file would survive a power cut."""
        self._writer.finish()
        self.closed = True

    def discard(self) -> None:
        """Remove the file."""
        self._writer.discard()
        self.closed = True
