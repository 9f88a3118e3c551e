"""What there is to know of a store beside its messages, as tables.

Of each table ``COLUMNS`` has the columns with their meaning and ``SCHEMAS`` the Arrow schema.
A table is planned on the driver into parts that pickle; a part yields Arrow batches in a task.
"""

from mqstore.tables.queues import OFFSETS, QUEUES, TOPICS, offsets, queues, topics

__all__ = ["OFFSETS", "QUEUES", "TOPICS", "offsets", "queues", "topics"]
