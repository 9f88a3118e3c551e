"""ConsumeQueue unit: the fixed-width entry a store keeps for every message of a queue.

One unit, big-endian:

    at  bytes  field            meaning
    --  -----  ---------------  --------------------------------------------------
     0      8  physical_offset  byte of the CommitLog where the message record starts
     8      4  size             TOTALSIZE of that record, so one read fetches it whole
    12      8  tags_code        hash of the message's tags; delivery time (ms) if delayed

The unit of queue offset q starts at byte ``q * UNIT.itemsize`` of the queue. A file is
``filler* unit* zero*``: filler (size FILLER_SIZE) stands for offsets below the first
message of a queue that did not start at 0, zeros are space not written yet. A tags_code at
or below EXT_ADDRESS_MAX is no hash but an address: see format.consume_queue_ext.

Between units of messages there may be gap units (size GAP_SIZE), for queue offsets whose records
were lost. Only mqlog salvage writes them. One names the last byte of a CommitLog file and a size
that reaches beyond it: a broker finds no record there and goes on with the units of the next
CommitLog files, which hold the next record of the queue. Consumers get the messages before and
behind, and nothing else.

Reference: org.apache.rocketmq.store.ConsumeQueue (CQ_STORE_UNIT_SIZE, fillPreBlank),
ConsumeQueueExt#isExtAddr; DefaultMessageStore#getMessage (rollNextFile) for gap units.
"""

from typing import Final

import numpy as np

UNIT: Final = np.dtype(
    [
        ("physical_offset", ">i8"),
        ("size", ">i4"),
        ("tags_code", ">i8"),
    ]
)
UNITS_PER_FILE: Final = 300_000  # For files we create; files we read tell their own size.
FILLER_SIZE: Final = 2**31 - 1
GAP_SIZE: Final = 2  # Smaller than any record.
HIGHEST_QUEUE_OFFSET: Final = (2**63 - 2**31) // UNIT.itemsize - 1
"""Files behind it could have no name: positions in a queue are signed 64-bit integers."""
EXT_ADDRESS_MAX: Final = -(2**31) - 1

assert UNIT.itemsize == 20
assert UNITS_PER_FILE * UNIT.itemsize == 6_000_000
