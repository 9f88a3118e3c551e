"""The kernel that derives from records what their ConsumeQueues hold; None is "not mine"."""

import ctypes
from dataclasses import dataclass
from typing import Final

import numpy as np

from mqstore.codec.kernels.abi import KERNEL_DONE, Dispatching
from mqstore.codec.kernels.frames import SlicedBuffer
from mqstore.codec.kernels.library import library
from mqstore.codec.kernels.pointers import address
from mqstore.format.arrays import Bytes, Int32s, Int64s

_KNOWN_QUEUES: Final = 512  # MOST_QUEUES of dispatch.h
_FEW: Final = 4  # For so few a call costs more than it saves.


@dataclass(frozen=True, slots=True)
class Dispatched:
    """What n whole records say of themselves: int64[n], ``sys_flags`` and ``queue`` int32[n].

    ``queue`` numbers the pairs of topic and queue id as they first come; ``first`` has the first
    record of each pair.
    """

    queue_offsets: Int64s
    physical_offsets: Int64s
    store_timestamps_ms: Int64s
    sys_flags: Int32s
    queue: Int32s
    first: Int64s
    tags_codes: Int64s | None
    """None if a tag is not ASCII."""
    names_light: bool
    """Whether any record names light queues."""


def dispatched(buffer: Bytes, starts: Int64s, sizes: Int64s) -> Dispatched | None:
    """Return the fields of all records; None also for more than 512 pairs of topic and queue."""
    found, count = library(), len(starts)
    if found is None or count < _FEW:
        return None
    slices = SlicedBuffer(buffer, starts, sizes)
    numbers, places, moments, codes = (np.empty(count, np.int64) for _ in range(4))
    flags, queue = (np.empty(count, np.int32) for _ in range(2))
    first = np.empty(_KNOWN_QUEUES, np.int32)
    outputs = [address(array) for array in (numbers, places, moments, codes, flags, queue, first)]
    call = Dispatching(*outputs)
    if found.mq_dispatch(slices.reference, ctypes.byref(call)) != KERNEL_DONE:
        return None
    return Dispatched(
        numbers,
        places,
        moments,
        flags,
        queue,
        first[: call.queues].astype(np.int64),
        None if call.odd_tags else codes,
        bool(call.light),
    )
