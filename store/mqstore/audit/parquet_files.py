"""The Parquet files of a table of messages in a directory, by Spark's log of them if there is one.

Spark's sink of files notes in ``_spark_metadata`` which files count: a run that was killed leaves
others behind. Reference: FileStreamSinkLog, CompactibleFileStreamLog, MetadataLogFileIndex.
"""

import json
import os
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final
from urllib.parse import unquote, urlsplit

from mqstore.errors import InvalidOptionError, UnsafePathError, shown

_AS_TYPED: Final = "PLACE"
_SINK_LOG: Final = "_spark_metadata"
_LOG_BATCH: Final = re.compile(r"([0-9]{1,18})(\.compact)?")
_LOG_VERSION: Final = "v1"
_SUFFIX: Final = ".parquet"
_NO_VALUE: Final = "__HIVE_DEFAULT_PARTITION__"
_MOST_ENTRY_BYTES: Final = 1 << 16
AS_FILES: Final = "write its rows as Parquet by Spark, and audit those"
"""What to do with a table of another format."""


@dataclass(frozen=True, slots=True)
class TableFile:
    """A Parquet file of a table; ``topic`` is that of its folder, None if the file has it."""

    path: Path
    topic: str | None


def table_files(root: Path) -> list[TableFile]:
    """Return the files that count, sorted by path.

    Raises InvalidOptionError for a directory that is no such table, UnsafePathError, OSError.
    """
    if not root.is_dir():
        raise refused(root, "is no directory")
    if (root / "_delta_log").exists():
        raise refused(root, f"is a Delta table, whose log says which rows count: {AS_FILES}")
    if any((root / "metadata").glob("*.metadata.json")):
        raise refused(root, f"is an Iceberg table, whose snapshot has its files: {AS_FILES}")
    real = root.resolve()
    paths = _logged((root.absolute(), real)) if (real / _SINK_LOG).is_dir() else _walked(real)
    found = [TableFile(path, _topic_of(path.relative_to(real))) for path in sorted(paths)]
    if not found:
        raise refused(root, f"has no file *{_SUFFIX}")
    return found


def refused(path: Path, reason: str) -> InvalidOptionError:
    """Return the error that says what is wrong with a table or with one of its files."""
    return InvalidOptionError(_AS_TYPED, str(path), reason)


def _walked(root: Path) -> Iterator[Path]:
    """Yield the files below a directory without those that Spark hides: ``_`` and ``.``."""
    for folder, folders, names in os.walk(root, onerror=_raise):
        folders[:] = [name for name in folders if _is_shown(name)]
        for name in folders:
            _plain(Path(folder, name))
        for name in filter(_is_shown, names):
            if name.endswith(_SUFFIX):
                yield _plain(Path(folder, name))


def _raise(error: OSError) -> None:
    raise error


def _is_shown(name: str) -> bool:
    return not name.startswith(("_", "."))


def _plain(path: Path) -> Path:
    if path.is_symlink():
        raise UnsafePathError(str(path), "is a symbolic link")
    if not path.is_dir() and not path.is_file():  # Opening a pipe would wait for its writer.
        raise UnsafePathError(str(path), "is no plain file")
    return path


def _logged(roots: tuple[Path, Path]) -> set[Path]:
    """Return the files that the log of Spark's sink names; ``roots`` as typed, and resolved."""
    files: set[Path] = set()
    for batch in _batches(roots[1] / _SINK_LOG):
        for entry in _entries(batch):
            path = _within(roots, batch, entry.get("path"))
            if entry.get("action") == "delete":
                files.discard(path)
            else:
                files.add(path)
    for path in files:
        if not path.is_file():
            raise refused(path, f"is not there, and {_SINK_LOG} names it")
    return files


def _batches(folder: Path) -> list[Path]:
    """Return the last compacted batch and those after it, ascending."""
    found = {}
    for path in folder.iterdir():
        match = _LOG_BATCH.fullmatch(path.name)
        if match is not None:
            found[int(match[1]), match[2] is not None] = path
    start = max((number for number, is_compact in found if is_compact), default=None)
    if start is None:
        wanted = sorted(number for number, _ in found)
        names = [(number, False) for number in wanted]
    else:
        after = sorted(number for number, _ in found if number > start)
        names = [(start, True), *((number, False) for number in after)]
    numbers = [number for number, _ in names]
    first = 0 if start is None else start
    if numbers != list(range(first, first + len(numbers))):
        raise refused(folder, "lacks batches between others: files of them cannot be known")
    return [_plain(found[name]) for name in names]


def _entries(batch: Path) -> Iterator[dict[str, Any]]:
    with batch.open("rb") as file:
        if file.readline(_MOST_ENTRY_BYTES).strip() != _LOG_VERSION.encode():
            raise refused(batch, f"is no log of {_LOG_VERSION} of Spark's sink of files")
        while line := file.readline(_MOST_ENTRY_BYTES):
            try:
                entry = json.loads(line)
            except (ValueError, RecursionError):
                entry = None
            if not isinstance(entry, dict):
                raise refused(batch, "has a line that names no file")
            yield entry


def _within(roots: tuple[Path, Path], batch: Path, text: object) -> Path:
    """Return the path of a URI that lies in the table's directory. Raises InvalidOptionError."""
    try:
        address = urlsplit(text if isinstance(text, str) else "")
        named = Path(os.path.normpath(unquote(address.path)))
        if address.scheme in ("", "file") and not address.netloc:
            for root in filter(named.is_relative_to, roots):
                path = roots[1] / named.relative_to(root)
                if path.resolve() != path:
                    raise UnsafePathError(str(path), "is a symbolic link, or lies behind one")
                return path
    except (ValueError, RuntimeError):  # A null byte, a loop of links, an address that is none.
        pass
    reason = f"names {shown(text)}, which is not in {roots[0]}: Spark's log has absolute paths, "
    raise refused(batch, f"{reason}and a table that was moved is no longer whole for Spark either")


def _topic_of(path: Path) -> str | None:
    """Return the topic that folders ``topic=NAME`` give, as Spark writes names into paths."""
    names = [part.partition("=")[2] for part in path.parts[:-1] if part.startswith("topic=")]
    if not names:
        return None
    if names[-1] == _NO_VALUE:
        raise refused(path, "is of messages without a topic")
    return unquote(names[-1])
