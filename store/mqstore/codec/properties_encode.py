"""Columns to property blocks: ``name 0x01 value 0x02`` for each property a message has.

A block is one string: the user's properties first, then the typed ones. The last separator is
written, as brokers since 5.2.0 do and all of them read.

Reference: org.apache.rocketmq.common.message.MessageDecoder#messageProperties2String.
"""

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import pyarrow as pa

from mqstore.codec import compute as pc
from mqstore.format.arrays import Int64s, Mask
from mqstore.format.properties import NAME_VALUE_SEPARATOR, PROPERTY_SEPARATOR
from mqstore.native import records
from mqstore.native.records import BlockPiece

_IS: str = chr(NAME_VALUE_SEPARATOR)
_END: str = chr(PROPERTY_SEPARATOR)


def join_blocks(
    count: int, user: pa.Array | None, typed: Sequence[tuple[str, pa.Array | str]]
) -> pa.Array:
    """Return ``count`` property blocks as one binary array.

    ``user`` holds ready blocks (see ``join_map``). A typed property is a name with a string
    column, in which null means that the message has none, or with one value for all messages.
    """
    made = records.join_blocks(count, list(_block_pieces(count, user, typed)))
    if made is not None:
        return made
    pieces: list[Any] = [] if user is None else [user]
    for name, values in typed:
        if isinstance(values, str):
            pieces.append(f"{name}{_IS}{values}{_END}")
        elif not values.null_count:
            pieces += [f"{name}{_IS}", values, _END]
        elif values.null_count < count:
            pieces.append(_optional(name, values))
    return _concatenate(count, pieces).cast(pa.binary())


def _block_pieces(
    count: int, user: pa.Array | None, typed: Sequence[tuple[str, pa.Array | str]]
) -> Iterator[BlockPiece]:
    if user is not None:
        yield BlockPiece(b"", user)
    for name, values in typed:
        prefix = f"{name}{_IS}"
        if isinstance(values, str):
            yield BlockPiece(f"{prefix}{values}{_END}".encode())
        elif values.null_count < count:
            yield BlockPiece(prefix.encode(), values, PROPERTY_SEPARATOR)


def join_map(properties: pa.Array, wanted: Mask) -> pa.Array:
    """Return one block for each map of a map<string,string> array.

    ``wanted`` tells for each entry, in the order of ``entries``, whether it is written; an entry
    whose value is null must not be. A null map is an empty block.
    """
    starts, names, values = entries(properties)
    if not wanted.all():
        mask = pa.array(wanted)
        names, values = names.filter(mask), values.filter(mask)
        starts = np.concatenate(([0], np.cumsum(wanted)))[starts]
    joined = pc.binary_join_element_wise(names, pa.scalar(_IS), values, pa.scalar(_END), "")
    if isinstance(joined, pa.ChunkedArray):
        joined = joined.combine_chunks()
    if not len(joined):
        return pa.array([""] * len(properties), pa.string())
    _, positions, data = joined.buffers()
    ends = np.frombuffer(positions, np.int32, len(joined) + 1, joined.offset * 4)
    # The entries of one map lie next to each other, so its block is already there.
    block_starts = pa.py_buffer(np.ascontiguousarray(ends[starts]))
    return pa.StringArray.from_buffers(len(properties), block_starts, data)


def entries(
    properties: pa.Array,
) -> tuple[Int64s, pa.Array, pa.Array]:
    """Return where each map's entries start (one more than maps), all names and all values.

    The entries of a null map are left out, and so is what lies outside a sliced array.
    """
    positions = properties.offsets.to_numpy().astype(np.int64)
    names = properties.keys.cast(pa.string())
    values = properties.items.cast(pa.string())
    names = names.slice(positions[0], positions[-1] - positions[0])
    values = values.slice(positions[0], positions[-1] - positions[0])
    lengths = np.diff(positions)
    if properties.null_count:
        valid = properties.is_valid().to_numpy(zero_copy_only=False)
        kept = pa.array(np.repeat(valid, lengths))
        names, values = names.filter(kept), values.filter(kept)
        lengths = np.where(valid, lengths, 0)
    return np.concatenate(([0], np.cumsum(lengths))), names, values


def has_separator(strings: pa.Array) -> Mask:
    """Tell which strings hold one of the two separators, and so cannot be part of a block.

    A look at all bytes of the column at once answers for most columns.
    """
    none = np.zeros(len(strings), np.bool_)
    data = strings.buffers()[2] if len(strings) else None
    if data is None or not data.size:
        return none
    if np.frombuffer(data, np.uint8).min() > PROPERTY_SEPARATOR:
        return none
    found = pc.match_substring_regex(strings, f"[{_IS}{_END}]").fill_null(False)
    return np.asarray(found.to_numpy(zero_copy_only=False), np.bool_)


def may_hold(strings: pa.Array, character: str) -> bool:
    """Tell whether an ASCII character may be in a string of the column: a look at all its bytes."""
    data = strings.buffers()[2] if len(strings) else None
    if data is None or not data.size:
        return False
    return bool((np.frombuffer(data, np.uint8) == ord(character)).any())


def _optional(name: str, values: pa.Array) -> pa.Array:
    joined = pc.binary_join_element_wise(
        pa.scalar(f"{name}{_IS}"), values, pa.scalar(_END), "", null_handling="emit_null"
    )
    return joined.fill_null("")


def _concatenate(count: int, pieces: list[Any]) -> pa.Array:
    if not any(isinstance(piece, pa.Array) for piece in pieces):
        return pa.array(["".join(pieces)] * count, pa.string())
    joined: Any = pc.binary_join_element_wise(*[_scalar(p) for p in pieces], pa.scalar(""))
    return joined.combine_chunks() if isinstance(joined, pa.ChunkedArray) else joined


def _scalar(piece: pa.Array | str) -> Any:
    return pa.scalar(piece) if isinstance(piece, str) else piece
