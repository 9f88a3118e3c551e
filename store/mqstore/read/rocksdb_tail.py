"""The moving bounds of a store whose queues are in RocksDB: looked at anew each time.

Nothing cheap shows that a broker added a unit: it keeps new ones in memory. So each look opens
the database and walks what is new of the CommitLog; looks rest four times as long as one takes, a
second at most.
"""

from collections.abc import Callable

from mqstore.files.store import Store
from mqstore.files.store_dir import StoreDir
from mqstore.read.queues import QueueFilter
from mqstore.read.source import Snapshot
from mqstore.read.tail import Stamp, StoreTail


class RocksTail(StoreTail):
    """The moving bounds of one store. Keeps a database open: ``close`` it."""

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
