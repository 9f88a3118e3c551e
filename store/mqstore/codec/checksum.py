"""CRC-32 of bodies and of whole records, as the broker computes them.

Reference: UtilAll#crc32 (body), MessageDecoder#createCrc32 (property ``__CRC32#``, since 5.2).
"""

from collections.abc import Iterator

import numpy as np

from mqstore.codec.gather import RecordHeaders, sliding
from mqstore.codec.inner_batch import MessageHeaders
from mqstore.format.arrays import Bytes, Int64s, Mask
from mqstore.format.crc import crc32
from mqstore.format.message import CRC_MASK
from mqstore.format.properties import CRC32, NAME_VALUE_SEPARATOR, PROPERTY_SEPARATOR
from mqstore.native import frames
from mqstore.native.registry import compiled_first

_CRC_DIGITS = 10
_CRC_PROPERTY_BYTES = len(CRC32) + 1 + _CRC_DIGITS + 1
_CRC_NAME = np.dtype(f"S{len(CRC32) + 1}")
_MARK = CRC32.encode() + bytes([NAME_VALUE_SEPARATOR])


def crc_of(buffer: Bytes, starts: Int64s, lengths: Int64s) -> Int64s:
    """Return ``CRC-32 & 0x7FFFFFFF`` of each slice.

    A Python call per slice: 0.12 µs for 1 KiB, most of it the call.
    """
    view = buffer.data
    ends = (starts + lengths).tolist()
    sums = [crc32(view[a:b]) for a, b in zip(starts.tolist(), ends, strict=True)]
    return np.array(sums, np.int64) & CRC_MASK


def broken(headers: RecordHeaders) -> Mask:
    """Tell which records fail a checksum: that of the body, or of the record if it carries one.

    As the broker does: a body of length 0 has none to check. The messages of a batch have the
    checksum of their record.
    """
    if isinstance(headers, MessageHeaders):
        return broken(headers.records)[headers.owners]
    return _broken(headers.buffer, headers.starts, headers.sizes)


@compiled_first(frames.broken)
def _broken(buffer: Bytes, starts: Int64s, sizes: Int64s) -> Mask:
    headers = RecordHeaders(buffer, starts, sizes)
    computed = crc_of(headers.buffer, headers.body_starts, headers.body_lengths)
    wrong: Mask = (computed != headers.field("body_crc")) & (headers.body_lengths > 0)
    return wrong | _record_crc_broken(headers)


def renew_record_crcs(headers: RecordHeaders) -> None:
    """Make ``__CRC32#`` right again in the records that carry it; their buffer is writable."""
    for row, tail in _record_crcs(headers):
        crc = crc32(headers.buffer.data[int(headers.starts[row]) : tail]) & CRC_MASK
        digits = f"{crc:0{_CRC_DIGITS}d}"[::-1].encode()
        begin = tail + len(_MARK)
        headers.buffer[begin : begin + _CRC_DIGITS] = np.frombuffer(digits, np.uint8)


def _record_crc_broken(headers: RecordHeaders) -> Mask:
    """Check ``__CRC32#``, ten digits, the least first, at the very end of a record.

    It covers everything before itself.
    """
    none = np.zeros(len(headers), np.bool_)
    for row, tail in _record_crcs(headers):
        text = headers.buffer[tail + len(_MARK) : tail + _CRC_PROPERTY_BYTES].tobytes()
        digits, end = text[:_CRC_DIGITS], text[_CRC_DIGITS:]
        expected = crc32(headers.buffer.data[int(headers.starts[row]) : tail]) & CRC_MASK
        stated = int(digits[::-1]) if digits.isdigit() else -1
        none[row] = stated != expected or end != bytes([PROPERTY_SEPARATOR])
    return none


def _record_crcs(headers: RecordHeaders) -> Iterator[tuple[int, int]]:
    """Yield the records that carry ``__CRC32#``, and where in the buffer it starts."""
    long_enough = headers.properties_lengths >= _CRC_PROPERTY_BYTES
    at = headers.starts + headers.sizes - _CRC_PROPERTY_BYTES
    marks = sliding(headers.buffer, _CRC_NAME)
    if not long_enough.any() or not len(marks):
        return
    rows = np.flatnonzero(long_enough)
    for row in rows[marks[at[rows]] == _MARK].tolist():
        yield row, int(at[row])
