"""An opened store: its CommitLog, ConsumeQueues, IndexFiles and small files, to be read.

    with Store.open("/data/store") as store:      # checks that it is a store mqlog reads
        for topic, queue_id in store.queues: ...
        units = store.queue(topic, queue_id).read(0, 10)
        header = store.log.header(int(units[0]["physical_offset"]))

    with Store(place) as store: ...               # in a task, from the StoreDir that was pickled

Reference: DefaultMessageStore, StorePathConfigHelper.
"""

import os
from collections.abc import Sequence
from functools import cached_property
from typing import Protocol

import numpy as np

from mqstore.errors import UnsupportedStoreError, shown
from mqstore.files.base.file_sizes import KnownFileSizes
from mqstore.files.base.store_dir import BATCH_QUEUES, StoreDir, open_dir
from mqstore.files.config import checkpoint
from mqstore.files.config.broker_config import BrokerConfig
from mqstore.files.index.index_file import IndexFile, list_index_files
from mqstore.files.known_sizes import known_sizes
from mqstore.files.log.commit_log import CommitLog
from mqstore.files.log.entry_log import open_log
from mqstore.files.queue.batch_queue import BatchQueue
from mqstore.files.queue.consume_queue import ConsumeQueue, list_queues
from mqstore.files.queue.units import Units
from mqstore.format import names
from mqstore.format.arrays import TopicQueue

_MOST_QUEUES_KEPT = 16_384  # about 1 KiB each, with their lists of files


class QueueStore(Protocol):
    """What a store has instead of ConsumeQueues in files. ``close`` it."""

    @property
    def queues(self) -> list[TopicQueue]:
        """Every (topic, queueId), sorted."""

    def queue(self, topic: str, queue_id: int) -> Units:
        """Return one queue; one that is not there has no units."""

    def close(self) -> None:
        """Close what is open; a later read opens it again."""


class Store:
    """One store, opened for reading. A context manager that closes what its CommitLog has open.

    A directory is listed when it is first needed, and once: ``log``, ``queues``, ``queue(…)``,
    ``index_files`` and ``sizes`` stay as they were found then. To see what a broker added since,
    open another ``Store`` of the same ``place``. Small files (``config``, ``checkpoint()``,
    ``is_unclean``) are read at each call. One thread at a time may use it.
    """

    def __init__(
        self, place: StoreDir, read_mode: str = "pread", queue_store: QueueStore | None = None
    ) -> None:
        """Open the store at ``place``, which ``open_dir`` checked; no file is touched yet.

        Its queues are those of ``queue_store``, else the files of consumequeue/.
        """
        self.place = place
        self._queue_store = queue_store
        self.config = BrokerConfig(place)
        self._read_mode = read_mode
        self._queues: dict[TopicQueue, Units] = {}

    @classmethod
    def open(cls, root: str | os.PathLike[str], commit_log: Sequence[str] = ()) -> "Store":
        """Open the store at ``root``; ``commit_log`` names other CommitLog folders.

        Raises StoreNotFoundError, NotAStoreError, or UnsupportedStoreError with the flavour's
        name.
        """
        return cls(open_dir(root, commit_log))

    def __enter__(self) -> "Store":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Close the CommitLog's files; a later read opens them again."""
        if "log" in self.__dict__:
            self.log.close()
        if self._queue_store is not None:
            self._queue_store.close()

    @property
    def has_queue_files(self) -> bool:
        """Whether its queues are files, of which several threads may read different ones."""
        return self._queue_store is None

    @property
    def root(self) -> str:
        """The store's root directory."""
        return self.place.root

    @cached_property
    def log(self) -> CommitLog:
        """The CommitLog. Raises InvalidOptionError for an unknown read mode, FileNotFoundError."""
        return open_log(self.place, self._read_mode)

    def log_now(self) -> CommitLog:
        """Return the CommitLog as its files stand now. Raises as ``log``."""
        return open_log(self.place)

    @cached_property
    def queues(self) -> list[TopicQueue]:
        """Every (topic, queueId) with a directory in consumequeue/ or batchconsumequeue/, sorted.

        Raises UnsupportedStoreError for more than 100,000 topics or a million queues, and for a
        topic that is in both.
        """
        if self._queue_store is not None:
            return self._queue_store.queues
        found = list_queues(self.place)
        if not self._batch_queues:
            return found
        both = {topic for topic, _ in found} & self.batch_topics
        if both:
            reason = f"the topic {shown(min(both))} is in consumequeue and in batchconsumequeue"
            raise UnsupportedStoreError(self.root, BATCH_QUEUES, reason)
        return sorted([*found, *self._batch_queues])

    @cached_property
    def batch_topics(self) -> frozenset[str]:
        """The topics of queue.type=BatchCQ, whose records hold several messages each."""
        return frozenset(topic for topic, _ in self._batch_queues)

    @cached_property
    def _batch_queues(self) -> list[TopicQueue]:
        if self._queue_store is not None:
            return []
        return list_queues(self.place, names.BATCH_CONSUME_QUEUE)

    def queue(self, topic: str, queue_id: int) -> Units:
        """Return the units of one queue, the same object each time; none if it is not there."""
        found = self._queues.get((topic, queue_id))
        if found is None:
            made = self._queue_store.queue if self._queue_store is not None else self._in_files
            found = made(topic, queue_id)
            if len(self._queues) < _MOST_QUEUES_KEPT:
                self._queues[topic, queue_id] = found
        return found

    def _in_files(self, topic: str, queue_id: int) -> Units:
        if topic in self.batch_topics:
            return BatchQueue(self.place, topic, queue_id)
        return ConsumeQueue(self.place, topic, queue_id)

    @cached_property
    def index_files(self) -> list[IndexFile]:
        """The IndexFiles, oldest first."""
        return list_index_files(self.place)

    @cached_property
    def sizes(self) -> KnownFileSizes:
        """The sizes that the store's files have. Raises CorruptStoreError where they differ."""
        return known_sizes(self.place, self.log.files, self.index_files)

    def checkpoint(self) -> np.void | None:
        """Return the checkpoint's fields; None if the file is absent or too short."""
        return checkpoint.load(self.place)

    def timer_checkpoint(self) -> np.void | None:
        """Return the fields of config/timercheck; None if the file is absent or too short."""
        return checkpoint.load_timer(self.place)

    @property
    def is_unclean(self) -> bool:
        """Whether the file ``abort`` is there: a broker is running, or it crashed."""
        return self.place.is_unclean
