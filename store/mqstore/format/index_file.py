"""IndexFile: a hash index from message keys to CommitLog positions.

A file is ``header slot{S} unit{N}``; unit 0 is never used. Header, big-endian:

    at  bytes  field                  meaning
    --  -----  ---------------------  ---------------------------------------------
     0      8  begin_timestamp_ms     storeTimestamp of the first key put
     8      8  end_timestamp_ms       storeTimestamp of the last key put
    16      8  begin_physical_offset  record of the first key put
    24      8  end_physical_offset    record of the last key put
    32      4  hash_slot_count        slots used at least once
    36      4  index_count            number of the next unit; a new file starts at 1

A slot is one int32: the number of the newest unit whose key falls into it, 0 if none.
One unit, big-endian:

    at  bytes  field            meaning
    --  -----  ---------------  --------------------------------------------------
     0      4  key_hash         abs(String.hashCode) of ``topic#key``
     4      8  physical_offset  byte of the CommitLog where the message record starts
    12      4  time_diff_s      whole seconds from begin_timestamp_ms to the storeTimestamp
    16      4  previous         number of the next older unit of the same slot, 0 ends the chain

Keys of a message, in this order: ``topic#UNIQ_KEY``, ``topic#k`` for every space-separated
k of KEYS, and since 5.5.0 ``topic#T#TAGS``. A file is full when index_count reaches N.

Reference: org.apache.rocketmq.store.index.IndexFile, IndexHeader, IndexService#buildIndex.
"""

from typing import Final

import numpy as np

HEADER: Final = np.dtype(
    [
        ("begin_timestamp_ms", ">i8"),
        ("end_timestamp_ms", ">i8"),
        ("begin_physical_offset", ">i8"),
        ("end_physical_offset", ">i8"),
        ("hash_slot_count", ">i4"),
        ("index_count", ">i4"),
    ]
)
UNIT: Final = np.dtype(
    [
        ("key_hash", ">i4"),
        ("physical_offset", ">i8"),
        ("time_diff_s", ">i4"),
        ("previous", ">i4"),
    ]
)
SLOT: Final = np.dtype(">i4")
MAX_HASH_SLOT_NUM: Final = 5_000_000  # MessageStoreConfig#maxHashSlotNum
MAX_INDEX_NUM: Final = 20_000_000  # MessageStoreConfig#maxIndexNum
FIRST_UNIT: Final = 1
TAG_KEY_PREFIX: Final = "T#"  # 5.5.0 only
TOPIC_KEY_SEPARATOR: Final = "#"

assert HEADER.itemsize == 40
assert UNIT.itemsize == 20


def file_size(max_hash_slot_num: int, max_index_num: int) -> int:
    """Return the size in bytes of an IndexFile with that many slots and units."""
    return HEADER.itemsize + SLOT.itemsize * max_hash_slot_num + UNIT.itemsize * max_index_num


assert file_size(MAX_HASH_SLOT_NUM, MAX_INDEX_NUM) == 420_000_040
