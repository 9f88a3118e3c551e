"""ConsumeQueues in RocksDB (storeType=defaultRocksDB): keys and values, big-endian.

A key of the column family ``default`` is the topic's length (4 bytes), 01, the topic, 01, the queue
id (4), 01, the queue offset (8). Its value is a unit, as in a file, with the time of its record:

    at  bytes  field            meaning
    --  -----  ---------------  --------------------------------------------------
     0      8  physical_offset  byte of the CommitLog where the message record starts
     8      4  size             TOTALSIZE of that record
    12      8  tags_code        hash of the message's tags; delivery time (ms) if delayed
    20      8  store_timestamp  storeTimestamp of the record, in ms

A key of the column family ``offset`` is the topic's length (4), 01, the topic, 01, ``max`` or
``min``, 01, the queue id (4). Its value is the last, or about the first, message of the queue:

    at  bytes  field            meaning
    --  -----  ---------------  --------------------------------------------------
     0      8  physical_offset  byte of the CommitLog where its record starts
     8      8  queue_offset     its queue offset

Units behind the last message are left-overs of a log that was truncated. The topic CHECKPOINT_TOPIC
has one value of 8 bytes: the physical offset behind the last record with a unit. Units are written
without RocksDB's own log: what is not flushed yet is in memory, and made anew from the CommitLog
when a broker starts after a crash.

Reference: RocksDBConsumeQueueTable, RocksDBConsumeQueueOffsetTable, ConsumeQueueRocksDBStorage.
"""

from typing import Final, NamedTuple

import numpy as np

ROCKSDB_UNIT: Final = np.dtype(
    [
        ("physical_offset", ">i8"),
        ("size", ">i4"),
        ("tags_code", ">i8"),
        ("store_timestamp", ">i8"),
    ]
)
ROCKSDB_EDGE: Final = np.dtype([("physical_offset", ">i8"), ("queue_offset", ">i8")])
KEY_END: Final = np.dtype(">i8")
"""What a key of a unit ends in: its queue offset."""
UNIT_FAMILY: Final = "default"
EDGE_FAMILY: Final = "offset"
CHECKPOINT_TOPIC: Final = "CHECKPOINT_TOPIC"

_CTRL_1: Final = b"\x01"
_MAX: Final = b"max"

assert ROCKSDB_UNIT.itemsize == 28


class Edge(NamedTuple):
    """What a key of the column family ``offset`` is of."""

    topic: bytes
    queue_id: int
    is_last: bool


def unit_keys(topic: str, queue_id: int) -> bytes:
    """Return what the keys of all units of a queue begin with."""
    return _CTRL_1.join((_topic(topic), queue_id.to_bytes(4, "big"), b""))


def unit_key(keys: bytes, queue_offset: int) -> bytes:
    """Return the key of one unit; ``keys`` are those of the queue, the queue offset is not < 0."""
    return keys + queue_offset.to_bytes(8, "big")


def parse_edge(key: bytes) -> Edge | None:
    """Return what a key of the column family ``offset`` says, or None if it is of no such form."""
    size = int.from_bytes(key[:4], "big")
    topic, rest = key[5 : 5 + size], key[5 + size :]
    if len(rest) != 9 or key[4:5] + rest[:1] + rest[4:5] != 3 * _CTRL_1:
        return None
    return Edge(topic, int.from_bytes(rest[5:], "big", signed=True), rest[1:4] == _MAX)


def checkpoint_key() -> bytes:
    """Return the key of the checkpoint."""
    return _CTRL_1.join((_topic(CHECKPOINT_TOPIC), _MAX, bytes(4)))


def _topic(name: str) -> bytes:
    text = name.encode()
    return len(text).to_bytes(4, "big") + _CTRL_1 + text
