"""Slices of one buffer to Arrow arrays in one pass and one copy, and arrays as text."""

from typing import Final

import numpy as np
import pyarrow as pa

from mqstore.codec import compute as pc
from mqstore.format.arrays import Bytes, Int64s, Mask

_MOST_BYTES: Final = 2**31 - 1  # What the int32 edges of an Arrow array can span.
_ASCII_END: Final = 0x80


def slices(buffer: Bytes, starts: Int64s, lengths: Int64s) -> pa.BinaryArray:
    """Return ``buffer[starts[i] : starts[i] + lengths[i]]`` for each i, as binary.

    Starts ascend and slices do not overlap: then slices and the gaps between them are the even
    and odd items of one Arrow array over the buffer, and the even ones are one take.
    """
    count = len(starts)
    if count == 0:
        return pa.array([], pa.binary())
    base, end = int(starts[0]), int(starts[-1] + lengths[-1])
    if end - base > _MOST_BYTES and count > 1:  # Of a mapped file, with few records far apart.
        half = count // 2
        parts = (slice(0, half), slice(half, count))
        return pa.concat_arrays([slices(buffer, starts[p], lengths[p]) for p in parts])
    edges = np.empty(2 * count + 1, np.int32)
    edges[0:-1:2] = starts - base
    edges[1::2] = starts - base + lengths
    edges[-1] = edges[-2]
    data = pa.py_buffer(buffer[base:end])
    both = pa.Array.from_buffers(pa.binary(), 2 * count, [None, pa.py_buffer(edges), data])
    return pc.take(both, pa.array(np.arange(0, 2 * count, 2)), boundscheck=False)


def pairs(
    content: Bytes, starts: Int64s, separators: Int64s, ends: Int64s
) -> tuple[pa.BinaryArray, pa.BinaryArray]:
    """Return what lies before and what behind the separator of each piece of ``content``.

    Pieces ascend and do not overlap; a separator is one byte.
    """
    count = len(starts)
    edges = np.empty(4 * count + 1, np.int32)
    edges[:-1:4], edges[1::4], edges[3::4] = starts, separators, ends
    np.add(edges[1::4], 1, out=edges[2::4])
    edges[-1] = edges[-2] if count else 0
    items = [None, pa.py_buffer(edges), pa.py_buffer(content)]
    all_items = pa.Array.from_buffers(pa.binary(), 4 * count, items)
    names, values = (pa.array(np.arange(first, 4 * count, 4)) for first in (0, 2))
    return (
        pc.take(all_items, names, boundscheck=False),
        pc.take(all_items, values, boundscheck=False),
    )


def as_text(array: pa.BinaryArray) -> pa.StringArray:
    """Return binary values as strings; what is not UTF-8 gets U+FFFD, as Java's decoder does."""
    valid, edges, data = array.buffers()
    if data is not None and data.size and np.frombuffer(data, np.uint8).max() < _ASCII_END:
        count, nulls = len(array), array.null_count
        return pa.StringArray.from_buffers(count, edges, data, valid, nulls, array.offset)
    try:
        return array.cast(pa.string())
    except pa.ArrowInvalid:
        return pa.array(
            [
                None if value is None else value.decode(errors="replace")
                for value in array.to_pylist()
            ],
            pa.string(),
        )


def not_utf8(strings: pa.Array) -> Mask:
    """Tell which strings of a string array are no UTF-8; a null is.

    Spark's ``CAST(binary AS STRING)`` checks nothing. Clients write and read properties and topics
    as UTF-8: other bytes would come back as others. Reference: MessageDecoder#CHARSET_UTF8.
    """
    bad = np.zeros(len(strings), np.bool_)
    try:
        strings.validate(full=True)
    except pa.ArrowInvalid:
        # A loop over strings, in a column that has a bad one.
        for row, found in enumerate(strings.cast(pa.binary())):
            bad[row] = found.is_valid and not _decodes(found.as_py())
    return bad


def scatter(values: pa.Array, rows: Int64s, count: int) -> pa.Array:
    """Return an array of ``count`` items: ``values[i]`` at ``rows[i]``, null elsewhere.

    Where a row is named twice the last value stands.
    """
    places = np.full(count, -1, np.int64)
    places[rows] = np.arange(len(rows))
    return values.take(pa.array(places, mask=places < 0))


def _decodes(data: bytes) -> bool:
    try:
        data.decode("utf-8")
    except UnicodeDecodeError:
        return False
    return True
