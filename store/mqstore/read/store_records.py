"""The records of a store in a directory: units of its ConsumeQueues, then what they point at.

Units are read block by block, those that the tag hash excludes are dropped before any record
is touched, and records are gathered and checked batch by batch. A batch ends at ``batch_rows``
rows or ``batch_bytes`` record bytes, whichever comes first, so memory does not depend on the
size of a queue; only a single message may be larger than the bound.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Final, TypeAlias

import numpy as np
import pyarrow as pa

from mqstore.codec.properties import PropertyBlocks
from mqstore.derive.batch_records import fetch_messages
from mqstore.derive.records import (
    LARGE_BYTES,
    NOT_HERE,
    OF_ANOTHER,
    OUTSIDE,
    FetchedRecords,
    RecordChecks,
    fetch,
    out_of_reach,
)
from mqstore.errors import CorruptStoreError, StoreError
from mqstore.files.base.store_dir import BY_LOG
from mqstore.files.log.commit_log import Block, CommitLog, Scratch
from mqstore.files.store import Store
from mqstore.format.arrays import Int64s, Mask, Span, TopicQueue
from mqstore.format.consume_queue import GAP_SIZE
from mqstore.format.hashing import key_hash
from mqstore.format.index_file import TOPIC_KEY_SEPARATOR
from mqstore.format.message import HARD_RECORD_BYTES
from mqstore.read import heads
from mqstore.read.batches import AROUND_BYTES, holds_batches, of_one_kind, rows_of_batches
from mqstore.read.losses import Losses
from mqstore.read.queues import QueueRange
from mqstore.read.settings import ScanSettings
from mqstore.read.source import Fetched, QueueSlice
from mqstore.read.tags import TagFilter, parse_tags
from mqstore.read.units import (
    CHUNK_UNITS,
    HoleReport,
    QueueName,
    UnitBatch,
    UnitReader,
    cut,
    in_batches,
    in_log_order,
    join,
    read_units,
)

_Report: TypeAlias = Callable[[CorruptStoreError], None]

_OF_UNITS: Final = frozenset({OUTSIDE, NOT_HERE, OF_ANOTHER})
_LANES: Final = 256  # So many queues are merged at a time.
_SHORT_UNITS: Final = 1_000  # read at once, not one by one
_BLOCK_UNITS: Final = 32_768  # 640 KiB of ConsumeQueue at a time, but
_LEAST_UNITS: Final = 1_024  # no less than this of each queue that is merged.


class QueueFiles:
    """A UnitReader over the ConsumeQueues of a store."""

    def __init__(self, store: Store) -> None:
        self._store = store

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
        """Yield the units of a ConsumeQueue: see ``read_units``."""
        found = self._store.queue(*queue)
        return read_units(found, bounds, most, names=names, number=number, report=report)

    def files(self, queue: TopicQueue) -> list[Span]:
        """Return the room of the ConsumeQueue's files."""
        return self._store.queue(*queue).file_ranges()


class StoreRecords:
    """A RecordSource over an opened store."""

    def __init__(self, store: Store, units: UnitReader | None = None) -> None:
        """Take units from ``units``, else from the store's ConsumeQueues."""
        self._store = store
        self._units = units or QueueFiles(store)
        self._batches = frozenset() if units else store.batch_topics
        self._log = _RecordLog(store, self._batches)

    def __enter__(self) -> "StoreRecords":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Close the store."""
        self._store.close()

    @property
    def low(self) -> int:
        """Physical offset of the CommitLog's first byte."""
        return self._log.log.low

    def fetched(
        self, slices: Sequence[QueueSlice], settings: ScanSettings, report: _Report
    ) -> Iterator[Fetched]:
        """Yield the units of ``slices``; with ``settings.merged`` in the order of the log."""
        limits = settings.batch_rows, settings.batch_bytes
        losses = Losses(fails=settings.fail_on_data_loss)
        parts = _SliceUnits(self._log.log, self._units, slices, settings, report).parts()
        errors: list[StoreError] = []
        sound = _until_error(parts, errors)
        for units in in_batches(sound, self._log.weigh, limits, settings.first_rows):
            for part in of_one_kind(units, self._batches, in_order=not settings.merged):
                yield _FromLog(part, self._log, losses)
        if errors:
            raise errors[0]

    def corrupt(self, physical_offset: int, reason: str) -> CorruptStoreError:
        """Return the error that names the CommitLog file and the position in it."""
        if reason in _OF_UNITS:
            reason = f"{reason}. {BY_LOG}"
        return self._log.log.corrupt(physical_offset, reason)

    @property
    def has_cheap_units(self) -> bool:
        """True: a unit has 20 bytes."""
        return True

    def sizes(self, ranges: Sequence[QueueRange]) -> list[int]:
        """Return the sums of the sizes of units."""
        return [sum(int(units.record_bytes.sum()) for units in self.units(*one)) for one in ranges]

    def at(self, queue: TopicQueue, queue_offsets: Sequence[int]) -> UnitBatch | None:
        """Return the units of those queue offsets."""
        first, last = queue_offsets[0], queue_offsets[-1]
        if last - first <= _SHORT_UNITS:
            parts = list(self.units(queue, first, last + 1))
            if sum(map(len, parts)) == last + 1 - first:
                return join(parts).take(np.array(queue_offsets) - first)
        parts = [part for place in queue_offsets for part in self.units(queue, place, place + 1)]
        return join(parts) if len(parts) == len(queue_offsets) else None

    def tagged(
        self,
        queue: QueueRange,
        wanted: TagFilter | None,
        keep: Callable[[Int64s], Mask] | None = None,
    ) -> Iterator[tuple[UnitBatch, pa.StringArray]]:
        """Yield what units tell, with the tags of the records that are left."""
        for units in self.units(*queue):
            # What expired since this was planned is not there any more.
            kept = (units.sizes > 0) & (units.physical_offsets >= self.low)
            if wanted is not None:
                kept &= wanted.may_match(queue[0][0], units.tags_codes)
            if keep is not None:
                kept &= keep(units.tags_codes)
            if kept.any():
                chosen = units.take(kept)
                yield chosen, self._every_tag(chosen)

    def units(
        self, queue: TopicQueue, start: int, end: int, most: int = CHUNK_UNITS
    ) -> Iterator[UnitBatch]:
        """Yield the units of a queue."""
        for batch in self._units.read(queue, (start, end), most):
            yield batch.believable()

    def unit_files(self, queue: TopicQueue) -> list[Span]:
        """Return the room of the queue's files."""
        return self._units.files(queue)

    def store_timestamps(self, units: UnitBatch) -> Int64s:
        """Return storeTimestamps, read without the bodies."""
        return heads.store_timestamps(self._log.log, units.physical_offsets, units.sizes)

    def tags(self, units: UnitBatch) -> Iterator[tuple[Int64s, pa.StringArray]]:
        """Yield TAGS; of a record larger than a page the body is not read, if it is no batch."""
        return self._columns(units, heads.tags_of)

    def properties(self, units: UnitBatch) -> Iterator[tuple[Int64s, pa.MapArray]]:
        """Yield properties, read as those of ``tags``."""
        return self._columns(units, PropertyBlocks.as_map)

    def locate(self, topics: Mapping[int, str]) -> dict[int, heads.LocatedRecord]:
        """Return the records that start at those places and say so themselves."""
        return heads.locate(self._log.log, topics)

    def places_of_key(self, topic: str, key: str) -> list[int]:
        """Return what the IndexFiles have under the hash of the key."""
        wanted = key_hash(f"{topic}{TOPIC_KEY_SEPARATOR}{key}")
        return sorted({place for file in self._store.index_files for place in file.find(wanted)})

    def _every_tag(self, units: UnitBatch) -> pa.StringArray:
        parts = list(self.tags(units))
        if not parts:
            return pa.nulls(len(units), pa.string())
        places = np.full(len(units), -1)
        rows = np.concatenate([rows for rows, _ in parts])
        places[rows] = np.arange(len(rows))
        found = pa.chunked_array([column for _, column in parts], pa.string()).combine_chunks()
        return found.take(pa.array(places, mask=places < 0))

    def _columns(
        self, units: UnitBatch, column_of: heads.ColumnOf
    ) -> Iterator[tuple[Int64s, pa.Array]]:
        places, sizes = units.physical_offsets, units.sizes
        in_batch = rows_of_batches(units, self._batches)
        if not in_batch.any():
            yield from heads.read_columns(self._log.log, places, sizes, column_of)
            return
        plain, batched = np.flatnonzero(~in_batch), np.flatnonzero(in_batch)
        found = heads.read_columns(self._log.log, places[plain], sizes[plain], column_of)
        yield from ((plain[rows], column) for rows, column in found)
        for part in cut(self._log.weigh(units.take(batched)), heads.AT_ONCE_BYTES):
            rows = batched[part]
            records = self._log.fetch(units.take(rows))
            blocks = PropertyBlocks.of(records.headers)
            yield rows[records.rows], column_of(blocks)


class _RecordLog:
    """The CommitLog of a store, for tasks that read records by their units.

    ``batches`` are the topics whose records hold several messages.
    """

    def __init__(self, store: Store, batches: frozenset[str]) -> None:
        self.log = store.log
        self.now = store.log_now
        self.batches = batches
        self.scratch = Scratch()

    def fetch(self, units: UnitBatch) -> FetchedRecords:
        """Return the records of units, checked; headers stand until the next call."""
        places, sizes = units.physical_offsets, units.sizes
        if holds_batches(units, self.batches):
            return fetch_messages(self.log, places, sizes, units.positions, self.scratch)
        checks = RecordChecks(positions=units.positions)
        return fetch(self.log, places, sizes, checks, self.scratch)

    def weigh(self, units: UnitBatch) -> Int64s:
        """Return the bytes of each record; 0 where the log cannot hold such a one.

        Messages of one record share its bytes; what is put around each counts, too.
        """
        held = self.log.holds(units.physical_offsets, units.sizes)
        if not self.batches:
            return np.where(held, units.sizes, 0)
        around = np.where(rows_of_batches(units, self.batches), AROUND_BYTES, 0)
        return np.where(held, units.record_bytes + around, 0)


@dataclass(frozen=True, slots=True)
class _FromLog:
    """A Fetched of units whose records are read from a CommitLog."""

    units: UnitBatch
    source: _RecordLog
    losses: Losses

    def blocks(self) -> Callable[[], Iterator[Block]] | None:
        """Return what reads the records, about half a MiB at a time."""
        source, units = self.source, self.units
        places, sizes = units.physical_offsets, units.sizes
        if holds_batches(units, source.batches):
            return None  # The kernel makes one row of a record.
        if out_of_reach(source.log, places, sizes, RecordChecks(positions=units.positions)):
            return None
        return partial(source.log.blocks, places, sizes, source.scratch)

    def checked(self, some: UnitBatch) -> Iterator[tuple[UnitBatch, FetchedRecords]]:
        """Yield the records in one batch, without those that expired since the log was listed."""
        while len(some):
            try:
                found = self.source.fetch(some)
            except FileNotFoundError:  # The broker deleted a file since the log was listed.
                held = self._still_held(some)
                if len(held) == len(some):
                    raise
                some = held
            else:
                yield some, found
                return

    def raw(self, lost: UnitBatch, most: int) -> Iterator[tuple[UnitBatch, list[bytes]]]:
        """Yield units and the bytes that lie where they point."""
        log = self.source.log
        # A size that the log cannot hold says nothing: the first bytes there are enough.
        held = log.holds(lost.physical_offsets, lost.sizes)
        shown = np.clip(lost.sizes, 0, np.where(held, HARD_RECORD_BYTES, LARGE_BYTES))
        for rows in cut(shown, most):
            places = zip(lost.physical_offsets[rows].tolist(), shown[rows].tolist(), strict=True)
            yield lost.take(rows), [log.read(place, size) for place, size in places]

    def _still_held(self, units: UnitBatch) -> UnitBatch:
        low = self.source.now().low
        self.losses.of_records(units, low)
        return units.take(units.physical_offsets >= low)


def _until_error(parts: Iterator[UnitBatch], errors: list[StoreError]) -> Iterator[UnitBatch]:
    """Yield parts up to the first that ends in an error, which is for the caller to raise."""
    try:
        yield from parts
    except StoreError as error:
        errors.append(error)


class _SliceUnits:
    """The units of slices whose records are held and whose tag hash may match."""

    def __init__(
        self,
        log: CommitLog,
        units: UnitReader,
        slices: Sequence[QueueSlice],
        settings: ScanSettings,
        report: _Report,
    ) -> None:
        self._log = log
        self._units = units
        self._slices = slices
        self._names = [(piece.topic, piece.queue_id, piece.broker_name) for piece in slices]
        self._settings = settings
        self._tags = parse_tags(settings.tags)
        self._report = report
        self._losses = Losses(fails=settings.fail_on_data_loss)

    def parts(self) -> Iterator[UnitBatch]:
        """Yield them slice by slice, or merged where the settings say so."""
        together = _LANES if self._settings.merged else 1
        for first in range(0, len(self._slices), together):
            numbers = range(first, min(first + together, len(self._slices)))
            block = max(_LEAST_UNITS, _BLOCK_UNITS // len(numbers))
            lanes = [self._of_slice(number, block) for number in numbers]
            yield from in_log_order(lanes, self._log.holds, block // 2)

    def _of_slice(self, number: int, block: int) -> Iterator[UnitBatch]:
        piece, low = self._slices[number], self._log.low
        bounds, lost = (piece.start, piece.end), partial(self._lost, piece)
        for units in self._units.read(
            (piece.topic, piece.queue_id),
            bounds,
            block,
            names=self._names,
            number=number,
            report=lost,
        ):
            # A unit of zeros is a hole, of which nobody knows that it expired.
            kept = (units.physical_offsets >= low) | (units.sizes == 0)
            if not kept.all():
                self._losses.of_records(units, low, piece.end)
            kept &= units.sizes != GAP_SIZE
            if self._tags is not None:
                kept &= self._tags.may_match(piece.topic, units.tags_codes)
            if kept.all():
                yield units
            elif kept.any():
                yield units.take(kept)

    def _lost(
        self, piece: QueueSlice, start: int, end: int, error: CorruptStoreError | FileNotFoundError
    ) -> None:
        """Account for queue offsets whose ConsumeQueue file is not there."""
        if isinstance(error, CorruptStoreError):
            self._report(error)
        else:
            queue, lost = (piece.topic, piece.queue_id), (start, min(end, piece.end))
            self._losses.of(queue, lost, piece.end, "its oldest units are gone")
