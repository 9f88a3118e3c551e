"""Counts the open messages of POP groups in one queue: those before the groups' starts.

They lie anywhere, with holes between them, and each group has its own. A message that is open for
several groups is read once.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final, TypeAlias

import numpy as np
from numpy.typing import NDArray

from mqstore.backlog.items import BacklogItem
from mqstore.backlog.tally import NONE
from mqstore.format.arrays import Int64s, Mask, Span
from mqstore.read.source import RecordSource
from mqstore.read.units import UnitBatch

_READ_OVER: Final = 1_024
"""Units between two open messages that are read with them: less than a request costs."""

_Sums: TypeAlias = tuple[Int64s, Int64s, Int64s, Int64s]


@dataclass(slots=True)
class OpenMessages:
    """n places, distinct and ascending, and what is there; m pairs of an item and a place.

    ``item`` and ``place`` are the pairs, by item: int64[m] each. ``keys`` and ``bytes`` are those
    of the message at each place; ``there`` tells whether one was found.
    """

    places: Int64s
    item: Int64s
    place: Int64s
    keys: Int64s
    bytes: Int64s
    there: Mask

    @classmethod
    def of(cls, items: Sequence[BacklogItem]) -> "OpenMessages":
        """Return the open messages of items of one queue, none of which is counted."""
        found = [np.empty(0, np.int64) if i.popped is None else i.popped.open for i in items]
        item = np.repeat(np.arange(len(items)), [len(one) for one in found])
        every = np.concatenate(found) if found else np.empty(0, np.int64)
        places, place = np.unique(every, return_inverse=True)
        zeros = np.zeros(len(places), np.int64)
        return cls(places, item, place, zeros, zeros.copy(), zeros.astype(np.bool_))

    @property
    def first(self) -> int:
        """The first place; NONE without any."""
        return int(self.places[0]) if len(self.places) else NONE

    def runs(self) -> list[Span]:
        """Return ranges of queue offsets that have all places, and not much else."""
        if not len(self.places):
            return []
        begins = np.flatnonzero(np.diff(self.places, prepend=-_READ_OVER - 1) > _READ_OVER)
        ends = np.append(begins[1:], len(self.places)) - 1
        spans = zip(self.places[begins].tolist(), self.places[ends].tolist(), strict=True)
        return [(start, last + 1) for start, last in spans]

    def units(self, source: RecordSource, item: BacklogItem, most: int) -> Iterator[UnitBatch]:
        """Yield the units at the places, of the queue of ``item``; at most ``most`` at a time."""
        for start, end in self.runs():
            for units in source.units((item.topic, item.queue_id), start, end, most):
                found = self.among(units)
                if len(found):
                    yield found

    def among(self, units: UnitBatch) -> UnitBatch:
        """Return those of ``units`` that are at the places."""
        return units.take(np.flatnonzero(np.isin(units.positions.queue_offsets, self.places)))

    def add(self, units: UnitBatch, keys: NDArray[np.intp]) -> None:
        """Note units that are ``among`` the places; ``keys[i]`` is that of unit i."""
        rows = np.searchsorted(self.places, units.positions.queue_offsets)
        self.keys[rows], self.bytes[rows], self.there[rows] = keys, units.record_bytes, True

    def fill(self, sizes: Sequence[int]) -> None:
        """Note under key 0 what was not added; ``sizes`` are about the bytes of each of ``runs``.

        The bytes are spread evenly over a run.
        """
        for (start, end), size in zip(self.runs(), sizes, strict=True):
            rows = slice(*np.searchsorted(self.places, [start, end]).tolist())
            missing = ~self.there[rows]
            self.bytes[rows] = np.where(missing, size // (end - start), self.bytes[rows])
        self.there[:] = True

    def add_to(self, items: Int64s, passes: Mask | None, amounts: _Sums) -> None:
        """Add the open messages of ``items`` to their bytes, matching, their bytes, their first.

        ``passes`` tells for each key whether its messages match; None: all do, also those that
        were not found.
        """
        sizes, matching, matching_sizes, first = amounts
        chosen = np.isin(self.item, items)
        if passes is None:
            passes = np.ones(int(self.keys.max()) + 1, np.bool_)
        else:
            chosen &= self.there[self.place]
        item, place = self.item[chosen], self.place[chosen]
        np.add.at(sizes, item, self.bytes[place])
        passed = passes[self.keys[place]]
        item, place = item[passed], place[passed]
        np.add.at(matching, item, 1)
        np.add.at(matching_sizes, item, self.bytes[place])
        np.minimum.at(first, item, self.places[place])

    def add_by_key(self, number: int, found: tuple[Int64s, Int64s, Int64s]) -> None:
        """Add the open messages of item ``number`` to counts, bytes and first by key."""
        counts, sizes, first = found
        start, end = np.searchsorted(self.item, [number, number + 1])
        place = self.place[start:end]
        place = place[self.there[place]]
        np.add.at(counts, self.keys[place], 1)
        np.add.at(sizes, self.keys[place], self.bytes[place])
        np.minimum.at(first, self.keys[place], self.places[place])
