"""Slices of queues to chunks of units: what to fetch together.

A chunk may hold units of many small queues, so that ten thousand queues of ten messages cost
no more than one queue of a hundred thousand.
"""

import logging
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np

from mqstore.arrays import Int64s
from mqstore.codec.decode import QueuePositions
from mqstore.errors import CorruptStoreError, DataLossError
from mqstore.files.log.commit_log import CommitLog
from mqstore.files.queue.consume_queue import ConsumeQueue
from mqstore.read.corrupt import Damage
from mqstore.read.log_order import UnitBatch, in_log_order, join
from mqstore.read.plan import QueueSlice
from mqstore.read.settings import ScanSettings
from mqstore.read.tags import TagFilter
from mqstore.read.units import units_before_hole

_LOG = logging.getLogger(__name__)
_LANES: Final = 256  # So many queues are merged at a time.
_BLOCK_UNITS: Final = 32_768  # 640 KiB of ConsumeQueue at a time, but
_LEAST_UNITS: Final = 1_024  # no less than this of each queue that is merged.


@dataclass(frozen=True, slots=True)
class Units:
    """Where units are read from, and what is to become of them."""

    slices: Sequence[QueueSlice]
    log: CommitLog
    tags: TagFilter | None
    damage: Damage
    settings: ScanSettings

    def chunks(self) -> Iterator[UnitBatch]:
        """Yield the units of all slices whose hash may match ``tags``, cut by ``settings``."""
        settings = self.settings
        pending: list[UnitBatch] = []
        rows = held = 0
        most = settings.first_rows
        for part in self._parts():
            grown = np.concatenate(([0], np.cumsum(self._bytes(part))))
            start = 0
            while start < len(part):
                room = settings.batch_bytes - held
                count = min(_fitting(grown, start, room, first=not rows), most - rows)
                pending.append(part.take(slice(start, start + count)))
                rows += count
                held += int(grown[start + count] - grown[start])
                start += count
                if start < len(part) or rows >= most or held >= settings.batch_bytes:
                    yield join(pending)
                    pending, rows, held, most = [], 0, 0, settings.batch_rows
        if pending:
            yield join(pending)

    def _parts(self) -> Iterator[UnitBatch]:
        """Yield the units slice by slice, or merged where the settings say so."""
        queues = [(piece.topic, piece.queue_id, piece.broker_name) for piece in self.slices]
        together = _LANES if self.settings.merged else 1
        for first in range(0, len(self.slices), together):
            numbers = range(first, min(first + together, len(self.slices)))
            block = max(_LEAST_UNITS, _BLOCK_UNITS // len(numbers))
            lanes = [self._of_slice(queues, number, block) for number in numbers]
            yield from in_log_order(lanes, self.log, block // 2)

    def _bytes(self, part: UnitBatch) -> Int64s:
        """Return the bytes of each record; 0 where the log cannot hold such a one."""
        return np.where(self.log.holds(part.physical_offsets, part.sizes), part.sizes, 0)

    def _of_slice(
        self, queues: Sequence[tuple[str, int, str]], number: int, block: int
    ) -> Iterator[UnitBatch]:
        piece, tags, low = self.slices[number], self.tags, self.log.low
        queue = ConsumeQueue(piece.root, piece.topic, piece.queue_id)
        start = piece.start
        while start < piece.end:
            end = min(piece.end, start + block)
            try:
                units = queue.read(start, end)
            except (CorruptStoreError, FileNotFoundError) as error:
                units = units_before_hole(queue, start, end)
                if not len(units):
                    start = self._after_hole(queue, piece, start, error)
                    continue
            queue_offsets = np.arange(start, start + len(units))
            start += len(units)
            source = QueuePositions(
                queues,
                np.full(len(units), number),
                queue_offsets,
                units["tags_code"].astype(np.int64),
            )
            physical_offsets = units["physical_offset"].astype(np.int64)
            part = UnitBatch(physical_offsets, units["size"].astype(np.int64), source)
            kept = physical_offsets >= low
            if not kept.all():
                _expired(piece, queue_offsets[~kept], low, self.settings)
            if tags is not None:
                kept &= tags.may_match(piece.topic, source.tags_codes)
            if kept.all():
                yield part
            elif kept.any():
                yield part.take(kept)

    def _after_hole(
        self,
        queue: ConsumeQueue,
        piece: QueueSlice,
        start: int,
        error: CorruptStoreError | FileNotFoundError,
    ) -> int:
        """Account for ConsumeQueue files that are not there; return where the queue goes on."""
        end = queue.next_file_start(start) or piece.end
        if isinstance(error, CorruptStoreError):
            self.damage.add_error(error)
        else:
            _expired(piece, np.arange(start, min(end, piece.end)), 0, self.settings)
        return end


def _expired(piece: QueueSlice, queue_offsets: Int64s, low: int, settings: ScanSettings) -> None:
    first, last = int(queue_offsets[0]), int(queue_offsets[-1]) + 1
    error = DataLossError(
        f"{piece.topic}/{piece.queue_id} (CommitLog now starts at byte {low})",
        start=first,
        end=last,
        low=last,
        high=piece.end,
    )
    if settings.fail_on_data_loss:
        raise error
    _LOG.warning("%s", error)


def fits(sizes: Int64s, room: int, *, first: bool) -> int:
    """Return how many records fit into the room left; at least one into an empty chunk."""
    return _fitting(np.concatenate(([0], np.cumsum(sizes))), 0, room, first=first)


def _fitting(grown: Int64s, start: int, room: int, *, first: bool) -> int:
    """Return how many from ``start`` on fit: ``grown[i]`` bytes lie before record i."""
    reach = int(np.searchsorted(grown, int(grown[start]) + room, side="right")) - 1
    return max(reach - start, 1 if first else 0)
