"""Body columns: the stored bytes of many records, decompressed where SYSFLAG says so."""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from mqstore.codec import compute as pc
from mqstore.codec.compression import MAX_DECOMPRESSED_BYTES, BodyTooLongError, decompress
from mqstore.codec.gather import RecordHeaders
from mqstore.codec.slices import slices
from mqstore.format.sys_flag import CODECS, COMPRESSED, COMPRESSION_MASK, COMPRESSION_SHIFT


@dataclass(frozen=True, slots=True)
class Plain:
    """The bodies of the compressed ones among n records, decompressed.

    ``rows`` says which records they are of; ``broken`` says why others could not be; ``count``
    is how many of the n records were looked at before the budget of bytes was spent.
    """

    rows: list[int]
    bodies: list[bytes]
    broken: dict[int, str]
    count: int


def decompress_bodies(headers: RecordHeaders, limit: int, budget: int) -> Plain:
    """Decompress what is compressed, record by record, until ``budget`` bytes are out.

    A body may hold ``limit`` bytes; so no more than ``budget + limit`` bytes are ever held.
    """

    def stored(row: int) -> bytes:
        return bytes(headers.body(row))

    return decompress_stored(headers.sys_flags, stored, limit, budget)


def decompress_stored(
    sys_flags: NDArray[np.int32], stored: Callable[[int], bytes], limit: int, budget: int
) -> Plain:
    """Do the same for records of those SYSFLAGs, given the stored body of a row."""
    plain = Plain([], [], {}, len(sys_flags))
    spent = 0
    for row in np.flatnonzero(sys_flags & COMPRESSED).tolist():
        if spent >= budget:
            return Plain(plain.rows, plain.bodies, plain.broken, row)
        try:
            body = _decompress(int(sys_flags[row]), stored(row), limit)
        except ValueError as error:
            plain.broken[row] = str(error)
            continue
        spent += len(body)
        plain.rows.append(row)
        plain.bodies.append(body)
    return plain


def broken_bodies(headers: RecordHeaders) -> dict[int, str]:
    """Return the rows of records whose body is compressed by SYSFLAG and cannot be opened, and why.

    A consumer gets neither such a message nor those behind it in one answer of the broker. Bodies
    of more than MAX_DECOMPRESSED_BYTES are decompressed up to there. Reference:
    MessageDecoder#decode (null where a body cannot be decompressed), #decodesBatch.
    """
    found = {}
    for row in np.flatnonzero(headers.sys_flags & COMPRESSED).tolist():
        try:
            stored = bytes(headers.body(row))
            _decompress(int(headers.sys_flags[row]), stored, MAX_DECOMPRESSED_BYTES)
        except BodyTooLongError:
            continue
        except ValueError as error:
            found[row] = f"the body cannot be decompressed: {error}"
    return found


def body_column(headers: RecordHeaders, plain: Plain | None) -> pa.BinaryArray:
    """Return the bodies: decompressed where ``plain`` has them, as stored elsewhere."""
    return with_plain(slices(headers.buffer, headers.body_starts, headers.body_lengths), plain)


def with_plain(stored: pa.BinaryArray, plain: Plain | None) -> pa.BinaryArray:
    """Return the stored bodies; a row of ``plain`` has its decompressed body instead."""
    if plain is None or not plain.rows:
        return stored
    mask = np.zeros(len(stored), np.bool_)
    mask[plain.rows] = True
    return pc.replace_with_mask(stored, pa.array(mask), pa.array(plain.bodies, pa.binary()))


def compression_names(flags: NDArray[np.int32]) -> pa.StringArray:
    """Return the codec's name where SYSFLAG says that a body is compressed, null elsewhere."""
    bits = (flags & COMPRESSION_MASK) >> COMPRESSION_SHIFT
    names = pa.array([CODECS.get(code, f"unknown ({code})") for code in range(8)], pa.string())
    return names.take(pa.array(bits, mask=(flags & COMPRESSED) == 0))


def _decompress(flag: int, stored: bytes, limit: int) -> bytes:
    codec = CODECS.get((flag & COMPRESSION_MASK) >> COMPRESSION_SHIFT)
    if codec is None:
        raise ValueError(f"unknown compression type in sysFlag {flag:#x}")
    return decompress(codec, stored, limit) if stored else b""
