"""The messages that POP groups have not acknowledged: popped or not, one by one.

Groups that pull acknowledge no messages: what they have not consumed is a read with
``startingGroup``. A message that was delivered again is a copy in the retry topic of its group and
topic, and no longer where it was first.

Reference: PopMessageProcessor, PopReviveService; see ``mqstore.pop``.
"""

import logging
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
import pyarrow as pa

from mqstore.codec.schema import TIMESTAMP, message_schema
from mqstore.errors import shown
from mqstore.format.arrays import Int64s, Mask, TopicQueue
from mqstore.pop.look import offsets_and_bounds, pop_state
from mqstore.pop.state import DUE, INFLIGHT, NOT_POPPED, READY, UNKNOWN_POPS, PopState
from mqstore.read.plan import SplitLimits, split
from mqstore.read.queues import QueueBounds
from mqstore.read.scan import scan
from mqstore.read.settings import ScanSettings
from mqstore.read.source import BoundsSource, QueueSlice, Snapshot, slices_of
from mqstore.tables.choice import RowChoice
from mqstore.tables.columns import BROKER_NAME, Columns, completed, repeat, schema, times
from mqstore.tables.owners import OF_GROUP
from mqstore.tables.table import BY_GROUP, BY_QUEUE, FROM_LOG, Table, TableRequest

COLUMNS: Final[Columns] = (
    BROKER_NAME,
    ("group", pa.string(), False, "consumer group that pops"),
    ("topic", pa.string(), False, "topic, or the retry topic of the group and a topic"),
    ("queueId", pa.int32(), False, "queue of the topic"),
    ("queueOffset", pa.int64(), False, "queue offset"),
    ("mode", pa.string(), False, "how the group pops: POP, POP_FIFO, POP_KV"),
    ("state", pa.string(), False,
     "READY: never popped; INFLIGHT: popped and invisible; DUE: to be delivered again"),
    ("popTimestamp", TIMESTAMP, True, "when it was popped, or its time changed last; null: READY"),
    ("visibleTimestamp", TIMESTAMP, True, "when its invisible time is over; null: READY"),
    ("deliveries", pa.int32(), False, "how often it was delivered"),
    ("tags", pa.string(), True, "property TAGS"),
    ("keys", pa.string(), True, "property KEYS"),
    ("msgId", pa.string(), False, "the message's id; copies in a retry topic have the same"),
    ("bornTimestamp", TIMESTAMP, False, "the producer's clock at the send"),
    ("storeTimestamp", TIMESTAMP, False, "the broker's clock at the append"),
    ("physicalOffset", pa.int64(), False, "byte of the CommitLog"),
    ("storeSize", pa.int32(), False, "bytes of the record"),
    ("body", pa.binary(), True, "body"),
)  # fmt: skip
SCHEMA: Final = schema(COLUMNS)

_LOG = logging.getLogger(__name__)
_READ_AT_ONCE: Final = 64  # Messages between two open ones that are read with them.
_MOST_RUNS: Final = 1_000  # Of one queue.
_MESSAGE_COLUMNS: Final = frozenset(message_schema(tuple(SCHEMA.names[10:])).names)


@dataclass(frozen=True, slots=True, eq=False)
class UnacknowledgedQueue:
    """What is open in one queue, int64[n] each, and where the messages begin that are ready.

    Queue offsets ascend. Times are epoch ms; ``deliveries`` are 0 where the record tells them.
    """

    begin: int
    queue_offsets: Int64s
    visible_ms: Int64s
    pop_ms: Int64s
    deliveries: Int64s


@dataclass(frozen=True, slots=True)
class UnacknowledgedPart:
    """Slices of queues of one group. Pickles into a task."""

    group: str
    mode: Mapping[str, str]
    slices: tuple[QueueSlice, ...]
    queues: Mapping[TopicQueue, UnacknowledgedQueue]
    as_of_ms: int
    on_corrupt: str

    def batches(self, columns: Sequence[str]) -> Iterator[pa.RecordBatch]:
        """Yield the messages in the order of their queues; only ``columns`` are right."""
        wanted = {"queueOffset", "reconsumeTimes", *_MESSAGE_COLUMNS.intersection(columns)}
        settings = ScanSettings(columns=tuple(sorted(wanted)), on_corrupt=self.on_corrupt)
        for piece in self.slices:
            queue = self.queues[piece.topic, piece.queue_id]
            for found in scan([piece], settings):
                yield self._batch(piece, queue, found)

    def _batch(
        self, piece: QueueSlice, queue: UnacknowledgedQueue, found: pa.RecordBatch
    ) -> pa.RecordBatch:
        places = found["queueOffset"].to_numpy()
        is_open = np.isin(places, queue.queue_offsets) & (places < queue.begin)
        kept = is_open | (places >= queue.begin)
        found = found.filter(pa.array(kept))
        places, popped = places[kept], is_open[kept]
        rows = np.zeros(len(places), np.int64)
        rows[popped] = np.searchsorted(queue.queue_offsets, places[popped])
        visible, pops, known = (
            _taken(column, rows, popped)
            for column in (queue.visible_ms, queue.pop_ms, queue.deliveries)
        )
        popped = popped & (visible != NOT_POPPED)
        late = visible < self.as_of_ms
        deliveries = found["reconsumeTimes"].to_numpy() + popped
        state = np.where(popped, np.where(late, DUE, INFLIGHT), READY)
        own = {
            "brokerName": repeat(piece.broker_name, found),
            "group": repeat(self.group, found),
            "topic": repeat(piece.topic, found),
            "queueId": repeat(piece.queue_id, found),
            "mode": repeat(self.mode[piece.topic], found),
            "state": pa.array(state.tolist(), pa.string()),
            "popTimestamp": times(pa.array(pops, mask=~popped)),
            "visibleTimestamp": times(pa.array(visible, mask=~popped)),
            "deliveries": pa.array(np.where(known > 0, known, deliveries).astype(np.int32)),
        }
        unread = [name for name in SCHEMA.names if name not in own | _present(found)]
        own |= {name: pa.nulls(found.num_rows, SCHEMA.field(name).type) for name in unread}
        fields = [f.with_nullable(f.nullable or f.name in unread) for f in SCHEMA]
        return completed(pa.schema(fields), own, found)


def _present(found: pa.RecordBatch) -> dict[str, None]:
    return dict.fromkeys(found.schema.names)


def _taken(column: Int64s, rows: Int64s, popped: Mask) -> Int64s:
    taken = np.zeros(len(rows), np.int64)
    taken[popped] = column[rows[popped]]
    return taken


def plan(
    source: BoundsSource, snapshot: Snapshot, request: TableRequest, choice: RowChoice | None
) -> list[UnacknowledgedPart]:
    """Return the parts of one broker, balanced by bytes; ``snapshot`` is of all its topics."""
    groups = request.group_choice(request.known_groups)
    committed, snapshot = offsets_and_bounds(source, snapshot)
    facts = source.config.pop_facts()
    state = pop_state(source, snapshot, groups, facts, committed, request.groups)
    parts = []
    for group in sorted({group for _, group in state.modes}):
        topics = {topic for topic, name in state.modes if name == group}
        chosen = [
            q for q in snapshot.queues if q.topic in topics and _is_of(choice, state, group, q)
        ]
        queues, pieces = {}, []
        for bounds in chosen:
            found = state.queue(bounds.topic, group, bounds.queue_id)
            if found is None:
                continue
            if found.status in UNKNOWN_POPS:
                names = found.status, shown(group), shown(bounds.topic)
                _LOG.warning("%s: what group %s popped of %s is not listed", *names)
            begin = min(max(found.next, bounds.low), bounds.high)
            held = (found.queue_offsets >= bounds.low) & (found.queue_offsets < begin)
            columns = (found.queue_offsets, found.visible_ms, found.pop_ms, found.deliveries)
            name = bounds.topic, bounds.queue_id
            queues[name] = UnacknowledgedQueue(begin, *(column[held] for column in columns))
            runs = [*_runs(found.queue_offsets[held]), (begin, bounds.high)]
            pieces += slices_of(snapshot, [(bounds, *run) for run in runs])
        weighed = source.weigh(pieces, strict=request.on_corrupt == "fail")
        modes = {topic: state.modes[topic, group] for topic in topics}
        parts += [
            UnacknowledgedPart(
                group, modes, part, _of(part, queues), snapshot.taken_ms, request.on_corrupt
            )
            for part in split(weighed, SplitLimits(parallelism=request.cores))
        ]
    return parts


def _is_of(choice: RowChoice | None, state: PopState, group: str, queue: QueueBounds) -> bool:
    base = state.bases.get((queue.topic, group))
    if choice is None or choice.passes(queue.topic, queue.queue_id):
        return True
    return base is not None and choice.passes(base, None)


def _runs(places: Int64s) -> Iterator[tuple[int, int]]:
    """Yield ranges, not too many, that hold the ascending places, and few others."""
    if not len(places):
        return
    gaps = np.diff(places, prepend=places[0])
    over = _READ_AT_ONCE
    if len(gaps) > _MOST_RUNS:
        over = max(over, int(np.partition(gaps, -_MOST_RUNS)[-_MOST_RUNS]))
    first = np.flatnonzero(gaps > over)
    first = np.concatenate(([0], first))
    last = np.append(first[1:], len(places)) - 1
    for begin, end in zip(places[first].tolist(), places[last].tolist(), strict=True):
        yield begin, end + 1


def _of(
    pieces: Sequence[QueueSlice], queues: Mapping[TopicQueue, UnacknowledgedQueue]
) -> dict[TopicQueue, UnacknowledgedQueue]:
    """Return what a part needs of the queues."""
    found = {}
    for name in {(piece.topic, piece.queue_id) for piece in pieces}:
        queue = queues[name]
        its = [piece for piece in pieces if (piece.topic, piece.queue_id) == name]
        start, end = min(piece.start for piece in its), max(piece.end for piece in its)
        inside = (queue.queue_offsets >= start) & (queue.queue_offsets < end)
        columns = (queue.queue_offsets, queue.visible_ms, queue.pop_ms, queue.deliveries)
        found[name] = UnacknowledgedQueue(queue.begin, *(column[inside] for column in columns))
    return found


def _planned(request: TableRequest) -> list[UnacknowledgedPart]:
    choice = request.choice(consumed=True)
    return [
        part
        for source, snapshot in zip(
            request.stores.sources, request.stores.held_of(lambda _: True), strict=True
        )
        for part in plan(source, snapshot, request, choice)
    ]


UNACKNOWLEDGED: Final = Table(
    "unacknowledged",
    (*COLUMNS, *OF_GROUP),
    _planned,
    options=BY_QUEUE | BY_GROUP | FROM_LOG,
    order=("group", "brokerName", "topic", "queueId", "queueOffset"),
    owner="group",
)
