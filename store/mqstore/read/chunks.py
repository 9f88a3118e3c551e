"""Slices of queues to chunks of units: what to fetch together.

A chunk may hold units of many small queues, so that ten thousand queues of ten messages cost
no more than one queue of a hundred thousand.
"""

import logging
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Final, TypeAlias

import numpy as np
from numpy.typing import NDArray

from mqstore.codec.decode import Source
from mqstore.errors import CorruptStoreError, DataLossError
from mqstore.files.commit_log import CommitLog
from mqstore.files.consume_queue import ConsumeQueue, Units
from mqstore.read.corrupt import Damage
from mqstore.read.plan import QueueSlice
from mqstore.read.settings import ScanSettings
from mqstore.read.tags import TagFilter
from mqstore.read.units import units_before_hole

Ints: TypeAlias = NDArray[np.int64]

_LOG = logging.getLogger(__name__)
_BLOCK_UNITS: Final = 32_768  # 640 KiB of ConsumeQueue at a time.


@dataclass(frozen=True, slots=True)
class Chunk:
    """Units to fetch: where their records lie, and where they come from."""

    physical_offsets: Ints
    sizes: Ints
    source: Source

    def take(self, rows: NDArray[Any]) -> "Chunk":
        """Return those rows only."""
        return Chunk(self.physical_offsets[rows], self.sizes[rows], self.source.take(rows))


@dataclass(frozen=True, slots=True)
class _Part:
    queue: int
    queue_offsets: Ints
    units: Units


def chunks(
    slices: Sequence[QueueSlice],
    log: CommitLog,
    tags: TagFilter | None,
    damage: Damage,
    settings: ScanSettings,
) -> Iterator[Chunk]:
    """Yield the units of ``slices`` whose hash may match ``tags``, cut by ``settings``."""
    queues = [(piece.topic, piece.queue_id, piece.broker_name) for piece in slices]
    pending: list[_Part] = []
    rows = held = 0
    most = settings.first_rows
    for part in _parts(slices, log, tags, damage, settings):
        rest = part
        while len(rest.units):
            sizes = _sizes(log, rest.units[: most - rows])
            count = fits(sizes, settings.batch_bytes - held, first=not rows)
            pending.append(_head(rest, count))
            rows += count
            held += int(sizes[:count].sum())
            rest = _tail(rest, count)
            if len(rest.units) or rows >= most or held >= settings.batch_bytes:
                yield _chunk(queues, pending)
                pending, rows, held, most = [], 0, 0, settings.batch_rows
    if pending:
        yield _chunk(queues, pending)


def _parts(
    slices: Sequence[QueueSlice],
    log: CommitLog,
    tags: TagFilter | None,
    damage: Damage,
    settings: ScanSettings,
) -> Iterator[_Part]:
    for number, piece in enumerate(slices):
        queue = ConsumeQueue(piece.root, piece.topic, piece.queue_id)
        start = piece.start
        while start < piece.end:
            end = min(piece.end, start + _BLOCK_UNITS)
            try:
                units = queue.read(start, end)
            except (CorruptStoreError, FileNotFoundError) as error:
                units = units_before_hole(queue, start, end)
                if not len(units):
                    start = _after_hole(queue, piece, start, error, damage, settings)
                    continue
            queue_offsets = np.arange(start, start + len(units))
            start += len(units)
            kept = units["physical_offset"] >= log.low
            if not kept.all():
                _expired(piece, queue_offsets[~kept], log.low, settings)
            if tags is not None:
                kept &= tags.may_match(piece.topic, units["tags_code"].astype(np.int64))
            if kept.all():
                yield _Part(number, queue_offsets, units)
            elif kept.any():
                yield _Part(number, queue_offsets[kept], units[kept])


def _after_hole(
    queue: ConsumeQueue,
    piece: QueueSlice,
    start: int,
    error: CorruptStoreError | FileNotFoundError,
    damage: Damage,
    settings: ScanSettings,
) -> int:
    """Account for ConsumeQueue files that are not there; return where the queue goes on."""
    end = queue.next_file_start(start) or piece.end
    if isinstance(error, CorruptStoreError):
        damage.add_error(error)
    else:
        _expired(piece, np.arange(start, min(end, piece.end)), 0, settings)
    return end


def _expired(piece: QueueSlice, queue_offsets: Ints, low: int, settings: ScanSettings) -> None:
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


def _sizes(log: CommitLog, units: Units) -> Ints:
    """Return the bytes that each unit's record takes; 0 where the log cannot hold such a one."""
    sizes = units["size"].astype(np.int64)
    return np.where(log.holds(units["physical_offset"].astype(np.int64), sizes), sizes, 0)


def fits(sizes: Ints, room: int, *, first: bool) -> int:
    """Return how many records fit into the room left; at least one into an empty chunk."""
    count = int(np.searchsorted(np.cumsum(sizes), room, side="right"))
    return max(count, 1) if first else count


def _head(part: _Part, count: int) -> _Part:
    return _Part(part.queue, part.queue_offsets[:count], part.units[:count])


def _tail(part: _Part, count: int) -> _Part:
    return _Part(part.queue, part.queue_offsets[count:], part.units[count:])


def _chunk(queues: Sequence[tuple[str, int, str]], parts: Sequence[_Part]) -> Chunk:
    units = np.concatenate([part.units for part in parts])
    counts = [len(part.units) for part in parts]
    source = Source(
        queues,
        np.repeat([part.queue for part in parts], counts),
        np.concatenate([part.queue_offsets for part in parts]),
        units["tags_code"].astype(np.int64),
    )
    return Chunk(units["physical_offset"].astype(np.int64), units["size"].astype(np.int64), source)
