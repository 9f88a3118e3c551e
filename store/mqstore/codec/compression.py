"""Compressed bodies back to plain ones, never more than asked for.

Reference: org.apache.rocketmq.common.compression.{Zlib,Lz4,Zstd}Compressor#decompress.
"""

import zlib
from typing import Final

import pyarrow as pa

_FIRST_READ_BYTES: Final = 64 * 1024
_USUAL_RATIO: Final = 4


def decompress(codec: str, data: bytes, limit: int) -> bytes:
    """Return the plain bytes of a ``zlib``, ``lz4`` (frame) or ``zstd`` body.

    Raises ValueError if the body is broken, cut short, or longer than ``limit`` bytes; no more
    than that is ever held.
    """
    try:
        plain = _inflate(data, limit) if codec == "zlib" else _stream(codec, data, limit)
    except (zlib.error, OSError, pa.ArrowException) as error:
        raise ValueError(f"{codec} body is broken: {error}") from error
    if len(plain) > limit:
        raise ValueError(f"{codec} body is longer than maxDecompressedBytes={limit}")
    return plain


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
    held, step = 0, max(_FIRST_READ_BYTES, _USUAL_RATIO * len(data))
    with pa.CompressedInputStream(pa.py_buffer(data), codec) as stream:
        # A read takes the memory it asks for, whatever comes: so it never asks for the limit.
        while held <= limit and (part := stream.read(min(step, limit + 1 - held))):
            parts.append(part)
            held += len(part)
            step *= 2
    return b"".join(parts)
