"""Columns of tables, declared once, and rows and batches made of them.

A column is its name, Arrow type, whether it may be null, and its meaning.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import islice
from typing import Any, Final, TypeAlias, TypeVar

import numpy as np
import pyarrow as pa

from mqstore.codec import compute as pc
from mqstore.codec.decode import timestamps
from mqstore.read.heads import NO_TIMESTAMP

Columns: TypeAlias = tuple[tuple[str, pa.DataType, bool, str], ...]
TableRow: TypeAlias = tuple[Any, ...]

T = TypeVar("T")

TABLE_BATCH_ROWS: Final = 10_000
PENDING: Final = "PENDING"  # state of a message that is not delivered, not committed yet
US: Final = 1000  # microseconds in a millisecond
_SAFE_DIGITS: Final = 18
BROKER_NAME: Final = ("brokerName", pa.string(), False, "name of the store's broker")


def schema(columns: Columns) -> pa.Schema:
    """Return the Arrow schema of ``columns``."""
    return pa.schema([pa.field(name, kind, nullable=null) for name, kind, null, _ in columns])


def batch(rows: Sequence[TableRow], of: pa.Schema) -> pa.RecordBatch:
    """Return ``rows``, values in the order of the schema, as one batch."""
    columns = list(zip(*rows, strict=True)) or [()] * len(of)
    arrays = [pa.array(column, field.type) for column, field in zip(columns, of, strict=True)]
    return pa.RecordBatch.from_arrays(arrays, schema=of)


def batches(rows: Iterable[TableRow], of: pa.Schema) -> Iterator[pa.RecordBatch]:
    """Yield ``rows``, ten thousand at a time."""
    rest = iter(rows)
    while part := list(islice(rest, TABLE_BATCH_ROWS)):
        yield batch(part, of)


def completed(of: pa.Schema, own: Mapping[str, pa.Array], found: pa.RecordBatch) -> pa.RecordBatch:
    """Return rows of schema ``of``: columns of ``own``, all others as scanned into ``found``."""
    arrays = [own[name] if name in own else found[name] for name in of.names]
    return pa.RecordBatch.from_arrays(arrays, schema=of)


def repeat(value: str | int, of: pa.RecordBatch) -> pa.Array:
    """Return a column of one text or int32 for each row."""
    kind = pa.string() if isinstance(value, str) else pa.int32()
    return pa.repeat(pa.scalar(value, kind), of.num_rows)


def times(ms: pa.Array) -> pa.Array:
    """Return int64 ms as timestamps; null where they are."""
    return pc.if_else(ms.is_valid(), timestamps(ms.fill_null(0).to_numpy()), None)


def known_us(ms: Sequence[int]) -> list[int | None]:
    """Return store timestamps in µs; None for NO_TIMESTAMP."""
    return [None if time == NO_TIMESTAMP else time * US for time in ms]


def packed(items: Iterable[T], cost: Callable[[T], int], most: int) -> list[tuple[T, ...]]:
    """Return items in groups, in order: a group ends with the item that brings it to ``most``."""
    groups: list[list[T]] = [[]]
    used = 0
    for item in items:
        groups[-1].append(item)
        used += cost(item)
        if used >= most:
            groups.append([])
            used = 0
    return [tuple(group) for group in groups if group]


def text(found: pa.RecordBatch, name: str) -> pa.Array:
    """Return one property of each row of a batch with ``properties``; null where it is not."""
    return pc.map_lookup(found["properties"], pa.scalar(name), "last")


def integers(found: pa.RecordBatch, name: str, kind: pa.DataType) -> pa.Array:
    """As ``text``, of a property that is a decimal number; null where it is none that fits."""
    limits = np.iinfo(kind.to_pandas_dtype())
    values = [parse(value, limits.min, limits.max) for value in text(found, name).to_pylist()]
    return pa.array(values, kind)


def parse(value: str | None, low: int, high: int) -> int | None:
    """Return the number in [low, high] that the text is, or None."""
    if value is None or len(value) > _SAFE_DIGITS or not value.isascii():
        return None
    digits = value.removeprefix("-")
    number = int(value) if digits.isdecimal() else high + 1
    return number if low <= number <= high else None
