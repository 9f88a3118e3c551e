"""Which stores may be written to: fewer than may be read.

A writer must know everything that a broker derives from the CommitLog, and nobody else may be
deciding where the log ends.
"""

import os
from itertools import pairwise
from typing import Final

from mqstore.errors import UnsafePathError, UnsupportedStoreError
from mqstore.files.mapped_file_queue import MappedFileQueue, check_sizes
from mqstore.files.safe_open import exists, is_directory, list_names
from mqstore.files.store_dir import StoreDir
from mqstore.format.names import COMMIT_LOG, CONFIG, CONSUME_QUEUE, INDEX, OURS, STAGING

# Path below the root, flavour, why.
_MARKS: Final = (
    (
        "epochFileCheckpoint",
        "CONTROLLER",
        "a controller or another replica decides where this log ends",
    ),
    ("brokerIdentity", "CONTROLLER", "the broker belongs to a controller's group"),
    (
        f"{CONSUME_QUEUE}/CURRENT",
        "ROCKSDB_CONSUME_QUEUE",
        "the broker also keeps its ConsumeQueue in RocksDB, which mqlog does not write",
    ),
    (f"{CONFIG}/topics/CURRENT", "ROCKSDB_CONFIG", "topics are kept in RocksDB"),
    (f"{CONFIG}/metadata/CURRENT", "ROCKSDB_CONFIG", "topics are kept in RocksDB"),
    (f"{CONFIG}/rdb/CURRENT", "ROCKSDB_CONFIG", "topics are kept in RocksDB"),
)


_ELSEWHERE: Final = (
    "its storePathCommitLog names several; mqlog reads such stores, and does not write to them"
)
_FOLDERS: Final = (
    CONSUME_QUEUE,
    INDEX,
    CONFIG,
    OURS,
    *(f"{OURS}/{name}" for name in (STAGING, "groups", "quarantine", "tmp", "txn")),
)


def check_writable(store: StoreDir) -> None:
    """Raise UnsupportedStoreError, with the flavour's name, for a store we must not write to.

    Also raises UnsafePathError where a folder that we make files in leads elsewhere, and
    CorruptStoreError where a file of the CommitLog was cut short.
    """
    for path in _FOLDERS:
        if exists(store.root, path) and not is_directory(store.root, path):
            raise UnsafePathError(f"{store.root}/{path}", "not a directory")
    for path, flavour, reason in _MARKS:
        if exists(store.root, path):
            raise UnsupportedStoreError(store.root, flavour, f"{path}: {reason}")
    owner = os.stat(store.root).st_uid  # noqa: PTH116 - paths are strings here
    if os.geteuid() not in {0, owner}:
        reason = (
            f"the store belongs to user {owner}, this process is user {os.geteuid()}: its broker "
            "could not open the files we would make"
        )
        raise UnsupportedStoreError(store.root, "OWNER", reason)
    if list_names(store.root, "consumequeue_ext"):
        reason = "consumequeue_ext: unit extensions (enableConsumeQueueExt) are not written"
        raise UnsupportedStoreError(store.root, "CONSUME_QUEUE_EXT", reason)
    if store.commit_log != (f"{store.root}/{COMMIT_LOG}",):
        reason = f"CommitLog in other folders than commitlog ({_ELSEWHERE})"
        raise UnsupportedStoreError(store.root, "MULTI_PATH", reason)
    _check_gapless(store)


def _check_gapless(store: StoreDir) -> None:
    log = MappedFileQueue.list([(folder, "") for folder in store.commit_log])
    for before, after in pairwise(log.files):
        if before.end != after.start:
            check_sizes([log])  # A file that was cut short is no file that is elsewhere.
            reason = (
                f"commitlog has no file, or an empty one, between {before.path} and {after.path}: "
                f"it was lost, or the broker keeps it in another folder ({_ELSEWHERE})"
            )
            raise UnsupportedStoreError(store.root, "MULTI_PATH", reason)
