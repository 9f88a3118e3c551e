"""The report of a salvage: what is lost, doubted, moved or was deleted, as Parquet and as text.

Rows are written as they are found, so that memory does not depend on their number. A record that
is not in the new store, though its lengths add up, is in the report with its bytes.
"""

import os
from collections import Counter
from collections.abc import Mapping
from contextlib import nullcontext, suppress
from dataclasses import dataclass, fields
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from mqstore.codec.gather import RecordHeaders
from mqstore.errors import shown
from mqstore.files.copy_target import Copy
from mqstore.format.names import OURS

REPORT_FOLDER: Final = f"{OURS}/salvage"
_REPORT_TABLE: Final = f"{REPORT_FOLDER}/report.parquet"
_REPORT_TEXT: Final = f"{REPORT_FOLDER}/report.txt"

LOST: Final = "lost"
DOUBTED: Final = "doubted"
MOVED: Final = "moved"
DELETED: Final = "deleted"

_REPORT_COLUMNS: Final = pa.schema(
    [
        ("kind", pa.string()),
        ("reason", pa.string()),
        ("file", pa.string()),
        ("position", pa.int64()),
        ("physicalOffset", pa.int64()),
        ("size", pa.int64()),
        ("count", pa.int64()),
        ("topic", pa.string()),
        ("queueId", pa.int64()),
        ("queueOffset", pa.int64()),
        ("group", pa.string()),
        ("record", pa.binary()),
    ]
)

_PENDING_ROWS: Final = 4_096
_PENDING_BYTES: Final = 8 << 20
_MOST_LINES: Final = 10_000


@dataclass(frozen=True, slots=True, kw_only=True)
class ReportEntry:
    """One row: of bytes of a file, of a record, of queue offsets, or of a group's progress.

    ``count`` is how many records or queue offsets it is about, from ``queueOffset`` on;
    ``record`` has the bytes of a doubted one.
    """

    kind: str
    reason: str
    file: str | None = None
    position: int | None = None
    physicalOffset: int | None = None  # noqa: N815 - columns as those of messages
    size: int | None = None
    count: int | None = None
    topic: str | None = None
    queueId: int | None = None  # noqa: N815
    queueOffset: int | None = None  # noqa: N815
    group: str | None = None
    record: bytes | None = None

    def line(self) -> str:
        """Return it as a line of text, without the record."""
        names = [field.name for field in fields(self)[2:-1]]
        told = [(name, getattr(self, name)) for name in names]
        parts = [f"{name}={shown(value)}" for name, value in told if value is not None]
        return " ".join([f"{self.kind}: {self.reason};", *parts])


class Report:
    """Writes both files into the copy; a context manager."""

    def __init__(self, copy: Copy) -> None:
        self._table = os.fdopen(copy.create(_REPORT_TABLE), "wb")
        self._text = os.fdopen(copy.create(_REPORT_TEXT), "w", encoding="utf-8", errors="replace")
        self._writer = pq.ParquetWriter(self._table, _REPORT_COLUMNS)
        self._rows: list[ReportEntry] = []
        self._bytes = 0
        self._lines = 0
        self.counts: Counter[str] = Counter()
        """How many rows there are of each kind."""
        self.lost_files = 0
        """Files and databases of configuration and timers."""
        self.lost_bytes = 0
        """Of the CommitLog."""
        self.lost_messages = 0
        """Queue offsets between those of whole records."""

    def __enter__(self) -> "Report":
        return self

    def __exit__(self, kind: object, *_: object) -> None:
        if kind is None:
            self._flush()
            if self._lines > _MOST_LINES:
                more = self._lines - _MOST_LINES
                self._text.write(f"and {more} more rows, in report.parquet\n")
        for file in (self._writer, self._table, self._text):
            # After an error all of the copy is removed.
            with suppress(OSError) if kind is not None else nullcontext():
                file.close()

    def lose_file(self, path: str, reason: str) -> None:
        """Report a file or folder, by its path below the root, of which nothing is in the copy."""
        self.lost_files += 1
        self.add(ReportEntry(kind=LOST, reason=reason, file=path))

    def add(self, entry: ReportEntry) -> None:
        """Write a row. Raises OSError."""
        self.counts[entry.kind] += 1
        if entry.kind == LOST and entry.topic is None:
            self.lost_bytes += entry.size or 0
        elif entry.kind == LOST:
            self.lost_messages += entry.count or 0
        self._lines += 1
        if self._lines <= _MOST_LINES:
            self._text.write(f"{entry.line()}\n")
        self._rows.append(entry)
        self._bytes += len(entry.record or b"")
        if len(self._rows) >= _PENDING_ROWS or self._bytes >= _PENDING_BYTES:
            self._flush()

    def summary(self, values: Mapping[str, Any]) -> None:
        """End the text with these values."""
        self._text.write("".join(f"{name}: {shown(value)}\n" for name, value in values.items()))

    def _flush(self) -> None:
        names, rows = _REPORT_COLUMNS.names, self._rows
        columns = [[_storable(getattr(row, name)) for row in rows] for name in names]
        arrays = [pa.array(c, f.type) for c, f in zip(columns, _REPORT_COLUMNS, strict=True)]
        self._writer.write_batch(pa.RecordBatch.from_arrays(arrays, schema=_REPORT_COLUMNS))
        self._rows, self._bytes = [], 0


def record_headers(record: bytes) -> RecordHeaders:
    """Return the headers of one record; the first bytes of it will do."""
    zero = np.zeros(1, np.int64)
    return RecordHeaders.within(record, zero, zero + len(record))


def with_record(entry: ReportEntry, record: bytes) -> ReportEntry:
    """Return the entry with the record's bytes and what its header says."""
    known: dict[str, object] = {"size": len(record), "count": 1, "record": record}
    headers = record_headers(record)
    if len(record) and not headers.problems():
        start, length = int(headers.topic_starts[0]), int(headers.topic_lengths[0])
        known["topic"] = record[start : start + length].decode(errors="replace")
        known["queueId"] = int(headers.field("queue_id")[0])
        known["queueOffset"] = int(headers.field("queue_offset")[0])
        known["physicalOffset"] = int(headers.field("physical_offset")[0])
    values = {name: getattr(entry, name) for name in entry.__dataclass_fields__}
    return ReportEntry(**(values | known))


def _storable(value: Any) -> Any:
    """Return text as UTF-8 can have it: names of files may be any bytes."""
    return value.encode(errors="replace").decode() if isinstance(value, str) else value
