"""Keys that become others again and again: a value that comes late reaches the last of them."""

import random
from typing import Any

import pytest

from mqstore.merge.register import KnownValues, Register, moved_rank, receive
from mqstore.merge.table_merge import KeyChange, TableMerge
from support import soak

COLUMN = "note"


def moved(old: Any, new: Any, at: int) -> list[KeyChange]:
    """A changed key, whose upsert does not know the column."""
    return [
        KeyChange((old,), (0, 1, at, 0, 0), moved_to=(new,)),
        KeyChange((new,), (0, 1, at, 0, 1), row=at, unavailable=(COLUMN,), moved_from=(old,)),
    ]


def of_late_value(moves: list[KeyChange], key: Any) -> TableMerge:
    merge = TableMerge([COLUMN])
    merge.apply(moves)
    merge.apply([KeyChange((key,), (0, 1, 1, 0, 1), row="late")])
    return merge


def test_two_keys_that_are_swapped_many_times_take_no_longer_than_their_moves() -> None:
    moves = [one for n in range(32) for one in moved(n % 2, (n + 1) % 2, 10 * n + 10)]
    merge = of_late_value(moves, 0)
    assert merge.registers[0,].value_of(COLUMN)[1] == "late"


def test_a_value_goes_along_thousands_of_keys() -> None:
    moves = [one for n in range(2_000) for one in moved(n, n + 1, 10 * n + 10)]
    merge = of_late_value(moves, 0)
    assert merge.registers[2_000,].value_of(COLUMN)[1] == "late"


class EachWay(TableMerge):
    """Follows each way from key to key, one after the other."""

    def _receive(self, key: Any, column: str, values: KnownValues) -> None:
        register = self.registers.setdefault(key, Register())
        if receive(register, column, values):
            self.changed.add(key)
        for rank, other in register.moves:
            if values.path[0] < rank:
                path = (moved_rank(rank), *values.path)
                self._receive(other, column, KnownValues(path, values.row))


@pytest.mark.parametrize("seed", range(300))
def test_the_latest_value_of_each_move_is_that_of_all_ways(seed: int) -> None:
    choose = random.Random(f"{soak.SEED} {seed}")
    changes = []
    for at in choose.sample(range(2, 100), 8):
        old, new = choose.sample(range(4), 2)
        changes += moved(old, new, at)
    for _ in range(6):
        key, at = choose.randrange(4), choose.randrange(100)
        known = choose.random() < 0.6
        unknown = () if known else (COLUMN,)
        changes.append(KeyChange((key,), (0, 1, at, 1, 1), row=f"{key} {at}", unavailable=unknown))
    choose.shuffle(changes)
    ours, theirs = TableMerge([COLUMN]), EachWay([COLUMN])
    assert ours.apply(changes) == theirs.apply(changes)
    assert ours.registers == theirs.registers
    assert ours.changed == theirs.changed
