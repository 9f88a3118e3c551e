"""Compress bodies as a producer does.

A body is compressed alone, and only if it has ``over`` bytes or more. The zlib level and the
LZ4 frame are those of the Java client; PyArrow's own LZ4 frames link their blocks, which
lz4-java cannot read, so the frame is made here of raw blocks.

Reference: DefaultMQProducerImpl#tryToCompressMessage; common.compression.ZlibCompressor,
Lz4Compressor (LZ4FrameOutputStream), ZstdCompressor.
"""

import zlib
from collections.abc import Callable
from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from mqstore.arrays import Int32s
from mqstore.format.sys_flag import CODEC_BITS, COMPRESSED

LEVEL: Final = 5  # MixAll: the client's compress level
# Magic, version 1 with independent blocks, blocks of 4 MiB, header checksum.
_LZ4_HEADER: Final = bytes.fromhex("04224D18607073")
_LZ4_BLOCK_BYTES: Final = 4 * 1024 * 1024
_LZ4_STORED: Final = 0x80000000  # set in a block's length: the block is not compressed
_LZ4_END: Final = bytes(4)
_LZ4: Final = pa.Codec("lz4_raw")
_ZSTD: Final = pa.Codec("zstd", compression_level=LEVEL)


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
    kept = pa.array([p for p, better in zip(packed, smaller, strict=True) if better], pa.binary())
    flags[mask] = COMPRESSED | CODEC_BITS[codec]
    return pc.replace_with_mask(bodies, pa.array(mask), kept), flags


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
