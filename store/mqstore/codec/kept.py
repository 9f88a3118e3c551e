"""Bodies that a read gave as they were stored: which are compressed still, and stay so.

``sysFlag`` tells how a body was stored, whether the read decompressed it (as reads do) or not
(``decompress=false``); ``bodyCRC``, the checksum of the stored bytes, tells the two apart. A
body that is plain now goes without its compression bits; no other bit is taken from a column.

Reference: RFC 1950 section 2.2; LZ4 Frame Format, RFC 8878 section 3.1.1 (what a body begins with).
"""

from dataclasses import dataclass
from typing import Final

import numpy as np
import pyarrow as pa

from mqstore.arrays import Int32s, Int64s, Mask
from mqstore.format.crc import crc32
from mqstore.format.message import CRC_MASK
from mqstore.format.sys_flag import CODECS, COMPRESSED, COMPRESSION_MASK, COMPRESSION_SHIFT

UNKNOWN_CRC: Final = -1
_MAGICS: Final = {"lz4": bytes.fromhex("04224D18"), "zstd": bytes.fromhex("28B52FFD")}
_LONGEST: Final = 4


@dataclass(frozen=True, slots=True)
class StoredCompression:
    """``flags`` are the compression bits that bodies keep, 0 for one that is plain.

    ``broken`` bodies were stored as they are and do not begin as their bits say: no consumer
    could open them. ``doubtful`` ones begin so, and no bodyCRC tells whether they were stored so.
    """

    flags: Int32s
    broken: Mask
    doubtful: Mask


def stored_compression(bodies: pa.Array, sys_flags: Int64s, crcs: Int64s) -> StoredCompression:
    """Return what ``sysFlag`` and ``bodyCRC`` (UNKNOWN_CRC where not told) say of each body."""
    count = len(bodies)
    flags = np.zeros(count, np.int32)
    broken, doubtful = np.zeros(count, np.bool_), np.zeros(count, np.bool_)
    # A loop over compressed bodies: a checksum is a call each.
    for row in np.flatnonzero(sys_flags & COMPRESSED).tolist():
        body = bodies[row].as_buffer() if bodies[row].is_valid else None
        if not body:
            continue
        looks_stored = _begins_as(int(sys_flags[row]), bytes(body[:_LONGEST]))
        if crcs[row] == UNKNOWN_CRC:
            doubtful[row] = looks_stored
        elif crc32(body) & CRC_MASK != crcs[row]:
            continue  # Decompressed by the read, or another body since.
        elif looks_stored:
            flags[row] = sys_flags[row] & (COMPRESSED | COMPRESSION_MASK)
        else:
            broken[row] = True
    return StoredCompression(flags, broken, doubtful)


def _begins_as(flag: int, start: bytes) -> bool:
    codec = CODECS.get((flag & COMPRESSION_MASK) >> COMPRESSION_SHIFT)
    if codec != "zlib":
        return codec is not None and start.startswith(_MAGICS[codec])
    # Method deflate, a window of 32 KiB at most, no preset dictionary, the check bits right.
    return len(start) > 1 and (
        start[0] & 0x8F == 0x08 and not start[1] & 0x20 and (start[0] << 8 | start[1]) % 31 == 0
    )
