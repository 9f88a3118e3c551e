"""Units of several queues, put in the order of the log: what one pass over it reads.

The messages of a topic's queues lie side by side in the CommitLog. Read queue by queue, the
same bytes are fetched once for each; merged by physical offset, once for all. Within a queue
the order stays as it is, whatever places damaged units claim.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mqstore.arrays import Int64s
from mqstore.codec.decode import QueuePositions
from mqstore.files.log.commit_log import CommitLog


@dataclass(frozen=True, slots=True)
class UnitBatch:
    """Units to fetch: where their records lie, and where they come from."""

    physical_offsets: Int64s
    sizes: Int64s
    source: QueuePositions

    def __len__(self) -> int:
        return len(self.sizes)

    def take(self, rows: "NDArray[Any] | slice") -> "UnitBatch":
        """Return those rows only."""
        return UnitBatch(self.physical_offsets[rows], self.sizes[rows], self.source.take(rows))


def join(parts: Sequence[UnitBatch]) -> UnitBatch:
    """Return the units of one chunk after another, of the same list of queues."""
    if len(parts) == 1:
        return parts[0]
    sources = [part.source for part in parts]
    return UnitBatch(
        np.concatenate([part.physical_offsets for part in parts]),
        np.concatenate([part.sizes for part in parts]),
        QueuePositions(
            sources[0].queues,
            np.concatenate([source.queue for source in sources]),
            np.concatenate([source.queue_offsets for source in sources]),
            np.concatenate([source.tags_codes for source in sources]),
        ),
    )


def in_log_order(
    queues: Sequence[Iterator[UnitBatch]], log: CommitLog, few: int
) -> Iterator[UnitBatch]:
    """Merge the units of several queues by their place in ``log``.

    A queue that has less than ``few`` units at hand is read on: what lies behind the last unit
    at hand of any queue has to wait for that one.
    """
    if len(queues) == 1:
        yield from queues[0]
        return
    lanes = [_Lane(queue, log) for queue in queues]
    while True:
        for lane in lanes:
            lane.fill(few)
        lanes = [lane for lane in lanes if len(lane.places)]
        if not lanes:
            return
        reach = min(int(lane.places[-1]) for lane in lanes)
        places, heads = zip(*(lane.take_up_to(reach) for lane in lanes), strict=True)
        order = np.argsort(np.concatenate(places), kind="stable")
        yield join(heads).take(order)


class _Lane:
    """What is at hand of one queue: its units, and ascending places to merge them by."""

    def __init__(self, queue: Iterator[UnitBatch], log: CommitLog) -> None:
        self._queue = queue
        self._log = log
        self._units: list[UnitBatch] = []
        self._last = 0
        self.places: Int64s = np.empty(0, np.int64)

    def fill(self, few: int) -> None:
        """Read on if fewer than ``few`` units are at hand."""
        if len(self.places) >= few:
            return
        more = next(self._queue, None)
        if more is None:
            return
        # A unit that points nowhere, or back, keeps its turn: behind the one before it.
        held = self._log.holds(more.physical_offsets, more.sizes)
        places = np.where(held, more.physical_offsets, 0)
        places = np.maximum.accumulate(np.maximum(places, self._last))
        self._last = int(places[-1])
        self.places = np.concatenate((self.places, places))
        self._units.append(more)

    def take_up_to(self, reach: int) -> tuple[Int64s, UnitBatch]:
        """Take off the units whose place is at most ``reach``, which may be none."""
        count = int(np.searchsorted(self.places, reach, side="right"))
        places, self.places = self.places[:count], self.places[count:]
        units = join(self._units)
        self._units = [units.take(slice(count, None))] if count < len(units) else []
        return places, units.take(slice(0, count))
