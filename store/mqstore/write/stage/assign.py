"""The queue of each row: its queueId, or what the partitioner says where that is null.

Every rule is a function of the row, its number, the job and the task, so that a retried task sends
every message to the same queue again.

Reference: SelectMessageQueueByHash#select, SelectMessageQueueByRandom#select; DefaultMQProducer's
own choice is a round robin too. SelectMessageQueueByMachineRoom selects nothing: ``machineRoom``
divides queues as AllocateMessageQueueByMachineRoom#allocate does among consumers.
"""

import hashlib
from collections.abc import Mapping
from typing import Final

import numpy as np

from mqstore.codec.hashing import hash_strings
from mqstore.format.arrays import Int64s
from mqstore.write.stage.job import RowJob
from mqstore.write.stage.rows import NULL_QUEUE, Rows
from mqstore.write.stage.settings import rooms_of

# SplitMix64 (Steele, Lea and Flood, 2014).
_GAMMA: Final = np.uint64(0x9E3779B97F4A7C15)
_MIX: Final = ((30, np.uint64(0xBF58476D1CE4E5B9)), (27, np.uint64(0x94D049BB133111EB)))


def assign_queues(
    rows: Rows, queue_counts: Mapping[str, int], job: RowJob, partition: int
) -> Int64s:
    """Return a queue id for each row; rows of unknown topics are treated as of one queue.

    ``roundrobin`` starts at the queue of the partition's number, so that tasks with few rows
    do not all begin with queue 0. ``hash`` falls back to it for a null shardingKey. ``single``
    is queue 0, ``random`` any, ``machineRoom`` one of the room's in turn.
    """
    counts = np.array([max(1, queue_counts.get(n, 1)) for n in rows.topic_names] + [1], np.int64)
    of_row = counts[rows.topics]
    turns = partition + rows.numbers
    chosen = turns % of_row
    match job.settings.partitioner:
        case "single":
            chosen = np.zeros(len(rows), np.int64)
        case "random":
            chosen = _random(rows.numbers, of_row, f"{job.job_id}/{partition}")
        case "machineRoom":
            rooms = rooms_of(job.settings)
            room = rooms.index(job.settings.machine_room or "")
            chosen = _of_room(turns, of_row, len(rooms), room)
        case "hash" if rows.sharding_keys.null_count < len(rows):
            hashes = hash_strings(rows.sharding_keys).values.view(np.int32).astype(np.int64)
            keyed = rows.sharding_keys.is_valid().to_numpy(zero_copy_only=False)
            # As the client does: the remainder takes the sign of the hash, then loses it.
            chosen = np.where(keyed, np.abs(hashes) % of_row, chosen)
    return np.where(rows.queue_ids == NULL_QUEUE, chosen, rows.queue_ids)


def _random(numbers: Int64s, of_row: Int64s, task: str) -> Int64s:
    """Return a queue for each row number of a task, the same whenever the task is run."""
    seed = int.from_bytes(hashlib.sha256(task.encode()).digest()[:8], "big")
    bits = np.uint64(seed) + (numbers.astype(np.uint64) + np.uint64(1)) * _GAMMA
    for shift, factor in _MIX:
        bits = (bits ^ (bits >> np.uint64(shift))) * factor
    return ((bits >> np.uint64(32)).astype(np.int64) * of_row) >> 32


def _of_room(turns: Int64s, of_row: Int64s, rooms: int, room: int) -> Int64s:
    """Return queues of the room with that number, in turn.

    Each room has as many queues that follow each other, and the first rooms one more of the rest.
    With fewer queues than rooms, a room without one has that of its number modulo the queues.
    """
    each, rest = of_row // rooms, of_row % rooms
    own = each + (room < rest)
    turn = turns % np.maximum(own, 1)
    found = np.where(turn < each, each * room + turn, each * rooms + room)
    return np.where(own > 0, found, room % of_row)
