"""What pyarrow before 16 lacks: tests for views, and batches with another column.

Platforms of Spark 3.5 bring pyarrow 14 and 15.
"""

from typing import Final

import pyarrow as pa

_TEXT_TYPES: Final = frozenset({"string", "large_string", "string_view"})
_BINARY_TYPES: Final = frozenset({"binary", "large_binary", "binary_view"})


def is_any_text(kind: pa.DataType) -> bool:
    """Tell whether values of the type are texts, in any layout."""
    return str(kind) in _TEXT_TYPES


def is_any_binary(kind: pa.DataType) -> bool:
    """Tell whether values of the type are bytes of any length, in any layout."""
    return str(kind) in _BINARY_TYPES


def with_column(batch: pa.RecordBatch, field: pa.Field, values: pa.Array) -> pa.RecordBatch:
    """Return the batch with the column of that name replaced, or appended where it is new."""
    columns = dict(zip(batch.schema.names, batch.columns, strict=True)) | {field.name: values}
    fields = {known.name: known for known in batch.schema} | {field.name: field}
    schema = pa.schema(list(fields.values()), batch.schema.metadata)
    return pa.RecordBatch.from_arrays(list(columns.values()), schema=schema)
