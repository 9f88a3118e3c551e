"""A store in a directory whose queues are in RocksDB (storeType=defaultRocksDB), to be read only.

Reference: RocksDBMessageStore.
"""

import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace

from mqstore.derive.rocksdb_queues import RocksQueues
from mqstore.derive.unconfirmed import unconfirmed
from mqstore.files.base.store_dir import StoreDir, open_dir
from mqstore.files.store import Store
from mqstore.read.by_log import default_cache
from mqstore.read.queues import QueueFilter
from mqstore.read.source import Snapshot
from mqstore.read.store_bounds import StoreBounds, StoreOrigin
from mqstore.read.store_records import StoreRecords
from mqstore.read.tail import Stamp, StoreTail

_LOG = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class RocksOrigin(StoreOrigin):
    """A store whose queues are in the RocksDB database ``root/queue_path``.

    ``known`` are the keys of growing log files as the driver saw them, if its log was walked behind
    what the database has; it says nothing of what the origin is.
    """

    queue_path: str
    known: tuple[str, ...] = field(default=(), compare=False)

    def bounds(self, broker_name: str | None = None) -> "RocksBounds":
        """Open the store to plan a read. Raises as ``RocksBounds.snapshot``."""
        return RocksBounds(self, broker_name)

    def records(self, read_mode: str = "pread") -> StoreRecords:
        """Open the store to read records. Raises as ``RocksBounds.snapshot``."""
        place = open_dir(self.folder, self.commit_log, in_rocksdb=True)
        place = replace(place, takes_unconfirmed=self.takes_unconfirmed)
        store = rocksdb_store(place, self.queue_path, self.known, read_mode)
        return StoreRecords(self.witnessed(store))


class RocksTail(StoreTail):
    """The moving bounds of one store. Keeps a database open: ``close`` it.

    Nothing cheap shows that a broker added a unit: it keeps new ones in memory. So each look opens
    the database and walks what is new of the CommitLog; looks rest four times as long as one
    takes, a second at most.
    """

    def __init__(
        self,
        place: StoreDir,
        take: Callable[[], Snapshot],
        chosen: QueueFilter,
        *,
        fail_on_data_loss: bool = True,
        open_store: Callable[[], Store],
    ) -> None:
        """Take the first look. ``open_store`` gives the store as ``take`` saw it last."""
        self._open_store = open_store
        super().__init__(place, take, chosen, fail_on_data_loss=fail_on_data_loss)

    def close(self) -> None:
        """Close what is open; the next look opens it again."""
        super().close()
        self.opened().close()

    def opened(self) -> Store:
        """Return the store as the last look saw it."""
        return self._open_store()

    def _stamped(self) -> dict[str, Stamp] | None:
        return None  # No directory's time shows that a queue has grown.


class RocksBounds(StoreBounds):
    """A BoundsSource over a store with queues in RocksDB, as of the last ``snapshot``: it grows."""

    origin: RocksOrigin

    def open_store(self) -> Store:
        """Return the store; its database is opened when something is first asked."""
        self._queues = _queues(self.origin, self.origin.queue_path)
        return Store(self.origin, queue_store=self._queues)

    def every(
        self, topics: Callable[[str], bool] | None = None, *, strict: bool = True
    ) -> Snapshot:
        """Return the bounds as the database has them now, and the log behind it.

        Damage of the log there is an error with ``strict``, else a warning.
        """
        found = super().every(topics, strict=strict)
        log = self._queues.log
        for damage in () if log is None else log.damages():
            error = self.store.log.corrupt(damage.start, damage.reason)
            if strict:
                raise error
            _LOG.warning("%s", error)
        left_out = unconfirmed(self.origin, self.store.log)
        if left_out is not None:
            _LOG.warning("%s", left_out)
        self.origin = replace(self.origin, known=self._queues.keys)
        return replace(found, origin=self.origin)

    def tail(
        self, chosen: QueueFilter, *, strict: bool = True, fail_on_data_loss: bool = True
    ) -> RocksTail:
        """Return the store's moving bounds."""
        return RocksTail(
            self.origin,
            lambda: self.snapshot(chosen.topics, strict=strict),
            chosen,
            fail_on_data_loss=fail_on_data_loss,
            open_store=lambda: self.store,
        )


def _queues(place: StoreDir, path: str, known: Sequence[str] = ()) -> RocksQueues:
    return RocksQueues(place, path, default_cache(), known)


def rocksdb_store(
    place: StoreDir, path: str, known: Sequence[str] = (), read_mode: str = "pread"
) -> Store:
    """Return a store whose queues are in the database ``path`` below its root."""
    return Store(place, read_mode, _queues(place, path, known))
