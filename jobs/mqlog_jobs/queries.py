"""The queries of ``mqlog cat`` and ``mqlog find``: messages by place and time, or by key or id."""

import re
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import closing, suppress
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from heapq import merge
from itertools import islice
from operator import itemgetter
from typing import Final

from mqlog_jobs.render import Row
from mqlog_jobs.views import rows_of
from mqstore.codec.schema import resolve_columns
from mqstore.errors import CorruptStoreError, InvalidOptionError, UnknownTopicError
from mqstore.options import grammar
from mqstore.printable import shown
from mqstore.read.offsets import At, AtTimestamp, Earliest, Last, Latest, Position, resolve
from mqstore.read.scan import scan
from mqstore.read.settings import ScanSettings
from mqstore.read.source import QueueBounds, QueueSlice, Snapshot, slices_of
from mqstore.read.tags import check_tags

_PLACE: Final = re.compile(r"([^/]+)(?:/(\d{1,9})(?:@(-?\d{1,18}))?)?")
_LOG_ORDER: Final = "physicalOffset"
_TIME: Final = "storeTimestamp"
_BY_OFFSET: Final = "queueOffset"
_ERROR: Final = "error"  # Only in a row that stands for a broken record.
_FEW_ROWS: Final = 256  # A batch of a terminal's size: a queue need not be decoded far ahead.


@dataclass(frozen=True, slots=True)
class MessageQuery:
    """Messages of a topic, as the user typed it. Raises InvalidOptionError for a contradiction.

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


@dataclass(frozen=True, slots=True)
class KeyQuery:
    """Messages with any of some keys, or of some ids (UNIQ_KEY or offsetMsgId).

    Raises InvalidOptionError for both or neither.
    """

    keys: tuple[str, ...] = ()
    ids: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        if bool(self.keys) == bool(self.ids):
            given = "both" if self.keys else "neither"
            raise InvalidOptionError("--key, --id", given, "give the one or the other")


def select(
    snapshots: Sequence[Snapshot],
    query: MessageQuery,
    columns: Sequence[str],
    number: int,
    progress: Callable[[int, int], None] | None = None,
) -> Iterator[Row]:
    """Yield the messages of a query, in the order they were stored; at most ``number`` if not 0.

    Messages of several stores are merged by storeTimestamp. ``progress`` is called with the number
    of messages read and their total. Raises UnknownTopicError, and what a scan raises;
    CorruptStoreError only after all messages that were stored before the broken one.
    """
    check_tags(query.tags, option="--tag")
    ends = query.ends(time.time_ns() // 1_000_000)
    settings = ScanSettings(
        columns=tuple(dict.fromkeys((*columns, _LOG_ORDER, _BY_OFFSET, _TIME))),
        tags=query.tags,
        keys=query.keys,
        on_corrupt=query.on_corrupt,
        # A batch has its rescued rows first: one by one they are in the order of the queue.
        batch_rows=1 if query.on_corrupt == "rescue" else _FEW_ROWS,
    )
    chosen = [replace(one, queues=_queues(one, query)) for one in snapshots]
    _check_queue(snapshots, chosen, query)
    _check_offset([queue for one in chosen for queue in one.queues], ends[0])
    stores = [_slices(one, ends) for one in chosen]
    total = sum(piece.end - piece.start for slices in stores for piece in slices)
    read = _Progress(total, progress)
    # A queue's messages lie in the CommitLog in their order, so merging the queues sorts them.
    each = [
        merge(*(_messages(piece, settings, read) for piece in slices), key=_place)
        for slices in stores
    ]
    return islice(_until_broken(_by_time(each)), number or None)


def find(
    snapshots: Sequence[Snapshot],
    query: KeyQuery,
    on_corrupt: str = "rescue",
    since: str | None = None,
) -> Iterator[Row]:
    """Yield every message of a query, all columns, by store, topic and queue; without a limit.

    ``on_corrupt`` is fail, skip or rescue, as in ScanSettings; ``since`` is the least
    storeTimestamp, in the grammar of mqstore.options.grammar; raises what a scan raises.
    Where no IndexFile covers a range it is scanned, and a warning says how much of it.
    Differs from the broker: DefaultMessageStore#queryMessage stops at maxMsgsNumBatch (64), and
    mqadmin queryMsgByKey at its own limit and a span of time.
    """
    settings = ScanSettings(
        columns=resolve_columns("full"), keys=query.keys, msg_ids=query.ids, on_corrupt=on_corrupt
    )
    start: Position = Earliest()
    if since is not None:
        now_ms = time.time_ns() // 1_000_000
        start = AtTimestamp(grammar.timestamp("--since", since, now_ms=now_ms))
    for snapshot in snapshots:
        with closing(snapshot.origin.bounds()) as source:
            ranges = resolve(source, snapshot, lambda _: (start, Latest()))
            slices = source.narrow(slices_of(snapshot, ranges), query.keys, query.ids)
        for batch in scan(slices, settings):
            yield from rows_of(batch)


def _slices(snapshot: Snapshot, ends: tuple[Position, Position]) -> list[QueueSlice]:
    with closing(snapshot.origin.bounds()) as source:
        return slices_of(snapshot, resolve(source, snapshot, lambda _: ends))


def _queues(snapshot: Snapshot, query: MessageQuery) -> tuple[QueueBounds, ...]:
    wanted = query.queue_id
    return tuple(
        queue
        for queue in snapshot.queues
        if queue.topic == query.topic and wanted in (None, queue.queue_id)
    )


def _check_queue(
    snapshots: Sequence[Snapshot], chosen: Sequence[Snapshot], query: MessageQuery
) -> None:
    """Raise UnknownTopicError if there are queues of the topic, and none is the one named."""
    if any(one.queues for one in chosen):
        return
    there = {q.queue_id for one in snapshots for q in one.queues if q.topic == query.topic}
    if there:
        ids = ", ".join(map(str, sorted(there)))
        raise UnknownTopicError(
            f"{shown(query.place)}: the topic has no queue {query.queue_id}; it has {ids}"
        )


def _check_offset(queues: Sequence[QueueBounds], start: Position) -> None:
    for queue in queues:
        if isinstance(start, At) and not queue.low <= start.queue_offset <= queue.high:
            raise InvalidOptionError(
                "@OFFSET",
                start.queue_offset,
                f"queue {queue.topic}/{queue.queue_id} holds [{queue.low}, {queue.high})",
            )


@dataclass(slots=True)
class _Progress:
    """How many of the messages are read."""

    total: int
    report: Callable[[int, int], None] | None
    done: int = 0

    def add(self, count: int) -> None:
        self.done += count
        if self.report is not None:
            self.report(self.done, self.total)


def _messages(piece: QueueSlice, settings: ScanSettings, read: _Progress) -> Iterator[Row]:
    """Yield a queue's messages, and at a broken one a last row that stands for it."""
    start = piece.start
    problem: CorruptStoreError | None = None
    try:
        for batch in scan([piece], settings):
            rows = rows_of(batch)
            if rows:
                last = rows[-1][_BY_OFFSET]
                assert isinstance(last, int)
                read.add(last + 1 - start)
                start = last + 1
            yield from rows
    except CorruptStoreError as error:
        problem = error
    if problem is None:
        return
    # A scan raises before it yields any row of the broken record's batch: those before it follow.
    sound, broken = _divided(replace(piece, start=start), settings)
    for batch in scan([sound], settings):
        yield from rows_of(batch)
    yield {_LOG_ORDER: _place_of(broken, settings), _ERROR: _error_of(broken, settings) or problem}


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
    """Return the physical offset of a broken record from its ConsumeQueue unit, 0 without one."""
    rescue = replace(settings, columns=(_LOG_ORDER,), on_corrupt="rescue", tags="*", keys=())
    with suppress(CorruptStoreError):
        for batch in scan([piece], rescue):
            return _place(rows_of(batch)[0])
    return 0


def _until_broken(rows: Iterable[Row]) -> Iterator[Row]:
    for row in rows:
        error = row.get(_ERROR)
        if isinstance(error, CorruptStoreError):
            raise error
        yield row


def _by_time(stores: Sequence[Iterator[Row]]) -> Iterator[Row]:
    """Merge the messages of stores by storeTimestamp; those of one stay in their order."""
    if len(stores) == 1:
        return stores[0]
    return map(itemgetter(1), merge(*map(_timed, stores), key=itemgetter(0)))


def _timed(rows: Iterable[Row]) -> Iterator[tuple[datetime, Row]]:
    """Yield each row after its storeTimestamp; one without, after that of the row before."""
    last = datetime.min.replace(tzinfo=UTC)
    for row in rows:
        found = row.get(_TIME)
        last = found if isinstance(found, datetime) else last
        yield last, row


def _place(row: Row) -> int:
    place = row[_LOG_ORDER]
    assert isinstance(place, int)
    return place
