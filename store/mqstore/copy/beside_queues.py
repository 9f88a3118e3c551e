"""What a broker keeps beside log and queues and makes from them, as parts of a copy.

``rocksdbstore`` has transactions, timers and an index of keys (RIP-82), ``compaction`` the logs of
compaction topics. A broker does not make them again when it starts: it goes on from what it finds.
So they are taken of a broker that was stopped. Beside one that runs, or was killed, the database
lags by up to 1,024 writes (rocksdbFlushWalFrequency) and may be empty, and compaction replaces
files: compaction topics are left out, and a store whose transactions or timers are in the database
is refused.

Reference: DefaultMessageStore#recover, TimerMessageRocksDBStore#start, TransMessageRocksDBStore,
MessageRocksDBStorage; CompactionStore#load, CompactionLog#asyncPutMessage.
"""

import logging
from typing import Final

from mqstore.errors import StoreLockedError, UnsupportedStoreError, shown
from mqstore.files.base.store_dir import StoreDir
from mqstore.files.copy_target import CopyTarget
from mqstore.files.rocksdb.database import database_files, has_database
from mqstore.files.store import Store
from mqstore.format import names
from mqstore.format.message import RECORD_MAGICS

_LOG: Final = logging.getLogger(__name__)
_NEVER_CHANGE: Final = (".sst", ".blob")
_ENTERED_MS: Final = 10_000
"""The wheel takes a timer up within milliseconds; so late, another one did."""
_NAMED: Final = 5
_COMPACTION_LEFT_OUT: Final = (
    "%s: a broker runs or was killed: the compacted logs of %s are left out; consumers of a broker "
    "started on the copy get of these topics only what is sent then. A stopped broker's are taken"
)
_INDEX_LEFT_OUT: Final = (
    "%s: a broker runs or was killed: %s is left out. There is no IndexFile: if its broker keeps "
    "the index of keys there (indexRocksDBEnable), one started on the copy finds none of these "
    "messages by key. A stopped broker's is taken"
)
_IN_DATABASE: Final = (
    "rocksdbstore has {}, and a broker that runs or was killed has not written all of it there: "
    "one started on the copy would {}. Stop the broker cleanly first (mqshutdown broker)"
)
_OF_TIMERS: Final = "the state of timers", "deliver timers again that were delivered"
_OF_TRANSACTIONS: Final = "the open transactions", "not ask their producers for the outcome"


def take_beside(copy: CopyTarget, store: Store, *, is_unclean: bool) -> tuple[str, ...]:
    """Take what is there of both; return what is left out, below the root, with a warning.

    Raises UnsupportedStoreError for a store whose transactions or timers are in the database of a
    broker that was not stopped, StoreLockedError where one was started meanwhile, OSError.
    """
    place = store.place
    if is_unclean:
        _refuse_state(store)
        return (*_left_out_index(store), *_left_out_logs(place))
    if has_database(place.folder, names.ROCKSDB_STORE):
        copy.make_directory(names.ROCKSDB_STORE)
        for name in database_files(place.folder, names.ROCKSDB_STORE):
            path = f"{names.ROCKSDB_STORE}/{name}"
            (copy.link if name.endswith(_NEVER_CHANGE) else copy.take)(place.folder, path, path)
    _take_tree(copy, place, names.COMPACTION)
    if place.is_unclean:
        raise StoreLockedError(f"{place.root}: its broker was started meanwhile; try again")
    return ()


def _take_tree(copy: CopyTarget, place: StoreDir, path: str) -> None:
    if not place.folder.is_directory(path):
        return
    copy.make_directory(path)
    for entry in place.folder.entries(path):
        below = f"{path}/{entry.name}"
        if entry.is_directory:
            _take_tree(copy, place, below)
        else:
            copy.take(place.folder, below, below)


def _refuse_state(store: Store) -> None:
    """Raise UnsupportedStoreError where transactions or timers are in the database."""
    if not has_database(store.place.folder, names.ROCKSDB_STORE):
        return
    state = None
    low, high = store.queue(names.ROCKSDB_HALF_TOPIC, 0).bounds(store.log.low)
    if low < high:
        state = _OF_TRANSACTIONS
    if _has_timers(store):
        state = _OF_TIMERS
    if state is not None:
        reason = _IN_DATABASE.format(*state)
        raise UnsupportedStoreError(store.root, "ROCKSDB_STATE", reason)


def _has_timers(store: Store) -> bool:
    """Tell whether timers are taken up by RocksDB: the wheel did not take up one that it should."""
    queue, entered = store.queue(names.TIMER_TOPIC, 0), store.timer_checkpoint()
    low, high = queue.bounds(store.log.low)
    taken_up = 0 if entered is None else int(entered["last_timer_queue_offset"])
    if max(low, taken_up) >= high or entered is None:
        return False
    unit = queue.read(max(low, taken_up), max(low, taken_up) + 1)[0]
    header = store.log.header(int(unit["physical_offset"]))
    if header is None:
        return False
    stored_ms = int(header["store_timestamp_ms"])
    return stored_ms + _ENTERED_MS < int(entered["last_read_time_ms"])


def _left_out_index(store: Store) -> tuple[str, ...]:
    """Return the database where it has the only index, with a warning."""
    is_there = has_database(store.place.folder, names.ROCKSDB_STORE)
    if not is_there or store.index_files or not _has_messages(store):
        return ()
    _LOG.warning(_INDEX_LEFT_OUT, store.root, names.ROCKSDB_STORE)
    return (names.ROCKSDB_STORE,)


def _has_messages(store: Store) -> bool:
    header = store.log.header(store.log.low)
    return header is not None and int(header["magic"]) in RECORD_MAGICS


def _left_out_logs(place: StoreDir) -> tuple[str, ...]:
    topics = place.folder.names(names.COMPACTION_LOG)
    if not topics:
        return ()
    more = f" and {len(topics) - _NAMED} more" if len(topics) > _NAMED else ""
    listed = ", ".join(map(shown, sorted(topics)[:_NAMED])) + more
    _LOG.warning(_COMPACTION_LEFT_OUT, place.root, listed)
    return (names.COMPACTION,)
