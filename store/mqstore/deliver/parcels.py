"""Messages of a task to requests: batches by topic, queue and flags, delayed messages alone.

The messages of a batch share what the header of its request has: sysFlag (so its bodies are all
plain, or all of one compression), bornTimestamp and WAIT. A message that is delayed, for a retry
topic or larger than a batch is sent alone. Every other one is sent in a batch, if only of one:
5.x brokers fail on a single message with an empty body.

Reference: MessageBatch#generateFromList, DefaultMQProducerImpl#sendKernelImpl.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from time import time_ns
from typing import Final

import numpy as np
from numpy.typing import NDArray

from mqstore.codec.client_encode import encode_for_client
from mqstore.codec.encode import Hosts, Messages
from mqstore.deliver.settings import SendSettings
from mqstore.format.arrays import Int64s, Mask
from mqstore.format.names import RETRY_PREFIX
from mqstore.live.send.requests import Parcel, Queue
from mqstore.live.send.topics import MessageLimits
from mqstore.write.stage.batches import BatchLimits, order_rows, split_batches
from mqstore.write.stage.compose import Composed
from mqstore.write.stage.rows import NULL_QUEUE, Rows

LONGEST_HOSTS: Final = Hosts(bytes(16), 0, bytes(16), 0)
"""The longest that a broker can write into a record."""
# A batch lies in one file, and takes at most this part of it; as for stores.
_FILE_PART: Final = 4
ADDED_BYTES: Final = 64  # CLUSTER, which a 4.9 broker adds to each message of a batch.


@dataclass(frozen=True, slots=True)
class PlacedMessages:
    """Messages and where each goes: ``queues[places[i]]``."""

    rows: Rows
    composed: Composed
    queues: Sequence[Queue]
    places: Int64s


def parcels(
    placed: PlacedMessages, settings: SendSettings, most: MessageLimits
) -> Iterator[Parcel]:
    """Yield the requests for messages, those of each queue in the order of the rows."""
    rows, messages = placed.rows, placed.composed.messages
    sizes = messages.client_sizes()
    limits = limits_of_batch(settings, most)
    retry = np.array([name.startswith(RETRY_PREFIX) for name in messages.topic_names])
    alone = placed.composed.delayed | retry[messages.topics] | (sizes > limits.max_bytes)
    movable = _movable(rows, settings)
    sharding = rows.sharding_codes() if settings.batch_builder == "keyBased" else None
    born = rows.born_timestamps_ms if settings.timestamps == "preserve" else None
    columns = [placed.places, rows.waits, messages.sys_flags, movable]
    columns += [column for column in (sharding, born) if column is not None]
    order = order_rows(placed.places, sharding, None)
    kinds = group_kinds(columns)[order]
    records = messages.sizes(LONGEST_HOSTS) + ADDED_BYTES
    starts = split_batches(kinds, alone[order], sizes[order], records[order], limits)
    encoded = encode_for_client(messages, order)
    edges = np.append(np.flatnonzero(starts), len(order)).tolist()
    for first, end in pairwise(edges):
        row = int(order[first])
        if alone[row]:
            body, properties = _single(messages, row)
        else:
            last = int(encoded.starts[end - 1] + encoded.sizes[end - 1])
            body, properties = encoded.records[int(encoded.starts[first]) : last].tobytes(), None
        yield Parcel(
            queue=placed.queues[int(placed.places[row])],
            count=end - first,
            body=body,
            sys_flag=int(messages.sys_flags[row]),
            born_timestamp_ms=time_ns() // 1_000_000 if born is None else int(born[row]),
            waits=bool(rows.waits[row]),
            flag=int(messages.flags[row]) if properties is not None else 0,
            properties=properties,
            may_move=bool(movable[row]),
            rows=rows.numbers[order[first:end]],
        )


def limits_of_batch(settings: SendSettings, most: MessageLimits) -> BatchLimits:
    """Return the bounds of one batch."""
    return BatchLimits(
        max_bytes=min(settings.batch_max_bytes, most.max_message_size),
        max_record_bytes=most.log_file // _FILE_PART,
        max_messages=settings.batch_max_messages,
    )


def place(rows: Rows, queue_ids: Int64s, queues_of: Sequence[Sequence[Queue]]) -> Int64s:
    """Return for each row its place in the queues of its topic, ``queues_of[rows.topics]``.

    ``queue_ids`` are places already where the row has no queueId. A queueId that several brokers
    have is, by its remainder, the queue of one of them: so the rows of one queueId stay together.
    """
    found = queue_ids.copy()
    named = rows.queue_ids != NULL_QUEUE
    for topic, queues in enumerate(queues_of):
        of_topic = named & (rows.topics == topic)
        for queue_id in np.unique(queue_ids[of_topic]).tolist():
            having = [n for n, queue in enumerate(queues) if queue.queue_id == queue_id]
            found[of_topic & (queue_ids == queue_id)] = having[queue_id % len(having)]
    return found


def _movable(rows: Rows, settings: SendSettings) -> Mask:
    """Tell which rows any queue will do for, if such rows are to be moved."""
    return np.asarray((rows.queue_ids == NULL_QUEUE) & settings.latency_fault_tolerance, np.bool_)


def group_kinds(columns: Sequence[NDArray[np.generic]]) -> Int64s:
    """Return a number for each row; rows with the same have the same in all columns."""
    kinds = np.zeros(len(columns[0]), np.int64)
    for column in columns:
        values, codes = np.unique(column, return_inverse=True)
        kinds = kinds * len(values) + codes
    return kinds


def _single(messages: Messages, row: int) -> tuple[bytes, str]:
    return messages.bodies[row].as_py(), messages.properties[row].as_py().decode()
