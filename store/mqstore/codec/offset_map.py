"""The columns of the offset map: where a replay put each message."""

from typing import Final

import pyarrow as pa

SOURCES: Final = pa.schema(
    [
        ("brokerName", pa.string()),
        ("topic", pa.string()),
        ("queueId", pa.int32()),
        ("queueOffset", pa.int64()),
    ]
)
"""Where a message came from."""
OFFSET_MAP: Final = pa.schema(
    [
        *SOURCES,
        ("newBrokerName", pa.string()),
        ("newTopic", pa.string()),
        ("newQueueId", pa.int32()),
        ("newQueueOffset", pa.int64()),
        ("msgId", pa.string()),
    ]
)
"""Where each message was, where it is now, and its UNIQ_KEY now."""
