"""Staged segment: what one task hands to the commit, in ``.mqlog/staging/<job>/``.

    file    ::= FILE_HEADER frame* FOOTER
    frame   ::= FRAME payload
    payload ::= topics QUEUE{queue_count} MESSAGE{message_count} KEY{key_count} records

``topics`` are the names of the frame's topics, joined with a line feed. ``records`` are whole
CommitLog records, in the order of the MESSAGE table, whose queue_offset, physical_offset and
store_timestamp_ms are zero: the commit knows them, a task does not. Everything is
little-endian; nothing here is ever read by a broker.

FILE_HEADER:

    at  bytes  field                  meaning
    --  -----  ---------------------  ----------------------------------------------------
     0      4  magic                  FILE_MAGIC
     4      4  version                VERSION
     8      4  host_variant           of every record: see message.HEADERS
    12      4  partition              of the DataFrame
    16     32  job                    hex of the job's id

FRAME:

    at  bytes  field                  meaning
    --  -----  ---------------------  ----------------------------------------------------
     0      4  magic                  FRAME_MAGIC
     4      4  checksum               CRC-32 of the payload
     8      8  payload_bytes          bytes up to the next frame or the footer
    16      8  records_bytes          bytes of the records alone
    24      4  topics_bytes           bytes of the topic names
    28      4  queue_count            rows of QUEUE
    32      4  message_count          rows of MESSAGE
    36      4  key_count              rows of KEY, the sum of MESSAGE.key_count

QUEUE, one for each queue the frame has messages of:

    at  bytes  field                  meaning
    --  -----  ---------------------  ----------------------------------------------------
     0      4  topic                  index into the topic names
     4      4  queue_id               queue of that topic

MESSAGE:

    at  bytes  field                  meaning
    --  -----  ---------------------  ----------------------------------------------------
     0      4  queue                  index into QUEUE
     4      4  size                   bytes of the record
     8      1  starts_batch           1 if a message batch starts here: batches never span files
     9      1  delay_level            1 to 18: tags_code is made of the store time at commit
    10      2  key_count              rows of KEY that are this message's
    12      8  tags_code              hash of TAGS, 0 if there is none
    20      8  store_timestamp_ms     to be preserved, or 0: the commit's own clock

KEY is one IndexFile key hash in 4 bytes. FOOTER:

    at  bytes  field                  meaning
    --  -----  ---------------------  ----------------------------------------------------
     0      4  magic                  FOOTER_MAGIC
     4      4  frame_count            frames of the file
     8      8  message_count          messages of the file
    16      8  records_bytes          bytes of all records
    24     32  digest                 SHA-256 of all FRAME headers, in order
"""

from typing import Final

import numpy as np

FILE_MAGIC: Final = 0x3142514D  # "MQB1"
FRAME_MAGIC: Final = 0x4652514D  # "MQRF"
FOOTER_MAGIC: Final = 0x4545514D  # "MQEE"
VERSION: Final = 1
SUFFIX: Final = ".mqb"
NONCE: Final = "NONCE"  # a file each task must be able to read: proof of a shared directory

FILE_HEADER: Final = np.dtype(
    [
        ("magic", "<u4"),
        ("version", "<u4"),
        ("host_variant", "<u4"),
        ("partition", "<u4"),
        ("job", "S32"),
    ]
)
FRAME: Final = np.dtype(
    [
        ("magic", "<u4"),
        ("checksum", "<u4"),
        ("payload_bytes", "<i8"),
        ("records_bytes", "<i8"),
        ("topics_bytes", "<i4"),
        ("queue_count", "<i4"),
        ("message_count", "<i4"),
        ("key_count", "<i4"),
    ]
)
QUEUE: Final = np.dtype([("topic", "<i4"), ("queue_id", "<i4")])
MESSAGE: Final = np.dtype(
    [
        ("queue", "<i4"),
        ("size", "<i4"),
        ("starts_batch", "u1"),
        ("delay_level", "u1"),
        ("key_count", "<u2"),
        ("tags_code", "<i8"),
        ("store_timestamp_ms", "<i8"),
    ]
)
KEY: Final = np.dtype("<i4")
FOOTER: Final = np.dtype(
    [
        ("magic", "<u4"),
        ("frame_count", "<u4"),
        ("message_count", "<i8"),
        ("records_bytes", "<i8"),
        ("digest", "V32"),
    ]
)
TOPIC_SEPARATOR: Final = b"\n"  # no topic can hold it

assert FILE_HEADER.itemsize == 48
assert FRAME.itemsize == 40
assert QUEUE.itemsize == 8
assert MESSAGE.itemsize == 28
assert FOOTER.itemsize == 56
