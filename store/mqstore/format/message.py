"""CommitLog record: one message as it lies in the log.

A record is ``header body topicLength topic propertiesLength properties``. Its header, for
IPv4 hosts, big-endian (each IPv6 host is 16 bytes longer than its 4-byte address, minus
those 4: positions after it move by 12):

    at  bytes  field                        meaning
    --  -----  ---------------------------  ----------------------------------------
     0      4  total_size                   bytes of the whole record
     4      4  magic                        of a record version, or BLANK_MAGIC
     8      4  body_crc                     CRC-32 of the stored body & 0x7FFFFFFF
    12      4  queue_id                     queue of the topic
    16      4  flag                         the user's, opaque
    20      8  queue_offset                 index in the queue; 0 if prepared or rolled back
    28      8  physical_offset              position of byte 0 of this record in the CommitLog
    36      4  sys_flag                     see sys_flag.py
    40      8  born_timestamp_ms            the producer's clock
    48      4  born_ip                      4 or 16 bytes by BORN_HOST_V6
    52      4  born_port
    56      8  store_timestamp_ms           the broker's clock
    64      4  store_ip                     4 or 16 bytes by STORE_HOST_V6
    68      4  store_port
    72      4  reconsume_times              deliveries that failed
    76      8  prepared_transaction_offset  half message of a committed transaction, else 0
    84      4  body_length                  0 if there is no body

The tail: body_length bytes of body; topic length in as many bytes as the version has for it (1
or 2, see record_versions.py), then the topic; properties length in 2 bytes, then the properties.
Records follow each other without gap or padding and never cross files: the room left at a file's
end is a blank record, of which only BLANK (total_size = the room, BLANK_MAGIC) is defined. Magic 0
is the end of the log.

Reference: org.apache.rocketmq.store.CommitLog#checkMessageAndReturnSize,
DefaultAppendMessageCallback#doAppend (END_FILE_MIN_BLANK_LENGTH), MessageExtEncoder#encode.
"""

from typing import Any, Final

import numpy as np

from mqstore.format import sys_flag
from mqstore.format.arrays import Int32s, Int64s
from mqstore.format.record_versions import RECORD_VERSIONS, WRITTEN_VERSION

RECORD_MAGICS: Final = tuple(version.magic for version in RECORD_VERSIONS)
BLANK_MAGIC: Final = -875286124  # 0xCBD43194, CommitLog.BLANK_MAGIC_CODE

CRC_MASK: Final = 0x7FFFFFFF
MAX_PROPERTIES_BYTES: Final = 32_767
MAX_MESSAGE_SIZE: Final = 4 * 1024 * 1024  # MessageStoreConfig#maxMessageSize, of the body
RECORD_ROOM_BYTES: Final = 64 * 1024  # a record may exceed maxMessageSize by this much
HARD_RECORD_BYTES: Final = 64 * 1024 * 1024  # no record we believe is larger than this
FILE_SIZE: Final = 1024 * 1024 * 1024  # MessageStoreConfig#mappedFileSizeCommitLog
IP_V4_BYTES: Final = 4
IP_V6_BYTES: Final = 16


def header(*, born_v6: bool = False, store_v6: bool = False) -> "np.dtype[np.void]":
    """Return the header dtype for that pair of host families."""
    born_ip = IP_V6_BYTES if born_v6 else IP_V4_BYTES
    store_ip = IP_V6_BYTES if store_v6 else IP_V4_BYTES
    return np.dtype(
        [
            ("total_size", ">i4"),
            ("magic", ">i4"),
            ("body_crc", ">i4"),
            ("queue_id", ">i4"),
            ("flag", ">i4"),
            ("queue_offset", ">i8"),
            ("physical_offset", ">i8"),
            ("sys_flag", ">i4"),
            ("born_timestamp_ms", ">i8"),
            ("born_ip", f"V{born_ip}"),
            ("born_port", ">i4"),
            ("store_timestamp_ms", ">i8"),
            ("store_ip", f"V{store_ip}"),
            ("store_port", ">i4"),
            ("reconsume_times", ">i4"),
            ("prepared_transaction_offset", ">i8"),
            ("body_length", ">i4"),
        ]
    )


HEADER: Final = header()
# Indexed by host_variant(sys_flag): both IPv4, born IPv6, store IPv6, both IPv6.
HEADERS: Final = (
    HEADER,
    header(born_v6=True),
    header(store_v6=True),
    header(born_v6=True, store_v6=True),
)
HOST_VARIANT_MASK: Final = sys_flag.BORN_HOST_V6 | sys_flag.STORE_HOST_V6
HOST_VARIANT_SHIFT: Final = 4
BLANK: Final = np.dtype([("total_size", ">i4"), ("magic", ">i4")])
_LENGTHS: Final[dict[int, "np.dtype[Any]"]] = {
    1: np.dtype("i1"),
    2: np.dtype(">i2"),
    4: np.dtype(">i4"),
}
"""A length of so many bytes; signed, as Java reads it."""
TOPIC_LENGTHS: Final = tuple(_LENGTHS[row.topic_length_bytes] for row in RECORD_VERSIONS)
PROPERTIES_LENGTHS: Final = tuple(_LENGTHS[row.properties_length_bytes] for row in RECORD_VERSIONS)
"""The dtypes of both lengths, by version: indices are those of RECORD_VERSIONS."""
TOPIC_LENGTH: Final = _LENGTHS[WRITTEN_VERSION.topic_length_bytes]
PROPERTIES_LENGTH: Final = _LENGTHS[WRITTEN_VERSION.properties_length_bytes]
"""Those of the version that mqlog writes."""

MIN_BLANK_BYTES: Final = BLANK.itemsize
MIN_RECORD_BYTES: Final = HEADER.itemsize + min(
    topic.itemsize + properties.itemsize
    for topic, properties in zip(TOPIC_LENGTHS, PROPERTIES_LENGTHS, strict=True)
)


def version_indices(magics: Int32s) -> Int64s:
    """Return the index into RECORD_VERSIONS of each magic; -1 for the magic of no version."""
    found = np.full(len(magics), -1, np.int64)
    for index, magic in enumerate(RECORD_MAGICS):
        found[magics == magic] = index
    return found


assert HEADER.itemsize == 88
assert HEADERS[3].itemsize == 112
assert MIN_RECORD_BYTES == 91
assert MIN_BLANK_BYTES == 8
assert len(HEADERS) - 1 == HOST_VARIANT_MASK >> HOST_VARIANT_SHIFT
