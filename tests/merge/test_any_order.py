"""A stream of changes with a sequence ends in the database's table, in whatever order it comes."""

import random
from itertools import pairwise

import pytest

from merge.streams import COLUMNS, Event, Row, Stream
from mqstore.merge.pending_text import pending_text, set_pending
from mqstore.merge.register import Register, RowKey
from mqstore.merge.table_merge import KeyChange, TableMerge
from support import soak

STREAMS = soak.size("merged_streams", check=200, test=1_000, whole=100_000)

KINDS = {
    "whole rows, any order": {"is_partial": False, "is_reborn": True},
    "unknown columns, any order": {"is_partial": True, "is_reborn": False},
    "unknown columns and keys born again, queues in order": {"is_partial": True, "is_reborn": True},
}


def stored(register: Register) -> tuple:
    """What a lake keeps of a state: the row, and the columns of mqlog."""
    values = {}
    for column in COLUMNS:
        _, row = register.value_of(column)
        values[column] = row.get(column) if row else None
    text = pending_text(register, lambda key: [str(part) for part in key])
    return register.rank, values, text


def loaded(rank: tuple, values: Row, text: str | None) -> Register:
    register = Register(rank, values)
    if text is not None:
        set_pending(register, text, values, lambda texts: tuple(map(int, texts)))
    return register


def merged(events: list[Event], rng: random.Random) -> dict[RowKey, tuple]:
    """The stored states after batches of random sizes, each of which loads what it touches."""
    table: dict[RowKey, tuple] = {}
    floor: tuple = ()
    cuts = sorted({0, len(events), *rng.choices(range(len(events) + 1), k=rng.randint(0, 12))})
    for begin, end in pairwise(cuts):
        batch = events[begin:end]
        merge = TableMerge(COLUMNS, floor, {key: loaded(*row) for key, row in table.items()})
        for event in batch:
            if not isinstance(event, KeyChange):
                merge.truncate(event)
        merge.apply(event for event in batch if isinstance(event, KeyChange))
        floor = merge.floor
        for key in merge.changed:
            table[key] = stored(merge.registers[key])
        again = TableMerge(COLUMNS, floor, {key: loaded(*row) for key, row in table.items()})
        again.apply(event for event in batch if isinstance(event, KeyChange))
        assert all(stored(again.registers[key]) == table.get(key) for key in again.changed)
    return table


@pytest.mark.soak
@pytest.mark.parametrize("kind", KINDS)
def test_shuffled_repeated_and_replayed_changes_end_in_the_database_table(kind: str) -> None:
    wrong = []
    streams = max(1, STREAMS // len(KINDS))
    for number in range(streams):
        rng = random.Random(f"{soak.SEED} {kind} {number}")
        stream = Stream(rng, truncates=rng.random() < 0.3, **KINDS[kind])
        stream.run(rng.randint(1, 60), keys=rng.randint(2, 8))
        in_order = kind.endswith("in order") or rng.random() < 0.3
        events = stream.interleaved(replays=3) if in_order else stream.shuffled()
        table = merged(events, rng)
        alive = {key: values for key, (rank, values, _) in table.items() if rank and rank[-1]}
        if alive != stream.rows:
            wrong.append(number)
    assert wrong == []
    soak.tell(f"{streams:,} streams: {kind}")
