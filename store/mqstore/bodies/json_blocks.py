"""Many bodies of JSON at once, by Arrow's reader: the fast way, for what it reads exactly.

Arrow's reader fails as a whole at a value that does not fit, and takes bodies apart that hold more
than one value. So each body is kept apart, and what is in doubt is left to ``json_values``.
"""

import re
import secrets
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.json as arrow_json
from numpy.typing import NDArray

from mqstore.bodies.ddl import LOCAL, UTC
from mqstore.bodies.json_values import from_base64
from mqstore.bodies.times import FIRST_US, LAST_US, Times

_NAMED_ROW: Final = re.compile(r"\bin row (\d+)\s*$")
_CHANGED_COLUMN: Final = re.compile(r"Column\((/[^)]*)\) changed from")
_UNKNOWN_FIELD: Final = "unexpected field"
_NAMED_VALUES: Final = (
    re.compile(r"couldn't parse:\s?(.*)\Z", re.DOTALL),
    re.compile(r"\): (\S+) requires (?:scale|precision) "),
)
_BODY_FIELD: Final = "b"
_ENDS_IN_ZONE: Final = re.compile(r"(?:Z|[+-]\d\d(?::?\d\d)?)\Z", re.ASCII)
_EMPTY_SEPARATOR: Final = pa.scalar(b"", pa.binary())
_BEFORE_BODY: Final = b'{"b":'
_BEHIND_BODY: Final = b"}\n"
_FEW_TEXTS: Final = 32
_SEARCHED_ROWS: Final = 1_024
_MOST_STOPS: Final = 4
"""A search ends with one row in so many: then the slow way is the faster one."""


@dataclass(frozen=True, slots=True)
class Failure:
    """Why a block was not read: a row of it, or a value in it, or neither is known."""

    row: int | None = None
    value: str | None = None


class JsonBlocks:
    """Reads blocks of bodies of one type. It learns how a topic's producers write times."""

    def __init__(self, kind: pa.DataType, times: Times) -> None:
        self._kind = kind
        self._times = times
        self._numbers: set[str] = set()
        """Paths of timestamps that are numbers."""
        self._closed = True
        """Bodies have no field that the type lacks: then Arrow itself sees what is beside one."""
        self._mark = secrets.token_hex(8)
        self._behind = b'\n{"' + self._mark.encode() + b'":1}\n'
        self._schemas: dict[tuple[bool, frozenset[str]], pa.Schema] = {}

    @staticmethod
    def takes(kind: pa.DataType) -> bool:
        """Tell whether Arrow's reader has the type, with all that is in it."""
        if pa.types.is_map(kind):
            return False
        if pa.types.is_struct(kind):
            return all(JsonBlocks.takes(field.type) for field in kind)
        return not pa.types.is_list(kind) or JsonBlocks.takes(kind.value_type)

    def read(self, bodies: pa.BinaryArray) -> tuple[pa.Array, NDArray[np.bool_]] | Failure:
        """Return the values of bodies of UTF-8, and which of them are left to the slow way."""
        for _ in range(4):
            structs = self._closed_block(bodies) if self._closed else self._marked_block(bodies)
            if structs is not None:
                return structs
        return Failure()

    def odd_rows(self, bodies: pa.BinaryArray, first: int) -> list[int]:
        """Return the rows at which the reader stops, ``first`` and those behind.

        The reader goes on behind each, so each row is parsed once. All rows, where one in four is.
        """
        before, behind, of_body = (
            (_BEFORE_BODY, _BEHIND_BODY, 1) if self._closed else (b"", self._behind, 2)
        )
        joined = _joined_each(before, bodies, behind)
        lengths = pc.binary_length(joined).to_numpy()
        data, starts = joined.buffers()[2], [0, *np.cumsum(lengths, dtype=np.int64).tolist()]
        rows, at = [first], first + 1
        while at < len(bodies):
            stop = min(at + _SEARCHED_ROWS, len(bodies))
            part = data.slice(starts[at], starts[stop] - starts[at])
            row = self._stop_of(part)
            if row is None:
                at = stop
                continue
            at = min(at + row // of_body, stop - 1)
            rows.append(at)
            at += 1
            if len(rows) * _MOST_STOPS > len(bodies):
                return list(range(len(bodies)))
        return rows

    def _stop_of(self, part: pa.Buffer) -> int | None:
        """Return the row at which the reader stops; None where it does not, or names none."""
        try:
            self._parsed(part, "error" if self._closed else "ignore")
        except pa.ArrowInvalid as error:
            row = _NAMED_ROW.search(str(error))
            return None if row is None else int(row[1])
        return None

    def _closed_block(
        self, bodies: pa.BinaryArray
    ) -> tuple[pa.Array, NDArray[np.bool_]] | Failure | None:
        """Read bodies as fields of an object around each; None: to be read again otherwise."""
        try:
            table = self._parsed(_joined(_BEFORE_BODY, bodies, _BEHIND_BODY), "error")
        except pa.ArrowInvalid as error:
            if _UNKNOWN_FIELD in str(error):
                self._closed = False
                return None
            return self._failure(error, 1)
        if table.num_rows != len(bodies):
            return Failure()
        return self._finished(_one(table[_BODY_FIELD]))

    def _marked_block(
        self, bodies: pa.BinaryArray
    ) -> tuple[pa.Array, NDArray[np.bool_]] | Failure | None:
        """Read bodies with a mark behind each, whose name no body can know."""
        try:
            table = self._parsed(_joined(b"", bodies, self._behind), "ignore")
        except pa.ArrowInvalid as error:
            return self._failure(error, 2)
        marks = _one(table[self._mark]).is_valid().to_numpy(zero_copy_only=False)
        if len(marks) != 2 * len(bodies) or marks[::2].any() or not marks[1::2].all():
            return Failure()
        rows = pa.array(np.arange(0, len(marks), 2))
        columns = [_one(column).take(rows) for column in table.columns[:-1]]
        return self._finished(pa.StructArray.from_arrays(columns, fields=list(table.schema)[:-1]))

    def _parsed(self, buffer: pa.Buffer, unexpected: str) -> pa.Table:
        return arrow_json.read_json(
            pa.BufferReader(buffer),
            read_options=arrow_json.ReadOptions(use_threads=False, block_size=buffer.size + 1),
            parse_options=arrow_json.ParseOptions(
                explicit_schema=self._schema(), unexpected_field_behavior=unexpected
            ),
        )

    def _schema(self) -> pa.Schema:
        key = self._closed, frozenset(self._numbers)
        if key not in self._schemas:
            kind = self._wire(self._kind, "")
            mark = pa.field(self._mark, pa.int8())
            fields = [pa.field(_BODY_FIELD, kind)] if self._closed else [*kind, mark]
            self._schemas[key] = pa.schema(fields)
        return self._schemas[key]

    def _wire(self, kind: pa.DataType, path: str) -> pa.DataType:
        """Return the type that the reader is told, for a type at a path."""
        if pa.types.is_struct(kind):
            return pa.struct([
                pa.field(f.name, self._wire(f.type, f"{path}/{f.name}")) for f in kind
            ])  # fmt: skip
        if pa.types.is_list(kind):
            return pa.list_(pa.field("element", self._wire(kind.value_type, f"{path}/[]")))
        if kind == UTC and path in self._numbers:
            return pa.int64()
        as_text = pa.types.is_temporal(kind) or pa.types.is_binary(kind)
        return pa.string() if as_text else kind

    def _failure(self, error: pa.ArrowInvalid, rows_of_a_body: int) -> Failure | None:
        """Return what an error says; None where a time that changed its kind is read otherwise."""
        text = str(error)
        row = _NAMED_ROW.search(text)
        number = None if row is None else int(row[1]) // rows_of_a_body
        column = _CHANGED_COLUMN.search(text)
        if column is not None and number == 0:
            path = column[1].removeprefix(f"/{_BODY_FIELD}") if self._closed else column[1]
            if path in self._numbers or _at(self._kind, path) == UTC:
                self._numbers ^= {path}
                return None
        for pattern in _NAMED_VALUES:
            value = pattern.search(text)
            if value is not None and value[1]:
                return Failure(value=value[1])
        return Failure(row=number)

    def _finished(self, found: pa.Array) -> tuple[pa.Array, NDArray[np.bool_]]:
        doubtful = found.is_null().to_numpy(zero_copy_only=False).copy()
        values, unread = self._finish(found, self._kind)
        if unread is not None:
            doubtful |= unread
        return values, doubtful

    def _finish(
        self, array: pa.Array, kind: pa.DataType
    ) -> tuple[pa.Array, NDArray[np.bool_] | None]:
        """Return an array in its own type, and which values of it could not be made."""
        if pa.types.is_struct(kind):
            parts = [self._finish(array.field(n), f.type) for n, f in enumerate(kind)]
            masks = [mask for _, mask in parts if mask is not None]
            made = pa.StructArray.from_arrays(
                [part for part, _ in parts], fields=list(kind), mask=array.is_null()
            )
            return made, np.logical_or.reduce(masks) if masks else None
        if pa.types.is_list(kind):
            values, unread = self._finish(array.values, kind.value_type)
            made = pa.ListArray.from_arrays(array.offsets, values, type=kind, mask=array.is_null())
            if unread is None:
                return made, None
            rows = np.zeros(len(array), np.bool_)
            parents = pc.list_parent_indices(array).to_numpy()
            rows[parents[unread[_span(array)]]] = True
            return made, rows
        if array.type == kind:
            return array, None
        return self._leaf(array, kind)

    def _leaf(self, array: pa.Array, kind: pa.DataType) -> tuple[pa.Array, Any]:
        times = self._times
        if pa.types.is_integer(array.type):
            return _of_numbers(array, times.per_unit)
        if pa.types.is_binary(kind):
            return _one_by_one(array, kind, from_base64)
        if pa.types.is_date(kind):
            return _in_parts(array, kind, _dates if times.plain_dates else None, times.date)
        read = times.timestamp if kind == UTC else times.local
        if not times.plain_timestamps:
            return _in_parts(array, kind, None, read)
        if kind == UTC:
            return _in_parts(array, kind, lambda part: _moments(part, times), read)
        return _in_parts(array, kind, lambda part: _checked(part, LOCAL), read)


def _in_parts(
    array: pa.Array,
    kind: pa.DataType,
    cast: Callable[[pa.Array], pa.Array | None] | None,
    read: Callable[[str], Any],
) -> tuple[pa.Array, NDArray[np.bool_] | None]:
    """Return texts that are cast, those that cannot be read by a function, and what it refused.

    ``cast`` gives None for texts that it does not take: then their halves are tried.
    """
    made = None if cast is None else cast(array)
    if made is not None:
        return made, None
    if cast is None or len(array) <= _FEW_TEXTS:
        return _one_by_one(array, kind, read)
    half = len(array) // 2
    halves = [_in_parts(part, kind, cast, read) for part in (array[:half], array[half:])]
    lost = [np.zeros(len(part), np.bool_) if mask is None else mask for part, mask in halves]
    return pa.concat_arrays([part for part, _ in halves]), np.concatenate(lost)


def _joined(before: bytes, bodies: pa.BinaryArray, behind: bytes) -> pa.Buffer:
    """Return the bodies in one buffer, with bytes before and behind each."""
    joined = _joined_each(before, bodies, behind)
    data: pa.Buffer = joined.buffers()[2]
    return data.slice(0, pc.sum(pc.binary_length(joined)).as_py())


def _joined_each(before: bytes, bodies: pa.BinaryArray, behind: bytes) -> pa.BinaryArray:
    joined: pa.BinaryArray = pc.binary_join_element_wise(
        pa.scalar(before, pa.binary()), bodies, pa.scalar(behind, pa.binary()), _EMPTY_SEPARATOR
    )
    return joined


def _one(column: pa.ChunkedArray) -> pa.Array:
    return column.chunk(0) if column.num_chunks == 1 else column.combine_chunks()


def _at(kind: pa.DataType, path: str) -> pa.DataType | None:
    """Return the type at a path of the reader: ``/nested/list/[]``."""
    for step in path.split("/")[1:]:
        if step == "[]" and pa.types.is_list(kind):
            kind = kind.value_type
        elif pa.types.is_struct(kind) and kind.get_field_index(step) >= 0:
            kind = kind.field(step).type
        else:
            return None
    return kind


def _span(array: pa.ListArray) -> slice:
    """Return which values of a list array its lists have."""
    return slice(array.offsets[0].as_py(), array.offsets[-1].as_py())


def _of_numbers(array: pa.Array, per_unit: int) -> tuple[pa.Array, NDArray[np.bool_]]:
    low, high = -(-FIRST_US // per_unit), LAST_US // per_unit
    fits = pc.and_(pc.greater_equal(array, low), pc.less_equal(array, high))
    kept = pc.if_else(fits, array, None)
    made = pc.multiply(kept, per_unit).cast(UTC)
    lost = pc.and_(array.is_valid(), kept.is_null())
    return made, lost.to_numpy(zero_copy_only=False)


def _dates(array: pa.Array) -> pa.Array | None:
    try:
        dates = array.cast(pa.date32())
    except pa.ArrowInvalid:
        return None
    years = pc.min_max(pc.year(dates))
    return dates if _is_shown(years, 1, 9999) else None


def _moments(array: pa.Array, times: Times) -> pa.Array | None:
    """Return texts of ISO as moments; None where they are mixed, or not all of that form."""
    first = next((text for text in array[:64].to_pylist() if text is not None), "")
    if _ENDS_IN_ZONE.search(first[10:]):
        return _checked(array, UTC)
    local = _checked(array, LOCAL)
    if local is None or times.is_utc:
        return None if local is None else local.cast(UTC)
    try:
        return pc.assume_timezone(
            local, times.zone_name, ambiguous="earliest", nonexistent="raise"
        ).cast(UTC)
    except (pa.ArrowInvalid, OSError):
        return None


def _checked(array: pa.Array, kind: pa.DataType) -> pa.Array | None:
    try:
        values = array.cast(kind)
    except pa.ArrowInvalid:
        return None
    return values if _is_shown(pc.min_max(values.cast(pa.int64())), FIRST_US, LAST_US) else None


def _is_shown(ends: pa.StructScalar, low: int, high: int) -> bool:
    least, most = ends["min"].as_py(), ends["max"].as_py()
    return least is None or (low <= least and most <= high)


def _one_by_one(
    array: pa.Array, kind: pa.DataType, read: Any
) -> tuple[pa.Array, NDArray[np.bool_]]:
    """Return texts read by a function of Python, and where it raised ValueError."""
    lost = np.zeros(len(array), np.bool_)
    values: list[Any] = []
    for place, text in enumerate(array.to_pylist()):
        value = None
        try:
            value = None if text is None else read(text)
        except (ValueError, OverflowError):
            lost[place] = True
        values.append(value)
    return pa.array(values, kind), lost
