"""Latency: how long messages of a topic took, from their birth to the end of their consumption.

The stages of a message: BORN_TO_STORED is in the message itself. The others are of each consumer
group, and need the events that its consumers traced, joined by msgId: STORED_TO_DELIVERED until its
first delivery starts, WORK of each delivery, RETRIES from the end of the first delivery until the
last one starts, END_TO_END from its birth until a delivery has succeeded.

A message without the events of a stage is not in its count. Clocks of several hosts meet in all
stages but WORK and RETRIES, so a duration may be below zero.
"""

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Final, NamedTuple

import numpy as np
import pyarrow as pa

from mqstore.backlog.request import group_test, named_groups
from mqstore.codec.schema import TIMESTAMP
from mqstore.errors import InvalidOptionError, shown
from mqstore.format.arrays import Int64s
from mqstore.format.names import is_system_topic
from mqstore.format.trace_entries import PUB, SUB_AFTER, SUB_BEFORE
from mqstore.read.scan import scan
from mqstore.read.settings import ScanSettings
from mqstore.read.source import QueueSlice
from mqstore.tables.choice import Window, slices
from mqstore.tables.columns import US, Columns, TableRow, batches, schema
from mqstore.tables.deliveries import Delivered, Deliveries, TooManyDeliveriesError
from mqstore.tables.percentiles import Durations
from mqstore.tables.table import BY_GROUP, BY_QUEUE, BY_RANGE, FROM_LOG, Table, TableRequest
from mqstore.tables.traces import entries, trace_sources

STAGES: Final = ("BORN_TO_STORED", "STORED_TO_DELIVERED", "WORK", "RETRIES", "END_TO_END")
COLUMNS: Final[Columns] = (
    ("topic", pa.string(), False, "topic"),
    ("group", pa.string(), True, "consumer group; null: BORN_TO_STORED, which is of no group"),
    ("brokerName", pa.string(), True, "with byQueue: name of the store's broker"),
    ("queueId", pa.int32(), True, "with byQueue: queue of the topic"),
    ("intervalStart", TIMESTAMP, True, "with interval: its messages were stored from here on"),
    ("stage", pa.string(), False, ", ".join(STAGES)),
    ("count", pa.int64(), False, "durations; of WORK deliveries, else messages"),
    ("p50Ms", pa.float64(), True, "median; null: none"),
    ("p95Ms", pa.float64(), True, "95 of 100 are no longer"),
    ("p99Ms", pa.float64(), True, "99 of 100 are no longer"),
    ("maxMs", pa.float64(), True, "the longest"),
    ("messages", pa.int64(), False, "messages stored"),
    ("untraced", pa.int64(), False, "of these without an event: of a send, or of the group"),
    ("unfinished", pa.int64(), False, "deliveries that were started, and no end is traced"),
    ("failed", pa.int64(), False, "deliveries that failed"),
    ("exact", pa.bool_(), False, "false: the percentiles are of a sketch"),
)
SCHEMA: Final = schema(COLUMNS)

MAX_COUNTED_APART: Final = 100_000
"""Groups, queues and intervals of a topic whose durations are counted apart."""
PASS_MESSAGES: Final = 200_000
_MAX_HELD: Final = 10_000_000
_TRACES_BEFORE_MS: Final = 600_000
"""How far the clocks of two brokers may differ: traces are read from so long before a window."""
_TIMED_COLUMNS: Final = ("msgId", "bornTimestamp", "storeTimestamp")


class _Place(NamedTuple):
    """What durations are counted by, beside group and stage: None where that is not asked for."""

    topic: str
    broker_name: str | None
    queue_id: int | None
    interval_ms: int | None


@dataclass(frozen=True, slots=True)
class LatencyPart:
    """Messages of some topics with their traces. Pickles into a task."""

    messages: tuple[QueueSlice, ...]
    traces: tuple[QueueSlice, ...]
    groups: str | None = None
    by_queue: bool = False
    interval_ms: int | None = None
    tags: str = "*"
    on_corrupt: str = "fail"
    pass_messages: int = PASS_MESSAGES
    system: bool = False

    def batches(self, _columns: Sequence[str]) -> Iterator[pa.RecordBatch]:
        """Yield the rows: of each place the stages of no group, then those of each group.

        Raises InvalidOptionError where there are more cells or deliveries than fit into memory.
        """
        cells = _Cells(named_groups(self.groups))
        chosen = group_test(self.groups, system=self.system)
        for chunk in self._chunks():
            _add_traced(cells, chunk, self._deliveries(chunk, chosen))
        yield from batches(cells.rows(), SCHEMA)

    def _chunks(self) -> Iterator["_Chunk"]:
        chunk = _Chunk()
        settings = ScanSettings(columns=_TIMED_COLUMNS, tags=self.tags, on_corrupt=self.on_corrupt)
        for piece in self.messages:
            for found in scan([piece], settings):
                chunk.add(found, self._places(piece, found))
                if len(chunk.places) >= self.pass_messages:
                    yield chunk
                    chunk = _Chunk()
        yield chunk

    def _places(self, piece: QueueSlice, found: pa.RecordBatch) -> list[_Place]:
        place = _Place(piece.topic, None, None, None)
        if self.by_queue:
            place = _Place(piece.topic, piece.broker_name, piece.queue_id, None)
        width = self.interval_ms
        if width is None:
            return [place] * found.num_rows
        starts = _ms(found["storeTimestamp"]) // width * width
        return [place._replace(interval_ms=start) for start in starts.tolist()]

    def _deliveries(self, chunk: "_Chunk", chosen: Callable[[str], object]) -> Deliveries:
        """Return the deliveries of a chunk's messages; marks those whose send is traced."""
        found = Deliveries()
        numbers = chunk.numbers
        for piece in self.traces if numbers else ():
            for _, entry in entries(piece, on_corrupt=self.on_corrupt):
                for number in numbers.get(entry.msg_id or "", ()):
                    if entry.event == PUB:
                        chunk.sent.add(number)
                    elif entry.event in {SUB_BEFORE, SUB_AFTER} and chosen(entry.group or ""):
                        try:
                            found.add(number, entry)
                        except TooManyDeliveriesError:
                            raise _too_many(chunk.places[number].topic, "deliveries") from None
        return found


@dataclass(slots=True)
class _Chunk:
    """Messages that are joined with the traces in one pass, by number.

    ``numbers`` are those of a message id, the first one of each topic.
    """

    numbers: dict[str, tuple[int, ...]] = field(default_factory=dict)
    places: list[_Place] = field(default_factory=list)
    born_ms: list[int] = field(default_factory=list)
    stored_ms: list[int] = field(default_factory=list)
    sent: set[int] = field(default_factory=set)

    def add(self, found: pa.RecordBatch, places: list[_Place]) -> None:
        first = len(self.places)
        self.places += places
        for number, msg_id in enumerate(found["msgId"].to_pylist(), first):
            known, topic = self.numbers.get(msg_id or "", ()), self.places[number].topic
            if all(self.places[other].topic != topic for other in known):
                self.numbers[msg_id or ""] = (*known, number)
        self.born_ms += _ms(found["bornTimestamp"]).tolist()
        self.stored_ms += _ms(found["storeTimestamp"]).tolist()


@dataclass(slots=True)
class _Cell:
    """The durations of one place and group, by stage, and what has none."""

    durations: dict[str, Durations] = field(default_factory=dict)
    traced: int = 0
    unfinished: int = 0
    failed: int = 0


class _Cells:
    """The cells of topics, by place and group; None: of no group."""

    def __init__(self, named: set[str]) -> None:
        self._named = named
        self._counted: Counter[str] = Counter()
        self._cells: dict[tuple[_Place, str | None], _Cell] = {}
        self._messages: Counter[_Place] = Counter()

    def add_messages(self, places: list[_Place]) -> None:
        self._messages.update(places)

    def cell(self, place: _Place, group: str | None) -> _Cell:
        """Return a cell, a new one if need be; raises InvalidOptionError if there are too many."""
        found = self._cells.get((place, group))
        if found is None:
            if self._counted[place.topic] >= MAX_COUNTED_APART:
                raise _too_many(place.topic, "groups, queues and intervals")
            self._counted[place.topic] += 1
            found = self._cells[place, group] = _Cell()
        return found

    def add(self, place: _Place, group: str | None, stage: str, values: list[int]) -> None:
        cell = self.cell(place, group)
        durations = cell.durations.setdefault(stage, Durations())
        durations.add(np.array(values, np.int64))

    def bound(self) -> None:
        """Keep sketches of the largest cells if there are many values."""
        every = [d for cell in self._cells.values() for d in cell.durations.values()]
        every.sort(key=lambda d: d.held)
        held = sum(one.held for one in every)
        while held > _MAX_HELD:
            largest = every.pop()
            held -= largest.held
            largest.sketch()

    def rows(self) -> Iterator[TableRow]:
        for place in self._messages:
            for name in sorted(self._named):
                self.cell(place, name)
        order = sorted(self._cells, key=lambda key: (key[1] or "", *(str(one) for one in key[0])))
        for place, group in order:
            cell, messages = self._cells[place, group], self._messages[place]
            start = None if place.interval_ms is None else place.interval_ms * US
            for stage in STAGES[:1] if group is None else STAGES[1:]:
                durations = cell.durations.get(stage, Durations())
                yield (
                    place.topic, group, place.broker_name, place.queue_id, start, stage,
                    durations.count, *durations.percentiles(), messages, messages - cell.traced,
                    cell.unfinished, cell.failed, durations.is_exact,
                )  # fmt: skip


def _add_traced(cells: _Cells, chunk: _Chunk, deliveries: Deliveries) -> None:
    """Add the messages of a chunk and their deliveries to the cells."""
    values: dict[tuple[_Place, str | None, str], list[int]] = {}

    def note(key: tuple[_Place, str | None], stage: str, duration: int | None) -> None:
        if duration is not None:
            values.setdefault((*key, stage), []).append(duration)

    cells.add_messages(chunk.places)
    for number, place in enumerate(chunk.places):
        note((place, None), STAGES[0], chunk.stored_ms[number] - chunk.born_ms[number])
    for number in chunk.sent:
        cells.cell(chunk.places[number], None).traced += 1
    for number, name, found in deliveries:
        key = chunk.places[number], name
        _count(cells.cell(*key), found)
        for stage, duration in _stages(found, chunk.born_ms[number], chunk.stored_ms[number]):
            note(key, stage, duration)
    for (place, group, stage), some in values.items():
        cells.add(place, group, stage, some)
    cells.bound()


def _count(cell: _Cell, found: Delivered) -> None:
    cell.traced += 1
    for delivery in found.deliveries.values():
        cell.unfinished += delivery.success is None
        cell.failed += delivery.success is False


def _stages(found: Delivered, born_ms: int, stored_ms: int) -> Iterator[tuple[str, int | None]]:
    first, consumed_ms = found.first(), found.consumed_ms()
    if first is not None and first.start_ms is not None:
        yield "STORED_TO_DELIVERED", first.start_ms - stored_ms
    for delivery in found.deliveries.values():
        yield "WORK", delivery.work_ms
    yield "RETRIES", found.retries_ms()
    yield "END_TO_END", None if consumed_ms is None else consumed_ms - born_ms


def _ms(times: pa.Array) -> Int64s:
    found: Int64s = times.cast(pa.int64()).fill_null(0).to_numpy(zero_copy_only=False)
    return found // US


def _too_many(topic: str, what: str) -> InvalidOptionError:
    return InvalidOptionError(
        "table",
        "latency",
        f"{shown(topic)} has more {what} than fit into memory: read fewer messages "
        "(startingTimestamp, endingTimestamp), name the groups, or a longer interval",
    )


def _planned(request: TableRequest) -> list[LatencyPart]:
    request.group_choice(request.known_groups)
    chosen = request.stores.selection
    named = set(chosen.subscribe or chosen.assign or ())
    trace_topic, sources = trace_sources(request)
    messages = []
    for piece in request.slices():
        own = is_system_topic(piece.topic) or piece.topic == trace_topic
        if piece.topic in named or not own:
            messages.append(piece)
    start_ms = request.window.start_ms
    since = Window(None if start_ms is None else max(0, start_ms - _TRACES_BEFORE_MS))
    traces = tuple(
        piece
        for source, snapshot in sources
        for piece in slices(source, snapshot, trace_topic.__eq__, since)
    )
    how = request.groups, request.by_queue, request.interval_ms, request.tags, request.on_corrupt
    return [
        LatencyPart(tuple(some), traces, *how, system=request.system) for some in _shared(messages)
    ]


def _shared(messages: Sequence[QueueSlice]) -> Iterator[list[QueueSlice]]:
    """Yield the slices of topics: of one, or of several that share a pass over the traces."""
    of_topics: dict[str, list[QueueSlice]] = {}
    for piece in messages:
        of_topics.setdefault(piece.topic, []).append(piece)
    shared: list[QueueSlice] = []
    room = PASS_MESSAGES
    for pieces in of_topics.values():
        length = sum(piece.end - piece.start for piece in pieces)
        if shared and length > room:
            yield shared
            shared, room = [], PASS_MESSAGES
        shared += pieces
        room -= length
    if shared:
        yield shared


LATENCY: Final = Table(
    "latency",
    COLUMNS,
    _planned,
    options=BY_QUEUE | BY_RANGE | BY_GROUP | FROM_LOG | {"traceTopic", "interval", "byQueue"},
    order=("topic", "group", "brokerName", "queueId", "intervalStart"),
)
