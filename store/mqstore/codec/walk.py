"""Follow TOTALSIZE from record to record through raw bytes of a CommitLog.

Reference: org.apache.rocketmq.store.CommitLog#checkMessageAndReturnSize.
"""

from dataclasses import dataclass
from typing import Final

import numpy as np

from mqstore.arrays import Bytes, Int64s
from mqstore.format.message import (
    BLANK,
    BLANK_MAGIC,
    HARD_RECORD_BYTES,
    MAGIC_V1,
    MAGIC_V2,
    MIN_RECORD_BYTES,
)

CUT: Final = "cut"  # the record that starts here ends behind the bytes given
BLANK_RECORD: Final = "blank"
ZERO: Final = "zero"  # no record was ever written here
NO_RECORD: Final = "no record"

_RECORD_MAGICS: Final = (MAGIC_V1, MAGIC_V2)


@dataclass(frozen=True, slots=True)
class Walked:
    """Records in ``buffer``, one after the other, and why the walk ended at ``end``."""

    buffer: Bytes
    starts: Int64s
    sizes: Int64s
    end: int
    why: str


def follow(data: bytes) -> Walked:
    """Walk from the start of ``data`` for as long as there are whole records.

    Only sizes and magics are looked at; ``RecordHeaders.problems`` checks the rest. A loop over
    records: each one's place follows from the one before.
    """
    starts, sizes = [], []
    at, why = 0, CUT
    while at + BLANK.itemsize <= len(data):
        size = int.from_bytes(data[at : at + 4], "big", signed=True)
        magic = int.from_bytes(data[at + 4 : at + 8], "big", signed=True)
        if magic not in _RECORD_MAGICS or not MIN_RECORD_BYTES <= size <= HARD_RECORD_BYTES:
            why = _why(size, magic)
            break
        if at + size > len(data):
            break
        starts.append(at)
        sizes.append(size)
        at += size
    return Walked(
        np.frombuffer(data, np.uint8),
        np.array(starts, np.int64),
        np.array(sizes, np.int64),
        at,
        why,
    )


def _why(size: int, magic: int) -> str:
    if magic == BLANK_MAGIC:
        return BLANK_RECORD
    return ZERO if size == 0 and magic == 0 else NO_RECORD
