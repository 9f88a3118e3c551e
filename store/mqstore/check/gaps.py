"""Check gap units: those that stand for queue offsets whose records were lost.

A broker must go on from them to the next message of the queue, and miss none.
"""

from collections.abc import Iterator
from typing import Final

import numpy as np

from mqstore.derive.queue_units import is_gap
from mqstore.errors import CorruptStoreError
from mqstore.files.log.commit_log import CommitLog
from mqstore.files.queue.units import Units
from mqstore.format.arrays import Mask, Structs
from mqstore.format.consume_queue import UNIT

_CHUNK_UNITS: Final = 50_000
_NOWHERE: Final = 2**63 - 1


def wrong_gaps(log: CommitLog, units: Structs, real: Mask, left: int) -> Iterator[tuple[str, Mask]]:
    """Yield each rule that gap units among ``units`` break, and which of them break it.

    ``real`` marks units of messages; ``left`` is how many units the queue has from the first on.
    """
    gap, places = is_gap(units), units["physical_offset"].astype(np.int64)
    ends = np.array([file.start for file in log.files.files], np.int64) - 1
    misplaced = gap & (places >= log.low) & ~np.isin(places, ends)
    yield "a gap unit that does not end a CommitLog file", misplaced
    yield "a gap unit at the queue's end", gap & (np.arange(len(units)) == left - 1)
    following = np.minimum.accumulate(np.where(real, places, _NOWHERE)[::-1])[::-1]
    yield "a gap unit that hides the message behind it", gap & ~misplaced & (following <= places)


def is_all_gap(queue: Units, start: int, end: int) -> bool:
    """Tell whether the queue has gap units for all queue offsets [start, end)."""
    if not queue.files.low <= start * UNIT.itemsize < end * UNIT.itemsize <= queue.files.high:
        return False
    try:
        return all(
            is_gap(queue.read(first, min(end, first + _CHUNK_UNITS))).all()
            for first in range(start, end, _CHUNK_UNITS)
        )
    except CorruptStoreError:
        return False
