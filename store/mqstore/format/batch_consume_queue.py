"""Batch ConsumeQueue unit: the entry for a record of one or more messages (queue.type=BatchCQ).

One unit, big-endian:

    at  bytes  field               meaning
    --  -----  ------------------  -----------------------------------------------
     0      8  physical_offset     byte of the CommitLog where the record starts
     8      4  size                TOTALSIZE of that record
    12      8  tags_code           hash of the record's own tags: 0, for clients set none
    20      8  store_timestamp_ms  of the record
    28      8  base                queue offset of its first message
    36      2  count               its messages, 1 to 32,767
    38      4  compacted_offset    -1
    42      4  reserved            0

A file is ``unit* zero*``. The place of a unit in it says nothing of queue offsets: units ascend by
``base``, and a search finds the one of a message. A message that was sent alone
has a unit of its own, with count 1. Queue offsets between the end of one unit and the base of the
next have no message; a consumer that comes to them gets the unit before them, again and again. So
where a salvage lost messages it puts *gap units*, of size 2, at the last byte of a CommitLog file
before that of the next message: no record is there, and a broker goes on behind them.

Reference: org.apache.rocketmq.store.queue.BatchConsumeQueue (CQ_STORE_UNIT_SIZE, #binarySearch,
#putMessagePositionInfoWrapper, #recover), CommitLog#setBatchSizeIfNeeded.
"""

from collections.abc import Sequence
from typing import Final

import numpy as np

from mqstore.format.arrays import Int64s, Mask, Structs
from mqstore.format.consume_queue import GAP_SIZE

BATCH_UNIT: Final = np.dtype(
    [
        ("physical_offset", ">i8"),
        ("size", ">i4"),
        ("tags_code", ">i8"),
        ("store_timestamp_ms", ">i8"),
        ("base", ">i8"),
        ("count", ">i2"),
        ("compacted_offset", ">i4"),
        ("reserved", ">i4"),
    ]
)
BATCH_UNITS_PER_FILE: Final = 300_000
NO_HASH: Final = 1 << 40
"""What is added to the tagsCode of a batch where units stand for its messages, which have tags of
their own: a code beyond 32 bits is no hash, so that all filters look at the tag itself."""

assert BATCH_UNIT.itemsize == 46


def make_batch_units(columns: Sequence[Int64s], bases: Int64s, counts: Int64s) -> Structs:
    """Return units; ``columns`` are places, sizes, tags codes and store timestamps of records.

    All arrays are int64[n]. Reference: BatchConsumeQueue#putBatchMessagePositionInfo.
    """
    units = np.zeros(len(bases), BATCH_UNIT)
    names = ("physical_offset", "size", "tags_code", "store_timestamp_ms")
    for name, column in zip(names, columns, strict=True):
        units[name] = column
    units["base"], units["count"], units["compacted_offset"] = bases, counts, -1
    return units


def is_batch(units: Structs) -> Mask:
    """Tell which units stand for a record. Reference: BatchConsumeQueue#recover."""
    found: Mask = (units["physical_offset"] >= 0) & (units["size"] > 0)
    found &= (units["base"] >= 0) & (units["count"] > 0)
    return found


def is_batch_gap(units: Structs) -> Mask:
    """Tell which units stand for queue offsets whose records were lost."""
    gap: Mask = units["size"] == GAP_SIZE
    return gap


def is_of_batch(tags_codes: Int64s) -> Mask:
    """Tell which units, by their tagsCode, stand for messages of a batch ConsumeQueue."""
    found: Mask = (tags_codes >= NO_HASH - 2**31) & (tags_codes < NO_HASH + 2**31)
    return found
