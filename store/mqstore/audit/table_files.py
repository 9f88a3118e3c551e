"""The files of a table of messages in a directory: what they are, and what is wrong with one."""

import json
import os
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, BinaryIO, Final, TypeAlias
from urllib.parse import unquote, urlsplit

import pyarrow as pa

from mqstore.audit.errors import CorruptTableError
from mqstore.errors import InvalidOptionError, UnsafePathError, shown

_AS_TYPED: Final = "PLACE"
_FILE_TEXT: Final = re.compile(r"(?:file:(?://)?)?(/.*)", re.DOTALL)
READ_ERRORS: Final = (pa.ArrowException, OSError, ValueError)
"""What pyarrow raises for files that are damaged or made to harm; text that is no UTF-8 too."""
BY_SPARK: Final = "the job audit.py reads it by Spark"
"""What to do with a table that is right, and more than its files."""
Roots: TypeAlias = tuple[Path, Path]
"""The directory of a table, as typed and resolved."""


@dataclass(frozen=True, slots=True)
class TableFile:
    """A Parquet file of a table."""

    path: Path
    values: Mapping[str, Any] = field(default_factory=dict)
    """Scalars of Arrow by column: each row has this one, whatever the file says."""
    ids: Mapping[str, int] | None = None
    """If given, a column is the one in the file that has its number, whatever its name is."""


def roots_of(root: Path) -> Roots:
    """Return the directory as typed, and resolved. Raises InvalidOptionError if it is none."""
    if not root.is_dir():
        raise refused(root, "is no directory")
    return root.absolute(), root.resolve()


def refused(path: Path, reason: str) -> InvalidOptionError:
    """Return the error that says what is wrong with a table or with one of its files."""
    return InvalidOptionError(_AS_TYPED, str(path), reason)


def damaged(path: Path, error: BaseException) -> CorruptTableError:
    """Return the error of a file that cannot be read, with the first line of its reason."""
    reason = str(error).splitlines()[0] if str(error) else type(error).__name__
    return CorruptTableError(str(path), f"cannot be read: {reason}")


def json_lines(path: Path, file: BinaryIO, most_bytes: int, what: str) -> Iterator[dict[str, Any]]:
    """Yield the objects of a log, one a line.

    Raises InvalidOptionError for another line: it has one that ``what``.
    """
    while line := file.readline(most_bytes):
        try:
            found = json.loads(line)
        except (ValueError, RecursionError):
            found = None
        if not isinstance(found, dict):
            raise refused(path, f"has a line that {what}")
        yield found


def plain(path: Path) -> Path:
    """Return the path of a plain file or a directory. Raises UnsafePathError."""
    if path.is_symlink():
        raise UnsafePathError(str(path), "is a symbolic link")
    if not path.is_dir() and not path.is_file():  # Opening a pipe would wait for its writer.
        raise UnsafePathError(str(path), "is no plain file")
    return path


def within(roots: Roots, naming: Path, text: object, *, is_uri: bool = True) -> Path:
    """Return the path that a text names, which lies in the table's directory.

    ``naming`` is the file of the table that has the text. A path without a beginning is one below
    the directory. Of a URI, characters are written as ``%25``; else the text after ``file:`` is the
    path. Raises InvalidOptionError, and UnsafePathError for a path behind a symbolic link.
    """
    try:
        path_text = (_path_of_uri if is_uri else _path_of_text)(
            text if isinstance(text, str) else ""
        )
        named = Path(os.path.normpath(roots[1] / path_text))
        if path_text:
            for root in filter(named.is_relative_to, roots):
                path = roots[1] / named.relative_to(root)
                if path.resolve() != path:
                    raise UnsafePathError(str(path), "is a symbolic link, or lies behind one")
                return path
    except (ValueError, OSError, RuntimeError):  # A null byte, a long name, a loop of links.
        pass
    reason = f"names {shown(text)}, which is not in {roots[0]}: a table with absolute paths, as of "
    reason += "Iceberg and of Spark's sink of files, is read only where it was written"
    raise refused(naming, reason)


def _path_of_uri(text: str) -> str:
    address = urlsplit(text)
    return unquote(address.path) if address.scheme in ("", "file") and not address.netloc else ""


def _path_of_text(text: str) -> str:
    found = _FILE_TEXT.fullmatch(text)
    return found[1] if found else ""


def there(naming: Path, path: Path) -> Path:
    """Return a file that ``naming`` names. Raises InvalidOptionError if it is not there."""
    try:
        if path.is_file():
            return path
    except OSError:  # A name that is too long.
        pass
    raise refused(path, f"is not there, and {naming.name} names it")
