"""The columns of a Parquet file as columns of messages: checked, with the types of a scan."""

from collections.abc import Callable, Sequence
from typing import Final

import pyarrow as pa

from mqstore.audit.parquet_files import TableFile, refused
from mqstore.codec import compute as pc
from mqstore.codec.schema import BY_NAME, FIRST_MS, LAST_MS, message_schema

BROKER: Final = "brokerName"
TOPIC: Final = "topic"
_NOT_NEGATIVE: Final = ("queueId", "queueOffset")
_US: Final = 1000


def checked(batch: pa.RecordBatch, file: TableFile, columns: Sequence[str]) -> pa.RecordBatch:
    """Return rows of a file with exactly ``columns``, as a scan gives them.

    The topic is that of the folder, if it has one; the name of a broker that is null or not there
    is empty. Raises InvalidOptionError for a column that is missing or twice, for a type, a null, a
    number or a text that messages do not have; pyarrow's errors for values that do not fit.
    """
    made = [_column(batch, file, name) for name in columns]
    found = pa.RecordBatch.from_arrays(made, schema=message_schema(columns))
    found.validate(full=True)
    return found


def _column(batch: pa.RecordBatch, file: TableFile, name: str) -> pa.Array:
    count = batch.schema.names.count(name)
    if name == TOPIC and file.topic is not None:
        return pa.repeat(pa.scalar(file.topic, pa.string()), len(batch))
    if name == BROKER and count == 0:
        return pa.repeat(pa.scalar("", pa.string()), len(batch))
    if count != 1:
        more = "is missing: write the rows with columns=full" if count == 0 else "is there twice"
        raise refused(file.path, f"column {name} {more}")
    column = batch.column(batch.schema.get_field_index(name))
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
    return bool(pa.types.is_string(plain) or pa.types.is_large_string(plain))


def _is_bytes(held: pa.DataType) -> bool:
    return bool(pa.types.is_binary(held) or pa.types.is_large_binary(held))


_KINDS: Final[tuple[tuple[Callable[[pa.DataType], bool], Callable[[pa.DataType], bool]], ...]] = (
    (pa.types.is_string, _is_text),
    (pa.types.is_binary, _is_bytes),
    (pa.types.is_integer, pa.types.is_integer),
    (pa.types.is_timestamp, pa.types.is_timestamp),
)
