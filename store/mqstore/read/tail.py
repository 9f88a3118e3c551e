"""The bounds of a store's queues, looked at again and again while a broker appends.

Looking at what has not changed costs one read of four bytes a queue, through a descriptor that
stays open: the unit behind the last one, zero until the broker writes it. A broker maps its
files, so their times and lengths do not show a change; but new topics, queues and CommitLog
files, and expired ones, change the time of a directory, and then a new snapshot is taken. It is
also taken every ten seconds or more, for file systems whose times are coarse.

Of very many queues even that takes long. They are all looked at while something is written behind
the end of the CommitLog, and for some seconds more; then for a fortieth of the time at most, as
units may be late.

A unit counts once the record it points at is there and says the same, as after a crash (see
``snapshot``), and is not of a commit of ours that is not finished. Calls that come faster than a
look takes get what was found before, for a second at most.

Reference: DefaultMessageStore.ReputMessageService (a unit is written after its record);
ConsumeQueue#putMessagePositionInfo.
"""

import logging
import os
import resource
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Final, TypeAlias

from mqstore.errors import CorruptStoreError, StoreReplacedError
from mqstore.files.base.store_dir import StoreDir
from mqstore.files.log.commit_log import CommitLog
from mqstore.files.queue.consume_queue import ConsumeQueue
from mqstore.files.queue.queue_end import QueueEnd
from mqstore.files.store import Store
from mqstore.files.txn import intent
from mqstore.format import names
from mqstore.format.arrays import TopicQueue
from mqstore.read.log_end import WrittenEnd
from mqstore.read.queues import Bounds, QueueBounds, QueueFilter
from mqstore.read.snapshot import written
from mqstore.read.source import Snapshot
from mqstore.read.units import fitting, read_units

Stamp: TypeAlias = tuple[int, int] | None

_LOG = logging.getLogger(__name__)
_MAX_OPEN_QUEUES: Final = 8192
_AHEAD_UNITS: Final = 4096
_RETAKE_S: Final = 10.0
_RETAKE_SHARE: Final = 50  # and no more often than this many times what it takes
_IDLE_SHARE: Final = 4  # between two looks lies this many times what the first one took,
_LONGEST_PAUSE_S: Final = 1.0  # but no more than this
_LONG_LOOK_S: Final = 0.02  # From then on the end of the log is asked first.
_LATE_S: Final = 5.0  # So long units may follow their records while all queues are looked at.
_QUIET_SHARE: Final = 39
_ASKED_S: Final = 0.2  # So long the answer holds.
# Two changes within one tick of the kernel's clock leave one time: what is younger is not trusted.
_TICK_NS: Final = 100_000_000


class StoreTail:
    """The moving bounds of one store. Keeps descriptors open: ``close`` it."""

    def __init__(
        self,
        place: StoreDir,
        take: Callable[[], Snapshot],
        chosen: QueueFilter,
        *,
        fail_on_data_loss: bool = True,
    ) -> None:
        """Take the first look. ``take`` gives a new snapshot; its errors are raised here."""
        self.chosen = chosen
        self.away = None  # A directory that cannot be read is an error.
        self._place = place
        self._take = take
        self._fail_on_data_loss = fail_on_data_loss
        self._queues: dict[TopicQueue, _QueueTail] = {}
        self._bounds: Bounds | None = None
        self._anchor: _Anchor | None = None
        self._stamps: dict[str, Stamp] | None = None
        self._retake_at = self._looked = self._took = 0.0
        self._log_end = WrittenEnd(place)
        self._written_at = time.monotonic()
        self._quiet_until = 0.0
        self._found = self._retake()
        self._publish()

    @property
    def snapshot(self) -> Snapshot:
        """The chosen queues as they were at the last look."""
        bounds = sorted((self._bounds or {}).items())
        queues = tuple(QueueBounds(*name, low, high) for name, (low, high) in bounds)
        return replace(self._found, queues=queues)

    def fitting(self, queue: TopicQueue, start: int, end: int, room: int) -> tuple[int, int]:
        """Return how many messages of [start, end) have at most ``room`` bytes, and their bytes."""
        units = read_units(self._store.queue(*queue), (start, end))
        return fitting((batch.believable() for batch in units), start, end, room)

    def is_gone(self, queue: TopicQueue) -> bool:
        """Return True: a look lists all that a store has."""
        del queue
        return True

    def await_here(self) -> None:
        """Return: a store is there, or a look raises."""

    def close(self) -> None:
        """Close what is open; the next look opens it again."""
        for queue in self._queues.values():
            queue.close()

    def opened(self) -> Store:
        """Return the store, of which nothing is listed yet."""
        return Store(self._place)

    def look(self, *, at_once: bool = False) -> Bounds:
        """Return (low, high) of each queue: now if ``at_once``, else as of a moment ago.

        The same object as before if nothing was found to have changed.

        Raises StoreReplacedError if the store is not the one it was, and what ``take`` raises.
        """
        begin = time.monotonic()
        pause = min(_IDLE_SHARE * self._took, _LONGEST_PAUSE_S)
        if at_once or (begin - self._looked >= pause and not self._is_quiet(begin)):
            self._look()
            self._looked = time.monotonic()
            self._took = self._looked - begin
        return self._bounds or {}

    def _is_quiet(self, now: float) -> bool:
        """Tell whether very many queues need no look now: nothing was written for some seconds."""
        if self._took < _LONG_LOOK_S or self._place.folder.is_remote:
            return False
        if now < self._quiet_until:
            return True
        is_recent = now - self._looked < _QUIET_SHARE * self._took
        is_same = False
        with suppress(FileNotFoundError):  # Files expire.
            is_same = self._log_end.is_same()
            if not is_same:
                self._written_at = now
                self._log_end.mark()  # What is written from here on is after the look.
        is_quiet = is_same and is_recent and now - self._written_at >= _LATE_S
        if is_quiet:
            self._quiet_until = min(now + _ASKED_S, self._looked + _QUIET_SHARE * self._took)
        return is_quiet

    def _look(self) -> None:
        """Look at the store. Of a commit that begins or ends meanwhile nothing is seen."""
        moment = intent.CommitFence(self._place)
        fresh = time.monotonic() < self._retake_at and self._bounds is not None
        whole = moment.cap() is None
        if fresh and whole and self._stamps is not None and self._stamps == self._stamped():
            if not self._advance():
                return
            if moment.is_over():
                self._found = self._retake()
        else:
            self._found = self._retake()
        if not whole:
            self._stamps = None  # Look at all of it again: the commit will be finished.
        self._publish()

    def _publish(self) -> None:
        self._store = self.opened()  # Its lists of files are those of this look.
        bounds = {name: (queue.low, queue.high) for name, queue in self._queues.items()}
        self._bounds = self._bounds if bounds == self._bounds else bounds
        if self._anchor is None or self._anchor.physical_offset < self._found.low:
            self._anchor = _Anchor.of(self.opened(), self._found)

    def _retake(self) -> Snapshot:
        stamps, begin = self._stamped(), time.monotonic()
        found = self._taken()
        self._check_anchor(found)
        self.close()
        self._queues = {
            (q.topic, q.queue_id): _QueueTail(self._place, q)
            for q in found.queues
            if self.chosen.passes(q.topic, q.queue_id)
        }
        now = time.monotonic()
        self._stamps = stamps
        self._retake_at = now + max(_RETAKE_S, _RETAKE_SHARE * (now - begin))
        return found

    def _taken(self) -> Snapshot:
        """Return a new snapshot; taken again if the broker deleted files meanwhile."""
        for last_try in (False, False, True):
            try:
                return self._take()
            except (FileNotFoundError, CorruptStoreError):
                if last_try:
                    raise
        raise AssertionError

    def _advance(self) -> bool:
        most, grown = _open_queues(), []
        for number, queue in enumerate(self._queues.values()):
            if queue.has_more():
                grown.append((number, queue))
            if number >= most:
                queue.close()
        if grown:
            with CommitLog(self._place.commit_log) as log:
                for number, queue in grown:
                    queue.advance(log)
                    if number >= most:
                        queue.close()
        return bool(grown)

    def _stamped(self) -> dict[str, Stamp] | None:
        """Return the times of the directories that tell of new files; None if one is too new.

        None too where there are batch ConsumeQueues: they are looked at anew each time.
        """
        root, logs = self._place.root, [folder.name for folder in self._place.commit_log]
        if self._place.folder.names(names.BATCH_CONSUME_QUEUE):
            return None
        queues = f"{root}/{names.CONSUME_QUEUE}"
        topics = {f"{queues}/{topic}" for topic, _ in self._queues}
        stamps = {path: _stamp(path) for path in (root, queues, *logs, *topics)}
        newest = max((stamp[1] for stamp in stamps.values() if stamp), default=0)
        return stamps if time.time_ns() - newest > _TICK_NS else None

    def _check_anchor(self, found: Snapshot) -> None:
        if self._anchor is None or self._anchor.is_in(self._place, found):
            return
        error = StoreReplacedError(f"{self._place.root} was replaced while the query read it")
        if self._fail_on_data_loss:
            raise error
        _LOG.warning("%s", error)


def _open_queues() -> int:
    """Return how many descriptors to keep: half of what the process may have."""
    allowed, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return _MAX_OPEN_QUEUES if allowed < 0 else min(_MAX_OPEN_QUEUES, allowed // 2)


class _QueueTail:
    """The bounds of one queue."""

    def __init__(self, place: StoreDir, queue: QueueBounds) -> None:
        self._queue = ConsumeQueue(place, queue.topic, queue.queue_id)
        self._end = QueueEnd(self._queue)
        self.low = queue.low
        self.high = queue.high

    def close(self) -> None:
        self._end.close()

    def has_more(self) -> bool:
        """Tell whether there is a unit behind the last; the cheap question, asked all the time."""
        return self._end.has_unit(self.high)

    def advance(self, log: CommitLog) -> None:
        """Move the end to behind the last unit whose record is there."""
        high = self.high
        while count := self._end.count_from(high, _AHEAD_UNITS):
            high += count
        self.high = written(replace(self._queue), log, self.high, high)


@dataclass(frozen=True, slots=True)
class _Anchor:
    """A record of the store: if another is in its place, the store was rebuilt."""

    topic: str
    queue_id: int
    queue_offset: int
    physical_offset: int
    header: bytes

    @classmethod
    def of(cls, opened: Store, snapshot: Snapshot) -> "_Anchor | None":
        """Return the last record of the first queue that has one."""
        with opened as store:
            for topic, queue_id, last in _lasts(snapshot):
                with suppress(CorruptStoreError, FileNotFoundError):
                    unit = store.queue(topic, queue_id).read(last, last + 1)[0]
                    where = int(unit["physical_offset"])
                    header = store.log.header(where)
                    if header is not None:
                        return cls(topic, queue_id, last, where, header.tobytes())
        return None

    def is_in(self, place: StoreDir, snapshot: Snapshot) -> bool:
        """Tell whether the store still has this record, or has deleted it as it expired."""
        if self.physical_offset < snapshot.low:
            return True
        with Store(place) as store:
            header = store.log.header(self.physical_offset)
        return header is not None and header.tobytes() == self.header


def _lasts(snapshot: Snapshot) -> Iterator[tuple[str, int, int]]:
    return ((q.topic, q.queue_id, q.high - 1) for q in snapshot.queues if q.high > q.low)


def _stamp(path: str) -> Stamp:
    try:
        status = os.stat(path)  # noqa: PTH116 - as everywhere in the read path, strings
    except (FileNotFoundError, NotADirectoryError):
        return None
    return status.st_ino, status.st_mtime_ns
