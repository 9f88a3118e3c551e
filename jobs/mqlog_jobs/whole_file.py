"""A text file that is replaced at once: who reads it sees the old content or the new."""

import os
import tempfile
from errno import EISDIR
from pathlib import Path
from typing import Final

_READABLE: Final = 0o644  # Other users read what a job or a command writes for them.


def replace_file(path: str | Path, content: str) -> None:
    """Replace the file's content atomically. Raises OSError with the path."""
    target = Path(path).absolute()
    if target.is_dir():
        raise IsADirectoryError(EISDIR, os.strerror(EISDIR), str(path))
    try:
        fd, temporary = tempfile.mkstemp(prefix=f".{target.name}.", dir=target.parent)
    except OSError as error:
        error.filename = str(path)  # And not the temporary name.
        raise
    try:
        with os.fdopen(fd, "w", encoding="utf-8") as file:
            file.write(content)
            os.fchmod(file.fileno(), _READABLE)
        Path(temporary).replace(target)
    except BaseException:
        Path(temporary).unlink(missing_ok=True)
        raise
