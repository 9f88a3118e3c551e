"""Remoting: the frame in which RocketMQ's clients, brokers and name servers exchange commands.

A frame is ``head header body``, big-endian. Its head:

    at  bytes  field   meaning
    --  -----  ------  ----------------------------------------------------------------
     0      4  length  bytes of the frame behind this field
     4      4  mark    header kind (JSON or BINARY) in the high byte, then header bytes

A header is JSON (UTF-8) or binary. The head of a binary header:

    at  bytes  field          meaning
    --  -----  -------------  ------------------------------------------------
     0      2  code           RequestCode, or ResponseCode in an answer
     2      1  language       LanguageCode of the sender
     3      2  version        MQVersion ordinal of the sender
     5      4  opaque         number of the request; its answer has the same
     9      4  flag           RESPONSE_FLAG, ONE_WAY_FLAG
    13      4  remark_length  bytes of the remark that follows

Behind it: the remark, EXT_LENGTH bytes of fields in 4 bytes, and the fields, each a name
(length in NAME_LENGTH bytes) and a value (length in VALUE_LENGTH bytes), all UTF-8.

Reference: org.apache.rocketmq.remoting.protocol.RemotingCommand (encode, decode, RPC_TYPE,
RPC_ONEWAY), RocketMQSerializable, SerializeType, LanguageCode; NettyDecoder (FRAME_MAX_LENGTH).
"""

from typing import Final

import numpy as np

FRAME: Final = np.dtype([("length", ">i4"), ("mark", ">u4")])
BINARY_HEAD: Final = np.dtype(
    [
        ("code", ">i2"),
        ("language", "i1"),
        ("version", ">i2"),
        ("opaque", ">i4"),
        ("flag", ">i4"),
        ("remark_length", ">i4"),
    ]
)
EXT_LENGTH: Final = np.dtype(">i4")
NAME_LENGTH: Final = np.dtype(">i2")
VALUE_LENGTH: Final = np.dtype(">i4")

JSON: Final = 0  # SerializeType.JSON
BINARY: Final = 1  # SerializeType.ROCKETMQ
KIND_SHIFT: Final = 24
HEADER_LENGTH_MASK: Final = 0xFFFFFF
RESPONSE_FLAG: Final = 1

VERSION: Final = 433  # MQVersion.Version.V5_1_0: from 401 on routes come as standard JSON
MAX_REQUEST_BYTES: Final = 16 * 1024 * 1024  # com.rocketmq.remoting.frameMaxLength

assert FRAME.itemsize == 8
assert BINARY_HEAD.itemsize == 17
