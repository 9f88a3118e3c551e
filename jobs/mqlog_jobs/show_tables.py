"""The output of ``scheduled``, ``retries``, ``halfmessages``, ``offsets`` and ``commits``."""

import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Protocol

import pyarrow as pa
import pyarrow.compute as pc

from mqlog_jobs import render, table_views, views
from mqlog_jobs.places import Named, check_topic
from mqlog_jobs.progress import Bar
from mqlog_jobs.show import Form, joined
from mqstore import tables
from mqstore.backlog.plan import check_groups
from mqstore.backlog.request import group_test, is_system_group
from mqstore.options import grammar
from mqstore.read.selection import OpenStores, Selection
from mqstore.tables import commits as commit_table
from mqstore.tables import half_messages as half_table
from mqstore.tables import retries as retry_table
from mqstore.tables import scheduled as schedule_table
from mqstore.tables.choice import RowChoice, Window, store_roots


class TablePart(Protocol):
    """A part of a table, as mqstore.tables plans it."""

    def batches(self, columns: Sequence[str]) -> Iterator[pa.RecordBatch]:
        """Yield the rows with all columns of the table."""


@dataclass(frozen=True, slots=True)
class RowQuery:
    """Which rows of a table, as the user typed it.

    topic: of that topic only, the real one of a message that waits elsewhere. groups: a comma
    list or ``/regex/``. since, until: [since, until) of storeTimestamp, in the grammar of
    mqstore.options.grammar. number: at most so many; 0: all. on_corrupt: as in ScanSettings.
    """

    topic: str | None = None
    groups: str | None = None
    since: str | None = None
    until: str | None = None
    number: int = 0
    on_corrupt: str = "fail"

    @property
    def choice(self) -> RowChoice | None:
        """The topic as the tables take it."""
        return None if self.topic is None else RowChoice(frozenset({self.topic}))

    def window(self) -> Window:
        """Return the times; raises InvalidOptionError for what is none."""
        now_ms = time.time_ns() // 1_000_000
        return Window(*(
            None if text is None else grammar.timestamp(option, text, now_ms=now_ms)
            for option, text in (("--since", self.since), ("--until", self.until))
        ))  # fmt: skip

    def first(self, rows: pa.Table) -> pa.Table:
        """Return as many rows as are wanted."""
        return rows.slice(0, self.number) if self.number else rows


def scheduled(named: Named, form: Form, query: RowQuery, *, delivered: bool) -> None:
    """Print scheduled messages by the time they are due; those that were ``delivered`` too."""
    window = query.window()
    with named.opened() as stores:
        _check_topic(stores, query)
        found = zip(stores.sources, stores.snapshots_of(schedule_table.is_source), strict=True)
        parts = [
            part
            for source, snapshot in found
            for part in schedule_table.plan(
                source, snapshot, window, query.choice, query.on_corrupt
            )
        ]
    rows = _read(parts, "scheduled")
    if not delivered:
        rows = rows.filter(pc.not_equal(rows["state"], schedule_table.DELIVERED))
    order = [(name, "ascending") for name in ("deliverTimestamp", "brokerName", "physicalOffset")]
    rows = rows.sort_by(order)
    if not form.written(query.first(rows)):
        chosen = views.rows_of(query.first(rows))
        table_views.scheduled(render.terminal(), chosen, rows.num_rows)


def retries(named: Named, form: Form, query: RowQuery, *, dead: bool) -> None:
    """Print messages in retry and dead-letter queues; with ``dead`` the latter only."""
    window, groups = query.window(), group_test(query.groups)
    with named.opened() as stores:
        _check_topic(stores, query)
        snapshots = stores.snapshots_of(retry_table.is_source)
        pairs = list(zip(stores.sources, snapshots, strict=True))
        check_groups(
            query.groups,
            lambda: set().union(*(retry_table.known_groups(s.config, one) for s, one in pairs)),
        )
        parts = [
            part
            for source, snapshot in pairs
            for part in retry_table.plan(
                source, snapshot, window, query.choice, groups, query.on_corrupt
            )
        ]
    rows = _read(parts, "retries")
    if dead:
        rows = rows.filter(pc.equal(rows["kind"], retry_table.DLQ))
    order = ("group", "kind", "storeTimestamp", "brokerName", "physicalOffset")
    rows = rows.sort_by([(name, "ascending") for name in order])
    if not form.written(query.first(rows)):
        table_views.retries(render.terminal(), views.rows_of(query.first(rows)), rows.num_rows)


def half_messages(named: Named, form: Form, query: RowQuery) -> None:
    """Print the half messages that are not resolved, the oldest first."""
    with named.opened() as stores:
        _check_topic(stores, query)
        found = zip(stores.sources, stores.snapshots_of(half_table.is_source), strict=True)
        parts = [
            part
            for source, snapshot in found
            for part in half_table.plan(source, snapshot, query.choice, query.on_corrupt)
        ]
    rows = _read(parts, "halfmessages")
    order = ("bornTimestamp", "brokerName", "physicalOffset")
    rows = rows.sort_by([(name, "ascending") for name in order])
    if not form.written(query.first(rows)):
        table_views.half_messages(
            render.terminal(), views.rows_of(query.first(rows)), rows.num_rows
        )


def committed(named: Named, form: Form, query: RowQuery, *, system: bool) -> None:
    """Print the committed offsets of the groups; of RocketMQ's own if ``system`` or named."""
    chosen = group_test(query.groups)
    with named.opened() as stores:
        if query.topic is not None:
            check_topic(stores, query.topic, consumed=True)
        snapshots = stores.snapshots_of(lambda _: False)
        rows = joined(map(tables.offsets, snapshots), "offsets")
        check_groups(query.groups, lambda: _groups(stores, rows))
    hidden = query.groups is None and not system
    wanted = [
        bool(chosen(group))
        and not (hidden and is_system_group(group))
        and query.topic in (None, topic)
        for group, topic in zip(rows["group"].to_pylist(), rows["topic"].to_pylist(), strict=True)
    ]
    rows = rows.filter(pa.array(wanted, pa.bool_()))
    order = ("group", "brokerName", "topic", "queueId")
    rows = rows.sort_by([(name, "ascending") for name in order])
    if not form.written(rows):
        table_views.committed(render.terminal(), views.rows_of(rows))


def commits(named: Named, form: Form, on_corrupt: str) -> None:
    """Print what mqlog committed to stores in directories."""
    directories = named.directories("commits are kept in a store's directory: a cluster has none")
    roots = store_roots(Selection(roots=directories))
    parts = [part for root in roots for part in commit_table.plan(root, on_corrupt=on_corrupt)]
    rows = _read(parts, "commits")
    if not form.written(rows):
        table_views.commits(render.terminal(), views.rows_of(rows))


def _check_topic(stores: OpenStores, query: RowQuery) -> None:
    if query.topic is not None:
        check_topic(stores, query.topic)


def _groups(stores: OpenStores, rows: pa.Table) -> set[str]:
    committed_groups = set(rows["group"].to_pylist())
    return committed_groups.union(*(source.config.groups() for source in stores.sources))


def _read(parts: Sequence[TablePart], table: str) -> pa.Table:
    names = tables.SCHEMAS[table].names
    batches: list[pa.RecordBatch] = []
    with Bar("Reading") as bar:
        for number, part in enumerate(parts):
            bar(number, len(parts))
            batches += part.batches(names)
    return joined(batches, table)
