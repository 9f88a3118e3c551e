"""Follow TOTALSIZE from record to record through raw bytes of a CommitLog.

Reference: org.apache.rocketmq.store.CommitLog#checkMessageAndReturnSize.
"""

from dataclasses import dataclass
from typing import Final, TypeAlias

import numpy as np

from mqstore.codec.gather import sliding
from mqstore.format.arrays import Bytes, Int64s
from mqstore.format.message import (
    BLANK,
    BLANK_MAGIC,
    HARD_RECORD_BYTES,
    HEADER,
    MIN_RECORD_BYTES,
    RECORD_MAGICS,
    version_indices,
)
from mqstore.native import frames
from mqstore.native.registry import compiled_first

CUT: Final = "cut"  # the record that starts here ends behind the bytes given
BLANK_RECORD: Final = "blank"
ZERO: Final = "zero"  # no record was ever written here
NO_RECORD: Final = "no record"

Data: TypeAlias = bytes | bytearray | memoryview

_MAGIC_WORDS: Final = tuple(magic.to_bytes(4, "big", signed=True) for magic in RECORD_MAGICS)


@dataclass(frozen=True, slots=True)
class Walked:
    """Records in ``buffer``, one after the other, and why the walk ended at ``end``."""

    buffer: Bytes
    starts: Int64s
    sizes: Int64s
    end: int
    why: str


def follow(data: Data) -> Walked:
    """Walk from the start of ``data`` for as long as there are whole records.

    Only sizes and magics are looked at; ``RecordHeaders.problems`` checks the rest.
    """
    buffer = np.frombuffer(data, np.uint8)
    starts, sizes, end = _follow(buffer)
    return Walked(buffer, starts, sizes, end, what_lies_at(data, end))


def places_of_headers(data: bytes, physical_offset: int | None = None) -> Int64s:
    """Return where in ``data`` record headers seem to start, ascending.

    A header there has a magic and a believable size, and, if ``data`` lies at a given
    ``physical_offset``, says its own place; nothing else is looked at. Only headers that lie in
    ``data`` as a whole are found.
    """
    if not any(word in data for word in _MAGIC_WORDS):  # Zeros, most often: a fast look.
        return np.zeros(0, np.int64)
    heads = sliding(np.frombuffer(data, np.uint8), HEADER)
    starts = np.flatnonzero(version_indices(heads["magic"]) >= 0)
    sizes = heads["total_size"][starts]
    fits = (sizes >= MIN_RECORD_BYTES) & (sizes <= HARD_RECORD_BYTES)
    if physical_offset is not None:
        fits &= heads["physical_offset"][starts] == physical_offset + starts
    found: Int64s = starts[fits]
    return found


def what_lies_at(data: Data, at: int) -> str:
    """Return what is at ``at``, where a record ends or all does; CUT also for a whole record."""
    if at + BLANK.itemsize > len(data):
        return CUT
    size, magic = _size_and_magic(data, at)
    if magic in RECORD_MAGICS and MIN_RECORD_BYTES <= size <= HARD_RECORD_BYTES:
        return CUT
    if magic == BLANK_MAGIC:
        return BLANK_RECORD
    return ZERO if size == 0 and magic == 0 else NO_RECORD


@compiled_first(frames.follow)
def _follow(buffer: Bytes) -> tuple[Int64s, Int64s, int]:
    """Return starts and sizes of the records, and where the last one ends.

    A loop over records: each one's place follows from the one before.
    """
    data, starts, sizes = buffer.data, [], []
    at = 0
    while what_lies_at(data, at) == CUT and at + BLANK.itemsize <= len(data):
        size, _ = _size_and_magic(data, at)
        if at + size > len(data):
            break
        starts.append(at)
        sizes.append(size)
        at += size
    return np.array(starts, np.int64), np.array(sizes, np.int64), at


def _size_and_magic(data: Data, at: int) -> tuple[int, int]:
    size = int.from_bytes(data[at : at + 4], "big", signed=True)
    return size, int.from_bytes(data[at + 4 : at + 8], "big", signed=True)
