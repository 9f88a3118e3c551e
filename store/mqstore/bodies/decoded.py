"""What decoding gives, and how its pieces become one array in the order of the bodies."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Final, Protocol

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

_DECODED_BYTES: Final = 1 << 20
_DECODED_ROWS: Final = 8_192


@dataclass(frozen=True, slots=True)
class DecodedBodies:
    """The values of n bodies, and why those of some rows are bad: by row, from 0."""

    values: pa.Array
    reasons: dict[int, str]


class BodyDecoder(Protocol):
    """What decodes bodies, batch by batch."""

    def decode(self, bodies: pa.BinaryArray) -> DecodedBodies:
        """Return the values of bodies."""


def assembled(pieces: Sequence[tuple[NDArray[np.int64], pa.Array]], kind: pa.DataType) -> pa.Array:
    """Return the values of pieces, each with its rows, in the order of rows."""
    pieces = [piece for piece in pieces if len(piece[0])]
    if not pieces:
        return pa.array([], kind)
    if len(pieces) == 1:
        return pieces[0][1]
    rows = np.concatenate([rows for rows, _ in pieces])
    values = pa.concat_arrays([values for _, values in pieces])
    if (np.diff(rows) > 0).all():
        return values
    return values.take(pa.array(np.argsort(rows)))


def text_rows(bodies: pa.BinaryArray) -> NDArray[np.bool_]:
    """Return which bodies are UTF-8 with at least a byte."""
    import pyarrow.compute as pc  # noqa: PLC0415 - reads start without it

    filled: NDArray[np.bool_] = pc.binary_length(bodies).to_numpy(zero_copy_only=False) > 0
    try:
        bodies.cast(pa.string())
    except pa.ArrowInvalid:
        for row, body in enumerate(bodies.to_pylist()):
            filled[row] = filled[row] and _is_utf8(body)
    return filled


def _is_utf8(body: bytes) -> bool:
    try:
        body.decode()
    except UnicodeDecodeError:
        return False
    return True


def by_pieces(
    bodies: pa.BinaryArray,
    read: Callable[[int, bytes], Any],
    array: Callable[[list[Any]], tuple[pa.Array, dict[int, str]]],
    kind: pa.DataType,
) -> DecodedBodies:
    """Return bodies that are read one by one, and made columns in pieces of bounded bytes.

    ``read`` is given the row of a body and its bytes, of null bodies nothing, and raises ValueError
    with the reason of a bad one; ``array`` makes the array of values, and has the reasons of those
    that do not fit, by their place.
    """
    pieces: list[pa.Array] = []
    values: list[Any] = []
    size = 0
    reasons: dict[int, str] = {}

    def finish() -> None:
        start = sum(len(piece) for piece in pieces)
        made, misfits = array(values)
        pieces.append(made)
        reasons.update({start + place: reason for place, reason in misfits.items()})
        values.clear()

    for row, scalar in enumerate(bodies):
        body, value = scalar.as_py(), None
        try:
            value = None if body is None else read(row, body)
        except ValueError as error:
            reasons[row] = str(error)
        values.append(value)
        size += len(body or b"")
        if size > _DECODED_BYTES or len(values) == _DECODED_ROWS:
            finish()
            size = 0
    if values:
        finish()
    return DecodedBodies(pa.concat_arrays(pieces) if pieces else pa.array([], kind), reasons)
