"""A store in a directory: what its queues are kept in decides how it is opened.

What reads RocksDB is imported for stores that have their queues there.
"""

# ruff: noqa: PLC0415

from collections.abc import Callable, Sequence
from contextlib import closing
from dataclasses import replace

from mqstore.errors import InvalidOptionError
from mqstore.files.base.folder import Folder
from mqstore.files.base.store_dir import (
    BY_LOG,
    ROCKSDB_CONSUME_QUEUE,
    Root,
    open_dir,
    rocksdb_queues,
)
from mqstore.files.log.replica_log import READ_UNCOMMITTED
from mqstore.files.rocksdb.database import check_installed
from mqstore.files.store import Store
from mqstore.read.source import Snapshot
from mqstore.read.store_bounds import StoreOrigin

_FILES_HAVE_NONE = (
    "is for what the CommitLog has and no queue: {} keeps its queues in files, so read it with "
    "queues=log (mqlog: --from-log)"
)


def open_origin(
    root: Root, commit_log: Sequence[str | Folder] = (), *, takes_unconfirmed: bool = False
) -> StoreOrigin:
    """Return the store at ``root``; ``commit_log`` names the CommitLog folders of a multi-path one.

    ``takes_unconfirmed``: of queues in RocksDB, also what lies behind the end of what a
    controller's group confirmed. Raises StoreNotFoundError, NotAStoreError, or
    UnsupportedStoreError with the flavour's name: also where queues are in RocksDB, and the package
    that reads it is not installed; InvalidOptionError where queues in files have no such thing.
    """
    found = open_dir(root, commit_log, in_rocksdb=True, in_batches=True)
    found = replace(found, takes_unconfirmed=takes_unconfirmed)
    path = rocksdb_queues(found)
    if path is None and takes_unconfirmed:
        raise InvalidOptionError(READ_UNCOMMITTED, "true", _FILES_HAVE_NONE.format(found.root))
    if path is None:
        return StoreOrigin(found.folder, found.commit_log, **found.kinds)
    check_installed(f"{found.root}/{path}", ROCKSDB_CONSUME_QUEUE, f". Without it, {BY_LOG}")
    from mqstore.read.rocksdb_bounds import RocksOrigin

    return RocksOrigin(found.folder, found.commit_log, path, **found.kinds)


def open_store(root: Root, commit_log: Sequence[str | Folder] = ()) -> Store:
    """Return the store at ``root``, whatever its queues are kept in. Raises as ``open_origin``."""
    origin = open_origin(root, commit_log)
    if type(origin) is StoreOrigin:
        return Store(origin)
    from mqstore.read.rocksdb_bounds import RocksOrigin, rocksdb_store

    if isinstance(origin, RocksOrigin):
        return rocksdb_store(origin, origin.queue_path)
    return Store(origin)


def take(
    root: Root,
    *,
    commit_log: Sequence[str | Folder] = (),
    broker_name: str | None = None,
    topics: Callable[[str], bool] | None = None,
    strict: bool = True,
) -> Snapshot:
    """Return what the queues of the store at ``root`` hold now, of those topics (all if None).

    Of compaction topics it is what their ordinary queues hold, which no read gives.

    Raises as ``open_origin`` and ``take_snapshot``.
    """
    with closing(open_origin(root, commit_log).bounds(broker_name)) as source:
        return source.every(topics, strict=strict)
