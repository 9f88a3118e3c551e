"""A store at rest as an origin of messages: all that a store in a directory has, but no future.

Nothing is written to it, and nothing is expected to come: it has no tail, and no stream publishes
its progress there.
"""

from dataclasses import dataclass
from typing import NoReturn

from mqstore.errors import InvalidOptionError
from mqstore.files.read_file import RemoteFolder
from mqstore.files.store_dir import open_dir
from mqstore.read.queues import QueueFilter
from mqstore.read.source import COMMIT_GROUP
from mqstore.read.store_bounds import StoreBounds, StoreOrigin

NO_STREAM = (
    "a store in an object store is at rest, and a stream follows one that grows: read it with "
    "spark.read"
)


@dataclass(frozen=True, slots=True)
class AtRestOrigin(StoreOrigin):
    """A store in an object store; its root and its CommitLog folder are RemoteFolders."""

    def bounds(self, broker_name: str | None = None) -> "AtRestBounds":
        """Open the store to plan a read."""
        return AtRestBounds(self, broker_name)


def open_at_rest(root: RemoteFolder) -> AtRestOrigin:
    """Return the store at ``root``. Raises as ``open_origin``, and UncleanStoreError."""
    found = open_dir(root, in_batches=True)
    return AtRestOrigin(found.root, found.commit_log)


class AtRestBounds(StoreBounds):
    """A BoundsSource over a store at rest."""

    def tail(
        self, chosen: QueueFilter, *, strict: bool = True, fail_on_data_loss: bool = True
    ) -> NoReturn:
        """Raise InvalidOptionError: nothing is appended to it."""
        raise InvalidOptionError("path", self.origin.root, NO_STREAM)

    def claim_group(self, group: str) -> NoReturn:
        """Raise InvalidOptionError: nothing is written to it."""
        raise InvalidOptionError(COMMIT_GROUP, group, NO_STREAM)
