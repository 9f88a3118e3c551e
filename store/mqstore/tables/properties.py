"""Single properties of scanned messages, as columns."""

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

_MAX_DIGITS = 18


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
    if value is None or len(value) > _MAX_DIGITS or not value.isascii():
        return None
    digits = value.removeprefix("-")
    number = int(value) if digits.isdecimal() else high + 1
    return number if low <= number <= high else None
