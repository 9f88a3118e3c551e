"""Compression of bodies: as a producer does it, undone, and recognised in bodies as stored.

A body is compressed alone, and only if it has a number of bytes or more. The zlib level and the
LZ4 frame are those of the Java client; PyArrow's own LZ4 frames link their blocks, which
lz4-java cannot read, so the frame is made here of raw blocks.

Reference: DefaultMQProducerImpl#tryToCompressMessage; common.compression.ZlibCompressor,
Lz4Compressor (LZ4FrameOutputStream), ZstdCompressor. RFC 1950 section 2.2; LZ4 Frame Format,
RFC 8878 section 3.1.1 (what a compressed body begins with).
"""

import zlib
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

import numpy as np
import pyarrow as pa

from mqstore.codec import compute as pc
from mqstore.format.arrays import Int32s, Int64s, Mask
from mqstore.format.crc import crc32
from mqstore.format.message import CRC_MASK
from mqstore.format.sys_flag import (
    CODEC_BITS,
    CODECS,
    COMPRESSED,
    COMPRESSION_MASK,
    COMPRESSION_SHIFT,
)

UNKNOWN_CRC: Final = -1
MAX_DECOMPRESSED_BYTES: Final = 64 * 1024 * 1024
"""Longest body that a read decompresses unless its options allow more."""
LEVEL: Final = 5  # MixAll: the client's compress level
# Magic, version 1 with independent blocks, blocks of 4 MiB, header checksum.
_LZ4_HEADER: Final = bytes.fromhex("04224D18607073")
_LZ4_BLOCK_BYTES: Final = 4 * 1024 * 1024
_LZ4_STORED: Final = 0x80000000  # set in a block's length: the block is not compressed
_LZ4_END: Final = bytes(4)
_LZ4: Final = pa.Codec("lz4_raw")
_ZSTD: Final = pa.Codec("zstd", compression_level=LEVEL)
_FIRST_READ_BYTES: Final = 64 * 1024
_EXPECTED_RATIO: Final = 4
_MAGICS: Final = {"lz4": bytes.fromhex("04224D18"), "zstd": bytes.fromhex("28B52FFD")}
_LONGEST_MAGIC: Final = 4


class BodyTooLongError(ValueError):
    """A body that was not decompressed to its end, because its plain bytes are more than asked."""


@dataclass(frozen=True, slots=True)
class StoredCompression:
    """Which bodies of a column are compressed still, as they were stored.

    ``flags`` are the compression bits that a body has when it is written again, 0 for a plain one.
    ``broken`` bodies are as they were stored and do not begin as their bits say: no consumer
    could open them. ``doubtful`` ones do begin so, and there is no bodyCRC to confirm it.
    """

    flags: Int32s
    broken: Mask
    doubtful: Mask


def compress(bodies: pa.Array, codec: str, over: int) -> tuple[pa.Array, Int32s]:
    """Return the bodies as they are stored and each one's compression bits of sysFlag.

    Bodies under ``over`` bytes are left alone. Differs from the client: so are those that
    compressing makes no smaller. A null body stays null.
    """
    flags = np.zeros(len(bodies), np.int32)
    if codec == "none":
        return bodies, flags
    sizes = pc.binary_length(bodies).fill_null(0).to_numpy(zero_copy_only=False)
    large = np.flatnonzero(sizes >= max(over, 1))
    if not len(large):
        return bodies, flags
    shrink = _COMPRESSORS[codec]
    # A loop over bodies: each is its own stream, and the codec costs far more than the loop.
    packed = [shrink(body.as_buffer()) for body in bodies.take(pa.array(large))]
    smaller = np.array([len(p) for p in packed]) < sizes[large]
    mask = np.zeros(len(bodies), np.bool_)
    mask[large[smaller]] = True
    used = pa.array([p for p, better in zip(packed, smaller, strict=True) if better], pa.binary())
    flags[mask] = COMPRESSED | CODEC_BITS[codec]
    return pc.replace_with_mask(bodies, pa.array(mask), used), flags


def decompress(codec: str, data: bytes, limit: int) -> bytes:
    """Return the plain bytes of a ``zlib``, ``lz4`` (frame) or ``zstd`` body.

    Raises ValueError if the body is broken or cut short, BodyTooLongError if it is longer than
    ``limit`` bytes; no more than that is ever held.
    """
    try:
        plain = _inflate(data, limit) if codec == "zlib" else _stream(codec, data, limit)
    except (zlib.error, OSError, pa.ArrowException) as error:
        raise ValueError(f"{codec} body is broken: {error}") from error
    if len(plain) > limit:
        raise BodyTooLongError(f"{codec} body is longer than maxDecompressedBytes={limit}")
    return plain


def stored_compression(bodies: pa.Array, sys_flags: Int64s, crcs: Int64s) -> StoredCompression:
    """Return which bodies of a read are still compressed (UNKNOWN_CRC where there is no bodyCRC).

    ``sysFlag`` says how a body was stored, whether the read decompressed it (as reads do) or not
    (``decompress=false``); ``bodyCRC``, the checksum of the stored bytes, distinguishes the two. A
    body that is plain now goes without its compression bits; no other bit is taken from a column.
    """
    count = len(bodies)
    flags = np.zeros(count, np.int32)
    broken, doubtful = np.zeros(count, np.bool_), np.zeros(count, np.bool_)
    # A loop over compressed bodies: a checksum is a call each.
    for row in np.flatnonzero(sys_flags & COMPRESSED).tolist():
        body = bodies[row].as_buffer() if bodies[row].is_valid else None
        if not body:
            continue
        looks_stored = _begins_as(int(sys_flags[row]), bytes(body[:_LONGEST_MAGIC]))
        if crcs[row] == UNKNOWN_CRC:
            doubtful[row] = looks_stored
        elif crc32(body) & CRC_MASK != crcs[row]:
            continue  # Decompressed by the read, or another body since.
        elif looks_stored:
            flags[row] = sys_flags[row] & (COMPRESSED | COMPRESSION_MASK)
        else:
            broken[row] = True
    return StoredCompression(flags, broken, doubtful)


def _zlib(body: pa.Buffer) -> bytes:
    return zlib.compress(body, LEVEL)


def _zstd(body: pa.Buffer) -> bytes:
    return bytes(_ZSTD.compress(body, asbytes=True))


def _lz4(body: pa.Buffer) -> bytes:
    parts = [_LZ4_HEADER]
    view = memoryview(body)
    for begin in range(0, len(view), _LZ4_BLOCK_BYTES):
        block = view[begin : begin + _LZ4_BLOCK_BYTES]
        packed = _LZ4.compress(block, asbytes=True)
        if len(packed) < len(block):
            parts += [len(packed).to_bytes(4, "little"), packed]
        else:
            parts += [(len(block) | _LZ4_STORED).to_bytes(4, "little"), bytes(block)]
    return b"".join([*parts, _LZ4_END])


_COMPRESSORS: Final[dict[str, Callable[[pa.Buffer], bytes]]] = {
    "zlib": _zlib,
    "lz4": _lz4,
    "zstd": _zstd,
}


def _inflate(data: bytes, limit: int) -> bytes:
    stream = zlib.decompressobj()
    plain = stream.decompress(data, limit + 1)
    if not stream.eof and len(plain) <= limit:
        raise zlib.error("cut short")
    return plain


def _stream(codec: str, data: bytes, limit: int) -> bytes:
    if not data:
        raise OSError("empty")
    parts: list[bytes] = []
    held, step = 0, max(_FIRST_READ_BYTES, _EXPECTED_RATIO * len(data))
    with pa.CompressedInputStream(pa.py_buffer(data), codec) as stream:
        # A read allocates all that it may return: so it never asks for the whole limit.
        while held <= limit and (part := stream.read(min(step, limit + 1 - held))):
            parts.append(part)
            held += len(part)
            step *= 2
    return b"".join(parts)


def _begins_as(flag: int, start: bytes) -> bool:
    codec = CODECS.get((flag & COMPRESSION_MASK) >> COMPRESSION_SHIFT)
    if codec != "zlib":
        return codec is not None and start.startswith(_MAGICS[codec])
    # Method deflate, a window of 32 KiB at most, no preset dictionary, the check bits right.
    return len(start) > 1 and (
        start[0] & 0x8F == 0x08 and not start[1] & 0x20 and (start[0] << 8 | start[1]) % 31 == 0
    )
