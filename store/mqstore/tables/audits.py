"""Audits as tables: the messages in which two places differ, and the digests of one place.

By offset a part has some of the queues, as a message is in the same queue on both sides; by id, and
beside a table of a lake, one part reads all.
"""

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Final

import pyarrow as pa

from mqstore.audit.differences import differences
from mqstore.audit.digests import BUCKET_MS, digests_of
from mqstore.audit.found import Difference, MessagePlace
from mqstore.audit.parquet import TableSide, TopicsWanted, own_of
from mqstore.audit.query import AUDIT_OPTIONS, chosen_snapshots
from mqstore.audit.relation import PlacedQueue
from mqstore.audit.rows import AuditRule
from mqstore.audit.sides import Side, matched
from mqstore.audit.table_addresses import TableAddress
from mqstore.codec.schema import TIMESTAMP
from mqstore.errors import InvalidOptionError
from mqstore.read.source import QueueSlice, slices_of
from mqstore.tables.columns import BROKER_NAME, US, Columns, TableRow, batches, packed, schema
from mqstore.tables.table import BY_QUEUE, Table, TableRequest

AGAINST: Final = "against"
_IGNORED: Final = AUDIT_OPTIONS["ignored_properties"].name
MESSAGES_OF_A_TASK: Final = 1_000_000


def _places(side: str) -> Columns:
    return (
        (f"{side}Broker", pa.string(), True, f"broker in the {side} place; null: it is not there"),
        (f"{side}Topic", pa.string(), True, "topic there"),
        (f"{side}QueueId", pa.int32(), True, "queue there"),
        (f"{side}QueueOffset", pa.int64(), True, "queue offset there"),
        (f"{side}StoreTimestamp", TIMESTAMP, True, "when it was stored there"),
    )


COLUMNS: Final[Columns] = (
    ("difference", pa.string(), False, "missing, extra, doubled or altered"),
    ("messageId", pa.string(), True, "message id; null: with identity=offset"),
    *_places("first"),
    *_places("second"),
    ("fields", pa.string(), False, "of altered: what differs: flag, body, names of properties"),
    ("brokerName", pa.string(), False, "firstBroker, else secondBroker"),
)
SCHEMA: Final = schema(COLUMNS)
DIGEST_COLUMNS: Final[Columns] = (
    BROKER_NAME,
    ("topic", pa.string(), False, "topic"),
    ("queueId", pa.int32(), False, "queue of the topic"),
    ("intervalStart", TIMESTAMP, False, "the messages were stored in ten minutes from here on"),
    ("messages", pa.int64(), False, "how many there are"),
    ("bodyBytes", pa.int64(), False, "bytes of their bodies"),
    ("digest", pa.string(), False, "sum of their hashes of 128 bits, in hexadecimal digits"),
)
_DIGEST_SCHEMA: Final = schema(DIGEST_COLUMNS)


@dataclass(frozen=True, slots=True)
class AuditPart:
    """Some queues of both sides, or all. Pickles into a task."""

    sides: tuple[Side, Side]
    rule: AuditRule

    def batches(self, _columns: Sequence[str]) -> Iterator[pa.RecordBatch]:
        """Yield the differences. Raises as ``differences``."""
        digests = self.sides[0].digests(self.rule), self.sides[1].digests(self.rule)
        yield from batches(map(difference_row, differences(self.sides, digests, self.rule)), SCHEMA)


@dataclass(frozen=True, slots=True)
class DigestPart:
    """Some queues of one broker. Pickles into a task."""

    broker_name: str
    slices: tuple[QueueSlice, ...]
    rule: AuditRule

    def batches(self, _columns: Sequence[str]) -> Iterator[pa.RecordBatch]:
        """Yield a row for each queue and ten minutes. Raises as ``scan``."""
        yield from batches(self._rows(), _DIGEST_SCHEMA)

    def _rows(self) -> Iterator[TableRow]:
        found = digests_of(self.slices, self.rule, self.broker_name)
        for (*queue, ten), one in sorted(found.buckets.items()):
            digest = f"{one.high:016x}{one.low:016x}"
            yield (*queue, ten * BUCKET_MS * US, one.count, one.bytes, digest)


def difference_row(found: Difference) -> TableRow:
    """Return a difference as a row of the table."""
    known = found.first or found.second
    name = "" if known is None else known.broker
    places = *_place(found.first), *_place(found.second)
    return (found.kind, found.message_id, *places, ", ".join(found.fields), name)


def _place(place: MessagePlace | None) -> TableRow:
    if place is None:
        return (None,) * 5
    return place.broker, place.topic, place.queue_id, place.queue_offset, place.stored_ms * US


def shares(slices: Iterable[QueueSlice]) -> list[tuple[QueueSlice, ...]]:
    """Return the slices of each task, about a million messages."""
    return packed(slices, lambda piece: piece.end - piece.start, MESSAGES_OF_A_TASK)


def _audit(request: TableRequest) -> list[AuditPart]:
    if request.against is None:
        expected = "table=audit needs the place to compare with: a path as that of the read"
        raise InvalidOptionError(AGAINST, "", expected)
    rule = request.audit.rule
    if isinstance(request.against, TableAddress):
        return [AuditPart(_beside(request, request.against), rule)]
    sides = request.audit.sides(request.stores, request.against)
    if rule.by != "offset":
        return [AuditPart(sides, rule)]
    counts = Counter[PlacedQueue]()
    for side in sides:
        counts.update(side.counts())
    return [
        AuditPart((sides[0].of_queues(some), sides[1].of_queues(some)), rule)
        for some in map(frozenset, packed(sorted(counts), counts.__getitem__, MESSAGES_OF_A_TASK))
    ]


def _beside(request: TableRequest, table: TableAddress) -> tuple[Side, Side]:
    """Return both sides: what is chosen of the place, and the same topics of a table."""
    here, chosen = request.audit.side(request.stores), request.stores.selection
    topics, pattern = frozenset(chosen.subscribe), chosen.subscribe_pattern
    wanted = TopicsWanted(topics, pattern, chosen.include_system_topics, own_of([here]))
    return matched(here, TableSide.at(table, wanted))


def _digests(request: TableRequest) -> list[DigestPart]:
    rule = request.audit.rule
    return [
        DigestPart(snapshot.broker_name, some, rule)
        for snapshot in chosen_snapshots(request.stores)
        for some in shares(slices_of(snapshot))
    ]


AUDIT: Final = Table(
    "audit",
    COLUMNS,
    _audit,
    options=BY_QUEUE | {AGAINST, *(one.name for one in AUDIT_OPTIONS.values())},
    needs=AGAINST,
    of_users=True,
)
DIGESTS: Final = Table(
    "digests",
    DIGEST_COLUMNS,
    _digests,
    options=BY_QUEUE | {_IGNORED},
    order=("brokerName", "topic", "queueId", "intervalStart"),
    owner="topic",
    of_users=True,
)
