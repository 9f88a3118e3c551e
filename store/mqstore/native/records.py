"""The kernels that make property blocks and records. None, or False, is "not mine"."""

import ctypes
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import pyarrow as pa

from mqstore.format.arrays import Bytes, Int32s, Int64s
from mqstore.native.arrays import address, int64s
from mqstore.native.declarations import structure
from mqstore.native.registry import KERNEL_DONE, kernel

_MOST_BYTES: Final = 2**31 - 1  # What the int32 edges of an Arrow array can span.
_EDGE: Final = 4


@dataclass(frozen=True, slots=True)
class BlockPiece:
    """``prefix value suffix`` of each block, for rows whose value is not null.

    Without ``values`` it is ``prefix`` alone, in every block.
    """

    prefix: bytes
    values: pa.Array | None = None
    suffix: int = 0


@dataclass(frozen=True, slots=True)
class Fields:
    """What differs from record to record, beside body and properties; ``topics`` are indices."""

    topics: Int32s
    queue_ids: Int32s
    flags: Int32s
    sys_flags: Int32s
    born_timestamps_ms: Int64s


def join_blocks(count: int, pieces: Sequence[BlockPiece]) -> pa.Array | None:
    """Return ``count`` blocks as one binary array, each of all pieces that its row has."""
    run = kernel("mq_join_blocks")
    columns = [piece.values for piece in pieces if piece.values is not None]
    if run is None or not all(map(_is_plain, columns)):
        return None
    if any(len(column) != count for column in columns):
        return None
    room = sum(map(_data_bytes, columns)) + count * sum(len(piece.prefix) + 1 for piece in pieces)
    room += 1
    if room > _MOST_BYTES:
        return None
    prefixes = [np.frombuffer(piece.prefix or b"\0", np.uint8) for piece in pieces]
    table = (structure("Piece") * max(1, len(pieces)))()
    for entry, piece, prefix in zip(table, pieces, prefixes, strict=False):
        entry.prefix, entry.prefix_length = address(prefix), len(piece.prefix)
        entry.suffix = piece.suffix
        if piece.values is not None:
            _place(entry.values, piece.values)
    edges, data = np.empty(count + 1, np.int32), np.empty(room, np.uint8)
    outputs = (address(edges), address(data), room)
    if run(ctypes.byref(table), len(pieces), count, *outputs) != KERNEL_DONE:
        return None
    buffers = [None, pa.py_buffer(edges), pa.py_buffer(data[: int(edges[-1])])]
    return pa.Array.from_buffers(pa.binary(), count, buffers)


@dataclass(frozen=True, slots=True)
class EndToEnd:
    """Where records go: record i, of row ``order[i]`` and of ``sizes[i]`` bytes, behind the last.

    The rows are in their order where there is no ``order``. ``into`` has room for all, exactly.
    """

    order: Int64s | None
    sizes: Int64s
    into: Bytes


def encode(
    header: bytes,
    topics: Sequence[bytes],
    fields: Fields,
    tails: tuple[pa.Array, pa.Array],
    places: EndToEnd,
) -> bool:
    """Write the records; False, with anything written, is "not mine".

    ``header`` is what all share; ``topics`` have their length byte before them; ``tails`` are the
    bodies and the property blocks.
    """
    run = kernel("mq_encode")
    if run is None or not all(_is_plain(tail) and not tail.null_count for tail in tails):
        return False
    rows = len(fields.topics)
    columns = [np.ascontiguousarray(a, np.int32) for a in _int32s(fields)]
    born, sizes = int64s(fields.born_timestamps_ms), int64s(places.sizes)
    rows_of = None if places.order is None else int64s(places.order)
    if any(len(a) != rows for a in (*columns, born, *tails)):
        return False
    if len(sizes) != (rows if rows_of is None else len(rows_of)):
        return False
    edges = np.cumsum([0, *map(len, topics)]).astype(np.int32)
    shared = np.frombuffer(header, np.uint8)
    names = np.frombuffer(b"".join(topics) + b"\0", np.uint8)
    call = structure("Encoding")()
    call.rows, call.order = rows, None if rows_of is None else address(rows_of)
    call.header, call.header_length = address(shared), len(shared)
    call.topics, call.topic_edges, call.topic_data = len(topics), address(edges), address(names)
    call.topic, call.queue_ids, call.flags, call.sys_flags = map(address, columns)
    call.born_timestamps_ms = address(born)
    _place(call.bodies, tails[0])
    _place(call.properties, tails[1])
    output = address(places.into), len(places.into)
    result = run(ctypes.byref(call), len(sizes), address(sizes), *output)
    return bool(result == KERNEL_DONE)


def _int32s(fields: Fields) -> tuple[Int32s, Int32s, Int32s, Int32s]:
    return fields.topics, fields.queue_ids, fields.flags, fields.sys_flags


def _is_plain(column: pa.Array) -> bool:
    """Whether a column has the layout that the kernels read, and is not empty."""
    if not isinstance(column, pa.Array) or column.type not in (pa.string(), pa.binary()):
        return False
    return column.buffers()[1] is not None and column.buffers()[1].size > 0


def _edges(column: pa.Array) -> Int32s:
    edges = column.buffers()[1]
    return np.frombuffer(edges, np.int32, len(column) + 1, column.offset * _EDGE)


def _data_bytes(column: pa.Array) -> int:
    edges = _edges(column)
    return int(edges[-1]) - int(edges[0])


def _place(entry: Any, column: pa.Array) -> None:
    """Put the addresses of ``column`` into ``entry``; the column must outlive the call."""
    valid, _, data = column.buffers()
    entry.edges = address(_edges(column))
    entry.data = data.address if data is not None else None
    entry.valid = valid.address if valid is not None and column.null_count else None
    entry.valid_from = column.offset
