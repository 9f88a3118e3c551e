"""What there is to know of a store beside its messages, as tables.

Of each table ``COLUMNS`` has the columns with their meaning and ``SCHEMAS`` the Arrow schema. A
module a table: its ``plan`` gives parts that pickle, and a part yields Arrow batches in a task.
The backlog and its comparison are in mqstore.backlog.
"""

from typing import Final

from mqstore.tables import (
    columns,
    commits,
    files,
    groups,
    half_messages,
    index,
    retries,
    scheduled,
    tags,
    verify,
)
from mqstore.tables.store import (
    OFFSET_COLUMNS,
    OFFSETS,
    QUEUE_COLUMNS,
    QUEUE_SCHEMA,
    TOPIC_COLUMNS,
    TOPIC_SCHEMA,
    queues,
    topics,
)
from mqstore.tables.store import committed_offsets as offsets

__all__ = [
    "COLUMNS",
    "OFFSETS",
    "QUEUE_SCHEMA",
    "SCHEMAS",
    "TOPIC_SCHEMA",
    "offsets",
    "queues",
    "topics",
]

COLUMNS: Final[dict[str, columns.Columns]] = {
    "queues": QUEUE_COLUMNS,
    "topics": TOPIC_COLUMNS,
    "offsets": OFFSET_COLUMNS,
    "groups": groups.GROUP_COLUMNS,
    "subscriptions": groups.SUBSCRIPTION_COLUMNS,
    "brokers": groups.BROKER_COLUMNS,
    "tags": tags.COLUMNS,
    "scheduled": scheduled.COLUMNS,
    "halfmessages": half_messages.COLUMNS,
    "retries": retries.COLUMNS,
    "commits": commits.COLUMNS,
    "files": files.COLUMNS,
    "index": index.COLUMNS,
    "verify": verify.COLUMNS,
}
SCHEMAS: Final = {name: columns.schema(of) for name, of in COLUMNS.items()}
