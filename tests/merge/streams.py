"""Streams of changes of one table as a database would send them, and the table at their end."""

import random
from dataclasses import dataclass, field
from typing import Any

from mqstore.merge.register import Rank, RowKey
from mqstore.merge.table_merge import KeyChange

COLUMNS = ("qty", "note", "doc")
Row = dict[str, Any]
Event = KeyChange | Rank
"""A change of a key, or the rank of a TRUNCATE."""


@dataclass
class Stream:
    """A table that is changed; ``queues`` are the messages as the producer spreads them by key.

    is_partial: an update does not tell a value of ``doc`` that it did not change, nor does the
    upsert of a changed key, and the delete of one has no image: as PostgreSQL with TOAST.
    Then a key becomes another one that no row had. is_reborn: a key that became another one may be
    born again.
    """

    rng: random.Random
    is_partial: bool
    is_reborn: bool
    truncates: bool
    rows: dict[RowKey, Row] = field(default_factory=dict)
    queues: list[list[Event]] = field(default_factory=lambda: [[], [], []])
    _position: int = 0
    _gone: set[RowKey] = field(default_factory=set)
    _used: set[RowKey] = field(default_factory=set)

    def run(self, changes: int, keys: int) -> None:
        for _ in range(changes):
            self._position += 1
            key = (self.rng.randrange(keys),)
            if self.truncates and self.rng.random() < 0.02:
                self.rows.clear()
                self.queues[0].append(self._rank(0))
            elif key not in self.rows:
                if self.is_reborn or key not in self._gone:
                    self._put(key, dict.fromkeys(COLUMNS, self._position))
            elif (chance := self.rng.random()) < 0.5:
                self._update(key)
            elif chance < 0.75:
                del self.rows[key]
                self._send(KeyChange(key, self._rank(0)))
            else:
                self._move(key, keys)

    def _rank(self, last: int) -> Rank:
        return (0, 1, self._position, 0, last)

    def _send(self, change: KeyChange) -> None:
        self.queues[change.key[0] % 3].append(change)

    def _put(self, key: RowKey, row: Row, **more: Any) -> None:
        self.rows[key] = row
        self._used.add(key)
        sent = {
            name: value for name, value in row.items() if name not in more.get("unavailable", ())
        }
        self._send(KeyChange(key, self._rank(1), sent, **more))

    def _update(self, key: RowKey) -> None:
        row = {**self.rows[key], "qty": self._position}
        if self.rng.random() < 0.5:
            self._put(key, {**row, "doc": self._position})
        else:
            self._put(key, row, unavailable=("doc",) if self.is_partial else ())

    def _move(self, key: RowKey, keys: int) -> None:
        other = (self.rng.randrange(4 * keys),)
        if other in self.rows or (self.is_partial and other in self._used):
            return
        self._gone.add(key)
        row = self.rows.pop(key)
        to = other if self.is_partial else None
        self._send(KeyChange(key, self._rank(0), moved_to=to))
        unknown = ("doc",) if self.is_partial else ()
        self._put(other, dict(row), unavailable=unknown, moved_from=key)

    def interleaved(self, replays: int) -> list[Event]:
        """Every queue in its own order, read at random speeds; parts are sent once more."""
        queues = [list(queue) for queue in self.queues]
        for queue in queues:
            for _ in range(replays if queue else 0):
                end = self.rng.randrange(len(queue)) + 1
                begin = max(0, end - self.rng.randrange(1, 30))
                queue[end:end] = queue[begin:end]
        events: list[Event] = []
        while queues := [queue for queue in queues if queue]:
            queue = self.rng.choice(queues)
            number = self.rng.randint(1, 20)
            events += queue[:number]
            del queue[:number]
        return events

    def shuffled(self) -> list[Event]:
        """Every message at a random place, some of them twice."""
        events = [event for queue in self.queues for event in queue]
        events += self.rng.choices(events, k=len(events) // 4)
        self.rng.shuffle(events)
        return events
