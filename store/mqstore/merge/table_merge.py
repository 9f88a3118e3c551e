"""Applies changes to the keys of one table."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from heapq import heappop, heappush
from typing import Any, Final

from mqstore.merge.register import (
    KNOWN,
    KnownValues,
    Rank,
    Register,
    RowKey,
    carried,
    delete,
    move_away,
    moved_rank,
    receive,
    upsert,
)

ROW_UPSERTED: Final = "upserted"
ROW_DELETED: Final = "deleted"
ROW_STALE: Final = "stale"


@dataclass(frozen=True, slots=True)
class KeyChange:
    """One change of one key.

    rank: with 1 as its last part for an upsert, 0 for a delete. row: what has the values; None for
    a delete. unavailable: columns that the change does not know. moved_from: the key was another
    one. moved_to: the key became this one, and its row has what the change of the other key may
    lack.
    """

    key: RowKey
    rank: Rank
    row: Any = None
    unavailable: tuple[str, ...] = ()
    moved_from: RowKey | None = None
    moved_to: RowKey | None = None
    source_time_us: int | None = None


@dataclass(slots=True)
class TableMerge:
    """The keys of a table that a batch of changes touches.

    columns: those of the table, without its key. floor: the rank of the last TRUNCATE: what is
    older is dead, also if it comes later. registers: the state of each key. changed: the keys whose
    state is another one.
    """

    columns: Sequence[str]
    floor: Rank = ()
    registers: dict[RowKey, Register] = field(default_factory=dict)
    changed: set[RowKey] = field(default_factory=set)

    def truncate(self, rank: Rank) -> None:
        """Delete what is older; the caller gives all keys that have a row or a pending column."""
        self.floor = max(self.floor, rank)
        for key, register in self.registers.items():
            if delete(register, self.floor):
                self.changed.add(key)

    def apply(self, changes: Iterable[KeyChange]) -> dict[str, int]:
        """Apply changes, in any order; return how many had which effect."""
        effects = dict.fromkeys((ROW_UPSERTED, ROW_DELETED, ROW_STALE), 0)
        for change in changes:
            effects[self._apply(change)] += 1
        return effects

    def _apply(self, change: KeyChange) -> str:
        if change.rank <= self.floor:
            return ROW_STALE
        register = self.registers.setdefault(change.key, Register())
        is_last = not register.rank or change.rank > register.rank
        if change.rank[-1]:
            values = KnownValues((change.rank, KNOWN), change.row, change.unavailable)
            changed = upsert(register, values, is_moved=change.moved_from is not None)
            known_columns = [column for column in self.columns if column not in change.unavailable]
            self._hand_on(register, values, known_columns)
            if change.moved_from is not None:  # To come from the other key.
                to_come = KnownValues((change.rank,), None)
                self._hand_on(register, to_come, change.unavailable)
        elif change.moved_to is not None:
            changed = move_away(register, change.rank, change.moved_to, self.columns)
            self._carry(register, change.rank, change.moved_to)
        else:
            changed = delete(register, change.rank)
            self._hand_on(register, KnownValues((change.rank, KNOWN), None), self.columns)
        if changed:
            self.changed.add(change.key)
        if not is_last:
            return ROW_STALE
        register.source_time_us = change.source_time_us
        return ROW_UPSERTED if change.rank[-1] else ROW_DELETED

    def _carry(self, register: Register, rank: Rank, other: RowKey) -> None:
        """Give the other key what the row of this one had."""
        for column, values in list(carried(register, rank, self.columns)):
            self._receive(other, column, values)

    def _hand_on(self, register: Register, values: KnownValues, columns: Iterable[str]) -> None:
        """Give values that came late to the key that this one became meanwhile."""
        for rank, other in register.moves:
            if values.path[0] < rank:
                later = KnownValues((moved_rank(rank), *values.path), values.row)
                for column in columns:
                    self._receive(other, column, later)

    def _receive(self, key: RowKey, column: str, values: KnownValues) -> None:
        """Take a value that came late, and give it to the keys that its key became afterwards.

        Each move is followed once, in the order of ranks, with the latest value that it carries:
        where keys are swapped again and again, the ways from key to key are too many to follow all.
        """
        latest: dict[tuple[Rank, RowKey, RowKey], KnownValues] = {}
        ranks: list[tuple[Rank, int]] = []
        moves: list[tuple[Rank, RowKey, RowKey]] = []
        while True:
            register = self.registers.setdefault(key, Register())
            if receive(register, column, values):
                self.changed.add(key)
            for rank, other in register.moves:
                move = (rank, key, other)
                if rank <= values.path[0]:
                    continue
                if move not in latest:
                    heappush(ranks, (rank, len(moves)))
                    moves.append(move)
                if move not in latest or latest[move].path < values.path:
                    latest[move] = values
            if not ranks:
                return
            rank, number = heappop(ranks)
            _, _, key = moves[number]
            before = latest[moves[number]]
            values = KnownValues((moved_rank(rank), *before.path), before.row)


def keys_of(changes: Iterable[KeyChange]) -> set[RowKey]:
    """Return the keys whose states changes need, without those that the states name."""
    keys = set()
    for change in changes:
        keys.add(change.key)
        if change.moved_to is not None:
            keys.add(change.moved_to)
    return keys
