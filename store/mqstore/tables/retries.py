"""Messages that a consumer failed on, and where they come from.

A message that a consumer sends back waits in the schedule topic and comes to ``%RETRY%group``;
after too many times it comes to ``%DLQ%group``. It keeps its UNIQ_KEY, RETRY_TOPIC names its
first topic, ORIGIN_MESSAGE_ID its first record by store host and physical offset. The origin is
taken from there if that record is held and has the same UNIQ_KEY, else found by topic and
UNIQ_KEY in the IndexFiles, else null: expired, of another broker, or not indexed.

Reference: AbstractSendMessageProcessor#consumerSendMsgBack; KeyBuilder#parseGroup (pop).
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass
from typing import Final, TypeAlias

import pyarrow as pa

from mqstore.codec.schema import TIMESTAMP, message_schema
from mqstore.format import properties
from mqstore.format.arrays import TopicQueue
from mqstore.format.names import DLQ_PREFIX, RETRY_PREFIX
from mqstore.read.broker_state import BrokerState
from mqstore.read.heads import LocatedRecord
from mqstore.read.lookup import offset_of
from mqstore.read.plan import SplitLimits, split
from mqstore.read.scan import scan
from mqstore.read.settings import ScanSettings
from mqstore.read.source import BoundsSource, QueueSlice, RecordSource, Snapshot
from mqstore.tables.choice import RowChoice, Window, chosen_rows, slices
from mqstore.tables.columns import (
    BROKER_NAME,
    Columns,
    completed,
    repeat,
    schema,
    text,
    times,
)
from mqstore.tables.table import BY_GROUP, BY_TIME, BY_TOPIC, FROM_LOG, Table, TableRequest

RETRY: Final = "RETRY"
DLQ: Final = "DLQ"

COLUMNS: Final[Columns] = (
    BROKER_NAME,
    ("group", pa.string(), False, "consumer group that failed"),
    ("kind", pa.string(), False, "RETRY, or DLQ: given up"),
    ("consumed", pa.bool_(), True, "the offset is beyond it; null: never committed in the queue"),
    ("reconsumeTimes", pa.int32(), False, "failed deliveries before this one"),
    ("msgId", pa.string(), False, "the message's id; the origin has the same"),
    ("tags", pa.string(), True, "property TAGS"),
    ("keys", pa.string(), True, "property KEYS"),
    ("topic", pa.string(), False, "%RETRY%… or %DLQ%…"),
    ("queueId", pa.int32(), False, "queue of that topic"),
    ("queueOffset", pa.int64(), False, "its queue offset there"),
    ("physicalOffset", pa.int64(), False, "byte of the CommitLog"),
    ("storeTimestamp", TIMESTAMP, False, "the broker's clock at the append"),
    ("originTopic", pa.string(), True, "topic that it was first consumed from"),
    ("originMessageId", pa.string(), True, "property ORIGIN_MESSAGE_ID"),
    ("originQueueId", pa.int32(), True, "queue of the origin; null: not held or not found"),
    ("originQueueOffset", pa.int64(), True, "queue offset of the origin"),
    ("originPhysicalOffset", pa.int64(), True, "byte of the CommitLog of the origin"),
    ("originStoreTimestamp", TIMESTAMP, True, "the broker's clock when the origin was appended"),
)
SCHEMA: Final = schema(COLUMNS)

_Place: TypeAlias = tuple[int, LocatedRecord]
_MESSAGE_COLUMNS: Final = tuple(message_schema(tuple(SCHEMA.names[4:13])).names)
_ORIGIN_PLACE: Final = frozenset(SCHEMA.names[15:])


@dataclass(frozen=True, slots=True)
class RetriesPart:
    """Slices of retry and dead-letter queues. Pickles into a task.

    ``group_of`` has the group of each topic, ``consumed`` how far it is by topic and queue.
    """

    slices: tuple[QueueSlice, ...]
    group_of: Mapping[str, str]
    consumed: Mapping[TopicQueue, int]
    choice: RowChoice | None
    on_corrupt: str

    def batches(self, columns: Sequence[str]) -> Iterator[pa.RecordBatch]:
        """Yield the messages in the order of their queues; origins only if ``columns`` ask."""
        finds = not _ORIGIN_PLACE.isdisjoint(columns)
        settings = ScanSettings(
            columns=(*_MESSAGE_COLUMNS, "properties"), on_corrupt=self.on_corrupt
        )
        for piece in self.slices:
            for found in scan([piece], settings):
                rows = found.append_column("originTopic", text(found, properties.RETRY_TOPIC))
                rows = chosen_rows(self.choice, rows, "originTopic")
                yield self._batch(piece, rows, _origins(piece, rows) if finds else None)

    def _batch(
        self, piece: QueueSlice, found: pa.RecordBatch, origins: Sequence[_Place | None] | None
    ) -> pa.RecordBatch:
        origins = [None] * found.num_rows if origins is None else origins
        done = self.consumed.get((piece.topic, piece.queue_id))
        queue_offsets = found["queueOffset"].to_pylist()
        stored = pa.array([o and o[1].store_timestamp_ms for o in origins], pa.int64())
        own = {
            "brokerName": repeat(piece.broker_name, found),
            "group": repeat(self.group_of[piece.topic], found),
            "kind": repeat(_kind(piece.topic), found),
            "consumed": pa.array([None if done is None else q < done for q in queue_offsets],
                                 pa.bool_()),
            "originMessageId": text(found, properties.ORIGIN_MESSAGE_ID),
            "originQueueId": pa.array([o and o[1].queue_id for o in origins], pa.int32()),
            "originQueueOffset": pa.array([o and o[1].queue_offset for o in origins], pa.int64()),
            "originPhysicalOffset": pa.array([o and o[0] for o in origins], pa.int64()),
            "originStoreTimestamp": times(stored),
        }  # fmt: skip
        return completed(SCHEMA, own, found)


def is_source(topic: str) -> bool:
    """Tell whether the table is made of the messages of that topic."""
    return topic.startswith((RETRY_PREFIX, DLQ_PREFIX))


def group_of(topic: str, known: set[str]) -> str:
    """Return the group of a retry or dead-letter topic.

    A pop retry topic has the topic behind the group: behind a ``+`` (V2), or a ``_`` (V1),
    where only a known group tells where it ends.
    """
    name = topic.removeprefix(RETRY_PREFIX).removeprefix(DLQ_PREFIX)
    group, plus, _ = name.partition("+")
    if plus or name in known:
        return group
    ends = (at for at in range(len(name) - 1, 0, -1) if name[at] == "_")
    return next((name[:at] for at in ends if name[:at] in known), name)


def plan(
    source: BoundsSource,
    snapshot: Snapshot,
    window: Window,
    choice: RowChoice | None,
    groups: Callable[[str], object],
    on_corrupt: str,
) -> list[RetriesPart]:
    """Return the parts of one store, balanced by bytes.

    ``window`` is on storeTimestamp, ``choice`` on the origin's topic, ``groups`` on the group.
    """
    committed = source.config.consumer_offsets()
    by_topic = _groups_by_topic(source.config, snapshot)
    chosen = {topic for topic, group in by_topic.items() if groups(group)}
    consumed = {
        (topic, queue_id): queue_offset
        for topic in chosen
        for queue_id, queue_offset in committed.get((topic, by_topic[topic]), {}).items()
    }
    pieces = slices(source, snapshot, chosen.__contains__, window)
    weighed = source.weigh(pieces, strict=on_corrupt == "fail")
    return [
        RetriesPart(part, by_topic, consumed, choice, on_corrupt)
        for part in split(weighed, SplitLimits())
    ]


def known_groups(config: BrokerState, snapshot: Snapshot) -> set[str]:
    """Return the groups of a store: with an offset, configured, or with a retry topic."""
    return _named_groups(config) | set(_groups_by_topic(config, snapshot).values())


def _named_groups(config: BrokerState) -> set[str]:
    return {group for _, group in config.consumer_offsets()} | config.groups()


def _groups_by_topic(config: BrokerState, snapshot: Snapshot) -> dict[str, str]:
    known = _named_groups(config)
    topics = {q.topic for q in snapshot.queues if is_source(q.topic)}
    return {topic: group_of(topic, known) for topic in topics}


def _kind(topic: str) -> str:
    return DLQ if topic.startswith(DLQ_PREFIX) else RETRY


def _origins(piece: QueueSlice, found: pa.RecordBatch) -> list[_Place | None]:
    """Return for each row the place and the record of its origin, or None."""
    try:
        return _find_origins(piece, found)
    except FileNotFoundError:
        # A running broker deleted expired files: what is left is listed anew.
        return _find_origins(piece, found)


def _find_origins(piece: QueueSlice, found: pa.RecordBatch) -> list[_Place | None]:
    ids = text(found, properties.ORIGIN_MESSAGE_ID).to_pylist()
    topics = found["originTopic"].to_pylist()
    keys = found["msgId"].to_pylist()
    places = [None if id_ is None else offset_of(id_) for id_ in ids]
    with closing(piece.origin.records()) as source:
        wanted = {
            place: topic or ""
            for place, topic in zip(places, topics, strict=True)
            if place is not None
        }
        held = source.locate(wanted)
        origins: list[_Place | None] = []
        for place, topic, key in zip(places, topics, keys, strict=True):
            record = None if place is None else held.get(place)
            if place is not None and record is not None and record.uniq_key in (key, None):
                origins.append((place, record))
            else:
                origins.append(_by_key(source, topic, key))
    return origins


def _by_key(source: RecordSource, topic: str | None, key: str) -> _Place | None:
    """Return the oldest record of that topic and key in the index."""
    if topic is None:
        return None
    records = source.locate(dict.fromkeys(source.places_of_key(topic, key), topic))
    return next(((p, r) for p, r in records.items() if (r.topic, r.uniq_key) == (topic, key)), None)


def _planned(request: TableRequest) -> list[RetriesPart]:
    choice = request.choice()
    sources = request.sources(is_source)
    groups = request.group_choice(
        lambda: set().union(*(known_groups(source.config, held) for source, held in sources))
    )
    return [
        part
        for source, held in sources
        for part in plan(source, held, request.window, choice, groups, request.on_corrupt)
    ]


RETRIES: Final = Table(
    "retries",
    COLUMNS,
    _planned,
    options=BY_TOPIC | BY_TIME | BY_GROUP | FROM_LOG,
    order=("group", "kind", "storeTimestamp", "brokerName", "physicalOffset"),
)
