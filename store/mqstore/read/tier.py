"""Tiered storage beside an opened store: records of its queues, and where the local log goes on.

Reference: TieredMessageStore, FlatMessageFile.
"""

from collections import OrderedDict
from dataclasses import replace
from functools import cached_property
from typing import Final

from mqstore.files.base.folder import Folder
from mqstore.files.base.store_dir import StoreDir
from mqstore.files.log.commit_log import CommitLog
from mqstore.files.queue.tier_queue import TIER_LOG, JoinedQueue, TierQueue
from mqstore.files.queue.units import Units
from mqstore.files.store import Store
from mqstore.format.arrays import Span, TopicQueue
from mqstore.read.source import QueueSlice
from mqstore.read.store_records import StoreRecords

_MOST_LOGS: Final = 16  # open at a time, each with up to 32 descriptors


class TierStore(Store):
    """One queue of the tier as a store of its own: its log, and its units."""

    def __init__(self, place: StoreDir, queue: TierQueue, read_mode: str) -> None:
        super().__init__(place, read_mode)
        self._tier = queue

    @cached_property
    def log(self) -> CommitLog:
        """The log of the queue."""
        folder = self._tier.folder.at(TIER_LOG)
        return CommitLog([folder], self._read_mode, self._tier.log_files)

    @cached_property
    def batch_topics(self) -> frozenset[str]:
        """None: a record in the tier is a message."""
        return frozenset()

    def log_now(self) -> CommitLog:
        """Return the log as its files stand now."""
        fresh = TierQueue(
            self.place, self._tier.topic, self._tier.queue_id, broker=self._tier.broker
        )
        return CommitLog([fresh.folder.at(TIER_LOG)], self._read_mode, fresh.log_files)

    def queue(self, topic: str, queue_id: int) -> Units:
        """Return the queue."""
        assert (topic, queue_id) == (self._tier.topic, self._tier.queue_id)
        return self._tier


class Tier:
    """The tier beside an opened store: where queues begin, and where the local log goes on."""

    def __init__(
        self, broker: Folder, tiered: frozenset[TopicQueue], store: Store, read_mode: str = "pread"
    ) -> None:
        """``broker`` is the broker's folder in the tier, which has ``tiered`` queues."""
        self._broker, self._tiered = broker, tiered
        self._store, self._read_mode = store, read_mode
        self._spans: dict[TopicQueue, Span | None] = {}
        self._open: OrderedDict[TopicQueue, StoreRecords] = OrderedDict()

    def close(self) -> None:
        """Close the logs that are open."""
        while self._open:
            self._open.popitem()[1].close()

    def queue(self, queue: TopicQueue) -> TierQueue:
        """Return the units of a queue in the tier."""
        return TierQueue(self._store.place, *queue, broker=self._broker)

    def span(self, queue: TopicQueue) -> Span | None:
        """Return the queue offsets [low, edge) to read from the tier; None: there are none.

        Of a tier that ends before the local log begins nothing is taken: the broker throws it away.
        Raises CorruptStoreError.
        """
        if queue not in self._tiered:
            return None
        if queue not in self._spans:
            low, high = self.queue(queue).span
            edge = self._store.queue(*queue).bounds(self._store.log.low)[0]
            self._spans[queue] = (low, edge) if low < edge <= high else None
        return self._spans[queue]

    def joined(self, queue: TopicQueue) -> Units:
        """Return the units of a queue, wherever they are."""
        local, span = self._store.queue(*queue), self.span(queue)
        if span is None:
            return local
        return JoinedQueue(self._store.place, *queue, self.queue(queue), local, span[1])

    def records(self, queue: TopicQueue) -> StoreRecords:
        """Return the records of a queue in the tier."""
        records = self._open.pop(queue, None)
        if records is None:
            if len(self._open) >= _MOST_LOGS:
                self._open.popitem(last=False)[1].close()
            store = TierStore(self._store.place, self.queue(queue), self._read_mode)
            records = StoreRecords(store)
        self._open[queue] = records
        return records

    def divided(self, piece: QueueSlice) -> tuple[QueueSlice | None, QueueSlice | None]:
        """Return the part of a slice that the tier has, and the local one."""
        span = self.span((piece.topic, piece.queue_id))
        if span is None or piece.start >= span[1]:
            return None, piece
        before = replace(piece, end=min(piece.end, span[1]), weight=None)
        behind = replace(piece, start=span[1], weight=None) if piece.end > span[1] else None
        return before, behind
