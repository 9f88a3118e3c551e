"""The changes of one message, of bounded number and size: no message can fill the memory."""

from collections.abc import Mapping
from typing import Final

from mqstore.changes.change import Change, Values

MOST_CHANGES: Final = 100_000
"""Rows of one message. A row event of MySQL has 8 KiB, or one row, and a packet of Canal 50."""
MOST_CHARACTERS: Final = 256 << 20
"""Characters of the values of one message: 64 times the largest body that a broker takes."""


class Collected:
    """Takes the changes of a message; raises ValueError where they are too many or too large."""

    def __init__(self) -> None:
        self.changes: list[Change] = []
        self._size = 0

    def add(self, change: Change) -> None:
        """Add a change."""
        self.changes.append(change)
        self._size += (
            size_of(change.row)
            + size_of(change.before)
            + size_of(change.types)
            + sum(map(len, change.keys))
        )
        if len(self.changes) > MOST_CHANGES:
            raise ValueError(f"more than {MOST_CHANGES:,} rows in a message")
        if self._size > MOST_CHARACTERS:
            raise ValueError(
                f"the rows of the message have more than {MOST_CHARACTERS:,} characters"
            )


def size_of(values: Values | Mapping[str, str] | None) -> int:
    """Return the characters of names and values."""
    if not values:
        return 0
    return sum(map(len, values)) + sum(map(len, filter(None, values.values())))


def by_key(change: Change) -> list[Change]:
    """Return an update that changed the key as a delete and an upsert, another change as it is.

    The values of a key are compared as texts, those that both images have.
    """
    row, before = change.row, change.before
    if change.op != "update" or row is None or before is None or not change.keys:
        return [change]
    old = {name: before.get(name, row.get(name)) for name in change.keys}
    new = {name: row.get(name) for name in change.keys}
    if old == new:
        return [change]
    gone = Change(
        op="delete",
        database=change.database,
        table=change.table,
        keys=change.keys,
        sequence=change.sequence,
        source_time_us=change.source_time_us,
        transaction=change.transaction,
        before=before,
        moved_to=new,
        types=change.types,
    )
    change.moved_from = old
    return [gone, change]
