"""The kernel that makes keyed digests of slices of a buffer. None is "not mine"."""

import numpy as np

from mqstore.format.arrays import Bytes, Int64s, UInt64Pairs
from mqstore.native.arrays import address
from mqstore.native.frames import SlicedBuffer
from mqstore.native.registry import KERNEL_DONE, kernel


def siphash(buffer: Bytes, starts: Int64s, sizes: Int64s, keys: UInt64Pairs) -> UInt64Pairs | None:
    """Return the digest of each slice: ``uint64[n, 2]``, as the keys."""
    run = kernel("mq_digests")
    if run is None:
        return None
    slices = SlicedBuffer(buffer, starts, sizes)
    taken, made = np.ascontiguousarray(keys), np.empty((len(starts), 2), np.uint64)
    done = run(slices.reference, address(taken), address(made))
    return made if done == KERNEL_DONE else None
