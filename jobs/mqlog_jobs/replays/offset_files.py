"""The map of old to new queue offsets as files: ``DIR/write=NAME/part.FORMAT``, a folder a piece.

The folders are those of a partitioned table: Spark and pyarrow read DIR as one, with a column
``write``. A piece is written whole or not at all.
"""

import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Final

import pyarrow as pa
import pyarrow.csv as pa_csv
import pyarrow.parquet as pq

from mqlog_jobs.output.whole_file import check_directory
from mqstore.audit.offset_maps import MapPlace

_FOLDER: Final = "write="


class OffsetFiles:
    """An OffsetMapTarget of files in a directory."""

    def __init__(self, place: MapPlace) -> None:
        """Take the directory. Raises OSError if nothing can be written there."""
        self._kind = place.format
        self._directory = Path(place.directory)
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


def _json_lines(rows: pa.Table, path: Path) -> None:
    with path.open("w", encoding="utf-8") as file:
        for batch in rows.to_batches(max_chunksize=10_000):
            file.writelines(f"{json.dumps(row)}\n" for row in batch.to_pylist())


_WRITERS: Final[dict[str, Callable[[pa.Table, Path], None]]] = {
    "parquet": pq.write_table,
    "csv": pa_csv.write_csv,
    "json": _json_lines,
}
