"""The records of a store in a directory, by units that its CommitLog implies."""

from collections.abc import Callable, Iterator, Sequence
from itertools import pairwise

import numpy as np

from mqstore.codec.decode import QueuePositions
from mqstore.derive.log_queues import LogQueues
from mqstore.derive.log_sections import LogUnits
from mqstore.errors import CorruptStoreError
from mqstore.files.store import Store
from mqstore.format.arrays import Span, TopicQueue
from mqstore.read.settings import ScanSettings
from mqstore.read.source import Fetched, QueueSlice
from mqstore.read.store_records import StoreRecords
from mqstore.read.units import CHUNK_UNITS, HoleReport, QueueName, UnitBatch, join


class LogUnitReader:
    """A UnitReader over the units of a CommitLog. Gaps of a queue are no holes to report."""

    def __init__(self, queues: LogQueues) -> None:
        self._queues = queues

    def read(
        self,
        queue: TopicQueue,
        bounds: Span,
        most: int = CHUNK_UNITS,
        *,
        names: Sequence[QueueName] = (),
        number: int = 0,
        report: HoleReport | None = None,
    ) -> Iterator[UnitBatch]:
        """Yield the units of queue offsets ``bounds``, half-open; two may have the same one."""
        names = names or [(*queue, "")]
        start, end = bounds
        expired = self._queues.forgotten(queue, start, end)
        if expired and report is not None:
            report(start, start + expired, FileNotFoundError("the log's files expired"))
        for units in self._queues.units(queue, *bounds, most):
            yield _batch(units, names, number)

    def files(self, queue: TopicQueue) -> list[Span]:
        """Return the queue offsets [start, end) that stretches of the log have, joined."""
        found: list[tuple[int, int]] = []
        for totals in sorted(self._queues.totals(queue), key=lambda one: one.low):
            start, end = totals.low, totals.high + 1
            if found and start <= found[-1][1]:
                start, end = found[-1][0], max(end, found.pop()[1])
            found.append((start, end))
        return found


class LogRecords(StoreRecords):
    """A RecordSource over the units of a CommitLog and its records."""

    def __init__(
        self, store: Store, queues: LogQueues, damages: frozenset[int] = frozenset()
    ) -> None:
        """``damages`` of the log, by physical offset, are known to the reader."""
        super().__init__(store, LogUnitReader(queues))
        self._queues = queues
        self._damages = damages

    def fetched(
        self,
        slices: Sequence[QueueSlice],
        settings: ScanSettings,
        report: Callable[[CorruptStoreError], None],
    ) -> Iterator[Fetched]:
        """Yield the units; report damage that this process's walk met and the plan did not."""
        for damage in self._queues.damages():
            if damage.start not in self._damages:
                report(self.corrupt(damage.start, damage.reason))
        yield from super().fetched(slices, settings, report)

    def close(self) -> None:
        """Close the store, and the cached units."""
        super().close()
        self._queues.close()

    def corrupt(self, physical_offset: int, reason: str) -> CorruptStoreError:
        """Return the error that names the CommitLog file and the position in it."""
        return self._log.log.corrupt(physical_offset, reason)

    def units(
        self, queue: TopicQueue, start: int, end: int, most: int = CHUNK_UNITS
    ) -> Iterator[UnitBatch]:
        """Yield the units in batches whose queue offsets follow each other without a gap."""
        for batch in super().units(queue, start, end, most):
            steps = np.flatnonzero(np.diff(batch.positions.queue_offsets) != 1) + 1
            edges = [0, *steps.tolist(), len(batch)]
            for low, high in pairwise(edges):
                yield batch.take(slice(low, high))

    def at(self, queue: TopicQueue, queue_offsets: Sequence[int]) -> UnitBatch | None:
        """Return the units of those queue offsets: of several with one, the first in the log."""
        parts = []
        for place in queue_offsets:
            part = next(super().units(queue, place, place + 1, 1), None)
            if part is None:
                return None
            parts.append(part)
        return join(parts)


def _batch(units: LogUnits, names: Sequence[QueueName], number: int) -> UnitBatch:
    positions = QueuePositions(
        names, np.full(len(units), number), units.queue_offsets, units.tags_codes
    )
    return UnitBatch(units.physical_offsets, units.sizes, positions)
