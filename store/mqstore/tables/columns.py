"""Columns of tables, told once: name, Arrow type, whether it may be null, meaning."""

from collections.abc import Iterable, Iterator, Sequence
from itertools import islice
from typing import Any, Final, TypeAlias

import pyarrow as pa

Columns: TypeAlias = tuple[tuple[str, pa.DataType, bool, str], ...]
Row: TypeAlias = tuple[Any, ...]

BATCH_ROWS: Final = 10_000
US: Final = 1000  # microseconds in a millisecond
BROKER_NAME: Final = ("brokerName", pa.string(), False, "name of the store's broker")


def schema(columns: Columns) -> pa.Schema:
    """Return the Arrow schema of ``columns``."""
    return pa.schema([pa.field(name, kind, nullable=null) for name, kind, null, _ in columns])


def batch(rows: Sequence[Row], of: pa.Schema) -> pa.RecordBatch:
    """Return ``rows``, values in the order of the schema, as one batch."""
    columns = list(zip(*rows, strict=True)) or [()] * len(of)
    arrays = [pa.array(column, field.type) for column, field in zip(columns, of, strict=True)]
    return pa.RecordBatch.from_arrays(arrays, schema=of)


def batches(rows: Iterable[Row], of: pa.Schema) -> Iterator[pa.RecordBatch]:
    """Yield ``rows``, ten thousand at a time."""
    rest = iter(rows)
    while part := list(islice(rest, BATCH_ROWS)):
        yield batch(part, of)
