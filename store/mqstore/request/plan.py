"""A read as a plan: its columns, and the work of each task. Every reader of places plans here."""

from collections.abc import Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass, replace
from typing import Protocol

import pyarrow as pa

from mqstore.bodies.settings import DROP_MALFORMED, is_typed
from mqstore.errors import InvalidSchemaError
from mqstore.options.grammar import did_you_mean
from mqstore.read.by_log import BY_LOG_WORD
from mqstore.read.change_rows import (
    all_change_columns,
    changes_schema_of,
    checked_change_columns,
)
from mqstore.read.row_filter import RowFilter
from mqstore.read.scan import scan
from mqstore.read.settings import ScanSettings
from mqstore.read.source import QueueSlice
from mqstore.read.typed_bodies import checked_columns, resolved_columns, typed_schema
from mqstore.request.chosen_queues import message_slices, open_stores
from mqstore.request.partitions import in_partitions
from mqstore.request.read_options import MESSAGES, ReadOptions
from mqstore.request.tables import TableWork, plan_table
from mqstore.tables.catalog import CATALOG


class Work(Protocol):
    """The work of one task. Pickles."""

    def batches(self) -> Iterator[pa.RecordBatch]:
        """Yield the rows, with the columns of the plan."""


@dataclass(frozen=True, slots=True)
class MessageWork:
    """Slices of queues to read, and the settings of the scan."""

    slices: tuple[QueueSlice, ...]
    settings: ScanSettings

    def batches(self) -> Iterator[pa.RecordBatch]:
        """Yield the messages of the slices."""
        return scan(self.slices, self.settings)


@dataclass(frozen=True, slots=True)
class ReadPlan:
    """A planned read: its columns, and the slices of messages or the parts of a table."""

    columns: tuple[str, ...]
    options: ReadOptions
    slices: tuple[QueueSlice, ...] = ()
    """Of messages, not weighed and cut yet: a stream needs only the schema of this plan."""
    parts: tuple[TableWork, ...] = ()
    """Of a table."""

    def work(
        self, columns: Sequence[str] | None = None, least: int | None = None
    ) -> Sequence[Work]:
        """Return the work of each task; for messages it reads sizes from the ConsumeQueues.

        ``columns`` replace those of the plan. Messages are in ``least`` partitions or more, where
        there are as many; None: as the options say.
        """
        names = self.columns if columns is None else tuple(columns)
        if self.options.table != MESSAGES:
            return [replace(part, columns=names) for part in self.parts]
        options = self.options if least is None else replace(self.options, min_partitions=least)
        return message_work(options, self.slices, names)

    def count(self) -> int | None:
        """Return the number of rows, if it can be told from the ends of queues; else None.

        A message has any number of changes, a filter has to look at messages, queues that were
        made from a log have gaps, and what a table has is seen when it is read.
        """
        options = self.options
        if options.table != MESSAGES or options.queues == BY_LOG_WORD:
            return None
        if options.changes is not None:
            return None
        if is_typed(options) and options.body_mode == DROP_MALFORMED:
            return None
        if options.on_corrupt == "skip" or RowFilter.of(options).columns:
            return None
        return sum(piece.end - piece.start for piece in self.slices)


def plan_read(options: ReadOptions, columns: Sequence[str]) -> ReadPlan:
    """Return the plan of a read of ``columns``. Opens the stores; reads no message."""
    names = tuple(columns)
    with closing(open_stores(options)) as stores:
        if options.table == MESSAGES:
            return ReadPlan(names, options, slices=tuple(message_slices(options, stores)))
        return ReadPlan(names, options, parts=tuple(plan_table(options, stores, columns)))


def message_work(
    options: ReadOptions, slices: Sequence[QueueSlice], columns: tuple[str, ...]
) -> list[MessageWork]:
    """Return the work of reading slices, one for each task."""
    settings = ScanSettings.of(options, columns, merged=True)
    return [MessageWork(share, settings) for share in in_partitions(options, slices)]


def followed_work(
    options: ReadOptions, slices: Sequence[QueueSlice], columns: tuple[str, ...]
) -> Sequence[Work]:
    """Return the work of reading slices that a stream follows: of messages, or as a table's rows.

    Which tables a stream can read is ``Table.streamed``.
    """
    streamed = CATALOG[options.table].streamed if options.table in CATALOG else None
    if streamed is None:
        return message_work(options, slices, columns)
    shares = in_partitions(options, slices)
    return [
        TableWork(streamed.part(share, options.keys, options.on_corrupt), columns)
        for share in shares
    ]


def empty_work(options: ReadOptions, columns: tuple[str, ...]) -> Work:
    """Return work as ``followed_work`` does, of no slices: what its tasks share."""
    streamed = CATALOG[options.table].streamed if options.table in CATALOG else None
    if streamed is None:
        return MessageWork((), ScanSettings.of(options, columns, merged=True))
    return TableWork(streamed.part((), options.keys, options.on_corrupt), columns)


def read_schema(options: ReadOptions) -> pa.Schema:
    """Return the Arrow schema of a read: that of the table, or of its columns that are chosen.

    Raises InvalidSchemaError for a column that the table does not have.
    """
    if options.changes is not None:
        is_given = "columns" in options.given
        names = options.columns.split(",") if is_given else all_change_columns(options)
        return schema_of(options, names)
    if options.table == MESSAGES:
        return typed_schema(options, resolved_columns(options, options.columns))
    schema = CATALOG[options.table].schema
    if "columns" not in options.given:
        return schema
    return schema_of(options, [name.strip() for name in options.columns.split(",")])


def schema_of(options: ReadOptions, names: Sequence[str]) -> pa.Schema:
    """Return the Arrow schema of those columns of the table, in that order.

    The case of names is not significant. Raises InvalidSchemaError for an unknown or repeated one.
    """
    if options.changes is not None:
        return changes_schema_of(options, checked_change_columns(options, names))
    if options.table == MESSAGES:
        return typed_schema(options, checked_columns(options, names))
    schema, table = CATALOG[options.table].schema, options.table
    known = {name.lower(): name for name in schema.names}
    found: list[pa.Field] = []
    for name in names:
        column = known.pop(name.lower(), None)
        if column is None and name.lower() in map(str.lower, schema.names):
            raise InvalidSchemaError(name, "repeated", "name each column once")
        if column is None:
            near = did_you_mean(name, schema.names)
            has = f"table {table} has {', '.join(schema.names)}"
            raise InvalidSchemaError(name, "unknown", f"{near}{has}")
        found.append(schema.field(column))
    return pa.schema(found)
