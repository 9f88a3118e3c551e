"""A store in a directory whose queues are made from its CommitLog alone: option queues=log.

ConsumeQueues, if there are any, are not looked at. The first read walks the whole log, later ones
what is new of it; tasks take what the driver's walk left in the cache directory, and walk
themselves only where they cannot see it.

A queue reaches from the lowest to the highest queueOffset of its records. Gaps and doubles of the
topics that a read takes are warned of by name.
"""

import logging
import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Final

import numpy as np

from mqstore.derive.log_queues import LogQueues, gaps_and_doubles
from mqstore.derive.log_sections import LogDamage, LogUnits
from mqstore.derive.section_files import QueueTotals, edges_of
from mqstore.derive.unconfirmed import unconfirmed
from mqstore.derive.walked_log import open_log_queues
from mqstore.errors import InvalidOptionError, StoreError, UnsupportedTopicError
from mqstore.files.base.store_dir import Root, open_dir
from mqstore.files.store import Store
from mqstore.files.txn.intent import CommitFence
from mqstore.format.arrays import TopicQueue
from mqstore.read.by_log import CACHE_DIR, default_cache
from mqstore.read.log_records import LogRecords
from mqstore.read.queues import QueueBounds, Weight
from mqstore.read.snapshot import check_log_files, configured, name_of
from mqstore.read.source import QueueSlice, Snapshot, Weighed
from mqstore.read.store_bounds import StoreBounds, StoreOrigin
from mqstore.read.witness import witness_of

_LOG = logging.getLogger(__name__)
_SHOWN: Final = 10
_EXACT_UNITS: Final = 1 << 20
_MOST_EDGES: Final = 4096


@dataclass(frozen=True, slots=True)
class LogOrigin(StoreOrigin):
    """A store read by its CommitLog. ``cache`` is the directory for what a walk found.

    As the driver saw them: ``known`` are the keys of growing log files, ``low`` is the physical
    offset where the log began, ``damages`` are the physical offsets where its damages start. They
    say nothing of what the origin is.
    """

    cache: str
    known: tuple[str, ...] = field(default=(), compare=False)
    low: int | None = field(default=None, compare=False)
    damages: frozenset[int] = field(default=frozenset(), compare=False)

    def bounds(self, broker_name: str | None = None) -> "LogBounds":
        """Open the store to plan a read."""
        return LogBounds(self, broker_name)

    def records(self, read_mode: str = "pread") -> LogRecords:
        """Open the store to read records. Raises as ``open_by_log``, ``open_log_queues``."""
        place = open_dir(self.folder, self.commit_log, by_log=True)
        store = self.witnessed(Store(place, read_mode))
        queues = open_log_queues(self, self.cache, self.known, planned_low=self.low)
        return LogRecords(store, queues, self.damages)


def open_by_log(
    root: Root,
    commit_log: Sequence[str] = (),
    cache: str = "",
    *,
    takes_unconfirmed: bool = False,
) -> LogOrigin:
    """Return the store at ``root``, to be read by its CommitLog.

    ``takes_unconfirmed``: also behind what a controller's group confirmed. ``cache`` is a directory
    for what walks find; by default mqlog's in the user's cache. Raises StoreNotFoundError,
    NotAStoreError, UnsupportedStoreError; InvalidOptionError for a cache directory in the store.
    """
    found = open_dir(root, commit_log, by_log=True)
    found = replace(found, takes_unconfirmed=takes_unconfirmed)
    cache = os.path.abspath(cache or default_cache())  # noqa: PTH100
    real = os.path.realpath(cache)
    for folder in (found.folder, *found.commit_log):
        if f"{real}/".startswith(f"{folder.real_path}/"):
            expected = f"lies in the store {found.root}: name another directory in cacheDir"
            raise InvalidOptionError(CACHE_DIR, cache, expected)
    return LogOrigin(found.folder, found.commit_log, cache, **found.kinds)


class LogBounds(StoreBounds):
    """A BoundsSource over the queues that a CommitLog implies, as of the last ``snapshot``."""

    origin: LogOrigin

    def __init__(self, origin: LogOrigin, broker_name: str | None = None) -> None:
        super().__init__(origin, broker_name)
        self._queues: LogQueues | None = None

    def close(self) -> None:
        """Close the store and the cached units."""
        super().close()
        if self._queues is not None:
            self._queues.close()

    def topics(self) -> set[str]:
        """Return the topics that have a record in the log and those in topics.json."""
        return {topic for topic, _ in self.queues.queues} | set(configured(self.store))

    @property
    def queues(self) -> LogQueues:
        """The queues: those of the driver's walk, where there was one."""
        if self._queues is None:
            self._open(self.origin.known)
        assert self._queues is not None
        return self._queues

    def every(
        self, topics: Callable[[str], bool] | None = None, *, strict: bool = True
    ) -> Snapshot:
        """Walk what is new of the log, and return the bounds of the queues that it implies.

        Damage of the log is an error with ``strict``, else a warning. Raises
        UnsupportedTopicError, with ``strict``, for a topic whose records hold several messages.
        """
        self.close()
        self.store = Store(self.origin)
        is_unclean, taken_ms = self._open()
        if strict:
            check_log_files(self.store.log)
        self._report_damages(strict=strict)
        left_out = unconfirmed(self.origin, self.store.log)
        if left_out is not None:
            _LOG.warning("%s", left_out)
        found = [q for q in self.queues.queues if topics is None or topics(q[0])]
        found = [queue for queue in found if self._is_readable(queue, strict=strict)]
        self._warn_of_gaps(found)
        log = self.store.log
        self.origin = replace(self.origin, witness=witness_of(log))
        bounds = tuple(self._bounds(queue) for queue in found)
        return Snapshot(
            self.origin,
            self._given_name or name_of(self.store),
            log.low,
            log.high,
            bounds,
            taken_ms,
            is_unclean,
        )

    def first_at(self, queues: Sequence[QueueBounds], times_ms: Sequence[int]) -> list[int]:
        """Return the first offsets by the store timestamps of records, read by the walk."""
        return [
            self.queues.first_at((queue.topic, queue.queue_id), queue.low, queue.high, ms)
            for queue, ms in zip(queues, times_ms, strict=True)
        ]

    def went_back(self, queues: Sequence[QueueBounds]) -> list[bool]:
        """Return False of each: ConsumeQueues, by which to look at messages, may not be there."""
        return [False] * len(queues)

    def weigh(self, slices: Sequence[QueueSlice], *, strict: bool = True) -> list[Weighed]:
        """Return bytes of the records; exact up to a million messages of a slice."""
        return [self._weigh(piece) for piece in slices]

    def narrow(
        self, slices: Sequence[QueueSlice], keys: Sequence[str], msg_ids: Sequence[str]
    ) -> list[QueueSlice]:
        """Return the slices: IndexFiles may be as old as the ConsumeQueues that are not read."""
        count = sum(
            totals.rows
            for piece in slices
            for totals in self.queues.totals((piece.topic, piece.queue_id))
        )
        _LOG.warning(
            "with queues=log %s is searched by a scan of %d messages", self.origin.name, count
        )
        return sorted(slices, key=lambda part: (part.topic, part.queue_id, part.start))

    def _open(self, known: Sequence[str] = ()) -> tuple[bool, int]:
        """Open the queues; return whether ``abort`` was there before, and when that was.

        Of a commit of ours that begins or ends meanwhile nothing is taken.
        """
        fence = CommitFence(self.store.place)
        is_unclean, taken_ms = self.store.is_unclean, self.store.place.folder.now_ms()
        if known:
            self._queues = open_log_queues(self.origin, self.origin.cache, known)
            return is_unclean, taken_ms
        limit = fence.cap()
        found = open_log_queues(self.origin, self.origin.cache, limit=limit)
        cap = fence.cap()
        if cap != limit:
            found = open_log_queues(self.origin, self.origin.cache, limit=cap)
        self._queues = found
        damages = frozenset(one.start for one in found.damages())
        self.origin = replace(self.origin, known=found.keys, low=found.low, damages=damages)
        return is_unclean, taken_ms

    def _report_damages(self, *, strict: bool) -> None:
        """Raise CorruptStoreError for damage of the log; log it without ``strict``."""
        log = self.store.log
        found = list(self.queues.damages())
        if strict and found:
            reason = f"{found[0].reason}. onCorrupt=skip reads what is whole of the log"
            raise log.corrupt(found[0].start, reason)
        for damage in found[:_SHOWN]:
            _LOG.warning("%s", _skipped(log.corrupt(damage.start, damage.reason), damage))
        if len(found) > _SHOWN:
            _LOG.warning("%s: %d damages in all", self.origin.name, self.queues.damaged)
        for file in self.queues.files:
            if file.end.has_rest:
                reason = "the log ends here, in bytes that are no record and not zero"
                _LOG.warning("%s", log.corrupt(file.end.end, reason))

    def _is_readable(self, queue: TopicQueue, *, strict: bool) -> bool:
        """Tell whether all records of a queue are single messages, which is warned of."""
        several = sum(totals.several for totals in self.queues.totals(queue))
        if not several:
            return True
        topic, queue_id = queue
        error = UnsupportedTopicError(
            self.origin.name,
            "BATCH_QUEUE",
            f"{several} records of {topic}/{queue_id} hold several messages each "
            "(queue.type=BatchCQ): read the topic by its ConsumeQueues, without queues=log; choose "
            "other topics, or onCorrupt=skip leaves the queue out",
        )
        if strict:
            raise error
        _LOG.warning("%s", error)
        return False

    def _warn_of_gaps(self, queues: Sequence[TopicQueue]) -> None:
        told = 0
        for queue in queues:
            text = _gaps(self.queues, queue)
            if text:
                told += 1
                if told <= _SHOWN:
                    _LOG.warning("%s, %s/%d: %s", self.origin.name, *queue, text)
        if told > _SHOWN:
            _LOG.warning("%s: so in %d queues in all", self.origin.name, told)

    def _bounds(self, queue: TopicQueue) -> QueueBounds:
        totals = self.queues.totals(queue)
        low, high = min(one.low for one in totals), max(one.high for one in totals) + 1
        amount, place = sum(one.bytes for one in totals), min(one.place for one in totals)
        count = sum(one.rows for one in totals)
        weight = Weight(low, high, amount, place)
        return QueueBounds(*queue, low, high, weight, count, self._named(queue))

    def _named(self, queue: TopicQueue) -> int | None:
        """Return how many messages the queue's ConsumeQueue names; None if there is none."""
        try:
            files = self.store.queue(*queue)
            low, high = files.bounds(self.store.log.low)
        except (StoreError, OSError):
            return None
        return high - low if files.files.files else None

    def _weigh(self, piece: QueueSlice) -> Weighed:
        queue = piece.topic, piece.queue_id
        totals = self.queues.totals(queue)
        rows = sum(one.rows for one in totals if _reaches(one, piece))
        if rows > _EXACT_UNITS:
            return _of_totals(piece, totals)
        parts = list(self.queues.units(queue, piece.start, piece.end))
        return _of_units(piece, LogUnits.joined(parts))


def _reaches(totals: QueueTotals, piece: QueueSlice) -> bool:
    return totals.low < piece.end and totals.high >= piece.start


def _of_units(piece: QueueSlice, units: LogUnits) -> Weighed:
    """Return a slice's bytes behind each of its messages, or of 4,096 of them."""
    if not len(units):
        edges, nothing = np.array([piece.start, piece.end], np.int64), np.zeros(2, np.int64)
        return Weighed(piece, edges, nothing, nothing)
    numbers, last = units.queue_offsets, np.arange(1, len(units) + 1)
    # Of messages with one queue offset the last has the bytes of all of them.
    rows = last[np.append(np.diff(numbers) > 0, True)] - 1
    if len(rows) > _MOST_EDGES:
        rows = rows[np.linspace(0, len(rows) - 1, _MOST_EDGES).astype(np.int64)]
    grown = np.concatenate(([0], np.cumsum(units.sizes)[rows]))
    edges = np.concatenate(([piece.start], numbers[rows] + 1))
    edges[-1] = piece.end
    following = np.minimum(np.append(0, rows + 1), len(units) - 1)
    places = np.maximum.accumulate(units.physical_offsets[following])
    return Weighed(piece, edges, grown, places)


def _of_totals(piece: QueueSlice, totals: Sequence[QueueTotals]) -> Weighed:
    """Return a slice's bytes as if they were spread evenly over each section of the log."""
    inside = edges_of(totals)
    inside = inside[(inside > piece.start) & (inside < piece.end)]
    edges = np.concatenate(([piece.start], inside, [piece.end]))
    grown = np.zeros(len(edges), np.float64)
    places = np.zeros(len(edges), np.int64)
    for one in totals:
        share = np.clip((edges - one.low) / (one.high + 1 - one.low), 0, 1)
        grown += one.bytes * share
        places = np.where(edges >= one.low, np.maximum(places, one.place), places)
    amounts = (grown - grown[0]).astype(np.int64)
    return Weighed(piece, edges, amounts, np.maximum.accumulate(places))


def _skipped(error: StoreError, damage: LogDamage) -> str:
    return f"{error}; the log is read on from physical offset {damage.end}"


def _gaps(queues: LogQueues, queue: TopicQueue) -> str:
    """Return what is unusual about the queue offsets of a queue; nothing if they are dense."""
    found = gaps_and_doubles(queues.totals(queue)) or queues.count_gaps(queue)
    missing, first_gap, doubled, first_double = found
    texts = []
    if missing:
        texts.append(f"no record has {missing} of its queue offsets, the first {first_gap}")
    if doubled:
        texts.append(f"{doubled} records have the queueOffset of another, the first {first_double}")
    return "; ".join(texts)
