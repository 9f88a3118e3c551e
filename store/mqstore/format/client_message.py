"""A message as a producer encodes it into the body of a batch request, big-endian.

    at  bytes  field              meaning
    --  -----  -----------------  -----------------------------------------------
     0      4  total_size         bytes of the message
     4      4  magic              0
     8      4  body_crc           0: the broker computes it
    12      4  flag               the message's own flag
    16      4  body_length        bytes of the body that follows

Behind the body: PROPERTIES_LENGTH (2 bytes) and the property block. A batch is messages end to
end; the request's header has the topic, the queue, sysFlag and bornTimestamp of all of them.

Reference: org.apache.rocketmq.common.message.MessageDecoder#encodeMessage, #encodeMessages.
"""

from struct import Struct
from typing import Final

import numpy as np

CLIENT_HEAD: Final = np.dtype(
    [
        ("total_size", ">i4"),
        ("magic", ">i4"),
        ("body_crc", ">i4"),
        ("flag", ">i4"),
        ("body_length", ">i4"),
    ]
)
CLIENT_LENGTHS: Final = Struct(">i12xi")
"""total_size and body_length, for a walk from message to message."""
SHORT_LENGTH: Final = Struct(">h")
LEAST_CLIENT_BYTES: Final = CLIENT_HEAD.itemsize + SHORT_LENGTH.size
MAX_BATCH_MESSAGES: Final = 32_767
"""CommitLog#asyncPutMessages of 5.x counts a batch's messages in a short."""
MAX_PROPERTIES_SENT: Final = 32_000
"""Bytes of a property block to which a broker can still add properties of its own."""

assert CLIENT_HEAD.itemsize == 20
