"""The map of old to new queue offsets as files: ``DIR/write=NAME/part.FORMAT``, a folder a piece.

The folders are those of a partitioned table: Spark and pyarrow read DIR as one, with a column
``write``. A piece is written whole or not at all.
"""

import json
import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Final

import pyarrow as pa
import pyarrow.csv as pa_csv
import pyarrow.dataset as ds
import pyarrow.parquet as pq

from mqlog_jobs.output.whole_file import FILE_FORMATS, check_directory
from mqstore.deliver.replay.task import OFFSET_MAP
from mqstore.errors import InvalidOptionError

_FOLDER: Final = "write="
_MAP_ROWS: Final = 65_536


class OffsetFiles:
    """An OffsetMapTarget of files in a directory."""

    def __init__(self, kind: str, directory: str) -> None:
        """``kind`` is one of FILE_FORMATS. Raises OSError if nothing can be written there."""
        self._kind = kind
        self._directory = Path(directory)
        check_directory(self._directory)

    def has(self, name: str) -> bool:
        """Tell whether that piece was written."""
        return self._path(name).is_file()

    def write(self, name: str, rows: pa.Table) -> None:
        """Write a piece. Raises OSError."""
        path = self._path(name)
        path.parent.mkdir(parents=True, exist_ok=True)
        hidden = path.with_name(f".{path.name}")
        _WRITERS[self._kind](rows, hidden)
        with hidden.open("rb") as written:
            os.fsync(written.fileno())
        hidden.replace(path)

    def _path(self, name: str) -> Path:
        return self._directory / f"{_FOLDER}{name}" / f"part.{self._kind}"


def offset_place(option: str, text: str) -> tuple[str, str]:
    """Return format and directory of ``FORMAT:DIR``; raises InvalidOptionError."""
    kind, colon, where = text.partition(":")
    if not colon or not where or kind not in FILE_FORMATS:
        forms = ", ".join(f"{name}:DIR" for name in FILE_FORMATS)
        raise InvalidOptionError(option, text, f"write {forms}")
    return kind, where


def offset_rows(kind: str, directory: str) -> Iterator[pa.RecordBatch]:
    """Yield the pieces of the map of a directory, as OFFSET_MAP.

    Raises InvalidOptionError for a directory without such files.
    """
    try:
        found = ds.dataset(directory, schema=OFFSET_MAP, format=kind)
        if not found.files:
            raise FileNotFoundError(f"no file is in {directory}")
        yield from found.to_batches(batch_size=_MAP_ROWS)
    except (OSError, pa.ArrowException) as error:
        reason = f"is no offset map that can be read: {error}"
        raise InvalidOptionError("--offset-map", f"{kind}:{directory}", reason) from error


def _json_lines(rows: pa.Table, path: Path) -> None:
    with path.open("w", encoding="utf-8") as file:
        for batch in rows.to_batches(max_chunksize=10_000):
            file.writelines(f"{json.dumps(row)}\n" for row in batch.to_pylist())


_WRITERS: Final[dict[str, Callable[[pa.Table, Path], None]]] = {
    "parquet": pq.write_table,
    "csv": pa_csv.write_csv,
    "json": _json_lines,
}
