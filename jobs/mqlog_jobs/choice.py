"""Which messages the command prints: a place in a store, a time, tags and keys."""

import re
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from heapq import merge
from itertools import islice
from typing import Final

from mqlog_jobs.render import Row
from mqlog_jobs.views import rows_of
from mqstore.errors import CorruptStoreError, InvalidOptionError, UnknownTopicError, shown
from mqstore.options import grammar
from mqstore.read.offsets import At, AtTimestamp, Earliest, Last, Latest, Position, resolve
from mqstore.read.plan import QueueSlice, slices_of
from mqstore.read.scan import scan
from mqstore.read.settings import ScanSettings
from mqstore.read.snapshot import QueueBounds, Snapshot, topics_of

_PLACE: Final = re.compile(r"([^/]+)(?:/(\d{1,9})(?:@(-?\d{1,18}))?)?")
_ORDER: Final = "physicalOffset"
_NUMBER: Final = "queueOffset"
_BROKEN: Final = "broken"  # In a row that stands for a broken record: the error.
_FEW_ROWS: Final = 256  # A person asks for some lines; a queue need not be decoded far ahead.


@dataclass(frozen=True, slots=True)
class MessageQuery:
    """What was asked for, as typed. Raises InvalidOptionError for what cannot be meant.

    place: ``TOPIC``, ``TOPIC/QUEUE`` or ``TOPIC/QUEUE@OFFSET``; an offset below zero counts from
    the queue's end. tags: a tag expression. keys: any of them. since, until: [since, until) of
    storeTimestamp, in the grammar of mqstore.options.grammar. on_corrupt: fail, skip or rescue, as
    in ScanSettings.
    """

    place: str
    tags: str = "*"
    keys: tuple[str, ...] = ()
    since: str | None = None
    until: str | None = None
    on_corrupt: str = "fail"

    def __post_init__(self) -> None:
        if self.since is not None and self._parts()[2] is not None:
            raise InvalidOptionError("--since", self.since, "not together with @OFFSET")

    @property
    def topic(self) -> str:
        """The topic named."""
        return self._parts()[0]

    @property
    def queue_id(self) -> int | None:
        """The queue named, or None for all of the topic."""
        return self._parts()[1]

    def ends(self, now_ms: int) -> tuple[Position, Position]:
        """Return where to start and to end in each queue."""
        start: Position = Earliest()
        queue_offset = self._parts()[2]
        if queue_offset is not None:
            start = At(queue_offset) if queue_offset >= 0 else Last(-queue_offset)
        elif self.since is not None:
            start = AtTimestamp(grammar.timestamp("--since", self.since, now_ms=now_ms))
        if self.until is None:
            return start, Latest()
        return start, AtTimestamp(grammar.timestamp("--until", self.until, now_ms=now_ms))

    def _parts(self) -> tuple[str, int | None, int | None]:
        found = _PLACE.fullmatch(self.place)
        if found is None:
            raise InvalidOptionError(
                "TOPIC", self.place, "name a TOPIC, a TOPIC/QUEUE, or a TOPIC/QUEUE@OFFSET"
            )
        topic, queue_id, queue_offset = found.groups()
        return (
            topic,
            None if queue_id is None else int(queue_id),
            None if queue_offset is None else int(queue_offset),
        )


def choose(
    snapshot: Snapshot,
    wanted: MessageQuery,
    columns: Sequence[str],
    number: int,
    told: Callable[[int, int], None] | None = None,
) -> Iterator[Row]:
    """Yield the messages wanted, in the order they were stored; at most ``number`` if not 0.

    ``told`` hears now and then how many messages are read, and how many there are. Raises
    UnknownTopicError, and what a scan raises; CorruptStoreError only when all messages are
    yielded that were stored before the broken one.
    """
    ends = wanted.ends(time.time_ns() // 1_000_000)
    settings = ScanSettings(
        columns=tuple(dict.fromkeys((*columns, _ORDER, _NUMBER))),
        tags=wanted.tags,
        keys=wanted.keys,
        on_corrupt=wanted.on_corrupt,
        # What is rescued of a batch comes before the rest of it: one by one they are in order.
        batch_rows=1 if wanted.on_corrupt == "rescue" else _FEW_ROWS,
    )
    held = replace(snapshot, queues=_queues(snapshot, wanted))
    _check_held(held.queues, ends[0])
    slices = slices_of(held, resolve(held, lambda _: ends))
    # A queue's messages lie in the CommitLog in their order, so merging the queues sorts them.
    read = _Read(sum(piece.end - piece.start for piece in slices), told)
    each = [_messages(piece, settings, read) for piece in slices]
    return islice(_until_broken(merge(*each, key=_place)), number or None)


def check_known(snapshot: Snapshot, topic: str) -> None:
    """Raise UnknownTopicError, with the nearest names, for a topic the store does not know."""
    if any(queue.topic == topic for queue in snapshot.queues):
        return
    known = topics_of(snapshot.store.root, snapshot.store.commit_log)
    if topic in known:
        return  # Known to the broker, and nothing was ever sent to it.
    near = grammar.near(topic, known) or sorted(known)[:3]
    raise UnknownTopicError(
        f"{shown(topic)}: no such topic in this store; there are {len(known)}"
        + (f", among them {', '.join(map(shown, near))}" if near else "")
    )


def _queues(snapshot: Snapshot, wanted: MessageQuery) -> tuple[QueueBounds, ...]:
    check_known(snapshot, wanted.topic)
    found = [queue for queue in snapshot.queues if queue.topic == wanted.topic]
    if not found:
        return ()
    if wanted.queue_id is None:
        return tuple(found)
    chosen = tuple(queue for queue in found if queue.queue_id == wanted.queue_id)
    if not chosen:
        ids = ", ".join(str(queue.queue_id) for queue in found)
        raise UnknownTopicError(
            f"{shown(wanted.place)}: the topic has no queue {wanted.queue_id}; it has {ids}"
        )
    return chosen


def _check_held(queues: Sequence[QueueBounds], start: Position) -> None:
    for queue in queues:
        if isinstance(start, At) and not queue.low <= start.queue_offset <= queue.high:
            raise InvalidOptionError(
                "@OFFSET",
                start.queue_offset,
                f"queue {queue.topic}/{queue.queue_id} holds [{queue.low}, {queue.high})",
            )


@dataclass(slots=True)
class _Read:
    """How many of the messages are read."""

    total: int
    told: Callable[[int, int], None] | None
    done: int = 0

    def add(self, count: int) -> None:
        self.done += count
        if self.told is not None:
            self.told(self.done, self.total)


def _messages(piece: QueueSlice, settings: ScanSettings, read: _Read) -> Iterator[Row]:
    """Yield a queue's messages, and at a broken one a last row that stands for it."""
    start = piece.start
    problem: CorruptStoreError | None = None
    try:
        for batch in scan([piece], settings):
            rows = rows_of(batch)
            if rows:
                last = rows[-1][_NUMBER]
                assert isinstance(last, int)
                read.add(last + 1 - start)
                start = last + 1
            yield from rows
    except CorruptStoreError as error:
        problem = error
    if problem is None:
        return
    # A batch is broken as a whole: what of it comes before the broken record is still to come.
    sound, broken = _divided(replace(piece, start=start), settings)
    for batch in scan([sound], settings):
        yield from rows_of(batch)
    yield {_ORDER: _place_of(broken, settings), _BROKEN: _error_of(broken, settings) or problem}


def _divided(piece: QueueSlice, settings: ScanSettings) -> tuple[QueueSlice, QueueSlice]:
    """Return the part of a broken slice before its first broken record, and that record's."""
    low, high = piece.start, piece.end
    while high - low > 1:
        middle = (low + high) // 2
        if _error_of(replace(piece, start=low, end=middle), settings) is None:
            low = middle
        else:
            high = middle
    return replace(piece, end=low), replace(piece, start=low, end=high)


def _error_of(piece: QueueSlice, settings: ScanSettings) -> CorruptStoreError | None:
    try:
        for _ in scan([piece], settings):
            pass
    except CorruptStoreError as error:
        return error
    return None


def _place_of(piece: QueueSlice, settings: ScanSettings) -> int:
    """Return the physical offset of a broken record, as its unit tells it; 0 if nothing does."""
    asked = replace(settings, columns=(_ORDER,), on_corrupt="rescue", tags="*", keys=())
    with suppress(CorruptStoreError):
        for batch in scan([piece], asked):
            return _place(rows_of(batch)[0])
    return 0


def _until_broken(rows: Iterable[Row]) -> Iterator[Row]:
    for row in rows:
        error = row.get(_BROKEN)
        if isinstance(error, CorruptStoreError):
            raise error
        yield row


def _place(row: Row) -> int:
    place = row[_ORDER]
    assert isinstance(place, int)
    return place
