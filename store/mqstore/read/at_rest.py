"""A store at rest as an origin of messages: all that a store in a directory has, but no future.

Nothing is written to it, and nothing is expected to come: it has no tail, and no stream publishes
its progress there.
"""

from contextlib import closing
from dataclasses import dataclass

from mqstore.files.base.folder import Folder
from mqstore.files.base.store_dir import (
    BY_LOG,
    ROCKSDB_CONSUME_QUEUE,
    open_dir,
    rocksdb_queues,
)
from mqstore.files.rocksdb.database import check_installed
from mqstore.read.rocksdb_bounds import RocksOrigin
from mqstore.read.source import Snapshot
from mqstore.read.store_bounds import StoreBounds, StoreOrigin


@dataclass(frozen=True, slots=True)
class AtRestOrigin(StoreOrigin):
    """A store in an object store, or a point of a repository.

    Its CommitLog is the folder commitlog.
    """

    def bounds(self, broker_name: str | None = None) -> StoreBounds:
        """Open the store to plan a read."""
        return StoreBounds(self, broker_name)


def open_at_rest(root: Folder) -> StoreOrigin:
    """Return the store at ``root``. Raises as ``open_origin``, and UncleanStoreError."""
    if root.lacks_files:
        from mqstore.read.all_points import open_all_points  # noqa: PLC0415 - few paths name it

        return open_all_points(root)
    found = open_dir(root, in_rocksdb=root.opens_databases, in_batches=True)
    path = rocksdb_queues(found) if root.opens_databases else None
    if path is not None:
        check_installed(f"{found.root}/{path}", ROCKSDB_CONSUME_QUEUE, f". Without it, {BY_LOG}")
        return RocksOrigin(found.folder, found.commit_log, path, **found.kinds)
    return AtRestOrigin(found.folder, found.commit_log, **found.kinds)


def take_at_rest(root: Folder) -> Snapshot:
    """Return what the queues of the store at ``root`` hold. Raises as ``open_at_rest``."""
    with closing(open_at_rest(root).bounds()) as source:
        return source.snapshot()
