"""The condition of a store for a writer: which processes hold it, and which commit is unfinished.

Nothing is opened that a broker or a writer would notice.
"""

import os
from dataclasses import dataclass

from mqstore.errors import shown
from mqstore.files.base.store_dir import StoreDir
from mqstore.files.lock.processes import holders, is_locked
from mqstore.files.txn import intent
from mqstore.format import names


@dataclass(frozen=True, slots=True)
class Condition:
    """The processes that use a store, and the files that a commit or a crash left."""

    holders: tuple[str, ...]
    """Processes that have the file ``lock``: a broker, or a writer."""
    is_being_written: bool
    """One of our own writers has the store."""
    pending: str | None
    """The commit that is not finished."""
    pending_state: str | None
    """Its state: decided or published."""
    abort: str | None
    """What made the file ``abort``, broker or mqlog; None if there is no such file."""


def look(root: str | os.PathLike[str]) -> Condition:
    """Return the condition of the store at ``root``. Raises CorruptConfigError, OSError."""
    at = os.fspath(root)
    place = StoreDir.at(at)
    found = intent.load(place)
    left = place.is_unclean
    return Condition(
        holders=tuple(str(holder) for holder in holders(f"{at}/{names.LOCK}")),
        is_being_written=is_locked(f"{at}/{names.OURS}/{names.LOCK}"),
        pending=shown(found) if found else None,
        pending_state=found.state if found else None,
        abort=("mqlog" if intent.abort_is_ours(place) else "broker") if left else None,
    )
