"""Messages that expired since a read was planned: an error, or a warning (failOnDataLoss)."""

import logging
from dataclasses import dataclass

import numpy as np

from mqstore.errors import DataLossError
from mqstore.format.arrays import Span, TopicQueue
from mqstore.format.consume_queue import GAP_SIZE
from mqstore.read.units import UnitBatch

_LOG = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Losses:
    """Raises DataLossError for messages that are lost; without ``fails`` it warns of them."""

    fails: bool

    def of_records(self, units: UnitBatch, low: int, high: int | None = None) -> None:
        """Account for those of ``units`` whose records lie before physical offset ``low``.

        ``high`` is where the range of their queue ends; None: of each queue with the last unit.
        """
        gone = (units.physical_offsets < low) & (units.sizes != GAP_SIZE) & (units.sizes != 0)
        if not gone.any():
            return
        positions, why = units.positions, f"CommitLog now starts at byte {low}"
        for number in np.unique(positions.queue[gone]).tolist():
            topic, queue_id, _ = positions.queues[number]
            end = int(positions.queue_offsets[positions.queue == number].max()) + 1
            lost = positions.queue_offsets[gone & (positions.queue == number)]
            span = int(lost.min()), int(lost.max()) + 1
            self.of((topic, queue_id), span, end if high is None else high, why)

    def of(self, queue: TopicQueue, lost: Span, high: int, why: str) -> None:
        """Account for queue offsets [start, end) that are lost of a range up to ``high``."""
        (topic, queue_id), (start, end) = queue, lost
        name = f"{topic}/{queue_id} ({why})"
        error = DataLossError(name, start=start, end=end, low=end, high=high)
        if self.fails:
            raise error
        _LOG.warning("%s", error)
