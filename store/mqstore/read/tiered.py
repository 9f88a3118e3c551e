"""A store in a directory with its tiered storage: what the local log has no more, the tier has.

Queues reach from the tier's first message to the local end, as for clients of the broker. Each
message is read once, from the local log where that has it; a message of the tier has the physical
offset that it has in the tier's log of its queue, as clients get it.

Reference: TieredMessageStore#getMessageAsync (tieredStorageLevel NOT_IN_DISK).
"""

import logging
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import groupby

import numpy as np
import pyarrow as pa

from mqstore.errors import CorruptStoreError, InvalidOptionError
from mqstore.files.base.folder import Folder
from mqstore.files.base.store_dir import Root, open_dir
from mqstore.files.config.tier_metadata import TIER_METADATA, load
from mqstore.files.queue.tier_queue import (
    STORE_PATH_TIERED,
    tier_folder,
)
from mqstore.files.queue.units import Units
from mqstore.files.store import Store
from mqstore.format.arrays import Int64s, Mask, Span, TopicQueue
from mqstore.read.heads import LocatedRecord
from mqstore.read.lookup import narrow
from mqstore.read.queues import QueueBounds, QueueRange
from mqstore.read.settings import ScanSettings
from mqstore.read.source import Fetched, QueueSlice, Snapshot, Weighed
from mqstore.read.store_bounds import StoreBounds, StoreOrigin, late_test
from mqstore.read.store_records import StoreRecords
from mqstore.read.tags import TagFilter
from mqstore.read.tier import Tier, TierStore
from mqstore.read.units import CHUNK_UNITS, UnitBatch, join
from mqstore.read.weights import weigh_slice

_LOG = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class TieredOrigin(StoreOrigin):
    """A store and the folder of its broker in tiered storage, which has ``tiered`` queues."""

    tier: Folder
    tiered: frozenset[TopicQueue] = field(default=frozenset(), compare=False, repr=False)

    def bounds(self, broker_name: str | None = None) -> "TieredBounds":
        """Open the store to plan a read."""
        return TieredBounds(self, broker_name)

    def records(self, read_mode: str = "pread") -> "TieredRecords":
        """Open the store to read records. Raises as ``open_tiered``."""
        return TieredRecords(self, read_mode)


def open_tiered(root: Root, tier: str, commit_log: Sequence[str | Folder] = ()) -> TieredOrigin:
    """Return the store at ``root`` with its tiered storage, the directory ``tier``.

    Raises as ``open_origin``; InvalidOptionError where the store's broker has no tiered storage, or
    another one; CorruptConfigError. Queues in RocksDB are refused.
    """
    place = open_dir(root, commit_log, in_batches=True)
    metadata = load(place.folder)
    if metadata is None or not metadata.broker:
        expected = f"is for stores of brokers with tiered storage: {place.root} has no message in "
        raise InvalidOptionError(STORE_PATH_TIERED, tier, f"{expected}{TIER_METADATA}")
    folder = tier_folder(tier, metadata.broker)
    names = frozenset(metadata.queues)
    return TieredOrigin(place.folder, place.commit_log, folder, names, **place.kinds)


def _tier_of(origin: TieredOrigin, store: Store, read_mode: str = "pread") -> Tier:
    return Tier(origin.tier, origin.tiered, store, read_mode)


class TieredBounds(StoreBounds):
    """A BoundsSource over a store and its tier. It has no tail: a stream follows the local log."""

    origin: TieredOrigin
    _tier: Tier

    def close(self) -> None:
        """Close what is open."""
        self._tier.close()
        super().close()

    def open_store(self) -> Store:
        """Return the store, of which nothing is listed yet, with its tier."""
        store = super().open_store()
        self._tier = _tier_of(self.origin, store)
        return store

    def snapshot(
        self, topics: Callable[[str], bool] | None = None, *, strict: bool = True
    ) -> Snapshot:
        """Return the bounds of queues, which begin where tiered storage does."""
        snapshot = super().snapshot(topics, strict=strict)
        return replace(snapshot, queues=tuple(map(self._with_tier, snapshot.queues)))

    def _with_tier(self, queue: QueueBounds) -> QueueBounds:
        span = self._tier.span((queue.topic, queue.queue_id))
        if span is None:
            local = None if queue.tier_low is None else queue.low
            return replace(queue, tier_low=None, local_low=local)
        return replace(queue, low=span[0], weight=None, tier_low=None, local_low=queue.low)

    def first_at(self, queues: Sequence[QueueBounds], times_ms: Sequence[int]) -> list[int]:
        """Bisect the tier, then the local log."""
        return [self._first_at(queue, ms) for queue, ms in zip(queues, times_ms, strict=True)]

    def _first_at(self, queue: QueueBounds, ms: int) -> int:
        span = self._tier.span((queue.topic, queue.queue_id))
        if span is None:
            return super().first_at([queue], [ms])[0]
        store = TierStore(self.origin, self._tier.queue((queue.topic, queue.queue_id)), "pread")
        with store:
            is_late = late_test(store.log, ms, "a unit of tiered storage points outside its log")
            first = store.queue(queue.topic, queue.queue_id).first(*span, is_late)
        if first < span[1]:
            return first
        return super().first_at([replace(queue, low=span[1])], [ms])[0]

    def went_back(self, queues: Sequence[QueueBounds]) -> list[bool]:
        """Look at a few messages of the local log."""
        return super().went_back(
            [
                queue if queue.local_low is None else replace(queue, low=queue.local_low)
                for queue in queues
            ]
        )

    def weigh(self, slices: Sequence[QueueSlice], *, strict: bool = True) -> list[Weighed]:
        """Return bytes from the sizes in units."""
        store = _Joined(self.store, self._tier)
        return [weigh_slice(store, replace(piece, weight=None), strict=strict) for piece in slices]

    def narrow(
        self, slices: Sequence[QueueSlice], keys: Sequence[str], msg_ids: Sequence[str]
    ) -> list[QueueSlice]:
        """Return what the local IndexFiles leave of the local parts, and all that the tier has."""
        divided = [self._tier.divided(piece) for piece in slices]
        local = narrow(self.store, [piece for _, piece in divided if piece], keys, msg_ids)
        tiered = [piece for piece, _ in divided if piece]
        count = sum(piece.end - piece.start for piece in tiered)
        if count:
            _LOG.warning("%d messages in tiered storage %s are scanned", count, self.origin.tier)
        return sorted((*tiered, *local), key=lambda p: (p.topic, p.queue_id, p.start))


class _Joined(Store):
    """A store whose queues begin in the tier, for those who read units only."""

    def __init__(self, store: Store, tier: Tier) -> None:
        super().__init__(store.place)
        self._tier = tier

    def queue(self, topic: str, queue_id: int) -> Units:
        """Return the units of one queue."""
        return self._tier.joined((topic, queue_id))


class TieredRecords(StoreRecords):
    """A RecordSource over a store and its tier."""

    def __init__(self, origin: TieredOrigin, read_mode: str = "pread") -> None:
        place = open_dir(origin.folder, origin.commit_log, in_batches=True)
        store = origin.witnessed(Store(place, read_mode))
        super().__init__(store)
        self._local = StoreRecords(store)
        self._tier = _tier_of(origin, store, read_mode)
        self._reading = self._local

    def close(self) -> None:
        """Close the store and the tier."""
        self._tier.close()
        self._local.close()

    @property
    def low(self) -> int:
        """Physical offset of the local CommitLog's first byte."""
        return self._local.low

    @property
    def has_cheap_units(self) -> bool:
        """True: a unit has 20 bytes."""
        return True

    def fetched(
        self,
        slices: Sequence[QueueSlice],
        settings: ScanSettings,
        report: Callable[[CorruptStoreError], None],
    ) -> Iterator[Fetched]:
        """Yield the units of ``slices``; with ``settings.merged`` what the tier has comes first."""
        parts: list[tuple[TopicQueue | None, QueueSlice]] = []
        for piece in slices:
            before, behind = self._tier.divided(piece)
            if before is not None:
                parts.append(((piece.topic, piece.queue_id), before))
            if behind is not None:
                parts.append((None, behind))
        if settings.merged:
            parts.sort(key=lambda part: part[0] is None)
        for queue, group in groupby(parts, key=lambda part: part[0]):
            self._reading = self._local if queue is None else self._tier.records(queue)
            yield from self._reading.fetched([piece for _, piece in group], settings, report)

    def corrupt(self, physical_offset: int, reason: str) -> CorruptStoreError:
        """Return the error that names the file of the log that is read now."""
        return self._reading.corrupt(physical_offset, reason)

    def sizes(self, ranges: Sequence[QueueRange]) -> list[int]:
        """Return the sums of the sizes of units."""
        return [sum(int(units.record_bytes.sum()) for units in self.units(*one)) for one in ranges]

    def at(self, queue: TopicQueue, queue_offsets: Sequence[int]) -> UnitBatch | None:
        """Return the units of those queue offsets."""
        parts = []
        for is_tiered, some in groupby(queue_offsets, key=partial(self._is_tiered, queue)):
            source = self._tier.records(queue) if is_tiered else self._local
            units = source.at(queue, list(some))
            if units is None:
                return None
            parts.append(units)
        return join(parts)

    def _is_tiered(self, queue: TopicQueue, queue_offset: int) -> bool:
        span = self._tier.span(queue)
        return span is not None and queue_offset < span[1]

    def _ranges(
        self, queue: TopicQueue, start: int, end: int
    ) -> Iterator[tuple[StoreRecords, int, int]]:
        span = self._tier.span(queue)
        edge = start if span is None else min(max(span[1], start), end)
        if start < edge:
            yield self._tier.records(queue), start, edge
        if edge < end:
            yield self._local, edge, end

    def tagged(
        self,
        queue: QueueRange,
        wanted: TagFilter | None,
        keep: Callable[[Int64s], Mask] | None = None,
    ) -> Iterator[tuple[UnitBatch, pa.StringArray]]:
        """Yield what units tell, with the tags of the records that are left."""
        name, start, end = queue
        for source, low, high in self._ranges(name, start, end):
            yield from source.tagged((name, low, high), wanted, keep)

    def units(
        self, queue: TopicQueue, start: int, end: int, most: int = CHUNK_UNITS
    ) -> Iterator[UnitBatch]:
        """Yield the units of a queue."""
        for source, low, high in self._ranges(queue, start, end):
            yield from source.units(queue, low, high, most)

    def unit_files(self, queue: TopicQueue) -> list[Span]:
        """Return the room of the queue's files."""
        return self._tier.joined(queue).file_ranges()

    def store_timestamps(self, units: UnitBatch) -> Int64s:
        """Return storeTimestamps, read without the bodies."""
        times_ms = np.zeros(len(units), np.int64)
        for source, rows in self._sources(units):
            times_ms[rows] = source.store_timestamps(units.take(rows))
        return times_ms

    def tags(self, units: UnitBatch) -> Iterator[tuple[Int64s, pa.StringArray]]:
        """Yield TAGS."""
        for source, rows in self._sources(units):
            for some, column in source.tags(units.take(rows)):
                yield rows[some], column

    def properties(self, units: UnitBatch) -> Iterator[tuple[Int64s, pa.MapArray]]:
        """Yield properties."""
        for source, rows in self._sources(units):
            for some, column in source.properties(units.take(rows)):
                yield rows[some], column

    def locate(self, topics: Mapping[int, str]) -> dict[int, LocatedRecord]:
        """Return the records that start at those places of the local log."""
        return self._local.locate(topics)

    def places_of_key(self, topic: str, key: str) -> list[int]:
        """Return what the local IndexFiles have."""
        return self._local.places_of_key(topic, key)

    def _sources(self, units: UnitBatch) -> Iterator[tuple[StoreRecords, Int64s]]:
        """Yield rows of units, and where their records are."""
        positions, tiered = units.positions, np.zeros(len(units), np.bool_)
        for number, (topic, queue_id, _) in enumerate(positions.queues):
            span = self._tier.span((topic, queue_id))
            if span is None:
                continue
            rows = (positions.queue == number) & (positions.queue_offsets < span[1])
            tiered |= rows
            if rows.any():
                yield self._tier.records((topic, queue_id)), np.flatnonzero(rows)
        if not tiered.all():
            yield self._local, np.flatnonzero(~tiered)
