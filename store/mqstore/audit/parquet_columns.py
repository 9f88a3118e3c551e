"""The columns of a Parquet file as columns of messages: checked, with the types of a scan."""

from collections.abc import Callable, Sequence
from typing import Final

import pyarrow as pa

from mqstore.audit.rows import AuditRule
from mqstore.audit.table_files import BY_SPARK, TableFile, refused
from mqstore.codec import compute as pc
from mqstore.codec.arrow_compat import is_any_binary, is_any_text
from mqstore.codec.schema import BY_NAME, FIRST_MS, LAST_MS, message_schema

BROKER: Final = "brokerName"
TOPIC: Final = "topic"
OF_AUDITS: Final = frozenset(
    (BROKER, *(name for by in ("offset", "id") for name in AuditRule(by, frozenset()).columns))
)
"""The columns that an audit may need."""
_NOT_NEGATIVE: Final = ("queueId", "queueOffset")
_US: Final = 1000
_PARQUET_FIELD_ID: Final = b"PARQUET:field_id"


def checked(batch: pa.RecordBatch, file: TableFile, columns: Sequence[str]) -> pa.RecordBatch:
    """Return rows of a file with exactly ``columns``, as a scan gives them.

    A value that the table has for the whole file is that of each row; the name of a broker that is
    null or not there is empty. Raises InvalidOptionError for a column that is missing or twice, for
    a type, a null, a number or a text that messages do not have; pyarrow's errors for values that
    do not fit.
    """
    made = [_column(batch, file, name) for name in columns]
    found = pa.RecordBatch.from_arrays(made, schema=message_schema(columns))
    found.validate(full=True)
    return found


def names_in(schema: pa.Schema, file: TableFile) -> dict[str, str]:
    """Return the names that the table has for columns of a file, by their names in the file.

    Raises InvalidOptionError for a file whose columns cannot be told by number.
    """
    if file.ids is None:
        return {name: name for name in schema.names}
    names = {number: name for name, number in file.ids.items()}
    numbers = [int((one.metadata or {}).get(_PARQUET_FIELD_ID, -1)) for one in schema]
    known = [number for number in numbers if number in names]
    if not known or len(set(known)) < len(known):
        raise refused(file.path, f"has no numbers of columns, or one twice: {BY_SPARK}")
    pairs = zip(schema.names, numbers, strict=True)
    return {own: names[number] for own, number in pairs if number in names}


def _column(batch: pa.RecordBatch, file: TableFile, name: str) -> pa.Array:
    column = _held(batch, file, name)
    wanted = BY_NAME[name].type
    if not _fits(column.type, wanted):
        raise refused(file.path, f"column {name} is {column.type}, and must be {wanted}")
    if name == BROKER:
        column = pc.fill_null(column.cast(wanted), "")
    if column.null_count or (pa.types.is_map(column.type) and _has_null_entries(column)):
        raise refused(file.path, f"column {name} has a null")
    column = column.cast(wanted)
    _check_range(column, file, name)
    return column


def _held(batch: pa.RecordBatch, file: TableFile, name: str) -> pa.Array:
    """Return a column as the table has it. Raises InvalidOptionError if it is missing or twice."""
    if name in file.values:
        return pa.repeat(file.values[name], len(batch))
    count = batch.schema.names.count(name)
    if name == BROKER and count == 0:
        return pa.repeat(pa.scalar("", pa.string()), len(batch))
    if count != 1:
        more = "is missing: write the rows with columns=full" if count == 0 else "is there twice"
        raise refused(file.path, f"column {name} {more}")
    return batch.column(batch.schema.get_field_index(name))


def _has_null_entries(column: pa.MapArray) -> bool:
    return bool(column.keys.null_count or column.items.null_count)


def _check_range(column: pa.Array, file: TableFile, name: str) -> None:
    """Raise InvalidOptionError for numbers and times that no message has."""
    if name in _NOT_NEGATIVE:
        low = pc.min(column).as_py()
        if low is not None and low < 0:
            raise refused(file.path, f"column {name} has {low}")
    if pa.types.is_timestamp(column.type):
        bounds = pc.min_max(column.cast(pa.int64())).as_py()
        if bounds["min"] < FIRST_MS * _US or bounds["max"] > LAST_MS * _US + _US - 1:
            raise refused(file.path, f"column {name} has a time outside of the years 1 to 9999")


def _fits(held: pa.DataType, wanted: pa.DataType) -> bool:
    """Tell whether a type is one that writers of Parquet have for a column of messages."""
    if pa.types.is_map(wanted):
        return pa.types.is_map(held) and _is_text(held.key_type) and _is_text(held.item_type)
    return next(test(held) for kind, test in _KINDS if kind(wanted))


def _is_text(held: pa.DataType) -> bool:
    plain = held.value_type if pa.types.is_dictionary(held) else held
    return is_any_text(plain)


_KINDS: Final[tuple[tuple[Callable[[pa.DataType], bool], Callable[[pa.DataType], bool]], ...]] = (
    (pa.types.is_string, _is_text),
    (pa.types.is_binary, is_any_binary),
    (pa.types.is_integer, pa.types.is_integer),
    (pa.types.is_timestamp, pa.types.is_timestamp),
)
