"""All points of a repository as an origin of messages: each message once, as far as points have it.

Queue offsets whose messages no point has are no rows, and a warning says how many they are.
"""

import logging
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Final

from mqstore.errors import UnsupportedStoreError
from mqstore.files.base.folder import Folder
from mqstore.files.base.mapped_file_queue import check_sizes
from mqstore.files.base.store_dir import (
    ROCKSDB_CONSUME_QUEUE,
    StoreDir,
    open_dir,
    rocksdb_queues,
)
from mqstore.files.points.all_points import AllPointFiles
from mqstore.files.points.folder import PointFolder
from mqstore.files.queue.consume_queue import ConsumeQueue, list_queues
from mqstore.files.queue.held_queue import HeldQueue
from mqstore.files.store import Store
from mqstore.format.arrays import TopicQueue
from mqstore.read.queues import QueueBounds
from mqstore.read.snapshot import name_of
from mqstore.read.source import Snapshot
from mqstore.read.store_bounds import StoreBounds, StoreOrigin
from mqstore.read.store_records import StoreRecords
from mqstore.read.witness import witness_of

_LOG: Final = logging.getLogger(__name__)
_SHOWN: Final = 10
_OF_ONE_POINT: Final = (
    "its queues are in RocksDB, which has those of one point: name a point, such as REPO@latest"
)


@dataclass(frozen=True, slots=True)
class AllPointsOrigin(StoreOrigin):
    """All points of a repository. Its tasks read the points that it was planned with."""

    def bounds(self, broker_name: str | None = None) -> "AllPointsBounds":
        """Open the points to plan a read."""
        return AllPointsBounds(self, broker_name)

    def records(self, read_mode: str = "pread") -> StoreRecords:
        """Open the points to read records."""
        return StoreRecords(self.witnessed(_store(self, read_mode)))


class AllPointsBounds(StoreBounds):
    """A BoundsSource over all points of a repository."""

    def open_store(self) -> Store:
        """Return the union as a store."""
        return _store(self.origin)

    def every(
        self, topics: Callable[[str], bool] | None = None, *, strict: bool = True
    ) -> Snapshot:
        """Return the bounds of the queues; warns of messages that no point has, with their number.

        Each point was found whole when it was made.
        """
        self.close()
        self.store = self.open_store()
        log = self.store.log
        if strict:
            check_sizes([log.files])
        for text in _files(self.origin).warnings:
            _LOG.warning("%s: %s", self.origin.name, text)
        wanted = [name for name in self.store.queues if topics is None or topics(name[0])]
        queues = self.store.place.folder.each(self._bounds, wanted)
        self._warn(queues)
        self.origin = replace(self.origin, witness=witness_of(log))
        return Snapshot(
            self.origin,
            self._given_name or name_of(self.store),
            log.low,
            log.high,
            tuple(queues),
            self.store.place.folder.now_ms(),
            False,
        )

    def _bounds(self, name: TopicQueue) -> QueueBounds:
        queue = self.store.queue(*name)
        assert isinstance(queue, HeldQueue)
        low, high = queue.look(0)[:2]
        missing = sum(end - start for start, end in queue.missing) if low < high else 0
        return QueueBounds(*name, low, high, None, high - low - missing)

    def _warn(self, queues: list[QueueBounds]) -> None:
        lacking = [queue for queue in queues if queue.messages < queue.high - queue.low]
        for queue in lacking[:_SHOWN]:
            held_queue = self.store.queue(queue.topic, queue.queue_id)
            assert isinstance(held_queue, HeldQueue)
            spans = held_queue.missing
            listed = ", ".join(f"[{start}, {end})" for start, end in spans[:_SHOWN])
            _LOG.warning(
                "%s: no point has %d messages of %s/%d, which brokers deleted between two points: "
                "queue offsets %s%s",
                self.origin.name,
                queue.high - queue.low - queue.messages,
                queue.topic,
                queue.queue_id,
                listed,
                ", …" if len(spans) > _SHOWN else "",
            )
        if len(lacking) > _SHOWN:
            total = sum(queue.high - queue.low - queue.messages for queue in lacking)
            _LOG.warning(
                "%s: so in %d queues, %d messages in all", self.origin.name, len(lacking), total
            )


class _AllQueues:
    """The queues of all points, as a QueueStore."""

    def __init__(self, place: StoreDir) -> None:
        self._place = place
        self._files = _files(place)
        self._log_spans = self._files.log_spans()

    @property
    def queues(self) -> list[TopicQueue]:
        """Every (topic, queueId), sorted."""
        return list_queues(self._place)

    def queue(self, topic: str, queue_id: int) -> HeldQueue:
        """Return one queue; one that is not there has no units."""
        source = ConsumeQueue(self._place, topic, queue_id)
        held_bytes = self._files.held(source.path)
        return HeldQueue(self._place, topic, queue_id, source, self._log_spans, held_bytes)

    def close(self) -> None:
        """Do nothing: files are open while they are read."""


def open_all_points(root: Folder) -> AllPointsOrigin:
    """Return all points of the repository ``root``.

    Raises as ``open_dir``, InvalidOptionError for points of several stores, and
    UnsupportedStoreError where queues are in RocksDB.
    """
    place = open_dir(root, in_rocksdb=True)
    path = rocksdb_queues(place)
    if path is not None:
        where = f"{place.root}/{path}"
        raise UnsupportedStoreError(where, ROCKSDB_CONSUME_QUEUE, _OF_ONE_POINT)
    return AllPointsOrigin(place.folder, place.commit_log)


def _store(origin: StoreDir, read_mode: str = "pread") -> Store:
    return Store(origin, read_mode, _AllQueues(origin))


def _files(place: StoreDir) -> AllPointFiles:
    folder = place.folder
    assert isinstance(folder, PointFolder)
    assert isinstance(folder.files, AllPointFiles)
    return folder.files
