"""checkpoint: how far a broker had flushed, in the first bytes of a 4,096-byte page.

Big-endian, the rest of the page is zero:

    at  bytes  field                    meaning
    --  -----  -----------------------  --------------------------------------------
     0      8  physic_msg_timestamp     storeTimestamp of the last flushed record
     8      8  logics_msg_timestamp     the same, of the last flushed ConsumeQueue unit
    16      8  index_msg_timestamp      end_timestamp_ms of the last full, flushed IndexFile
    24      8  master_flushed_offset    since 5.0
    32      8  confirm_phy_offset       since 5.1.1
    40      8  logics_physical_offset   since 5.5.0: start of the last dispatched record

Values lag even after a clean stop: never an end of the log.

Reference: org.apache.rocketmq.store.StoreCheckpoint.
"""

from typing import Final

import numpy as np

CHECKPOINT: Final = np.dtype(
    [
        ("physic_msg_timestamp", ">i8"),
        ("logics_msg_timestamp", ">i8"),
        ("index_msg_timestamp", ">i8"),
        ("master_flushed_offset", ">i8"),
        ("confirm_phy_offset", ">i8"),
        ("logics_physical_offset", ">i8"),
    ]
)
FILE_SIZE: Final = 4096

assert CHECKPOINT.itemsize == 48
