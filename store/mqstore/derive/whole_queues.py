"""What makes the queues of a store whole: what is read of others would be silently too little.

A queue is whole if a broker loads all of its files (see files/queue/queue_files), and each record
of the CommitLog that belongs into it has its unit. That is looked for where it shows: a queue that
lost units most often lost its last ones, and its next record lies somewhere behind the last one
that has a unit. So the log is walked from there on, LOOKED_AT_BYTES in all, however many queues
and messages there are. Of a queue without units, and of one whose first file may be gone, the walk
begins where the log does. ``verify`` reads the whole log and knows all.

A broker enters records into queues in the order of the log, a moment after it appended them. So
where ``abort`` is, a record without a unit counts only if one behind it has its unit; the others
are entered by the broker that runs, or when it starts again.

Reference: DefaultMessageStore.ReputMessageService, #shutdown (``abort`` stays where records wait to
be entered); MappedFileQueue#deleteExpiredFileByOffset.
"""

import logging
import time
from collections.abc import Callable, Container, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Final

import numpy as np

from mqstore.codec.dispatch import DispatchRecords
from mqstore.derive.log_walk import log_chunks
from mqstore.errors import CorruptStoreError, StoreError
from mqstore.files.lock.processes import is_locked
from mqstore.files.queue.batch_queue import BatchQueue
from mqstore.files.queue.consume_queue import ConsumeQueue
from mqstore.files.queue.queue_files import not_loaded, remedy
from mqstore.files.queue.units import QueueExtent, Units
from mqstore.files.store import Store
from mqstore.format.arrays import Int64s, Mask, TopicQueue
from mqstore.format.consume_queue import UNIT
from mqstore.format.names import LOCK

_LOG = logging.getLogger(__name__)
LOOKED_AT_BYTES: Final = 16 << 20
_LEAST_BYTES: Final = 1 << 16
"""A walk from one place is no shorter."""
_MOST_STARTS: Final = LOOKED_AT_BYTES // _LEAST_BYTES
OTHER_QUEUES: Final = 16
"""So many queues are looked at that were not asked for: they tell how far the broker came."""
_ENTERED_S: Final = 1.0
_LAST_ENTERED_S: Final = 0.2
"""Of the last records of a log; no broker has its lock, but one elsewhere may run."""
_ENTERED_LOOK_S: Final = 0.02
_CONTROLLED: Final = "epochFileCheckpoint"


@dataclass(frozen=True, slots=True)
class QueueLook:
    """A queue and what a look at it told, before the CommitLog was listed."""

    queue: Units
    look: QueueExtent

    @property
    def name(self) -> TopicQueue:
        """Topic and queueId."""
        return self.queue.topic, self.queue.queue_id

    @property
    def may_lack_first(self) -> bool:
        """Whether it begins with a message that is held at the start of a file behind others."""
        has_files = isinstance(self.queue, ConsumeQueue)
        return has_files and 0 < self.look.low == self.queue.room_low and self.look.end > 0


@dataclass(frozen=True, slots=True)
class _Missing:
    """A record that belongs into a queue, and has no unit there."""

    queue: Units
    queue_offset: int
    place: int
    is_empty: bool
    """Whether the queue has no unit of a message that is held."""

    @property
    def error(self) -> CorruptStoreError:
        is_plain = isinstance(self.queue, ConsumeQueue)
        position = self.queue_offset * UNIT.itemsize if is_plain else 0
        reason = (
            f"the queue has no unit of queue offset {self.queue_offset}, whose record lies in the "
            f"CommitLog at byte {self.place}: units are lost. {remedy(self.queue)}"
        )
        return CorruptStoreError(f"{self.queue.place.root}/{self.queue.path}", position, reason)

    def is_of_deleted(self, store: Store) -> bool:
        """Tell whether the topic was deleted, and left the directory of a queue without units."""
        topics: Container[str] = {self.queue.topic}
        with suppress(StoreError):
            topics = store.config.topics() or topics
        return self.is_empty and self.queue.topic not in topics

    def is_entered(self, low: int) -> bool:
        """Tell whether the queue has the unit now."""
        with suppress(FileNotFoundError):
            extent = replace(self.queue).look(low)
            return extent.low <= self.queue_offset < extent.high
        return True  # The broker deleted it meanwhile.


def not_whole(
    store: Store,
    wanted: Sequence[QueueLook],
    *,
    is_unclean: bool = False,
    cap: Callable[[], int | None] = lambda: None,
    beside: int = OTHER_QUEUES,
) -> Iterator[CorruptStoreError]:
    """Yield an error for what shows that one of the ``wanted`` queues is not whole.

    ``store`` listed its CommitLog after the looks, and ``is_unclean`` tells whether ``abort`` was
    there before them. ``cap`` returns the physical offset from which no record need have a unit, as
    a commit is or was under way meanwhile. So many other queues are looked at ``beside``.
    Queues in RocksDB are left to who reads those.

    Logs a warning where the last records of the log are in no queue yet, and no broker is seen to
    enter them. Raises FileNotFoundError if a running broker deletes a file meanwhile.
    """
    in_files = [one for one in wanted if isinstance(one.queue, ConsumeQueue | BatchQueue)]
    if not in_files:
        return
    others = _others(store, in_files, beside) if beside else []
    broken = list(
        not_loaded(
            [one.queue for one in in_files],
            [one.queue for one in others],
            is_unclean=is_unclean,
        )
    )
    yield from broken
    if not broken and store.log.files.files:
        is_unclean = is_unclean or store.place.folder.exists(_CONTROLLED)
        entered_to = max(one.look.end for one in (*in_files, *others))
        waiting = _EnteredLater(store, entered_to) if is_unclean else None
        for missing in _first_of_each(store, in_files, others):
            limit = cap()
            if limit is not None and missing.place >= limit:
                continue
            if missing.is_entered(store.log.low) or missing.is_of_deleted(store):
                continue
            if waiting is None or waiting.is_lost(missing):
                yield missing.error
                return


def _others(store: Store, wanted: Sequence[QueueLook], most: int) -> list[QueueLook]:
    """Return looks at a few of the queues that are not wanted, spread over all of them."""
    named = {one.name for one in wanted}
    rest = [queue for queue in store.queues if queue not in named]
    looks = []
    for topic, queue_id in rest[:: max(1, -(-len(rest) // most))]:
        queue = store.queue(topic, queue_id)
        with suppress(StoreError, OSError):  # Nobody asked for it.
            looks.append(QueueLook(queue, queue.look(store.log.low)))
    return looks


class _EnteredLater:
    """Waits for units that a running broker enters, for all queues together _ENTERED_S."""

    def __init__(self, store: Store, entered_to: int) -> None:
        """``entered_to`` is behind the last record that is known to have its unit."""
        self._store = store
        self._entered_to = entered_to
        self._began = time.monotonic()
        self._is_told = False

    def is_lost(self, missing: _Missing) -> bool:
        """Tell whether a unit is lost; warn once where a broker enters it when it starts."""
        store, is_last = self._store, missing.place >= self._entered_to
        if is_last and (self._is_told or is_locked(f"{store.root}/{LOCK}")):
            return False  # Its broker runs.
        is_entered, longest = False, _LAST_ENTERED_S if is_last else _ENTERED_S
        while not is_entered and time.monotonic() - self._began < longest:
            time.sleep(_ENTERED_LOOK_S)
            is_entered = missing.is_entered(store.log.low)
        if is_last and not is_entered:
            self._is_told = True
            _LOG.warning(
                "%s: messages at the end of the CommitLog are in no ConsumeQueue yet, the first of "
                "them %s/%d@%d; a broker enters them when it starts, and they are left out",
                store.root,
                missing.queue.topic,
                missing.queue.queue_id,
                missing.queue_offset,
            )
        return not (is_last or is_entered)


def _first_of_each(
    store: Store, wanted: Sequence[QueueLook], others: Sequence[QueueLook]
) -> Iterator[_Missing]:
    """Yield for each queue the first record without a unit that a bounded walk comes upon."""
    states = {one.name: _QueueState(one, store) for one in wanted}
    for records in _near_ends(store, [*wanted, *others]):
        rows = np.flatnonzero(records.in_queue)
        names, codes = records.queues_of(rows)
        for number, name in enumerate(names):
            state = states.get(name)
            if state is None:
                continue
            of_queue = rows[codes == number]
            lacking = of_queue[state.lacks(records, of_queue)]
            if len(lacking):
                first = int(lacking[0])
                queue_offset, place = records.queue_offsets[first], records.physical_offsets[first]
                del states[name]
                yield _Missing(state.queue, int(queue_offset), int(place), state.is_empty)


class _QueueState:
    """Which queue offsets a queue has, and which records of it must be among them."""

    def __init__(self, looked: QueueLook, store: Store) -> None:
        self.queue = looked.queue
        self._low, self._high = looked.look.low, looked.look.high
        self.is_empty = self._low >= self._high
        self._end = looked.look.end
        self._first_place = 0
        if looked.may_lack_first:
            units = self.queue.before_hole(self._low, self._low + 1)
            self._first_place = int(units["physical_offset"][0]) if len(units) else 0

    def lacks(self, records: DispatchRecords, rows: Int64s) -> Mask:
        """Tell which of the records, all of this queue, have no unit in it."""
        numbers, places = records.queue_offsets[rows], records.physical_offsets[rows]
        behind = (numbers >= self._high) & (places >= self._end)
        before = (numbers < self._low) & (numbers >= 0) & (places < self._first_place)
        lacking: Mask = behind | before
        return lacking


def _near_ends(store: Store, looked: Sequence[QueueLook]) -> Iterator[DispatchRecords]:
    """Yield the sound records behind the last one of each queue, about LOOKED_AT_BYTES of them."""
    log = store.log
    starts = {max(one.look.end, log.low) for one in looked}
    if any(one.may_lack_first for one in looked):
        starts.add(log.low)
    ordered = sorted(start for start in starts if start < log.high)
    if len(ordered) > _MOST_STARTS:  # Both ends are among those that stay.
        chosen = np.linspace(0, len(ordered) - 1, _MOST_STARTS).astype(np.int64)
        ordered = [ordered[number] for number in chosen.tolist()]
    walked = -1
    for start in ordered:
        begin, end = max(start, walked), start + LOOKED_AT_BYTES // len(ordered)
        for chunk in log_chunks(log, begin) if begin < end else ():
            if len(records := chunk.sound_records()):
                yield records
            walked = max(walked, chunk.next_start)
            if walked >= end:
                break
