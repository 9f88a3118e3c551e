"""The output of the commands ``topics``, ``queues`` and ``tags``, for one or more stores."""

from collections.abc import Iterable
from dataclasses import dataclass

import pyarrow as pa
import pyarrow.compute as pc

from mqlog_jobs import render, views
from mqlog_jobs.places import Named, snapshots, without_system
from mqlog_jobs.progress import Bar
from mqstore import tables
from mqstore.errors import InvalidOptionError
from mqstore.read.source import Snapshot, slices_of
from mqstore.tables import tags as count_tags


@dataclass(frozen=True, slots=True)
class Form:
    """How rows are written: as a table for people, as JSON lines or as CSV."""

    as_json: bool = False
    as_csv: bool = False

    def __post_init__(self) -> None:
        if self.as_json and self.as_csv:
            raise InvalidOptionError("--csv", "true", "choose either --csv or --json")

    def written(self, rows: pa.RecordBatch | pa.Table) -> bool:
        """Write the rows as JSON or CSV if one of them is wanted; tell whether it was."""
        if self.as_json:
            render.json_lines(views.rows_of(rows))
        elif self.as_csv:
            render.comma_separated(rows.schema.names, views.rows_of(rows))
        return self.as_json or self.as_csv


def topics(named: Named, form: Form, *, system: bool) -> None:
    """Print the topics."""
    with named.opened() as stores:
        found = joined(map(tables.topics, snapshots(stores, held=True)), "topics")
    if not system:
        found = found.filter(pc.invert(found["isSystem"]))
    if not form.written(found):
        views.topics(render.terminal(), views.rows_of(found))


def queues(named: Named, form: Form, topic: str | None, *, system: bool) -> None:
    """Print the queues, of a topic or of all users' topics, or of RocketMQ's own too."""
    chosen = _snapshots(named, topic, system=system, held=True)
    found = joined(map(tables.queues, chosen), "queues")
    if not form.written(found):
        views.queues(render.terminal(), views.rows_of(found))


def tags(named: Named, form: Form, topic: str | None) -> None:
    """Print the number of messages of each tag, of a topic or of all users' topics."""
    chosen = _snapshots(named, topic, system=False, held=False)
    parts = count_tags.plan([piece for one in chosen for piece in slices_of(one)], "*")
    batches: list[pa.RecordBatch] = []
    with Bar("Reading") as bar:
        for number, part in enumerate(parts):
            bar(number, len(parts))
            batches += part.batches(tables.SCHEMAS["tags"].names)
    found = joined(batches, "tags")
    if not form.written(found):
        views.tags(render.terminal(), views.rows_of(found))


def joined(batches: Iterable[pa.RecordBatch], table: str) -> pa.Table:
    """Return the rows of all brokers."""
    return pa.Table.from_batches(batches, tables.SCHEMAS[table])


def _snapshots(
    named: Named, topic: str | None, *, system: bool, held: bool
) -> tuple[Snapshot, ...]:
    with named.opened(topic) as stores:
        found = snapshots(stores, topic, held=held)
        return found if topic is not None or system else tuple(map(without_system, found))
