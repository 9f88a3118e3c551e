"""The state of one key of a table, and what a change does to it, in whatever order changes come.

A change has a sequence, which grows in the source. A row has the sequence of its last change; at an
equal sequence an upsert beats a delete, as a changed key gives both. A deleted key stays, as a
tombstone with its sequence, so that an older change cannot bring it back.

A change may not know some columns (unchanged TOAST of PostgreSQL). Such a column is pending: its
value is of an older change, or of the row of another key that became this one. So it has a path of
its own, which says how late its value is. The greatest path wins, and no path is lost before a
change that knows the column replaces it; so the result does not depend on the order.
"""

from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, TypeAlias

RowKey: TypeAlias = tuple[Any, ...]
Rank: TypeAlias = tuple[int, ...]
"""(epoch, file, position, row, is no delete); a part that is null is -1, which sorts first."""
ValuePath: TypeAlias = tuple[Rank, ...]
"""How late the value of a column is: the rank of its change and ``KNOWN``; of a value that came
with a changed key the rank of that change, and the path that the value had under the old key. The
rank alone is a value that is still to come from the old key."""
KNOWN: Final[Rank] = (1 << 70,)
"""Greater than every rank: a value of the change itself beats one that came from the old key."""
MOST_MOVES: Final = 16
"""How often a key may become another one before the first time is forgotten."""


@dataclass(slots=True)
class Register:
    """The state of a key.

    rank: of the last change; () if there is none yet, only values that wait for one.
    base: the row that has the values of all columns that are not in ``pending``; None: all null.
    pending: column to the path of its value, and the row that has it.
    moves: ranks of the changes that made this key another one, and the other key.
    source_time_us: of the last change.
    """

    rank: Rank = ()
    base: Any = None
    pending: dict[str, tuple[ValuePath, Any]] = field(default_factory=dict)
    moves: list[tuple[Rank, RowKey]] = field(default_factory=list)
    source_time_us: int | None = None

    @property
    def is_deleted(self) -> bool:
        """Whether the table has no row of the key."""
        return not self.rank or not self.rank[-1]

    def value_of(self, column: str) -> tuple[ValuePath, Any]:
        """Return the path of a column's value and the row that has it."""
        default: tuple[ValuePath, Any] = (
            ((self.rank, KNOWN), self.base) if self.rank else ((), None)
        )
        return self.pending.get(column, default)

    def waiting(self) -> list[str]:
        """Return the columns whose value has not come."""
        return [
            column for column, (path, _) in self.pending.items() if not path or path[-1] != KNOWN
        ]


@dataclass(frozen=True, slots=True)
class KnownValues:
    """What a change says of columns: a row, or None where all are null; some are not known."""

    path: ValuePath
    row: Any
    unknown: Collection[str] = ()


def upsert(register: Register, values: KnownValues, *, is_moved: bool) -> bool:
    """Apply an upsert; return whether the state is another one.

    ``is_moved``: the key was another one before, so what the upsert does not know is there.
    """
    rank = values.path[0]
    if register.rank and rank <= register.rank:
        changed = fill(register, values)
        if is_moved:
            to_come = KnownValues((rank,), None)
            changed |= fill(register, to_come, values.unknown)
        return changed
    pending = {column: late for column, late in register.pending.items() if late[0] > values.path}
    for column in values.unknown:
        path, row = register.value_of(column)
        pending[column] = ((rank,), None) if is_moved and path < (rank,) else (path, row)
    register.rank, register.base, register.pending = rank, values.row, pending
    return True


def fill(register: Register, values: KnownValues, columns: Collection[str] | None = None) -> bool:
    """Set the pending columns that values are later for; return whether there was one."""
    changed = False
    for column in list(register.pending) if columns is None else columns:
        current = register.pending.get(column)
        if current and current[0] < values.path and column not in values.unknown:
            register.pending[column] = (values.path, values.row)
            changed = True
    return changed


def delete(register: Register, rank: Rank) -> bool:
    """Apply a delete; return whether the state is another one."""
    if register.rank and rank <= register.rank:
        return fill(register, KnownValues((rank, KNOWN), None))
    path: ValuePath = (rank, KNOWN)
    later = {column: value for column, value in register.pending.items() if value[0] > path}
    register.rank, register.base, register.pending = rank, None, later
    return True


def move_away(register: Register, rank: Rank, other: RowKey, columns: Sequence[str]) -> bool:
    """Apply the delete of a key that became another one, which needs what the row had.

    ``columns`` are those of the table, without its key. The values stay, for changes that come
    late. Returns whether the state is another one.
    """
    move = (rank, other)
    changed = move not in register.moves
    if changed:
        register.moves = sorted([*register.moves, move], key=lambda one: one[0])[-MOST_MOVES:]
    if register.rank and rank <= register.rank:
        return changed
    register.pending = {column: register.value_of(column) for column in columns}
    register.rank, register.base = rank, None
    return True


def carried(
    register: Register, rank: Rank, columns: Sequence[str]
) -> Iterator[tuple[str, KnownValues]]:
    """Yield what a row had when its key became another one: each column as the other key has it."""
    for column in columns:
        path, row = register.value_of(column)
        if path and path[0] < rank:
            yield column, KnownValues((moved_rank(rank), *path), row)


def receive(register: Register, column: str, values: KnownValues) -> bool:
    """Take the value of a column that came with a changed key; return whether it is new."""
    current, _ = register.value_of(column)
    is_open = column in register.pending or register.rank < values.path[0]
    if not is_open or current >= values.path:
        return False
    register.pending[column] = (values.path, values.row)
    return True


def moved_rank(rank: Rank) -> Rank:
    """Return the rank of the upsert that belongs to the delete of a changed key."""
    return (*rank[:-1], 1)
