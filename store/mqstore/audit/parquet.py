"""A side of an audit that is a table of messages: Parquet files that Spark or others wrote.

Rows are read file by file, about 4 MiB of them at a time. They are whatever the files say, so each
batch is checked before it is digested: types, nulls, texts, and numbers that no broker gives.
"""

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Final, Self

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from mqstore.audit.digests import AuditDigests, digests_of_rows
from mqstore.audit.found import MessagePlace
from mqstore.audit.lake_files import files_of, root_of
from mqstore.audit.parquet_columns import BROKER, TOPIC, checked, names_in
from mqstore.audit.relation import PlacedQueue
from mqstore.audit.rows import AuditRule, DigestedRows, digested_batch
from mqstore.audit.sides import AuditSide
from mqstore.audit.table_addresses import TableAddress
from mqstore.audit.table_files import READ_ERRORS, TableFile, damaged, refused
from mqstore.format.arrays import Int64s
from mqstore.format.names import is_system_topic
from mqstore.read.system_topics import system_topics

_BYTES_READ: Final = 4 << 20
_MOST_BATCH_ROWS: Final = 8192
_BUFFER_BYTES: Final = 1 << 20
_ROWS_DESCRIBED: Final = 10_000
_OF_QUEUE: Final = (BROKER, TOPIC, "queueId")


@dataclass(frozen=True, slots=True)
class TopicsWanted:
    """Which topics of a table count: ``topics`` alone if there are any, else those of users.

    With ``pattern``, those whose whole name it matches; with ``system``, those of RocketMQ too.
    Brokers have some under names of their own: ``own``.
    """

    topics: frozenset[str] = frozenset()
    pattern: str | None = None
    system: bool = True
    own: frozenset[str] = frozenset()

    def has(self, topic: str) -> bool:
        """Tell whether a topic counts."""
        if self.topics:
            return topic in self.topics
        if self.pattern is not None and not re.fullmatch(self.pattern, topic, re.DOTALL):
            return False
        return self.system or not (is_system_topic(topic) or topic in self.own)


def topics_wanted(topic: str | None, sides: Iterable[AuditSide], *, system: bool) -> TopicsWanted:
    """Return one topic, or all, beside these sides of brokers, whose own topics are known."""
    return TopicsWanted(frozenset(() if topic is None else (topic,)), None, system, own_of(sides))


def own_of(sides: Iterable[AuditSide]) -> frozenset[str]:
    """Return RocketMQ's own topics of the brokers of sides."""
    brokers = [broker for side in sides for broker in side.brokers]
    return frozenset(topic for broker in brokers for topic in system_topics(broker.snapshot))


_EVERY_TOPIC: Final = TopicsWanted()


@dataclass(frozen=True, slots=True)
class TableSide:
    """One side of an audit: the rows of the files of a table.

    ``aliases`` maps names of brokers in the rows to their names on the other side. A row without a
    name has the empty one.
    """

    root: Path
    files: tuple[TableFile, ...]
    names: tuple[str, ...]
    wanted: TopicsWanted = _EVERY_TOPIC
    aliases: Mapping[str, str] = field(default_factory=dict)
    queues: frozenset[PlacedQueue] | None = None
    """If given, only these count."""
    described_at_a_time: int = _ROWS_DESCRIBED
    """Of so many differences the fields are looked up in one pass."""

    @classmethod
    def at(cls, table: TableAddress, wanted: TopicsWanted = _EVERY_TOPIC) -> "TableSide":
        """Return a table as it is now. Raises as ``files_of``, and as ``pieces``."""
        files = files_of(table)
        names: set[str] = set()
        for file in files:
            for batch in _read(file, (BROKER,)):
                names |= set(batch.column(BROKER).unique().to_pylist())
        return cls(root_of(table), files, tuple(sorted(names)), wanted)

    def renamed(self, name: str) -> Self:
        """Return it with that name for its only broker."""
        return replace(self, names=(name,), aliases=dict.fromkeys(self.names, name))

    def of_queues(self, queues: frozenset[PlacedQueue]) -> Self:
        """Return it with these queues alone."""
        return replace(self, queues=queues)

    def digests(self, rule: AuditRule) -> AuditDigests:
        """Return the digests of all rows that count, in one pass. Raises as ``pieces``."""
        if rule.by == "offset" and "" in self.names:
            reason = f"has rows without {BROKER}: by offset, compare it with a place of one broker"
            raise refused(self.root, reason)
        found = AuditDigests()
        for broker, rows in self.pieces(rule):
            found.merge(digests_of_rows([rows], rule, broker))
        return found

    def pieces(self, rule: AuditRule) -> Iterator[tuple[str, DigestedRows]]:
        """Yield brokers and messages of theirs, with their digests.

        Raises InvalidOptionError for a file that cannot be read, lacks a column, or has a type or
        a value that messages do not have.
        """
        for broker, batch in self._batches(rule.columns):
            yield broker, digested_batch(batch, rule)

    def rows_at(
        self, places: Sequence[MessagePlace], columns: Sequence[str]
    ) -> Iterator[tuple[MessagePlace, Mapping[str, Any]]]:
        """Yield the rows at places; a place that several rows have comes several times."""
        known = set(places)
        at = np.unique([one.queue_offset for one in places])
        concerned = self.of_queues(
            frozenset((one.broker, one.topic, one.queue_id) for one in places)
        )
        needed = tuple(dict.fromkeys((TOPIC, "queueId", "queueOffset", "storeTimestamp", *columns)))
        for broker, batch in concerned._batches(needed):
            chosen = np.isin(batch.column("queueOffset").to_numpy(), at)
            some = batch.filter(pa.array(chosen)) if chosen.any() else batch.slice(0, 0)
            times = some.column("storeTimestamp").cast(pa.int64()).to_numpy() // 1000
            for row, ms in zip(some.to_pylist(), times.tolist(), strict=True):
                place = MessagePlace(broker, row[TOPIC], row["queueId"], row["queueOffset"], ms)
                if place in known:
                    yield place, row

    def _batches(self, columns: Sequence[str]) -> Iterator[tuple[str, pa.RecordBatch]]:
        """Yield brokers and their rows that count."""
        for file in self.files:
            if TOPIC in file.values and not self._has_topic(file.values[TOPIC].as_py()):
                continue
            for batch in _read(file, tuple(dict.fromkeys((*_OF_QUEUE, *columns)))):
                yield from self.of_batch(batch)

    def of_batch(self, batch: pa.RecordBatch) -> Iterator[tuple[str, pa.RecordBatch]]:
        """Yield brokers and those of some rows that count; they have the columns of queues."""
        queues, codes = self._queues(batch)
        for broker in sorted({queue[0] for queue in queues}):
            chosen = np.array([q[0] == broker and self._has(q) for q in queues])[codes]
            if chosen.all():
                yield broker, batch
            elif chosen.any():
                yield broker, batch.filter(pa.array(chosen))

    def _has_topic(self, topic: str) -> bool:
        if self.queues is not None and all(queue[1] != topic for queue in self.queues):
            return False
        return self.wanted.has(topic)

    def _has(self, queue: PlacedQueue) -> bool:
        if self.queues is not None and queue not in self.queues:
            return False
        return self.wanted.has(queue[1])

    def _queues(self, batch: pa.RecordBatch) -> tuple[list[PlacedQueue], Int64s]:
        """Return the queues of a batch, and for each row the number of its own."""
        broker, topic = (batch.column(name).dictionary_encode() for name in (BROKER, TOPIC))
        names, topics = broker.dictionary.to_pylist(), topic.dictionary.to_pylist()
        codes = broker.indices.to_numpy().astype(np.int64) * len(topics)
        codes = (codes + topic.indices.to_numpy()) << 32 | batch.column("queueId").to_numpy()
        distinct, inverse = np.unique(codes, return_inverse=True)
        queues = []
        for code in distinct.tolist():
            name = names[(code >> 32) // len(topics)]
            queue_id = code & (2**32 - 1)
            queues.append(
                (self.aliases.get(name, name), topics[(code >> 32) % len(topics)], queue_id)
            )
        return queues, inverse.astype(np.int64)


def _read(file: TableFile, columns: Sequence[str]) -> Iterator[pa.RecordBatch]:
    """Yield the rows of a file, checked, with those columns. Raises InvalidOptionError."""
    try:
        with pq.ParquetFile(
            file.path,
            buffer_size=_BUFFER_BYTES,
            pre_buffer=False,  # Else all of a row group is in memory.
            coerce_int96_timestamp_unit="us",
        ) as opened:
            names = names_in(opened.schema_arrow, file)
            held = [own for own, name in names.items() if name in columns]
            for group in range(opened.num_row_groups):
                facts = opened.metadata.row_group(group)
                each = max(1, facts.total_byte_size // max(1, facts.num_rows))
                yield from (
                    checked(_named(batch, names), file, columns)
                    for batch in opened.iter_batches(
                        batch_size=max(1, min(_MOST_BATCH_ROWS, _BYTES_READ // each)),
                        row_groups=[group],
                        columns=held,
                        use_threads=False,
                    )
                    if len(batch)
                )
    except READ_ERRORS as error:
        raise damaged(file.path, error) from error


def _named(batch: pa.RecordBatch, names: Mapping[str, str]) -> pa.RecordBatch:
    if not batch.schema.names:  # It has a number of rows, which a batch of no arrays loses.
        return batch
    fields = [field.with_name(names[field.name]) for field in batch.schema]
    schema = pa.schema(fields, batch.schema.metadata)
    return pa.RecordBatch.from_arrays(batch.columns, schema=schema)
