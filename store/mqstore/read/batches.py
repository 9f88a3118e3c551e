"""Units of batch ConsumeQueues among others: their records hold several messages each."""

from collections.abc import Iterator, Set
from itertools import pairwise
from typing import Final

import numpy as np

from mqstore.codec.decode import QueuePositions
from mqstore.format.arrays import Mask
from mqstore.format.batch_consume_queue import NO_HASH
from mqstore.read.units import UnitBatch

AROUND_BYTES: Final = 160
"""About what a message gets around it that is not in its batch: the header and the topic."""


def rows_of_batches(units: UnitBatch, topics: Set[str]) -> Mask:
    """Tell which units are of queues of ``topics``, those of queue.type=BatchCQ."""
    if not topics:
        return np.zeros(len(units), np.bool_)
    positions = units.positions
    chosen = np.array([topic in topics for topic, _, _ in positions.queues], np.bool_)
    found: Mask = chosen[positions.queue]
    return found


def holds_batches(units: UnitBatch, topics: Set[str]) -> bool:
    """Tell whether units, all of one kind, are of such queues."""
    return bool(rows_of_batches(units.take(slice(0, 1)), topics).any())


def of_one_kind(units: UnitBatch, topics: Set[str], *, in_order: bool) -> Iterator[UnitBatch]:
    """Yield the units of such queues and the others apart.

    Those of such queues get the tagsCode that their unit on disk has. ``in_order``: nothing
    changes its place; else only within a queue.
    """
    found = rows_of_batches(units, topics)
    if not found.any():
        yield units
        return
    if in_order:
        steps = np.flatnonzero(found[1:] != found[:-1]) + 1
        edges = [0, *steps.tolist(), len(units)]
        parts = [np.arange(low, high) for low, high in pairwise(edges)]
    else:
        parts = [rows for rows in (np.flatnonzero(found), np.flatnonzero(~found)) if len(rows)]
    for rows in parts:
        part = units.take(rows)
        yield _as_on_disk(part) if found[rows[0]] else part


def _as_on_disk(units: UnitBatch) -> UnitBatch:
    at = units.positions
    positions = QueuePositions(at.queues, at.queue, at.queue_offsets, at.tags_codes - NO_HASH)
    return UnitBatch(units.physical_offsets, units.sizes, positions)
