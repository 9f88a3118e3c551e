"""Body columns: the stored bytes of many records, decompressed where SYSFLAG says so."""

from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from mqstore.codec.compression import decompress
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
    plain = Plain([], [], {}, len(headers))
    spent = 0
    for row in np.flatnonzero(headers.sys_flags & COMPRESSED).tolist():
        if spent >= budget:
            return Plain(plain.rows, plain.bodies, plain.broken, row)
        try:
            body = _decompress(headers, row, limit)
        except ValueError as error:
            plain.broken[row] = str(error)
            continue
        spent += len(body)
        plain.rows.append(row)
        plain.bodies.append(body)
    return plain


def body_column(headers: RecordHeaders, plain: Plain | None) -> pa.BinaryArray:
    """Return the bodies: decompressed where ``plain`` has them, as stored elsewhere."""
    stored = slices(headers.buffer, headers.body_starts, headers.body_lengths)
    if plain is None or not plain.rows:
        return stored
    mask = np.zeros(len(headers), np.bool_)
    mask[plain.rows] = True
    return pc.replace_with_mask(stored, pa.array(mask), pa.array(plain.bodies, pa.binary()))


def compression_column(headers: RecordHeaders) -> pa.StringArray:
    """Return the codec's name where the body is stored compressed, null elsewhere."""
    flags = headers.sys_flags
    bits = (flags & COMPRESSION_MASK) >> COMPRESSION_SHIFT
    names = pa.array([CODECS.get(code, f"unknown ({code})") for code in range(8)], pa.string())
    return names.take(pa.array(bits, mask=(flags & COMPRESSED) == 0))


def _decompress(headers: RecordHeaders, row: int, limit: int) -> bytes:
    flag = int(headers.sys_flags[row])
    codec = CODECS.get((flag & COMPRESSION_MASK) >> COMPRESSION_SHIFT)
    if codec is None:
        raise ValueError(f"unknown compression type in sysFlag {flag:#x}")
    start = int(headers.body_starts[row])
    stored = headers.buffer[start : start + int(headers.body_lengths[row])].tobytes()
    return decompress(codec, stored, limit) if stored else b""
