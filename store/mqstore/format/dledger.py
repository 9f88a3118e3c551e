"""DLedger: the log of brokers with ``enableDLegerCommitLog``, whose entries hold one record each.

Its folder in the store is ``dledger-SELFID``: mapped files of entries in ``data/`` (or in the
folders of storePathDLedgerCommitLog), mapped files of index units in ``index/``, and the text
``checkpoint``. The head of an entry, big-endian; the record follows:

    at  bytes  field        meaning
    --  -----  -----------  ----------------------------------------------------------------
     0      4  magic        1; -1: a blank entry, which closes the file
     4      4  size         bytes of the entry, with its head; of a blank entry up to the file's end
     8      8  index        number of the entry, from 0, one more than that of the entry before
    16      8  term         term of the leader that appended it; never goes back
    24      8  position     byte of the log where the entry starts
    32      4  channel      0
    36      4  chain_crc    0
    40      4  body_crc     0
    44      4  body_length  bytes of the record

Offsets count the heads: physicalOffset of a record, in the record itself, in ConsumeQueues and in
IndexFiles, is the position of its entry + 48. One index unit, at byte 32 * index:

    at  bytes  field        meaning
    --  -----  -----------  -----------------------
     0      4  magic        that of the entry
     4      8  position     that of the entry
    12      4  size         that of the entry
    16      8  index        that of the entry
    24      8  term         that of the entry

A broker enters a record into ConsumeQueues and IndexFiles when a majority of the group has its
entry: when it is committed. What lies behind may be replaced by another leader's entries.

Reference: io.openmessaging.storage.dledger DLedgerEntryCoder, DLedgerEntry#BODY_OFFSET,
DLedgerMmapFileStore, MmapFileList#BLANK_MAGIC_CODE; org.apache.rocketmq.store.dledger
.DLedgerCommitLog.
"""

from typing import Final

import numpy as np

from mqstore.format.message import HARD_RECORD_BYTES, MIN_RECORD_BYTES

ENTRY: Final = np.dtype(
    [
        ("magic", ">i4"),
        ("size", ">i4"),
        ("index", ">i8"),
        ("term", ">i8"),
        ("position", ">i8"),
        ("channel", ">i4"),
        ("chain_crc", ">i4"),
        ("body_crc", ">i4"),
        ("body_length", ">i4"),
    ]
)
UNIT: Final = np.dtype(
    [
        ("magic", ">i4"),
        ("position", ">i8"),
        ("size", ">i4"),
        ("index", ">i8"),
        ("term", ">i8"),
    ]
)
ENTRY_MAGIC: Final = 1
BLANK_MAGIC: Final = -1
BODY_OFFSET: Final = ENTRY.itemsize
MIN_ENTRY_BYTES: Final = BODY_OFFSET + MIN_RECORD_BYTES
MIN_BLANK_BYTES: Final = 8
HARD_ENTRY_BYTES: Final = BODY_OFFSET + HARD_RECORD_BYTES

FOLDER_PREFIX: Final = "dledger-"
DATA: Final = "data"
INDEX: Final = "index"
CHECKPOINT: Final = "checkpoint"
COMMITTED_INDEX: Final = "committedIndex"

assert ENTRY.itemsize == 48
assert UNIT.itemsize == 32
