"""A file that is replaced at once: a reader sees the old content or the new.

What is written last is checked first: see ``check_file`` and ``check_directory``.
"""

import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from errno import EISDIR, ENOTDIR
from pathlib import Path
from typing import Final

FILE_FORMATS: Final = ("parquet", "csv", "json")
"""The formats of files of rows, as ``FORMAT:PATH`` names them."""

_READABLE: Final = 0o644  # Other users read what a job or a command writes for them.


def check_file(path: str | Path) -> None:
    """Raise the OSError, with the whole path, that ``replace_file`` would raise now."""
    fd, temporary = _beside(path)
    os.close(fd)
    Path(temporary).unlink()


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


def replace_file(path: str | Path, content: str) -> None:
    """Replace the file's content atomically. Raises OSError with the whole path."""
    with replacing(path) as temporary:
        Path(temporary).write_text(content, encoding="utf-8", newline="")


@contextmanager
def replacing(path: str | Path) -> Iterator[str]:
    """Give the path of an empty file that replaces ``path`` at the end of the block.

    At an error ``path`` stays as it was. Raises OSError with the whole path.
    """
    fd, temporary = _beside(path)
    try:
        yield temporary
        os.fchmod(fd, _READABLE)
        Path(temporary).replace(Path(path).absolute())
    except BaseException as error:
        Path(temporary).unlink(missing_ok=True)
        if isinstance(error, OSError):  # A full disk has no name.
            error.filename = str(Path(path).absolute())
        raise
    finally:
        os.close(fd)


def _beside(path: str | Path) -> tuple[int, str]:
    """Make an empty file beside the path; return its descriptor and name."""
    target = Path(path).absolute()
    if target.is_dir():
        raise IsADirectoryError(EISDIR, os.strerror(EISDIR), str(target))
    try:
        return tempfile.mkstemp(prefix=f".{target.name}.", dir=target.parent)
    except OSError as error:
        error.filename = str(target)  # And not the temporary name.
        raise
