"""Rows of any library, or of Python, as a reader of the types that a write takes.

What Arrow has several types of becomes the one that a write takes: views, dictionaries, lists of
pairs. A value that Arrow does not take, and a column of a type that has no bytes of its own, is an
error with its column, and with its row where one row is at fault.
"""

import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import chain, islice
from numbers import Integral
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from mqstore.codec.schema import PROPERTIES_MAP
from mqstore.errors import InvalidMessageError, InvalidOptionError, InvalidSchemaError, shown

_PROPERTIES: Final = "properties"
_WHAT_HAS_ROWS: Final = (
    "a write takes a table, a reader or a batch of pyarrow, a frame of pandas or Polars, another "
    "object with __arrow_c_stream__, a dict of columns, a list of dicts, or an iterator of these"
)
_COLLECTED_HOW: Final = {
    "Series": "a Series is one column: write series.to_frame('body')",
    "LazyFrame": "a LazyFrame has no rows yet: write frame.collect()",
}
_PAIRS: Final = "must be a dict of texts, numbers without a fraction and bools"
_PLAIN_OF_VIEWS: Final = {"string_view": pa.string(), "binary_view": pa.binary()}
_ROWS_OF_A_PART: Final = 4_096
"""How many dicts of an iterator become one batch."""
_REFUSALS: Final = (pa.ArrowException, OverflowError, TypeError, ValueError)
"""What Arrow raises for a value that it does not take."""


def reader_of_rows(data: Any) -> pa.RecordBatchReader:
    """Return rows of any library as a reader with types that a write takes.

    Raises InvalidOptionError for data that has no rows, InvalidSchemaError for a column that cannot
    be, InvalidMessageError for a value; of an iterator also while the rows are read.
    """
    if type(data).__name__ in _COLLECTED_HOW:
        raise _refused(data)
    stream = _stream(data, 0)
    if stream is not None:
        return stream
    if isinstance(data, Iterable) and not isinstance(data, str | bytes | np.ndarray | pa.Array):
        batches = _batches(data)
        first = next(batches, None)
        if first is not None:
            return pa.RecordBatchReader.from_batches(first.schema, chain([first], batches))
        raise InvalidOptionError("data", f"an empty {type(data).__name__}", _WHAT_HAS_ROWS)
    raise _refused(data)


def _refused(data: Any) -> InvalidOptionError:
    kind = type(data).__name__
    return InvalidOptionError("data", f"a {kind}", _COLLECTED_HOW.get(kind, _WHAT_HAS_ROWS))


def _stream(data: Any, first_row: int) -> pa.RecordBatchReader | None:
    """Return the rows of a frame, of a dict of columns or of a list of dicts; None for another."""
    pandas, polars = (sys.modules.get(name) for name in ("pandas", "polars"))
    if pandas is not None and isinstance(data, pandas.DataFrame):
        columns = [data.iloc[:, number] for number in range(data.shape[1])]
        data = _table(data.columns, columns, first_row)
    elif polars is not None and isinstance(data, polars.DataFrame):
        data = _without_wide_numbers(data, polars, first_row)
    elif isinstance(data, pa.RecordBatch):
        data = pa.Table.from_batches([data])
    elif isinstance(data, Mapping):
        data = _table(data, [_listed(*column) for column in data.items()], first_row)
    elif isinstance(data, list) and data and isinstance(data[0], Mapping):
        data = _of_dicts(data, first_row)
    if not hasattr(data, "__arrow_c_stream__"):
        return None
    try:
        reader = pa.RecordBatchReader.from_stream(data)
    except pa.ArrowInvalid as error:  # A type that Arrow does not have.
        raise InvalidOptionError("data", f"a {type(data).__name__}", shown(error)) from error
    return _in_plain_types(reader, first_row)


def _listed(name: object, values: Any) -> Any:
    """Return the values of a column of a dict; raises InvalidOptionError for one value."""
    if isinstance(values, str | bytes) or not isinstance(values, Iterable):
        expected = f"column {shown(name)} is no list; one row is [{{…}}], a list with a dict"
        raise InvalidOptionError("data", "a dict", expected)
    return values if hasattr(values, "__len__") else list(values)


def _of_dicts(rows: Sequence[Mapping[str, Any]], first_row: int) -> pa.Table:
    """Return dicts as rows; what one of them lacks is null."""
    for number, row in enumerate(rows, first_row):
        if not isinstance(row, Mapping):
            raise InvalidMessageError(f"row {number} is a {type(row).__name__}, not a dict")
    names = list(dict.fromkeys(chain.from_iterable(rows)))
    return _table(names, [[row.get(name) for row in rows] for name in names], first_row)


def _batches(parts: Iterable[Any]) -> Iterator[pa.RecordBatch]:
    """Yield the rows of frames, batches or dicts in batches of one schema, an empty one first."""
    row, schema = 0, None
    for number, part in enumerate(_parts(parts), 1):
        reader = _stream(part, row)
        if reader is None:
            raise _refused(part)
        if schema is None:
            schema = reader.schema
            yield pa.RecordBatch.from_pylist([], schema=schema)
        for batch in _in_schema(reader, schema, number):
            yield batch
            row += batch.num_rows


def _parts(parts: Iterable[Any]) -> Iterator[Any]:
    """Yield what has rows: dicts, which are one each, in lists."""
    iterator = iter(parts)
    for part in iterator:
        is_row = isinstance(part, Mapping)
        yield [part, *islice(iterator, _ROWS_OF_A_PART - 1)] if is_row else part


def _in_schema(
    reader: pa.RecordBatchReader, schema: pa.Schema, number: int
) -> Iterator[pa.RecordBatch]:
    if reader.schema.equals(schema):
        yield from reader
        return
    try:
        table = reader.read_all().cast(schema)
    except _REFUSALS as error:
        expected = f"part {number} has other columns or types than the first one: {shown(error)}"
        raise InvalidOptionError("data", "an iterator", expected) from error
    yield from table.to_batches()


def _table(names: Iterable[object], columns: Sequence[Any], first_row: int) -> pa.Table:
    """Return columns of Python or pandas as a table; names may be repeated."""
    known = list(map(str, names))
    lengths = sorted({len(column) for column in columns})
    if len(lengths) > 1:
        expected = f"its columns have {lengths[0]} to {lengths[-1]} rows"
        raise InvalidOptionError("data", "a dict", expected)
    arrays = [_array(n, c, first_row) for n, c in zip(known, columns, strict=True)]
    return pa.Table.from_arrays(arrays, known)


def _array(name: str, values: Any, first_row: int) -> pa.Array:
    """Return a column of Python's values, or of pandas.

    Raises InvalidMessageError for the first value that Arrow does not take beside those in front of
    it, InvalidSchemaError for a type of pandas that Arrow does not have.
    """
    is_object = getattr(values, "dtype", None) in (None, object)
    kind = None
    if name == _PROPERTIES and is_object and not isinstance(values, pa.Array | pa.ChunkedArray):
        values = [_pairs(row, value) for row, value in enumerate(values, first_row)]
        kind = PROPERTIES_MAP
    try:
        return pa.array(values, type=kind, from_pandas=True)
    except _REFUSALS as error:
        if not is_object:
            raise InvalidSchemaError(name, values.dtype, f"Arrow takes none: {error}") from error
        row, reason = _first_refused(list(values), kind)
        raise _bad_value(first_row + row, name, reason) from error


def _first_refused(values: Sequence[Any], kind: pa.DataType | None) -> tuple[int, str]:
    """Return the place of the first value that Arrow does not take behind the others, and why."""
    low, high, reason = 0, len(values), ""  # Arrow takes values[:low], and not values[:high].
    while high - low > 1 or not reason:
        middle = (low + high) // 2 if high - low > 1 else high
        try:
            pa.array(values[:middle], type=kind, from_pandas=True)
        except _REFUSALS as error:
            high, reason = middle, _words(error)
        else:
            low = middle
    return high - 1, reason


def _words(error: Exception) -> str:
    if isinstance(error, UnicodeEncodeError):
        return "has half of a surrogate pair, which UTF-8 cannot have"
    return shown(error)


def _bad_value(row: int, column: str, reason: str) -> InvalidMessageError:
    return InvalidMessageError(f"row {row}, column {shown(column)}: {reason}")


def _pairs(row: int, properties: Any) -> list[tuple[str, str | None]] | None:
    """Return the properties of a message as pairs of texts; null for None, NaN and NA."""
    if properties is None or isinstance(properties, float) or type(properties).__name__ == "NAType":
        return None
    pairs = properties.items() if isinstance(properties, Mapping) else properties
    try:
        texts = [(name, _property_text(value)) for name, value in pairs]
        if all(isinstance(name, str) for name, _ in texts):
            return texts
    except (TypeError, ValueError):
        pass
    raise _bad_value(row, _PROPERTIES, f"{shown(repr(properties), 60)} {_PAIRS}")


def _property_text(value: object) -> str | None:
    if value is None or isinstance(value, str):
        return value
    if isinstance(value, bool | np.bool_):
        return str(value).lower()
    if isinstance(value, Integral):
        return str(int(value))
    raise TypeError


def _without_wide_numbers(frame: Any, polars: Any, first_row: int) -> Any:
    """Return a frame of Polars without the types that Arrow lacks: integers of 128 bits, Object."""
    wide = [getattr(polars, name) for name in ("Int128", "UInt128") if hasattr(polars, name)]
    for name, kind in frame.schema.items():
        if kind == polars.Object:
            raise InvalidSchemaError(name, kind, "Arrow does not have this type")
        if kind in wide:
            column = frame[name]
            narrow = column.cast(polars.Int64, strict=False)
            lost = (narrow.is_null() & column.is_not_null()).arg_true()
            if len(lost):
                reason = f"{column[lost[0]]} does not fit 64 bits"
                raise _bad_value(first_row + lost[0], name, reason)
            frame = frame.with_columns(narrow)
    return frame


def _in_plain_types(reader: pa.RecordBatchReader, first_row: int) -> pa.RecordBatchReader:
    plain = pa.schema([field.with_type(_plain(field.type, field.name)) for field in reader.schema])
    if plain.equals(reader.schema):
        return reader
    return pa.RecordBatchReader.from_batches(plain, _cast(reader, plain, first_row))


def _cast(reader: pa.RecordBatchReader, plain: pa.Schema, row: int) -> Iterator[pa.RecordBatch]:
    for batch in reader:
        columns = []
        for column, field in zip(batch.columns, plain, strict=True):
            try:
                columns.append(_column(column, field.type))
            except _REFUSALS as error:
                at = next(n for n in range(len(column)) if not _takes(column[n : n + 1], field))
                raise _bad_value(row + at, field.name, shown(error)) from error
        yield pa.RecordBatch.from_arrays(columns, schema=plain)
        row += batch.num_rows


def _takes(value: pa.Array, field: pa.Field) -> bool:
    try:
        return len(_column(value, field.type)) == 1
    except _REFUSALS:
        return False


def _plain(kind: pa.DataType, name: str = "") -> pa.DataType:
    """Return the one type that a write takes of those that Arrow has for the same values."""
    if isinstance(kind, pa.BaseExtensionType):
        stored = _plain(kind.storage_type)
        return stored if _is_text(stored) else kind
    if pa.types.is_dictionary(kind) or pa.types.is_run_end_encoded(kind):
        value = _plain(kind.value_type)
        is_plain = pa.types.is_dictionary(kind) and value == kind.value_type
        return kind if is_plain and (_is_text(value) or pa.types.is_binary(value)) else value
    if name == _PROPERTIES and _is_pairs(kind):
        return PROPERTIES_MAP
    if _is_list(kind):
        return pa.list_(_plain(kind.value_type))
    return _PLAIN_OF_VIEWS.get(str(kind), kind)


def _is_list(kind: pa.DataType) -> bool:
    lists = ("list", "large_list", "fixed_size_list", "list_view", "large_list_view")
    tests = (getattr(pa.types, f"is_{name}", None) for name in lists)  # 14 has no views.
    return any(test(kind) for test in tests if test is not None)


def _is_text(kind: pa.DataType) -> bool:
    return bool(pa.types.is_string(kind) or pa.types.is_large_string(kind))


def _is_pairs(kind: pa.DataType) -> bool:
    """Tell whether it is a map or a list of structs of two, of text to text, integers or bools."""
    if pa.types.is_map(kind):
        kinds = [kind.key_type, kind.item_type]
    elif _is_list(kind) and pa.types.is_struct(kind.value_type):
        kinds = [kind.value_type.field(n).type for n in range(kind.value_type.num_fields)]
    else:
        return False
    plain = [_plain(inner) for inner in kinds]
    texts = [_is_text(inner.value_type if pa.types.is_dictionary(inner) else inner)
             for inner in plain]  # fmt: skip
    is_value = pa.types.is_integer(plain[-1]) or pa.types.is_boolean(plain[-1])
    return len(plain) == 2 and texts[0] and (texts[1] or is_value or pa.types.is_null(plain[-1]))


def _column(column: pa.Array, kind: pa.DataType) -> pa.Array:
    """Return a column as ``_plain`` of its type; raises what a cast raises."""
    if column.type == kind:
        return column
    column = _unpacked(column)
    if kind == PROPERTIES_MAP:
        names, values = _of_pairs(column)
        return pa.MapArray.from_arrays(_offsets(column), names, values, mask=column.is_null())
    if _is_list(column.type):
        values = _column(column.flatten(), kind.value_type)
        return pa.ListArray.from_arrays(_offsets(column), values, mask=column.is_null())
    return column.cast(kind)


def _unpacked(column: pa.Array) -> pa.Array:
    """Return plain values of a dictionary, of runs or of an extension type, a map as a list."""
    if isinstance(column.type, pa.BaseExtensionType):
        return _unpacked(column.storage)
    if pa.types.is_run_end_encoded(column.type):
        return pc.run_end_decode(column)
    if pa.types.is_dictionary(column.type):
        kind = _plain(column.type.value_type)
        return _unpacked(_column(column.dictionary, kind).take(column.indices))
    if pa.types.is_map(column.type):
        pair = [("key", column.type.key_type), ("value", column.type.item_type)]
        return column.cast(pa.list_(pa.struct(pair)))
    return column


def _of_pairs(column: pa.Array) -> tuple[pa.Array, pa.Array]:
    """Return the names and the values of properties; Polars has lists of structs for a map."""
    pairs = column.flatten()
    by_name = {"key", "value"} == {field.name for field in pairs.type}
    order = [pairs.type.get_field_index(n) for n in ("key", "value")] if by_name else [0, 1]
    texts = [pairs.flatten()[place] for place in order]
    names, values = (_column(t, _plain(t.type)).cast(pa.string()) for t in texts)
    return names, values


def _offsets(lists: pa.Array) -> pa.Array:
    """Return where each list begins among the values of all, as ``flatten`` gives them."""
    ends = np.cumsum(pc.list_value_length(lists).fill_null(0).to_numpy(zero_copy_only=False))
    return pa.array(np.concatenate([[0], ends]), pa.int32())
