"""Files that options name as outputs: ``-o``, ``--parquet``, ``--prometheus``, ``--picture``.

- ``-`` is standard output.
- A regular file, or one that is not there yet, is replaced at once: a reader sees the old content
  or the new. A symbolic link is followed, and stays. An existing file keeps its mode, and its owner
  where the process may set it; a new one has 0666 without the bits of the umask.
- Anything else (a FIFO, a terminal, a descriptor as ``/dev/stdout`` or ``/dev/fd/3``) is written
  into.

What is written last is checked first: see ``check_file`` and ``check_directory``.
"""

import os
import re
import secrets
import stat
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from errno import EBADF, EISDIR, ENOTDIR, ENXIO
from fcntl import F_GETFL, fcntl
from io import BufferedWriter
from pathlib import Path
from typing import BinaryIO, Final

from mqlog_jobs.machine.named_stream import NamedStream

FILE_FORMATS: Final = ("parquet", "csv", "json")
"""The formats of files of rows, as ``FORMAT:PATH`` names them."""

DASH: Final = "-"
_OPEN_FILES: Final = re.compile(r"/proc/(\d+)(?:/task/\d+)?/fd|/dev/fd")
_MOST_LINKS: Final = 40  # As Linux follows.
_PRIVATE: Final = 0o600  # While it is written, the new content of a file with a mode of its own.
_OF_ANY: Final = 0o666


def check_file(path: str | Path) -> None:
    """Raise the OSError, with the whole path, that ``writing`` would raise now."""
    if str(path) == DASH:
        return
    descriptor = _descriptor(path)
    if descriptor is not None:
        if fcntl(descriptor, F_GETFL) & os.O_ACCMODE == os.O_RDONLY:
            raise OSError(EBADF, os.strerror(EBADF), str(path))
        return
    target, before = _target(path)
    if before is None or stat.S_ISREG(before.st_mode):
        fd, temporary = _beside(target, _PRIVATE)
        os.close(fd)
        Path(temporary).unlink()
    elif stat.S_ISSOCK(before.st_mode):
        raise OSError(ENXIO, os.strerror(ENXIO), str(target))
    elif not os.access(target, os.W_OK):
        raise PermissionError(13, os.strerror(13), str(target))


def check_directory(path: str | Path) -> None:
    """Raise OSError if no file could be made in the directory, which may not be there yet."""
    folder = Path(path).absolute()
    while not os.path.lexists(folder):
        folder = folder.parent
    if not folder.is_dir():
        raise NotADirectoryError(ENOTDIR, os.strerror(ENOTDIR), str(folder))
    try:
        fd, temporary = tempfile.mkstemp(prefix=".mqlog.", dir=folder)
    except OSError as error:
        error.filename = str(folder)  # And not the temporary name.
        raise
    os.close(fd)
    Path(temporary).unlink()


def is_standard_output(path: str | Path | None) -> bool:
    """Tell whether the output is that of the process, which then prints nothing else there."""
    return path is not None and (str(path) == DASH or _descriptor(path) == 1)


def is_terminal(path: str | Path) -> bool:
    """Tell whether what is written to ``path`` comes to a terminal."""
    if str(path) == DASH:
        return sys.stdout.isatty()
    descriptor = _descriptor(path)
    if descriptor is not None:
        return os.isatty(descriptor)
    with suppress(OSError):
        target, before = _target(path)
        if before is not None and stat.S_ISCHR(before.st_mode):
            fd = os.open(target, os.O_WRONLY | os.O_NOCTTY | os.O_NONBLOCK)
            try:
                return os.isatty(fd)
            finally:
                os.close(fd)
    return False


def replace_file(path: str | Path, content: str) -> None:
    """Write the content as UTF-8: see ``writing``."""
    with writing(path) as file:
        file.write(content.encode())


@contextmanager
def writing(path: str | Path) -> Iterator[BinaryIO]:
    """Give a file to write the new content of ``path`` to.

    A regular file is replaced at the end of the block, and at an error stays as it was. Anything
    else is opened and written into: opening a FIFO waits for its reader. Raises OSError with the
    whole path, BrokenPipeError where a reader is gone.
    """
    if str(path) == DASH:
        sys.stdout.flush()
        yield sys.stdout.buffer
        sys.stdout.flush()
        return
    descriptor = _descriptor(path)
    if descriptor is not None:
        sys.stdout.flush()
        with _stream(os.dup(descriptor), str(path)) as file:
            yield file
        return
    target, before = _target(path)
    if before is None or stat.S_ISREG(before.st_mode):
        with _replacing(target, before) as file:
            yield file
        return
    with _stream(os.open(target, os.O_WRONLY | os.O_NOCTTY), str(target)) as file:
        yield file


@contextmanager
def _replacing(target: Path, before: os.stat_result | None) -> Iterator[BinaryIO]:
    fd, temporary = _beside(target, _OF_ANY if before is None else _PRIVATE)
    try:
        with _stream(fd, str(target)) as file:
            yield file
            file.flush()
            with _named(target):
                if before is not None:
                    _keep_owner_and_mode(fd, before)
        with _named(target):
            Path(temporary).replace(target)
    except BaseException:
        Path(temporary).unlink(missing_ok=True)
        raise


def _keep_owner_and_mode(fd: int, before: os.stat_result) -> None:
    with suppress(PermissionError):  # Only root gives files away.
        os.fchown(fd, before.st_uid, before.st_gid)
    os.fchmod(fd, stat.S_IMODE(before.st_mode))


@contextmanager
def _named(target: Path) -> Iterator[None]:
    """Let errors name the target, and not what is beside it."""
    try:
        yield
    except OSError as error:
        error.filename, error.filename2 = str(target), None
        raise


def _stream(fd: int, name: str) -> BufferedWriter:
    return BufferedWriter(NamedStream(fd, name))


def _target(path: str | Path) -> tuple[Path, os.stat_result | None]:
    """Return the file at the end of all links, absolute, and what is there; None: nothing."""
    target = Path(path).expanduser().absolute()
    try:
        before = target.stat()
    except FileNotFoundError:
        before = None
    if before is not None and stat.S_ISDIR(before.st_mode):
        raise IsADirectoryError(EISDIR, os.strerror(EISDIR), str(target))
    return (Path(os.path.realpath(target)) if target.is_symlink() else target), before


def _descriptor(path: str | Path) -> int | None:
    """Return the descriptor of this process that a path names, also through links; None: no such.

    Opening such a path again would begin a file anew, and fail for a socket.
    """
    step = Path(path).expanduser().absolute()
    for _ in range(_MOST_LINKS):
        folder = os.path.realpath(step.parent)
        names_descriptors = _OPEN_FILES.fullmatch(folder)
        if names_descriptors and names_descriptors[1] in {None, str(os.getpid())}:
            return int(step.name) if re.fullmatch(r"[0-9]{1,9}", step.name) else None
        try:
            step = Path(folder, step.readlink())
        except OSError:
            return None
    return None


def _beside(target: Path, mode: int) -> tuple[int, str]:
    """Make an empty file beside the target; return its descriptor and name."""
    temporary = str(target.with_name(f".mqlog.{secrets.token_hex(8)}"))
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
    with _named(target):
        return os.open(temporary, flags, mode), temporary
