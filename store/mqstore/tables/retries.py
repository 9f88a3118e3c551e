"""Messages that a consumer failed on, and where they come from.

A message that a consumer sends back waits in the schedule topic and comes to ``%RETRY%group``;
after too many times it comes to ``%DLQ%group``. It keeps its UNIQ_KEY, RETRY_TOPIC names its
first topic, ORIGIN_MESSAGE_ID its first record by store host and physical offset. The origin is
taken from there if that record is held and has the same UNIQ_KEY, else found by topic and
UNIQ_KEY in the IndexFiles, else null: expired, of another broker, or not indexed.

A message that a POP group did not acknowledge in time is copied to the retry topic of the group and
the topic: it has no RETRY_TOPIC and no ORIGIN_MESSAGE_ID, and its topic is that which the retry
topic is of. A copy that is not acknowledged is copied again, to the end of the same topic.

Reference: AbstractSendMessageProcessor#consumerSendMsgBack; PopReviveService#reviveRetry.
"""

from collections.abc import Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass
from typing import Final, TypeAlias

import pyarrow as pa

from mqstore.codec import compute as pc
from mqstore.codec.arrow_compat import with_column
from mqstore.codec.schema import TIMESTAMP, message_schema
from mqstore.format import properties
from mqstore.format.names import DLQ_PREFIX
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
from mqstore.tables.retry_owners import (
    ChosenOwners,
    RetryOwner,
    chosen_owners,
    is_source,
    owner_of,
)
from mqstore.tables.table import BY_GROUP, BY_TIME, BY_TOPIC, FROM_LOG, Table, TableRequest

RETRY: Final = "RETRY"
DLQ: Final = "DLQ"

COLUMNS: Final[Columns] = (
    BROKER_NAME,
    ("group", pa.string(), False, "consumer group that failed"),
    ("kind", pa.string(), False, "RETRY, or DLQ: given up"),
    ("consumed", pa.bool_(), True,
     "the offset is beyond it, or it is DONE; null: never committed in the queue, or not known"),
    ("state", pa.string(), True,
     "of POP: READY, INFLIGHT, DUE as in unacknowledged; DONE: acknowledged, or copied again"),
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
)  # fmt: skip
SCHEMA: Final = schema(COLUMNS)

_Place: TypeAlias = tuple[int, LocatedRecord]
_MESSAGE_COLUMNS: Final = tuple(message_schema(tuple(SCHEMA.names[5:14])).names)
_ORIGIN_PLACE: Final = frozenset(SCHEMA.names[16:])


@dataclass(frozen=True, slots=True)
class RetriesPart:
    """Slices of retry and dead-letter queues. Pickles into a task.

    ``owners`` has the groups of each topic.
    """

    slices: tuple[QueueSlice, ...]
    owners: ChosenOwners
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
                for owner, its in self._by_owner(piece.topic, found):
                    topics = text(its, properties.RETRY_TOPIC)
                    if owner.origin_topic is not None:
                        topics = pc.fill_null(topics, owner.origin_topic)
                    rows = with_column(its, pa.field("originTopic", topics.type), topics)
                    rows = chosen_rows(self.choice, rows, "originTopic")
                    yield _batch(piece, owner, rows, _origins(piece, rows) if finds else None)

    def _by_owner(
        self, topic: str, found: pa.RecordBatch
    ) -> Iterator[tuple[RetryOwner, pa.RecordBatch]]:
        """Yield the rows of each group that shares the topic: by ORIGIN_GROUP, else the first."""
        first, *others = owners = self.owners.by_topic[topic]
        if not others:
            yield first, found
            return
        named = text(found, properties.ORIGIN_GROUP)
        known = pc.is_in(named, pa.array([owner.group for owner in owners]))
        named = pc.if_else(known, named, first.group)
        for owner in owners:
            if owner.group in self.owners.groups:
                yield owner, found.filter(pc.equal(named, owner.group))


def _batch(
    piece: QueueSlice,
    owner: RetryOwner,
    found: pa.RecordBatch,
    origins: Sequence[_Place | None] | None,
) -> pa.RecordBatch:
    origins = [None] * found.num_rows if origins is None else origins
    stored = pa.array([o and o[1].store_timestamp_ms for o in origins], pa.int64())
    places = found["queueOffset"].to_numpy()
    own = {
        "brokerName": repeat(piece.broker_name, found),
        "group": repeat(owner.group, found),
        "kind": repeat(_kind(piece.topic), found),
        "consumed": pa.array(owner.consumed(piece.queue_id, places), pa.bool_()),
        "state": pa.array(owner.states(piece.queue_id, places), pa.string()),
        "originMessageId": text(found, properties.ORIGIN_MESSAGE_ID),
        "originQueueId": pa.array([o and o[1].queue_id for o in origins], pa.int32()),
        "originQueueOffset": pa.array([o and o[1].queue_offset for o in origins], pa.int64()),
        "originPhysicalOffset": pa.array([o and o[0] for o in origins], pa.int64()),
        "originStoreTimestamp": times(stored),
    }
    return completed(SCHEMA, own, found)


def plan(
    source: BoundsSource,
    snapshot: Snapshot,
    window: Window,
    choice: RowChoice | None,
    chosen: ChosenOwners,
    on_corrupt: str,
) -> list[RetriesPart]:
    """Return the parts of one store, balanced by bytes.

    ``window`` is on storeTimestamp, ``choice`` on the origin's topic, ``chosen`` on the group.
    """
    by_topic = chosen.by_topic
    pieces = slices(source, snapshot, by_topic.__contains__, window)
    weighed = source.weigh(pieces, strict=on_corrupt == "fail")
    parts = split(weighed, SplitLimits())
    return [
        RetriesPart(part, chosen.of({piece.topic for piece in part}), choice, on_corrupt)
        for part in parts
    ]


def known_groups(config: BrokerState, snapshot: Snapshot) -> set[str]:
    """Return the groups of a store: with an offset, configured, or with a retry topic."""
    known = {group for _, group in config.consumer_offsets()} | config.groups()
    topics = config.topics()
    held = {queue.topic for queue in snapshot.queues if is_source(queue.topic)}
    return known | {owner_of(topic, known, topics)[0] for topic in held}


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
            if place is not None and record is not None and _is_origin(record, topic, key):
                origins.append((place, record))
            else:
                origins.append(_by_key(source, topic, key))
    return origins


def _is_origin(record: LocatedRecord, topic: str | None, key: str) -> bool:
    """Tell whether a record at the place of an origin is the origin: a log may have been cut."""
    return record.uniq_key == key or (record.uniq_key is None and record.topic == topic)


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
        for part in plan(
            source,
            held,
            request.window,
            choice,
            chosen_owners(source, held, groups, request.groups),
            request.on_corrupt,
        )
    ]


RETRIES: Final = Table(
    "retries",
    COLUMNS,
    _planned,
    options=BY_TOPIC | BY_TIME | BY_GROUP | FROM_LOG,
    order=("group", "kind", "storeTimestamp", "brokerName", "physicalOffset"),
    untold=("originQueueId", "originQueueOffset", "originPhysicalOffset", "originStoreTimestamp"),
)
