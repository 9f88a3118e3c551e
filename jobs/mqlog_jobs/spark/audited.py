"""An audit in tasks of Spark: digests of slices, their sum, and the messages that differ.

Tasks compute the digests that ``mqlog audit`` computes; the driver adds them up. The messages of
buckets that are unequal are brought together by their identities, and tasks compare them. Of a
message 100 bytes travel, and of a table of a lake the hashes of its fields.
"""

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any, Final, TypeAlias

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyspark import StorageLevel
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.functions import coalesce, col, lit, when
from pyspark.sql.functions import sum as sum_of
from pyspark.sql.pandas.types import from_arrow_schema

from mqstore.audit.contents import Content, Contents, Lookup, contents_at, described
from mqstore.audit.digests import BUCKET_MS, AuditDigests, Bucket, BucketDigest, digests_of_rows
from mqstore.audit.found import MessagePlace
from mqstore.audit.identities import Compared
from mqstore.audit.parquet import TableSide, TopicsWanted
from mqstore.audit.parquet_columns import BROKER, checked
from mqstore.audit.relation import PlacedQueue
from mqstore.audit.rows import AuditRule, DigestedRows, digested, digested_batch
from mqstore.audit.sides import AuditSide
from mqstore.audit.table_files import TableFile
from mqstore.format.arrays import Mask
from mqstore.read.source import QueueSlice, slices_of
from mqstore.tables import audits
from mqstore.tables.audits import SCHEMA, difference_row, shares
from mqstore.tables.columns import batches

ArrowBatches: TypeAlias = Iterable[pa.RecordBatch]
Pieces: TypeAlias = Iterator[tuple[str, DigestedRows, pa.RecordBatch | None]]
_DESCRIBED_AT_A_TIME: Final = 2_000
_WORK_ROWS: Final = pa.schema([pa.field("work", pa.int64(), nullable=False)])
_DIGESTS: Final = pa.schema(
    [("broker", pa.string()), ("topic", pa.string()), ("queueId", pa.int32())]
    + [(name, pa.int64()) for name in ("ten", "count", "bytes", "low", "high")]
)
_KEY: Final = ("broker", "key0", "key1")
_DIGEST_HALVES: Final = ("digest0", "digest1")
_MESSAGES: Final = pa.schema(
    [("side", pa.int64()), ("broker", pa.string()), ("name", pa.string())]
    + [("topic", pa.string()), ("queueId", pa.int64()), ("queueOffset", pa.int64())]
    + [(name, pa.int64()) for name in ("ms", "key0", "key1", *_DIGEST_HALVES)]
    + [("content", pa.string())]
)


@dataclass(frozen=True, slots=True)
class BrokersInTasks:
    """The brokers of a side. ``works``: slices of a broker, about a million messages each."""

    side: AuditSide
    works: tuple[tuple[str, tuple[QueueSlice, ...]], ...] = ()

    def opened(
        self, spark: SparkSession, queues: frozenset[PlacedQueue] | None
    ) -> tuple[DataFrame, "BrokersInTasks"]:
        """Return a row for each task that reads these queues, or all, and what the tasks take."""
        side = self.side if queues is None else self.side.of_queues(queues)
        works = tuple(
            (broker.name, pieces)
            for broker in side.brokers
            for pieces in shares(_cut(slices_of(broker.snapshot)))
        )
        numbers = spark.sparkContext.parallelize([(n,) for n in range(len(works))], len(works) or 1)
        frame = spark.createDataFrame(numbers, from_arrow_schema(_WORK_ROWS))
        return frame, replace(self, works=works)

    def pieces(self, rule: AuditRule, found: ArrowBatches) -> Pieces:
        """Yield brokers and their messages, with their digests."""
        for batch in found:
            for number in batch.column("work").to_pylist():
                broker, slices = self.works[number]
                for part in digested(slices, rule, merged=True, naming=self.side.naming):
                    yield broker, part, None

    def sent(self) -> "BrokersInTasks":
        """Return what travels to tasks that compare."""
        return self

    def lookup(self, rule: AuditRule, _carried: Contents) -> Lookup:
        """Return what looks up contents: it reads the messages once more."""
        return partial(contents_at, self.side, rule)


@dataclass(frozen=True, slots=True)
class TableInTasks:
    """A side that is a table of a lake, by Spark's reader of its format."""

    table: DataFrame | None
    side: TableSide
    columns: tuple[str, ...]

    @classmethod
    def of(
        cls, table: DataFrame, name: str, rule: AuditRule, topics: TopicsWanted
    ) -> "TableInTasks":
        """Return it with the names of its brokers. Its columns are checked in tasks."""
        wanted = dict.fromkeys((BROKER, *rule.columns))
        held = [one for one in wanted if one in table.columns]
        names: tuple[str, ...] = ("",)
        if BROKER in held:
            found = table.select(coalesce(col(BROKER), lit(""))).distinct().collect()
            names = tuple(sorted(row[0] for row in found))
        return cls(table.select(*held), TableSide(Path(name), (), names, topics), tuple(wanted))

    def opened(self, _spark: SparkSession, _queues: object) -> tuple[DataFrame, "TableInTasks"]:
        """Return its rows, and what tasks take."""
        assert self.table is not None
        return self.table, self.sent()

    def sent(self) -> "TableInTasks":
        """Return what travels to tasks."""
        return replace(self, table=None)

    def pieces(self, rule: AuditRule, found: ArrowBatches) -> Pieces:
        """Yield brokers and their rows that count, with their digests."""
        file = TableFile(self.side.root)
        for batch in found:
            for broker, some in self.side.of_batch(checked(batch, file, self.columns)):
                yield broker, digested_batch(some, rule), some

    def lookup(self, _rule: AuditRule, carried: Contents) -> Lookup:
        """Return what looks up contents: they came with the messages."""
        return lambda places: {one: carried[one] for one in places if one in carried}


SideInTasks: TypeAlias = BrokersInTasks | TableInTasks


def digests_in_tasks(spark: SparkSession, side: SideInTasks, rule: AuditRule) -> AuditDigests:
    """Return the digests of a side, which tasks make and the driver adds up."""
    frame, sent = side.opened(spark, None)
    work = partial(_digests, sent, rule)
    found = AuditDigests()
    for row in frame.mapInArrow(work, from_arrow_schema(_DIGESTS)).collect():
        bucket = row["broker"], row["topic"], row["queueId"], row["ten"]
        own = row["count"], row["bytes"], row["low"] % 2**64, row["high"] % 2**64
        found.merge(AuditDigests({bucket: BucketDigest(*own)}))
    return found


def differences_in_tasks(
    spark: SparkSession,
    sides: tuple[SideInTasks, SideInTasks],
    unequal: Sequence[Bucket],
    rule: AuditRule,
) -> DataFrame:
    """Return the messages in which two sides differ, as rows of ``table=audit``, in no order."""
    wanted: dict[PlacedQueue, list[int]] = {}
    for broker, topic, queue_id, ten in unequal:
        wanted.setdefault((broker, topic, queue_id), []).append(ten)
    queues = None if rule.identity == "id" else frozenset(wanted)
    messages = None
    for number, side in enumerate(sides):
        frame, sent = side.opened(spark, queues)
        work = partial(_messages, sent, number, wanted, rule)
        some = frame.mapInArrow(work, from_arrow_schema(_MESSAGES))
        messages = some if messages is None else messages.unionAll(some)
    assert messages is not None
    messages = messages.persist(StorageLevel.DISK_ONLY)
    own = sum_of(when(col("side") == 0, lit(1)).otherwise(lit(-1))).alias("own")
    counts = messages.groupBy(*_KEY, *_DIGEST_HALVES).agg(own)
    keys = counts.where(col("own") != 0).select(*_KEY).distinct()
    left = messages.join(keys, list(_KEY), "left_semi").repartition(*_KEY)
    work = partial(_compared, (sides[0].sent(), sides[1].sent()), rule)
    return left.select(*_MESSAGES.names).mapInArrow(work, from_arrow_schema(SCHEMA))


def _cut(pieces: Iterable[QueueSlice]) -> Iterator[QueueSlice]:
    for piece in pieces:
        for start in range(piece.start, piece.end, audits.MESSAGES_OF_A_TASK):
            end = min(piece.end, start + audits.MESSAGES_OF_A_TASK)
            yield replace(piece, start=start, end=end, weight=None)


def _digests(side: SideInTasks, rule: AuditRule, found: ArrowBatches) -> Iterator[pa.RecordBatch]:
    digests = AuditDigests()
    for broker, part, _ in side.pieces(rule, found):
        digests.merge(digests_of_rows([part], rule, broker))
    rows = [
        (*bucket, one.count, one.bytes, _signed(one.low), _signed(one.high))
        for bucket, one in digests.buckets.items()
    ]
    yield from batches(rows, _DIGESTS)


def _signed(number: int) -> int:
    return number - 2**64 if number >= 2**63 else number


def _messages(
    side: SideInTasks,
    number: int,
    wanted: Mapping[PlacedQueue, Sequence[int]],
    rule: AuditRule,
    found: ArrowBatches,
) -> Iterator[pa.RecordBatch]:
    """Yield the messages of unequal buckets."""
    for broker, part, batch in side.pieces(rule, found):
        rows = np.flatnonzero(_is_wanted(part, broker, wanted, rule))
        if not len(rows):
            continue
        topics = np.array([topic for topic, _ in part.queues], object)
        queue_ids = np.array([queue_id for _, queue_id in part.queues], np.int64)
        queue = part.queue[rows]
        row = part.row
        contents: list[str | None] = [None] * len(rows)
        if batch is not None:
            some = batch.take(pa.array(rows)).to_pylist()
            contents = [_text_of(Content.of(one, rule)) for one in some]
        of_key = "" if rule.identity == "id" else broker
        columns = [
            np.full(len(rows), number),
            [of_key] * len(rows),
            [broker] * len(rows),
            topics[queue],
            queue_ids[queue],
            part.queue_offsets[rows],
            row.stored_ms[rows],
            *row.identities[rows].view(np.int64).T,
            *row.digests[rows].view(np.int64).T,
            contents,
        ]
        arrays = [pa.array(c, f.type) for c, f in zip(columns, _MESSAGES, strict=True)]
        yield pa.RecordBatch.from_arrays(arrays, schema=_MESSAGES)


def _is_wanted(
    part: DigestedRows,
    broker: str,
    wanted: Mapping[PlacedQueue, Sequence[int]],
    rule: AuditRule,
) -> Mask:
    if rule.identity == "id":
        return np.isin(part.parts(), list(wanted.get(("", "", 0), ())))
    ten = part.row.stored_ms // BUCKET_MS
    chosen: Mask = np.zeros(len(ten), np.bool_)
    for number, queue in enumerate(part.queues):
        tens = wanted.get((broker, *queue))
        if tens:
            chosen |= (part.queue == number) & np.isin(ten, tens)
    return chosen


def _compared(
    sides: tuple[SideInTasks, SideInTasks], rule: AuditRule, found: ArrowBatches
) -> Iterator[pa.RecordBatch]:
    """Yield the differences among messages, of which all of an identity are here."""
    rows = pa.Table.from_batches(found, _MESSAGES)
    for broker in sorted(pc.unique(rows["broker"]).to_pylist()):
        some = rows.filter(pc.equal(rows["broker"], broker))
        differences = list(_messages_compared(some).differences())
        lookups = [side.lookup(rule, _contents(some, number)) for number, side in enumerate(sides)]
        told = described(differences, (lookups[0], lookups[1]), rule, _DESCRIBED_AT_A_TIME)
        yield from batches(map(difference_row, told), SCHEMA)


def _messages_compared(rows: pa.Table) -> Compared:
    places = zip(*(rows[n].to_pylist() for n in ("name", "topic", "queueId")), strict=True)
    numbers: dict[tuple[str, str, int], int] = {}
    codes = np.array([numbers.setdefault(one, len(numbers)) for one in places], np.int64)

    def column(name: str) -> Any:
        return rows[name].to_numpy()

    keys = np.stack([column("key0"), column("key1")], axis=1).view(np.uint64)
    digests = np.stack([column(name) for name in _DIGEST_HALVES], axis=1).view(np.uint64)
    own = column("side"), keys, digests, codes, column("queueOffset"), column("ms")
    return Compared(list(numbers), *own)


def _contents(rows: pa.Table, number: int) -> Contents:
    """Return the contents that came with the messages of a side, by place."""
    names = ("side", "name", "topic", "queueId", "queueOffset", "ms", "content")
    found = zip(*(rows[name].to_pylist() for name in names), strict=True)
    return {
        MessagePlace(*place): _content_of(content)
        for side, *place, content in found
        if side == number and content is not None
    }


def _text_of(content: Content) -> str:
    hashes = [{n: h.hex() for n, h in one.items()} for one in (content.fields, content.properties)]
    return json.dumps([content.message_id, *hashes])


def _content_of(text: str) -> Content:
    message_id, *hashes = json.loads(text)
    fields, named = ({n: bytes.fromhex(h) for n, h in one.items()} for one in hashes)
    return Content(message_id, fields, named)
