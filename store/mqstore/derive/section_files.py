"""Sections of units as Arrow files in a cache directory, so that a log file is walked once.

A section is one Arrow file: batches of units, and in its metadata three small tables: what the
file is of, which queues have which rows, and the damage of the log file (with its last section).
A file gets its name when it is whole. Only this user may write to the directory. Nothing in it is
trusted in spite of that: a file of another form, or with another checksum, counts as missing, and
the log is walked again. Every read compares units with their records.
"""

import os
import secrets
import stat
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Final

import numpy as np
import pyarrow as pa

from mqstore.derive.log_sections import SECTION_ROWS, LogDamage, LogUnits, Section
from mqstore.derive.queue_units import is_possible
from mqstore.errors import CorruptStoreError
from mqstore.format.arrays import Int64s, TopicQueue
from mqstore.format.crc import crc32

SECTION_BATCH_ROWS: Final = 1 << 14

_FORM_NUMBER: Final = 1
_MOST_SECTION_BYTES: Final = 1 << 29
_MOST_ROWS: Final = 4 * SECTION_ROWS  # a chunk of the smallest records is added to a section
_UNIT_BYTES: Final = 40
_INTEGERS: Final = ("queueOffset", "physicalOffset", "size", "tagsCode", "storeTimestamp")
_UNIT_COLUMNS: Final = pa.schema(
    [*((name, pa.int64()) for name in _INTEGERS), ("holdsSeveral", pa.bool_())]
)
_HEAD_COLUMNS: Final = pa.schema(
    [
        *((name, pa.int64()) for name in ("version", "number", "rows", "end", "damaged")),
        *((name, pa.bool_()) for name in ("isLast", "isClosed", "hasRest")),
        ("key", pa.string()),
    ]
)
_TOTALS: Final = ("rows", "low", "high", "distinct", "gap", "double", "bytes", "place")
_OTHER_TOTALS: Final = ("firstMs", "lastMs", "several")
_QUEUE_COLUMNS: Final = pa.schema(
    [
        ("topic", pa.string()),
        ("queueId", pa.int64()),
        *((name, pa.int64()) for name in (*_TOTALS, *_OTHER_TOTALS)),
    ]
)
_DAMAGE_COLUMNS: Final = pa.schema(
    [("start", pa.int64()), ("end", pa.int64()), ("reason", pa.string())]
)
_SUM_COLUMNS: Final = pa.schema([("sum", pa.int64())])
_UNREADABLE: Final = (pa.ArrowException, CorruptStoreError, OSError)  # Arrow raises OSError too
_METADATA_TABLES: Final = {
    b"head": _HEAD_COLUMNS,
    b"queues": _QUEUE_COLUMNS,
    b"damages": _DAMAGE_COLUMNS,
    b"sums": _SUM_COLUMNS,
}
_CHECKSUM: Final = b"checksum"


@dataclass(frozen=True, slots=True)
class QueueTotals:
    """What a section has of one queue: ``rows`` units from row ``first`` on.

    Their queue offsets lie in [low, high], ``distinct`` of them; ``gap`` is the first between
    them that no unit has, ``double`` the first that two have, else -1. ``place`` is the first
    physical offset; ``several`` counts records that hold several messages.
    """

    first: int
    rows: int
    low: int
    high: int
    distinct: int
    gap: int
    double: int
    bytes: int
    place: int
    first_ms: int
    last_ms: int
    several: int


@dataclass(frozen=True, slots=True)
class FileEnd:
    """How the walk over a log file ended; see FileWalk."""

    end: int
    is_closed: bool
    has_rest: bool
    damages: tuple[LogDamage, ...]
    damaged: int


def private_folder(folder: str) -> None:
    """Make ``folder`` for this user alone, with its parents.

    Raises OSError; CorruptStoreError where it is a link, another user's, or writable by others.
    """
    os.makedirs(folder, mode=0o700, exist_ok=True)  # noqa: PTH103 - strings, as everywhere here
    found = os.lstat(folder)
    if not stat.S_ISDIR(found.st_mode) or found.st_uid != os.geteuid() or found.st_mode & 0o022:
        reason = "the cache is no directory that this user alone may write to: remove it"
        raise CorruptStoreError(folder, 0, reason)


def section_name(key: str, number: int) -> str:
    """Return the file name of the section with that number of the log file with that key."""
    return f"{key}.{number}.arrow"


def write_section(
    folder: str, key: str, number: int, section: Section, end: FileEnd | None
) -> None:
    """Write a section, the last one with the ``end`` of its log file. Raises OSError."""
    units = section.units
    batches = [
        units.take(slice(at, at + SECTION_BATCH_ROWS))
        for at in range(0, len(units), SECTION_BATCH_ROWS)
    ]
    metadata = {
        b"head": _packed(_head(key, number, len(units), end), _HEAD_COLUMNS),
        b"queues": _packed(_totals(section), _QUEUE_COLUMNS),
        b"damages": _packed(_damages(end), _DAMAGE_COLUMNS),
        b"sums": _packed([(_sum(batch),) for batch in batches], _SUM_COLUMNS),
    }
    schema = _UNIT_COLUMNS.with_metadata({**metadata, _CHECKSUM: _sum_of(metadata)})
    target = f"{folder}/{section_name(key, number)}"
    temporary = f"{folder}/{secrets.token_hex(16)}.tmp"
    try:
        fd = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, 0o600)
        with os.fdopen(fd, "wb") as file, pa.ipc.new_file(file, schema) as sink:
            for batch in batches:
                arrays = [*batch.columns(), batch.holds_several]
                sink.write_batch(
                    pa.RecordBatch.from_arrays(list(map(pa.array, arrays)), schema=schema)
                )
        os.replace(temporary, target)  # noqa: PTH105
    except BaseException:
        with suppress(OSError):
            os.unlink(temporary)  # noqa: PTH108
        raise


class SectionFile:
    """One section, open. ``close`` it; the next read opens it again."""

    def __init__(self, folder: str, name: str, key: str, number: int) -> None:
        """Open the file. Raises CorruptStoreError if it is not that section; OSError."""
        self.path = f"{folder}/{name}"
        self._reader: pa.ipc.RecordBatchFileReader | None = None
        try:
            self._load(key, number)
        finally:
            self.close()

    def _load(self, key: str, number: int) -> None:
        parts = _parts(self._opened().schema.metadata or {}, self.path)
        head = parts[b"head"].to_pylist()[0] if len(parts[b"head"]) == 1 else {}
        is_meant = (head.get("version"), head.get("key"), head.get("number")) == (
            _FORM_NUMBER,
            key,
            number,
        )
        self.rows: int = head.get("rows", -1)
        self._sums = parts[b"sums"]["sum"].to_pylist()
        count = -(-self.rows // SECTION_BATCH_ROWS)
        if not (
            is_meant
            and 0 <= self.rows <= _MOST_ROWS
            and self._opened().num_record_batches == len(self._sums) == count
            and os.path.getsize(self.path) >= self.rows * _UNIT_BYTES  # noqa: PTH202
        ):
            raise self._wrong()
        self.end = _end(head, parts[b"damages"]) if head["isLast"] else None
        self.queues = self._queues(parts[b"queues"])

    def close(self) -> None:
        """Close the file."""
        if self._reader is not None:
            self._file.close()
        self._reader = None

    def batch(self, number: int) -> LogUnits:
        """Return rows from ``number * SECTION_BATCH_ROWS`` on, so many at most.

        Raises CorruptStoreError, and removes the file, where it is damaged; OSError.
        """
        expected = min(SECTION_BATCH_ROWS, self.rows - number * SECTION_BATCH_ROWS)
        try:
            found = self._opened().get_batch(number)
            found.validate(full=True)
            if found.num_rows != expected or any(column.null_count for column in found.columns):
                raise self._wrong()
            columns = [found[name].to_numpy() for name in _INTEGERS]
            several = found["holdsSeveral"].to_numpy(zero_copy_only=False)
            units = LogUnits.of(columns, several)
            if _sum(units) != self._sums[number]:
                raise self._wrong()
        except _UNREADABLE as error:
            self.close()
            with suppress(OSError):
                os.unlink(self.path)  # noqa: PTH108
            raise self._wrong() from error
        return units

    def _opened(self) -> pa.ipc.RecordBatchFileReader:
        if self._reader is None:
            fd = os.open(self.path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
            self._file = os.fdopen(fd, "rb")
            try:
                found = os.fstat(fd)
                own = found.st_uid == os.geteuid() and not found.st_mode & 0o022
                if not (
                    stat.S_ISREG(found.st_mode) and own and found.st_size <= _MOST_SECTION_BYTES
                ):
                    raise self._wrong()
                reader = pa.ipc.open_file(self._file)
                if not reader.schema.equals(_UNIT_COLUMNS):
                    raise self._wrong()
            except _UNREADABLE as error:
                self._file.close()
                raise self._wrong() from error
            self._reader = reader
        return self._reader

    def _queues(self, table: pa.Table) -> dict[TopicQueue, QueueTotals]:
        found: dict[TopicQueue, QueueTotals] = {}
        columns = [table[name].to_pylist() for name in (*_TOTALS, *_OTHER_TOTALS)]
        names = zip(table["topic"].to_pylist(), table["queueId"].to_pylist(), strict=True)
        first = 0
        for queue, row in zip(names, zip(*columns, strict=True), strict=True):
            totals = QueueTotals(first, *row)
            span = totals.high - totals.low + 1
            if not (
                is_possible(queue)
                and queue not in found
                and 0 < totals.distinct <= totals.rows
                and 0 <= totals.low <= totals.high
                and totals.distinct <= span
                and totals.bytes > 0
            ):
                raise self._wrong()
            found[queue] = totals
            first += totals.rows
        if first != self.rows:
            raise self._wrong()
        return found

    def _wrong(self) -> CorruptStoreError:
        reason = "a cached section of a log's queues is damaged; it is made again by the next read"
        return CorruptStoreError(self.path, 0, reason)


def _head(key: str, number: int, rows: int, end: FileEnd | None) -> list[tuple[object, ...]]:
    if end is None:
        return [(_FORM_NUMBER, number, rows, 0, 0, False, False, False, key)]
    flags = (True, end.is_closed, end.has_rest)
    return [(_FORM_NUMBER, number, rows, end.end, end.damaged, *flags, key)]


def _end(head: dict[str, int], damages: pa.Table) -> FileEnd:
    listed = tuple(LogDamage(*row.values()) for row in damages.to_pylist())
    closed, rest = bool(head["isClosed"]), bool(head["hasRest"])
    return FileEnd(head["end"], closed, rest, listed, head["damaged"])


def _damages(end: FileEnd | None) -> list[tuple[object, ...]]:
    return [(d.start, d.end, d.reason) for d in end.damages] if end else []


def _totals(section: Section) -> list[tuple[object, ...]]:
    edges = section.edges.tolist()
    spans = zip(section.queues, edges[:-1], edges[1:], strict=True)
    return [(*queue, *_of_queue(section.units.take(slice(*span)))) for queue, *span in spans]


def _of_queue(units: LogUnits) -> tuple[int, ...]:
    numbers, times = units.queue_offsets, units.store_timestamps_ms
    steps = np.diff(numbers)
    gaps, doubles = np.flatnonzero(steps > 1), np.flatnonzero(steps == 0)
    return (
        len(units),
        int(numbers[0]),
        int(numbers[-1]),
        len(units) - len(doubles),
        int(numbers[gaps[0]]) + 1 if len(gaps) else -1,
        int(numbers[doubles[0]]) if len(doubles) else -1,
        int(units.sizes.sum()),
        int(units.physical_offsets.min()),
        int(times.min()),
        int(times.max()),
        int(units.holds_several.sum()),
    )


def _sum(units: LogUnits) -> int:
    found = 0
    for column in units.columns():
        found = crc32(np.ascontiguousarray(column).tobytes(), found)
    return crc32(units.holds_several.tobytes(), found)


def _sum_of(metadata: dict[bytes, bytes]) -> bytes:
    return b"%d" % crc32(b"".join(metadata[name] for name in _METADATA_TABLES))


def _packed(rows: Sequence[tuple[object, ...]], schema: pa.Schema) -> bytes:
    columns = list(zip(*rows, strict=True)) or [()] * len(schema)
    arrays = [pa.array(column, field.type) for column, field in zip(columns, schema, strict=True)]
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, schema) as stream:
        stream.write_batch(pa.RecordBatch.from_arrays(arrays, schema=schema))
    packed: bytes = sink.getvalue().to_pybytes()
    return packed


def _parts(metadata: dict[bytes, bytes], path: str) -> dict[bytes, pa.Table]:
    """Return the small tables of the metadata. Raises CorruptStoreError."""
    found = {}
    try:
        if _sum_of(metadata) != metadata[_CHECKSUM]:
            raise CorruptStoreError(path, 0, "another checksum")
        for name, schema in _METADATA_TABLES.items():
            with pa.ipc.open_stream(metadata[name]) as stream:
                table = stream.read_all()
            table.validate(full=True)
            if not table.schema.equals(schema) or any(c.null_count for c in table.columns):
                raise CorruptStoreError(path, 0, "another form")
            found[name] = table
    except (KeyError, *_UNREADABLE) as error:
        raise CorruptStoreError(path, 0, "no section of a log's queues") from error
    return found


def edges_of(totals: Sequence[QueueTotals]) -> Int64s:
    """Return, ascending, where the queue offsets of sections begin and end."""
    lows, ends = [t.low for t in totals], [t.high + 1 for t in totals]
    return np.unique(np.array([*lows, *ends], np.int64))
