"""What the commands ``topics``, ``queues`` and ``tags`` print, of one or more stores."""

from dataclasses import dataclass

import pyarrow as pa
import pyarrow.compute as pc

from mqlog_jobs import render, views
from mqlog_jobs.places import Named
from mqlog_jobs.progress import Bar
from mqstore import tables
from mqstore.errors import InvalidOptionError
from mqstore.read.source import slices_of
from mqstore.tables import tags as count_tags


@dataclass(frozen=True, slots=True)
class Form:
    """How rows are written: as a table for people, as JSON lines or as CSV."""

    as_json: bool = False
    as_csv: bool = False

    def __post_init__(self) -> None:
        if self.as_json and self.as_csv:
            raise InvalidOptionError("--csv", "--json", "choose one of the two")

    def written(self, rows: pa.RecordBatch | pa.Table) -> bool:
        """Write the rows as JSON or CSV if one of them is wanted; tell whether it was."""
        if self.as_json:
            render.json_lines(views.rows_of(rows))
        elif self.as_csv:
            render.comma_separated(rows.schema.names, views.rows_of(rows))
        return self.as_json or self.as_csv


def topics(named: Named, form: Form, *, system: bool) -> None:
    """Print the topics."""
    found = pa.Table.from_batches([tables.topics(one) for one in named.snapshots()])
    if not system:
        found = found.filter(pc.invert(found["isSystem"]))
    if not form.written(found):
        views.topics(render.terminal(), views.rows_of(found))


def queues(named: Named, form: Form, topic: str | None, *, system: bool) -> None:
    """Print the queues, of a topic or of all users' topics, or of RocketMQ's own too."""
    all_topics = topic is not None or system
    snapshots = named.snapshots(topic) if all_topics else named.snapshots_of_users()
    found = pa.Table.from_batches(list(map(tables.queues, snapshots)))
    if not form.written(found):
        views.queues(render.terminal(), views.rows_of(found))


def tags(named: Named, form: Form, topic: str | None) -> None:
    """Print the number of messages of each tag, of a topic or of all users' topics."""
    snapshots = named.snapshots_of_users() if topic is None else named.snapshots(topic)
    parts = count_tags.plan([piece for one in snapshots for piece in slices_of(one)], "*")
    schema = tables.SCHEMAS["tags"]
    batches: list[pa.RecordBatch] = []
    with Bar("Reading") as bar:
        for number, part in enumerate(parts):
            bar(number, len(parts))
            batches += part.batches(schema.names)
    found = pa.Table.from_batches(batches, schema)
    if not form.written(found):
        views.tags(render.terminal(), views.rows_of(found))
