"""Topics with batch ConsumeQueues in a salvage: which they are, and what their records hold.

The unit of a record says how many messages it holds, which only its body tells.

Reference: CQType, QueueTypeUtils#isBatchCq; CommitLog#setBatchSizeIfNeeded.
"""

from collections import Counter
from collections.abc import Sequence
from contextlib import suppress
from itertools import pairwise
from typing import Final

import numpy as np

from mqstore.codec.inner_batch import message_counts
from mqstore.copy.salvaged_offsets import Counting
from mqstore.derive.log_queues import LogQueues
from mqstore.derive.log_sections import LogUnits
from mqstore.derive.records import WHOLE, fetch
from mqstore.errors import StoreError
from mqstore.files.base.folder import Folder
from mqstore.files.base.store_dir import StoreDir
from mqstore.files.config.broker_config import BrokerConfig
from mqstore.files.log.commit_log import CommitLog
from mqstore.format import names
from mqstore.format.arrays import Int64s, TopicQueue
from mqstore.format.batch_consume_queue import BATCH_UNIT, BATCH_UNITS_PER_FILE

_COUNTED_BYTES: Final = 1 << 24
_LOOKED_AT_FILES: Final = 1_000
_NO_END: Final = 2**62


def batch_topics(place: StoreDir, queues: LogQueues) -> frozenset[str]:
    """Return the topics whose queues are batch ConsumeQueues.

    Those that the configuration says, that have such a queue at ``place``, or a record with
    several messages. Raises CorruptStoreError, OSError.
    """
    found = set(place.folder.names(names.BATCH_CONSUME_QUEUE))
    with suppress(StoreError, OSError):
        topics = BrokerConfig(place).topics()
        found |= {topic for topic, config in topics.items() if config.has_batches}
    for queue in queues.queues:
        units = queues.units(queue, 0, _NO_END) if queue[0] not in found else ()
        if any(part.holds_several.any() for part in units):
            found.add(queue[0])
    return frozenset(found)


def batch_file_size(place: StoreDir) -> int:
    """Return mapperFileSizeBatchConsumeQueue: what most files have, RocketMQ's own if none tells.

    Reference: MessageStoreConfig#mapperFileSizeBatchConsumeQueue.
    """
    sizes: Counter[int] = Counter()
    for topic in place.folder.names(names.BATCH_CONSUME_QUEUE):
        for queue in place.folder.names(f"{names.BATCH_CONSUME_QUEUE}/{topic}"):
            folder = f"{names.BATCH_CONSUME_QUEUE}/{topic}/{queue}"
            for name, kind, size in place.folder.survey(folder):
                start = names.parse_mapped_file_name(name)
                fits = kind == "file" and 0 < size < 2**31 and size % BATCH_UNIT.itemsize == 0
                if fits and start is not None and start % size == 0:
                    sizes[size] += 1
        if sizes.total() >= _LOOKED_AT_FILES:
            break
    usual = BATCH_UNITS_PER_FILE * BATCH_UNIT.itemsize
    return max(sizes, key=lambda size: (sizes[size], size), default=usual)


class BatchQueues:
    """The topics with batch ConsumeQueues of a salvage, and what their records hold."""

    def __init__(self, source: StoreDir, queues: LogQueues, log: Sequence[Folder]) -> None:
        """``log`` are the folders of the new CommitLog. Raises CorruptStoreError, OSError."""
        self.topics = batch_topics(source, queues)
        self.file_size = batch_file_size(source)
        self._log = log
        self._counted: dict[TopicQueue, list[Int64s]] = {}

    def counting(self, queue: TopicQueue) -> Counting | None:
        """Return what counts the messages of a queue's records; None: its records hold one each.

        They are read when the queue is gone through for the first time. The next time the counts
        are the same, also where records were set aside or moved since.
        """
        if queue[0] not in self.topics:
            return None
        known = self._counted.get(queue)
        if known is not None:
            counts = iter(known)
            return lambda units: next(counts)
        counted = self._counted[queue] = []

        def count(units: LogUnits) -> Int64s:
            counted.append(self._count(units))
            return counted[-1]

        return count

    def _count(self, units: LogUnits) -> Int64s:
        """Return how many messages the record of each unit holds; 0 if it is no whole batch."""
        counts = np.zeros(len(units), np.int64)
        order = np.argsort(units.physical_offsets, kind="stable")
        read = np.cumsum(units.sizes[order]) // _COUNTED_BYTES
        edges = [0, *(np.flatnonzero(np.diff(read)) + 1).tolist(), len(order)]
        with CommitLog(self._log) as log:
            for first, end in pairwise(edges):
                rows = order[first:end]
                found = fetch(log, units.physical_offsets[rows], units.sizes[rows], WHOLE)
                counts[rows[found.rows]] = message_counts(found.headers, of_broken=0)
        return counts
