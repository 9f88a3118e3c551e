"""Messages of one queue, counted by segment and key in one pass. Pure arithmetic.

Many groups stand in one queue at different offsets. Their distinct starts cut the queue into
segments; each unit is counted once, in its segment, under its key (a tag, a hash, or nothing).
What lies behind a start is then the sum of its segment and all later ones.
"""

from typing import Final

import numpy as np
from numpy.typing import NDArray

from mqstore.format.arrays import Int64s, Mask
from mqstore.read.units import UnitBatch

NONE: Final = np.iinfo(np.int64).max


class Tally:
    """Counts, bytes and the first unit of each (segment, key): int64[segments, keys].

    ``starts`` ascend and are distinct. Batches are added in the order of the queue.
    """

    def __init__(self, starts: Int64s) -> None:
        self.starts = starts
        rows = len(starts)
        self.counts = np.zeros((rows, 0), np.int64)
        self.bytes = np.zeros((rows, 0), np.int64)
        self.first = np.full((rows, 0), NONE, np.int64)
        self._noted: list[tuple[Int64s, Int64s, Int64s]] = []

    def add(self, units: UnitBatch, keys: NDArray[np.intp], key_count: int) -> None:
        """Count ``units``; ``keys[i]`` in [0, key_count) is that of unit i."""
        self.widen(key_count)
        low = max(int(self.starts[0]), units.start) if len(self.starts) else units.end
        if low >= units.end:
            return
        keys, sizes = keys[low - units.start :], units.record_bytes[low - units.start :]
        segment = int(np.searchsorted(self.starts, low, side="right")) - 1
        until = int(np.searchsorted(self.starts, units.end - 1, side="right"))
        cells = keys
        if until - segment > 1:
            edges = np.concatenate(([low], self.starts[segment + 1 : until], [units.end]))
            cells = np.repeat(np.arange(until - segment) * key_count, np.diff(edges)) + keys
        # Only the cells that occur: with a tag a message, a dense table would be all zeros.
        if (until - segment) * key_count > 4 * len(keys):
            used, cells = np.unique(cells, return_inverse=True)
        else:
            used = np.arange((until - segment) * key_count)
        rows, columns = used // key_count + segment, used % key_count
        counts = np.bincount(cells, minlength=len(used))
        self.counts[rows, columns] += counts
        # Sums of floats are exact here: a chunk's bytes are far below 2**53.
        weights = np.bincount(cells, weights=sizes, minlength=len(used))
        self.bytes[rows, columns] += weights.astype(np.int64)
        self._note_first(units, low, cells, (rows, columns), counts > 0)

    def _note_first(
        self,
        units: UnitBatch,
        low: int,
        cells: NDArray[np.intp],
        where: tuple[NDArray[np.intp], NDArray[np.intp]],
        occurs: Mask,
    ) -> None:
        new = np.flatnonzero(occurs & (self.first[where] == NONE))
        if not len(new):
            return
        index = np.zeros(len(occurs), np.int64)
        # Assigned from the last to the first, so that the first stands.
        index[cells[::-1]] = np.arange(len(cells) - 1, -1, -1)
        found = index[new] + low
        self.first[where[0][new], where[1][new]] = found
        self.note(units, found)

    def note(self, units: UnitBatch, queue_offsets: Int64s) -> None:
        """Remember where the records of these queue offsets of ``units`` lie."""
        rows = queue_offsets - units.start
        self._noted.append((queue_offsets, units.physical_offsets[rows], units.sizes[rows]))

    def noted(self, wanted: Int64s) -> tuple[Int64s, Int64s, Int64s]:
        """Return queue offset, physical offset and size of the first and noted units ``wanted``.

        Each once, ascending: int64[n] each.
        """
        empty = np.empty(0, np.int64)
        columns = zip((empty, empty, empty), *self._noted, strict=True)
        found, places, sizes = (np.concatenate(column) for column in columns)
        queue_offsets, rows = np.unique(found, return_index=True)
        chosen = np.isin(queue_offsets, wanted)
        rows = rows[chosen]
        return queue_offsets[chosen], places[rows], sizes[rows]

    def note_all(self, units: UnitBatch) -> None:
        """Remember where the records of ``units`` lie, which need not be a range."""
        places = units.positions.queue_offsets
        self._noted.append((places, units.physical_offsets, units.sizes))

    def note_places(self, queue_offsets: Int64s) -> None:
        """As ``note``, where no more is known than that a message is there."""
        nowhere = np.full(len(queue_offsets), -1)
        self._noted.append((queue_offsets, nowhere, np.zeros_like(nowhere)))

    def add_some(self, units: UnitBatch, keys: NDArray[np.intp], key_count: int) -> None:
        """Count units that are not all of their range; they ascend."""
        self.widen(key_count)
        places = units.positions.queue_offsets
        inside = places >= self.starts[0] if len(self.starts) else np.zeros(len(places), np.bool_)
        places, sizes = places[inside], units.record_bytes[inside]
        cells = np.searchsorted(self.starts, places, side="right") - 1, keys[inside]
        np.add.at(self.counts, cells, 1)
        np.add.at(self.bytes, cells, sizes)
        np.minimum.at(self.first, cells, places)
        self.note_places(np.unique(places[self.first[cells] == places]))

    def fill(self, end: int, total: int) -> None:
        """Count under the first key what was not added, up to ``end``.

        From the first start on there are about ``total`` bytes: they are spread evenly.
        """
        self.widen(1)
        spans = np.diff(np.append(self.starts, end))
        if not len(spans):
            return
        missing = spans - self.counts.sum(axis=1)
        spread = (spans * (total / int(spans.sum()))).astype(np.int64)
        rest = np.maximum(spread - self.bytes.sum(axis=1), 0)
        self.bytes[:, 0] += np.where(missing > 0, rest, 0)
        # What is missing begins a segment if nothing that was added does.
        begins = np.flatnonzero((missing > 0) & (self.first.min(axis=1) != self.starts))
        self.counts[:, 0] += missing
        self.first[begins, 0] = self.starts[begins]
        self.note_places(self.starts[begins])

    def accumulate(self) -> None:
        """Turn each segment's row into what lies behind its start, up to the queue's end."""
        for table, ufunc in (
            (self.counts, np.add),
            (self.bytes, np.add),
            (self.first, np.minimum),
        ):
            table[::-1] = ufunc.accumulate(table[::-1], axis=0)

    def widen(self, key_count: int) -> None:
        """Make room for that many keys."""
        more = key_count - self.counts.shape[1]
        if more > 0:
            # By half as much again: a new tag in every chunk must not copy everything each time.
            more = max(more, self.counts.shape[1] // 2)
            pad = ((0, 0), (0, more))
            self.counts = np.pad(self.counts, pad)
            self.bytes = np.pad(self.bytes, pad)
            self.first = np.pad(self.first, pad, constant_values=NONE)
