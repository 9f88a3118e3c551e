"""Which pops are of a topic that was deleted: one of the same name may have been made since.

Deleting a topic removes its queues and its groups' offsets. Checkpoints, acknowledgements, entries
and batches stay, and name queue offsets that other messages have, or will have. A pop is of a
topic that is gone if it names an offset at or behind the queue's end, or is older than the first
message that the queue holds: a message is stored before it is popped. What is older is told by the
places in the log where that is known, which no wrong clock changes, else by the broker's times.

Reference: AdminBrokerProcessor#deleteTopic, ConsumerOffsetManager#cleanOffsetByTopic.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Final, TypeAlias

import pyarrow as pa

from mqstore.format.arrays import TopicQueue
from mqstore.format.pop import OrderInfo
from mqstore.read.scan import scan
from mqstore.read.settings import ScanSettings
from mqstore.read.source import Snapshot, slices_of

NO_LOG_PLACE: Final = -1
"""For a place in the log that is not known, and for the first message of an empty queue."""


@dataclass(frozen=True, slots=True)
class QueueStart:
    """A queue that holds [low, high): when its first message was stored, and its place."""

    low: int
    high: int
    first_ms: int = NO_LOG_PLACE
    first_place: int = NO_LOG_PLACE

    def has_popped(self, queue_offset: int, pop_ms: int) -> bool:
        """Tell whether a message was popped from this queue, and from none that is gone."""
        is_old = queue_offset >= self.low and pop_ms < self.first_ms
        return queue_offset < self.high and not is_old


ABSENT: Final = QueueStart(0, 0)
QueueStarts: TypeAlias = Mapping[TopicQueue, QueueStart]


def queue_starts(snapshot: Snapshot, queues: Iterable[TopicQueue]) -> QueueStarts:
    """Return the starts of those of the queues that the snapshot has; reads a message of each.

    Where the first message cannot be read, nothing is older. Raises what a scan raises.
    """
    wanted = set(queues)
    held = [q for q in snapshot.queues if (q.topic, q.queue_id) in wanted]
    found = {(q.topic, q.queue_id): QueueStart(q.low, q.high) for q in held}
    settings = ScanSettings(
        columns=("topic", "queueId", "queueOffset", "storeTimestamp", "physicalOffset"),
        on_corrupt="skip",
        fail_on_data_loss=False,
    )
    slices = slices_of(snapshot, [(q, q.low, min(q.low + 1, q.high)) for q in held])
    for batch in scan(slices, settings):
        times = batch["storeTimestamp"].cast(pa.int64()).to_pylist()
        names = zip(batch["topic"].to_pylist(), batch["queueId"].to_pylist(), strict=True)
        for name, time, place in zip(
            names, times, batch["physicalOffset"].to_pylist(), strict=True
        ):
            start = found[name]
            found[name] = QueueStart(start.low, start.high, time // 1000, place)
    return found


def batches_of_queues(
    starts: QueueStarts, topic: str, batches: Mapping[int, OrderInfo]
) -> dict[int, OrderInfo]:
    """Return the batches in order that were popped from the queues as they are now."""
    return {
        queue_id: batch
        for queue_id, batch in batches.items()
        if starts.get((topic, queue_id), ABSENT).has_popped(batch.queue_offsets[-1], batch.pop_ms)
    }
