"""Records that stand for bytes that were lost: rolled back messages, which enter no queue.

With them the records behind damage keep their places in the CommitLog. A broker walks over them as
over any record, and puts neither a unit nor a key for them.

Reference: CommitLogDispatcherBuildConsumeQueue, IndexService#buildIndex, both of which pass over
TRANSACTION_ROLLBACK_TYPE.
"""

from functools import lru_cache
from typing import Final

import numpy as np

from mqstore.format.crc import crc32
from mqstore.format.message import (
    CRC_MASK,
    HEADER,
    MIN_RECORD_BYTES,
    PROPERTIES_LENGTH,
    TOPIC_LENGTH,
)
from mqstore.format.record_versions import WRITTEN_VERSION
from mqstore.format.sys_flag import TRANSACTION_ROLLBACK

MIN_FILLER_BYTES: Final = MIN_RECORD_BYTES + 1
MOST_FILLER_BYTES: Final = 1 << 20

_LONG_TOPIC: Final = b"MQLOG_SALVAGE_LOST"
_SHORT_TOPIC: Final = b"-"


def filler_sizes(size: int) -> list[int]:
    """Return the sizes of records that fill ``size`` bytes, at least MIN_FILLER_BYTES."""
    found = []
    while size > MOST_FILLER_BYTES:
        found.append(min(MOST_FILLER_BYTES, size - MIN_FILLER_BYTES))
        size -= found[-1]
    return [*found, size]


def filler(physical_offset: int, size: int, store_timestamp_ms: int) -> tuple[bytes, bytes]:
    """Return what a filler record of ``size`` bytes begins and ends with; zeros lie between."""
    topic = _LONG_TOPIC if size >= MIN_RECORD_BYTES + len(_LONG_TOPIC) else _SHORT_TOPIC
    head = np.zeros((), HEADER)
    head["total_size"] = size
    head["magic"] = WRITTEN_VERSION.magic
    head["physical_offset"] = physical_offset
    head["sys_flag"] = TRANSACTION_ROLLBACK
    head["born_timestamp_ms"] = head["store_timestamp_ms"] = store_timestamp_ms
    head["body_length"] = size - MIN_RECORD_BYTES - len(topic)
    head["body_crc"] = _crc_of_zeros(int(head["body_length"]))
    width = np.array(len(topic), TOPIC_LENGTH).tobytes()
    return head.tobytes(), width + topic + bytes(PROPERTIES_LENGTH.itemsize)


@lru_cache(maxsize=64)
def _crc_of_zeros(count: int) -> int:
    return crc32(bytes(count)) & CRC_MASK
