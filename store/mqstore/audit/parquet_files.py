"""The Parquet files of a table of messages in a directory, by Spark's log of them if there is one.

Spark's sink of files notes in ``_spark_metadata`` which files count: a run that was killed leaves
others behind. Reference: FileStreamSinkLog, CompactibleFileStreamLog, MetadataLogFileIndex.
"""

import os
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final
from urllib.parse import unquote

import pyarrow as pa

from mqstore.audit.table_files import (
    Roots,
    TableFile,
    json_lines,
    plain,
    refused,
    there,
    within,
)

_SINK_LOG: Final = "_spark_metadata"
_LOG_BATCH: Final = re.compile(r"([0-9]{1,18})(\.compact)?")
_LOG_VERSION: Final = "v1"
_SUFFIX: Final = ".parquet"
_NO_VALUE: Final = "__HIVE_DEFAULT_PARTITION__"
_MOST_ENTRY_BYTES: Final = 1 << 16


def parquet_files(roots: Roots) -> list[TableFile]:
    """Return the files that count, sorted by path.

    Raises InvalidOptionError for a directory that is no such table, UnsafePathError, OSError.
    """
    real = roots[1]
    paths = _logged(roots) if (real / _SINK_LOG).is_dir() else _walked(real)
    found = [TableFile(path, _values_of(path.relative_to(real))) for path in sorted(paths)]
    if not found:
        raise refused(roots[0], f"has no file *{_SUFFIX}")
    return found


def _walked(root: Path) -> Iterator[Path]:
    """Yield the files below a directory without those that Spark hides: ``_`` and ``.``."""
    for folder, folders, names in os.walk(root, onerror=_raise):
        folders[:] = [name for name in folders if _is_shown(name)]
        for name in folders:
            plain(Path(folder, name))
        for name in filter(_is_shown, names):
            if name.endswith(_SUFFIX):
                yield plain(Path(folder, name))


def _raise(error: OSError) -> None:
    raise error


def _is_shown(name: str) -> bool:
    return not name.startswith(("_", "."))


def _logged(roots: Roots) -> set[Path]:
    """Return the files that the log of Spark's sink names; ``roots`` as typed, and resolved."""
    files: set[Path] = set()
    for batch in _batches(roots[1] / _SINK_LOG):
        for entry in _entries(batch):
            path = within(roots, batch, entry.get("path"))
            if entry.get("action") == "delete":
                files.discard(path)
            else:
                files.add(path)
    return {there(roots[1] / _SINK_LOG, path) for path in files}


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
    return [plain(found[name]) for name in names]


def _entries(batch: Path) -> Iterator[dict[str, Any]]:
    with batch.open("rb") as file:
        if file.readline(_MOST_ENTRY_BYTES).strip() != _LOG_VERSION.encode():
            raise refused(batch, f"is no log of {_LOG_VERSION} of Spark's sink of files")
        yield from json_lines(batch, file, _MOST_ENTRY_BYTES, "names no file")


def _values_of(path: Path) -> dict[str, pa.Scalar]:
    """Return the topic that folders ``topic=NAME`` give, as Spark writes names into paths."""
    names = [part.partition("=")[2] for part in path.parts[:-1] if part.startswith("topic=")]
    if not names:
        return {}
    if names[-1] == _NO_VALUE:
        raise refused(path, "is of messages without a topic")
    return {"topic": pa.scalar(unquote(names[-1]))}
