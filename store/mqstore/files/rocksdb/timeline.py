"""How far a broker delivered timers that RocksDB keeps (timerRocksDBEnable, 5.4 on).

The column family ``timer`` of rocksdbstore has two numbers beside its entries, int64 big-endian:
``sys_topic_scan_offset_checkpoint``, the next queue offset of rmq_sys_wheel_timer to take up, and
``timeline_checkpoint``, the time in ms up to which timers were delivered.

Reference: MessageRocksDBStorage, Timeline.
"""

from contextlib import closing
from typing import Final, NamedTuple

from mqstore.files.base.folder import Folder
from mqstore.files.rocksdb.database import RocksDatabase, has_database
from mqstore.format.names import ROCKSDB_STORE

_MOST_TIMER_LOG_BYTES: Final = 640 << 20
_FAMILY: Final = "timer"
_TAKEN_UP: Final = b"sys_topic_scan_offset_checkpoint"
_DELIVERED: Final = b"timeline_checkpoint"
_LONG_BYTES: Final = 8


class TimelineProgress(NamedTuple):
    """The next queue offset to take up, and the time in ms up to which timers were delivered."""

    taken_up: int
    delivered_ms: int


def read_timeline(root: Folder) -> TimelineProgress | None:
    """Return how far the broker of the store ``root`` was; None where RocksDB has no timers.

    Raises UnsupportedStoreError without the package that reads RocksDB, and for a database that is
    too large to open, CorruptStoreError, UnsafePathError, OSError.
    """
    if not (root.opens_databases and has_database(root, ROCKSDB_STORE)):
        return None
    with closing(
        RocksDatabase(root, ROCKSDB_STORE, "ROCKSDB_STATE", most_log_bytes=_MOST_TIMER_LOG_BYTES)
    ) as database:
        values = [database.get(_FAMILY, key) for key in (_TAKEN_UP, _DELIVERED)]
    numbers = [
        int.from_bytes(value, signed=True) if value and len(value) == _LONG_BYTES else 0
        for value in values
    ]
    return TimelineProgress(*numbers) if min(numbers) > 0 else None
