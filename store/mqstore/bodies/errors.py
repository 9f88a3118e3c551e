"""The errors of typed bodies.

StoreError
└── CorruptBodyError      a body that does not fit its type, where that ends the read
"""

from mqstore.errors import StoreError


class CorruptBodyError(StoreError):
    """A body that does not fit its type, where ``bodyMode`` is FAILFAST."""

    condition = "MQLOG_CORRUPT_BODY"
    text = (
        "topic {topic!r}, broker {broker_name!r}, queue {queue_id}, offset {queue_offset}: "
        "{reason!l}; bodyMode=PERMISSIVE gives such a body as a row with its bytes"
    )
    topic: str
    broker_name: str | None
    queue_id: int
    queue_offset: int
    reason: str
