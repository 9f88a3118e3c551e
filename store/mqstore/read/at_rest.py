"""A store at rest as an origin of messages: all that a store in a directory has, but no future.

Nothing is written to it, and nothing is expected to come: it has no tail, and no stream publishes
its progress there.
"""

from contextlib import closing
from dataclasses import dataclass

from mqstore.files.base.folder import Folder
from mqstore.files.base.store_dir import open_dir
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


def open_at_rest(root: Folder) -> AtRestOrigin:
    """Return the store at ``root``. Raises as ``open_origin``, and UncleanStoreError."""
    found = open_dir(root, in_batches=True)
    return AtRestOrigin(found.folder, found.commit_log)


def take_at_rest(root: Folder) -> Snapshot:
    """Return what the queues of the store at ``root`` hold. Raises as ``open_at_rest``."""
    with closing(open_at_rest(root).bounds()) as source:
        return source.snapshot()
