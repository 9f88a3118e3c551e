"""The columns of the backlog: name, Arrow type, meaning; and the words of ``status``."""

from typing import Final

import pyarrow as pa

from mqstore.codec.schema import TIMESTAMP

OK: Final = "OK"
NEVER_COMMITTED: Final = "NEVER_COMMITTED"  # the group has no offset for this queue
AHEAD: Final = "AHEAD"  # the offset lies beyond the queue's end: the store was replaced or cut
EXPIRED: Final = "EXPIRED"  # messages were deleted before the group consumed them
TIERED: Final = "TIERED"  # what waits begins in tiered storage, below the local log
NO_CONSUMERS: Final = "NO_CONSUMERS"  # messages wait, and no consumer is connected to the broker
LATE: Final = "LATE"  # the first message that the group has to consume waits for long
TAG: Final = "TAG"  # ExpressionType.TAG
SQL92: Final = "SQL92"  # ExpressionType.SQL92
TOPIC_GONE: Final = "TOPIC_GONE"  # neither a ConsumeQueue nor an entry in topics.json

# name, type, nullable, meaning. With byTag a row is one tag's: the columns that count
# messages or bytes, and the first unconsumed one, are then of that tag only.
COLUMNS: Final = (
    ("brokerName", pa.string(), False, "name of the store's broker"),
    ("group", pa.string(), False, "consumer group"),
    ("topic", pa.string(), False, "topic"),
    ("queueId", pa.int32(), False, "queue of the topic"),
    ("tag", pa.string(), True, "with byTag: property TAGS of the messages; null for none"),
    ("brokerOffset", pa.int64(), False, "queue offset of the next message to come"),
    ("consumerOffset", pa.int64(), True, "next queue offset to consume; null: never committed"),
    ("minOffset", pa.int64(), False, "queue offset of the first message held"),
    ("diff", pa.int64(), False, "brokerOffset - max(consumerOffset, 0), as consumerProgress"),
    ("lag", pa.int64(), False, "messages held and not consumed; of a POP group not acknowledged"),
    ("expired", pa.int64(), False, "messages deleted before they were consumed"),
    ("subscription", pa.string(), True, "the group's expression; null: not known"),
    ("lagMatching", pa.int64(), False, "of lag, those that pass the expression"),
    ("bytesBehind", pa.int64(), False, "bytes of the records of lag"),
    ("bytesMatching", pa.int64(), False, "bytes of the records of lagMatching"),
    ("firstUnconsumedStoreTimestamp", TIMESTAMP, True, "of the first message of lagMatching"),
    ("lagMs", pa.int64(), True, "asOf - firstUnconsumedStoreTimestamp, at least 0"),
    ("lastConsumedStoreTimestamp", TIMESTAMP, True, "of the message before consumerOffset"),
    ("status", pa.string(), False,
     ("OK, LATE, NEVER_COMMITTED, AHEAD, EXPIRED, TIERED, TOPIC_GONE, NO_CONSUMERS or of POP: "
      "KV_UNKNOWN, POP_UNKNOWN, POP_BUFFERED")),
    ("asOf", TIMESTAMP, False, "when the offsets were read"),
    ("expressionType", pa.string(), True,
     "TAG or SQL92; null: no subscription known"),
    ("consumers", pa.int32(), True,
     "consumers of the group that are connected to the broker now; null: not known"),
    ("mode", pa.string(), False, "PULL, or how the group pops: POP, POP_FIFO, POP_KV"),
    ("ready", pa.int64(), True, "messages never popped; null: PULL, or byTag"),
    ("inflight", pa.int64(), True, "popped, not acknowledged, invisible at asOf; null as above"),
    ("due", pa.int64(), True,
     "popped, not acknowledged, to be delivered again since before asOf; null as above"),
    ("unacknowledged", pa.int64(), True, "ready + inflight + due; null as above"),
    ("redelivered", pa.int64(), True,
     "popped, and popped again by a broker that starts on this store; null as above, or a cluster"),
    ("isSystem", pa.bool_(), False, "one of RocketMQ's own groups"),
)  # fmt: skip

BY_OFFSETS: Final = frozenset(
    {
        "brokerName", "group", "topic", "queueId", "tag", "brokerOffset", "consumerOffset",
        "minOffset", "diff", "lag", "expired", "asOf", "mode", "ready", "inflight", "due",
        "unacknowledged", "redelivered", "isSystem",
    }
)  # fmt: skip
"""The columns that need no message and no subscription: offsets tell them."""
SCHEMA: Final = pa.schema([pa.field(name, kind, nullable=null) for name, kind, null, _ in COLUMNS])
POP_COUNTS: Final = ("ready", "inflight", "due", "unacknowledged", "redelivered")
"""The columns that only POP groups have."""
