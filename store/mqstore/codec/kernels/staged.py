"""The kernels over frames of staged files; None is "not mine": ask numpy."""

import ctypes
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np

from mqstore.codec.kernels.abi import KERNEL_DONE, Assigning, QueueNames, Staged
from mqstore.codec.kernels.library import library
from mqstore.codec.kernels.pointers import address, int64s
from mqstore.format.arrays import Bytes, Int64s, Structs
from mqstore.format.consume_queue import UNIT
from mqstore.format.staged import MESSAGE

assert MESSAGE.itemsize == 28
assert UNIT.itemsize == 20

_FEW: Final = 4  # For so few a call costs more than it saves.
_NO_BYTES: Final = np.zeros(0, np.uint8)


@dataclass(frozen=True, slots=True)
class Assigned:
    """What a commit decides of n messages, in log order: int64[n] each."""

    queue_offsets: Int64s
    physical_offsets: Int64s
    store_timestamps_ms: Int64s


def verify(
    messages: Structs, records: Bytes, queues: Sequence[tuple[str, int]], checksum: int
) -> int | None:
    """Return the CRC-32 of what was summed to ``checksum`` and then of sound ``records``.

    Sound: end to end they are the records of the MESSAGE table, each whole, of the queue that its
    row names, and neither a prepared nor a rolled back message. None: one is not, or not known.
    """
    found = library()
    if found is None or len(messages) < _FEW:
        return None
    topics = [topic.encode() for topic, _ in queues]
    edges = np.cumsum([0, *map(len, topics)]).astype(np.int32)
    data = np.frombuffer(b"".join(topics) + b"\0", np.uint8)
    ids = np.array([queue_id for _, queue_id in queues], np.int64)
    names = QueueNames(address(ids), address(edges), address(data), len(topics))
    total, staged = ctypes.c_uint32(checksum), _staged(messages, records)
    done = found.mq_verify_staged(staged, ctypes.byref(names), ctypes.byref(total)) == KERNEL_DONE
    return total.value if done else None


def assign(
    messages: Structs, next_offsets: Int64s, start: int, moments: tuple[int, int]
) -> Assigned | None:
    """Place messages one behind the other from physical offset ``start`` on, and number them.

    ``next_offsets`` has the next queue offset of each queue of the frame, and is counted up.
    ``moments``: the store timestamp of messages without one of their own, and the least there is.
    """
    found, count = library(), len(messages)
    if found is None or count < _FEW:
        return None
    made = Assigned(*(np.empty(count, np.int64) for _ in range(3)))
    outputs = (made.queue_offsets, made.physical_offsets, made.store_timestamps_ms)
    following = next_offsets.copy()
    inputs = (address(following), len(following), start, *moments)
    call = Assigning(*inputs, *map(address, outputs))
    staged = _staged(messages, _NO_BYTES)
    if found.mq_assign(staged, ctypes.byref(call)) != KERNEL_DONE:
        return None
    next_offsets[:] = following
    return made


def make_units(messages: Structs, physical_offsets: Int64s, firsts: Int64s) -> Structs | None:
    """Return the ConsumeQueue units of messages, those of queue q together, from ``firsts[q]`` on.

    None also where a message is delayed: its unit has the time of its delivery.
    """
    found, count = library(), len(messages)
    if found is None or count < _FEW or len(physical_offsets) != count:
        return None
    units, following, places = np.zeros(count, UNIT), firsts.copy(), int64s(physical_offsets)
    tables = (address(places), address(following), len(following), address(units))
    done = found.mq_make_units(_staged(messages, _NO_BYTES), *tables) == KERNEL_DONE
    return units if done else None


def _staged(messages: Structs, records: Bytes) -> "ctypes._CArgObject":
    assert messages.dtype == MESSAGE
    return ctypes.byref(Staged(address(messages), len(messages), address(records), len(records)))
