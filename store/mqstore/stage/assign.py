"""The queue of each row: its queueId, or what the partitioner says where that is null.

Every rule is a function of the row, its number and the task, so that a retried task sends every
message to the same queue again.

Reference: SelectMessageQueueByHash#select; DefaultMQProducer's own choice is a round robin too.
"""

from collections.abc import Mapping

import numpy as np

from mqstore.arrays import Int64s
from mqstore.codec.hashing import hash_strings
from mqstore.stage.rows import NULL_QUEUE, Rows


def assign_queues(
    rows: Rows, queue_counts: Mapping[str, int], partitioner: str, partition: int
) -> Int64s:
    """Return a queue id for each row; rows of unknown topics are treated as of one queue.

    ``roundrobin`` starts at the queue of the partition's number, so that tasks with few rows
    do not all begin with queue 0. ``hash`` falls back to it for a null shardingKey. ``single``
    is queue 0.
    """
    counts = np.array([max(1, queue_counts.get(n, 1)) for n in rows.topic_names] + [1], np.int64)
    of_row = counts[rows.topics]
    chosen = (partition + rows.numbers) % of_row
    if partitioner == "single":
        chosen = np.zeros(len(rows), np.int64)
    elif partitioner == "hash" and rows.sharding_keys.null_count < len(rows):
        hashes = hash_strings(rows.sharding_keys).values.view(np.int32).astype(np.int64)
        keyed = rows.sharding_keys.is_valid().to_numpy(zero_copy_only=False)
        # As the client does: the remainder takes the sign of the hash, then loses it.
        chosen = np.where(keyed, np.abs(hashes) % of_row, chosen)
    return np.where(rows.queue_ids == NULL_QUEUE, chosen, rows.queue_ids)
