"""A store in a directory: what its queues are kept in decides how it is opened.

What reads RocksDB is imported for stores that have their queues there.
"""

# ruff: noqa: PLC0415

from collections.abc import Callable, Sequence
from contextlib import closing

from mqstore.files.base.folder import Folder
from mqstore.files.base.store_dir import (
    BY_LOG,
    ROCKSDB_CONSUME_QUEUE,
    Root,
    open_dir,
    rocksdb_queues,
)
from mqstore.files.rocksdb.database import check_installed
from mqstore.files.store import Store
from mqstore.read.source import Snapshot
from mqstore.read.store_bounds import StoreOrigin


def open_origin(root: Root, commit_log: Sequence[str | Folder] = ()) -> StoreOrigin:
    """Return the store at ``root``; ``commit_log`` names the CommitLog folders of a multi-path one.

    Raises StoreNotFoundError, NotAStoreError, or UnsupportedStoreError with the flavour's name:
    also where queues are in RocksDB, and the package that reads it is not installed.
    """
    found = open_dir(root, commit_log, in_rocksdb=True, in_batches=True)
    path = rocksdb_queues(found)
    if path is None:
        return StoreOrigin(found.folder, found.commit_log, dledger=found.dledger)
    check_installed(f"{found.root}/{path}", ROCKSDB_CONSUME_QUEUE, f". Without it, {BY_LOG}")
    from mqstore.read.rocksdb_bounds import RocksOrigin

    return RocksOrigin(found.folder, found.commit_log, path, dledger=found.dledger)


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
