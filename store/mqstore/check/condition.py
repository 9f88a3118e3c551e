"""In what condition a store is for a writer: who has it, and what a commit left to be finished.

Nothing is opened that a broker or a writer would notice.
"""

import os
from collections.abc import Sequence
from dataclasses import dataclass

from mqstore.errors import shown
from mqstore.files.lock.processes import holders, is_locked
from mqstore.files.safe_open import exists
from mqstore.format import names
from mqstore.txn import intent


@dataclass(frozen=True, slots=True)
class Condition:
    """What ``look`` saw."""

    holders: tuple[str, ...]
    """Processes that have the file ``lock``: a broker, or a writer."""
    is_being_written: bool
    """One of our own writers has the store."""
    pending: str | None
    """The commit that is not finished."""
    pending_state: str | None
    """How far it came: decided or published."""
    abort: str | None
    """Whose the file ``abort`` is, broker or mqlog; None if it is not there."""


def look(root: str | os.PathLike[str]) -> Condition:
    """Return the condition of the store at ``root``. Raises CorruptConfigError, OSError."""
    at = os.fspath(root)
    found = intent.load(at)
    left = exists(at, names.ABORT)
    return Condition(
        holders=_told(f"{at}/{names.LOCK}"),
        is_being_written=is_locked(f"{at}/{names.OURS}/{names.LOCK}"),
        pending=shown(found) if found else None,
        pending_state=found.state if found else None,
        abort=("mqlog" if intent.abort_is_ours(at) else "broker") if left else None,
    )


def _told(path: str) -> tuple[str, ...]:
    found: Sequence[object] = holders(path)
    return tuple(map(str, found))
