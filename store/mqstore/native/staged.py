"""The kernels over frames of staged files. None is "not mine"."""

import ctypes
from collections.abc import Sequence
from typing import Final

import numpy as np

from mqstore.format.arrays import Bytes, Int64s, Structs, TopicQueue
from mqstore.format.consume_queue import UNIT
from mqstore.format.staged import MESSAGE
from mqstore.native.arrays import address, int64s
from mqstore.native.declarations import structure
from mqstore.native.registry import KERNEL_DONE, kernel

assert MESSAGE.itemsize == 28
assert UNIT.itemsize == 20

_FEW: Final = 4  # For so few a call costs more than it saves.
_NO_BYTES: Final = np.zeros(0, np.uint8)


def verify(
    messages: Structs, records: Bytes, queues: Sequence[TopicQueue], checksum: int
) -> int | None:
    """Return the CRC-32 of what was summed to ``checksum`` and then of sound ``records``.

    Sound: end to end they are the records of the MESSAGE table, each whole, of the queue that its
    row names, and neither a prepared nor a rolled back message. None: one is not, or not known.
    """
    run = kernel("mq_verify_staged")
    if run is None or len(messages) < _FEW:
        return None
    topics = [topic.encode() for topic, _ in queues]
    edges = np.cumsum([0, *map(len, topics)]).astype(np.int32)
    data = np.frombuffer(b"".join(topics) + b"\0", np.uint8)
    ids = np.array([queue_id for _, queue_id in queues], np.int64)
    names = structure("QueueNames")(address(ids), address(edges), address(data), len(topics))
    total, staged = ctypes.c_uint32(checksum), _staged(messages, records)
    done = run(staged, ctypes.byref(names), ctypes.byref(total)) == KERNEL_DONE
    return total.value if done else None


def make_units(messages: Structs, physical_offsets: Int64s, firsts: Int64s) -> Structs | None:
    """Return the ConsumeQueue units of messages, those of queue q together, from ``firsts[q]`` on.

    None also where a message is delayed: its unit has the time of its delivery.
    """
    run, count = kernel("mq_make_units"), len(messages)
    if run is None or count < _FEW or len(physical_offsets) != count:
        return None
    units, following, places = np.zeros(count, UNIT), firsts.copy(), int64s(physical_offsets)
    tables = (address(places), address(following), len(following), address(units))
    done = run(_staged(messages, _NO_BYTES), *tables) == KERNEL_DONE
    return units if done else None


def _staged(messages: Structs, records: Bytes) -> "ctypes._CArgObject":
    assert messages.dtype == MESSAGE
    bytes_of = address(messages), len(messages), address(records), len(records)
    return ctypes.byref(structure("Staged")(*bytes_of))
