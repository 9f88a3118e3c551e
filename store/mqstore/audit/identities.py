"""The messages in which two places differ by their identities, wherever they lie.

Sums over a million finer buckets tell which identities to look at; of those so many at a time as
are a quarter of a million messages are in memory, by 56 bytes each.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

import numpy as np

from mqstore.audit.found import (
    ALTERED,
    DOUBLED,
    NOT_IN_FIRST,
    NOT_IN_SECOND,
    Difference,
    MessagePlace,
)
from mqstore.audit.relation import PlacedQueue
from mqstore.audit.rows import ID_BUCKETS, AuditRule, DigestedRows
from mqstore.audit.sides import Side
from mqstore.format.arrays import Int64s, Mask, UInt64Pairs

_FINE: Final = 2**20
_MOST_IN_MEMORY: Final = 250_000
_SIDES: Final = (0, 1)


def by_identity(
    sides: tuple[Side, Side], rule: AuditRule, parts: Int64s
) -> Iterator[list[Difference]]:
    """Yield differences among the identities of ``parts``, without their ids and fields.

    Raises as ``scan``.
    """
    is_wanted = np.zeros(ID_BUCKETS, np.bool_)
    is_wanted[parts] = True
    if not len(parts):
        return
    for chosen in _groups(*_fine_sums(sides, rule, is_wanted)):
        yield list(Compared.of(sides, rule, is_wanted, chosen).differences())


def _each(
    side: Side, rule: AuditRule, is_wanted: Mask
) -> Iterator[tuple[str, DigestedRows, Int64s, Int64s]]:
    """Yield brokers, their messages, the rows that are wanted, and the fine bucket of each."""
    for broker, part in side.pieces(rule):
        rows = np.flatnonzero(is_wanted[part.parts()])
        fine = part.row.identities[rows, 1] % np.uint64(_FINE)
        yield broker, part, rows, fine.astype(np.int64)


def _fine_sums(sides: tuple[Side, Side], rule: AuditRule, is_wanted: Mask) -> tuple[Mask, Int64s]:
    """Return which fine buckets are unequal, and how many messages each has on both sides."""
    counts, sums = np.zeros((2, _FINE), np.int32), np.zeros((_FINE, 2), np.uint64)
    for number, side in enumerate(sides):
        for _, part, rows, fine in _each(side, rule, is_wanted):
            np.add.at(counts[number], fine, 1)
            change = np.add if number == 0 else np.subtract
            for half in range(2):
                change.at(sums[:, half], fine, part.row.digests[rows, half])
    return (counts[0] != counts[1]) | (sums != 0).any(axis=1), counts.sum(axis=0, dtype=np.int32)


def _groups(unequal: Mask, counts: Int64s) -> Iterator[Mask]:
    """Yield masks of fine buckets, each of at most _MOST_IN_MEMORY messages, or of one bucket."""
    left = np.flatnonzero(unequal)
    while len(left):
        total = np.cumsum(counts[left].astype(np.int64))
        end = max(1, int(np.searchsorted(total, _MOST_IN_MEMORY, side="right")))
        chosen = np.zeros(_FINE, np.bool_)
        chosen[left[:end]] = True
        yield chosen
        left = left[end:]


@dataclass(frozen=True, slots=True)
class Compared:
    """Messages of both sides, by identity: which side, identity, digest, and where each lies."""

    queues: list[PlacedQueue]
    side: Int64s
    keys: UInt64Pairs
    digests: UInt64Pairs
    queue: Int64s
    queue_offsets: Int64s
    stored_ms: Int64s

    @classmethod
    def of(
        cls, sides: tuple[Side, Side], rule: AuditRule, is_wanted: Mask, chosen: Mask
    ) -> "Compared":
        """Return the messages of both sides in chosen fine buckets. Raises as ``scan``."""
        numbers: dict[PlacedQueue, int] = {}
        parts = [_empty()]
        for number, side in enumerate(sides):
            for broker, part, rows, fine in _each(side, rule, is_wanted):
                some = rows[chosen[fine]]
                if not len(some):
                    continue
                names = [(broker, *queue) for queue in part.queues]
                codes = np.array([numbers.setdefault(n, len(numbers)) for n in names], np.int64)
                row = part.row
                parts.append(
                    (
                        np.full(len(some), number, np.int64),
                        row.identities[some],
                        row.digests[some],
                        codes[part.queue[some]],
                        part.queue_offsets[some],
                        row.stored_ms[some],
                    )
                )
        columns = [np.concatenate(column) for column in zip(*parts, strict=True)]
        return cls(list(numbers), *columns)

    def differences(self) -> Iterator[Difference]:
        """Yield how the messages of each identity differ: what both sides have is none."""
        order = np.lexsort(
            (self.side, self.digests[:, 1], self.digests[:, 0], self.keys[:, 1], self.keys[:, 0])
        )
        if not len(order):
            return
        same_id = _begins(self.keys[order])
        same = same_id | _begins(self.digests[order])
        left = order[self._not_on_both(order, same)]
        of_id = np.cumsum(same_id) - 1
        totals = np.stack(
            [np.bincount(of_id[self.side[order] == s], minlength=of_id[-1] + 1) for s in _SIDES]
        )
        identity = np.empty(len(order), np.int64)
        identity[order] = of_id
        rows: dict[int, tuple[list[int], list[int]]] = {}
        for row, number, side in zip(
            left.tolist(), identity[left].tolist(), self.side[left].tolist(), strict=True
        ):
            rows.setdefault(number, ([], []))[side].append(row)
        for number, (here, there) in rows.items():
            yield from self._of_one(here, there, totals[:, number].tolist())

    def _not_on_both(self, order: Int64s, begins: Mask) -> Mask:
        """Tell which of sorted messages are left when pairs of equal ones are taken away."""
        run = np.cumsum(begins) - 1
        starts = np.flatnonzero(begins)
        second = self.side[order]
        seconds = np.bincount(run, second, minlength=len(starts)).astype(np.int64)
        firsts = np.diff(starts, append=len(order)) - seconds
        both = np.minimum(firsts, seconds)[run]
        place = np.arange(len(order)) - starts[run]  # The first side's stand in front.
        place -= np.where(second == 1, firsts[run], 0)
        found: Mask = place >= both
        return found

    def _of_one(self, here: list[int], there: list[int], totals: list[int]) -> Iterator[Difference]:
        both = min(len(here), len(there))
        for one, other in zip(here[:both], there[:both], strict=True):
            yield Difference(ALTERED, self._place(one), self._place(other))
        for one in here[both:]:
            yield Difference(DOUBLED if totals[1] else NOT_IN_SECOND, self._place(one), None)
        for other in there[both:]:
            yield Difference(DOUBLED if totals[0] else NOT_IN_FIRST, None, self._place(other))

    def _place(self, row: int) -> MessagePlace:
        queue = self.queues[int(self.queue[row])]
        return MessagePlace(*queue, int(self.queue_offsets[row]), int(self.stored_ms[row]))


def _empty() -> tuple[Int64s, UInt64Pairs, UInt64Pairs, Int64s, Int64s, Int64s]:
    numbers, pairs = np.zeros(0, np.int64), np.zeros((0, 2), np.uint64)
    return numbers, pairs, pairs, numbers, numbers, numbers


def _begins(sorted_pairs: UInt64Pairs) -> Mask:
    """Tell which of sorted pairs differ from the one in front."""
    begins: Mask = np.ones(len(sorted_pairs), np.bool_)
    begins[1:] = (sorted_pairs[1:] != sorted_pairs[:-1]).any(axis=1)
    return begins
