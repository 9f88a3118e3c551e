"""Any table of the catalog, read in this process and shown: the work of a dozen commands."""

from collections.abc import Callable, Mapping
from contextlib import closing
from dataclasses import dataclass, field

import pyarrow as pa

from mqlog_jobs.output import render, table_views
from mqlog_jobs.output.form import Form, rows_of, with_estimates
from mqlog_jobs.output.progress import Bar
from mqlog_jobs.places import Named, own_advice
from mqstore.request.chosen_queues import open_stores
from mqstore.request.tables import plan_table
from mqstore.tables.catalog import CATALOG
from mqstore.tables.table import Table


@dataclass(frozen=True, slots=True)
class TableQuery:
    """A table, and which rows of it are wanted.

    ``options`` are those of a read, as texts; None: not set. ``wanted`` gives the mask of the rows
    to show. ``number``: at most so many; 0: all. ``system``: also rows of RocketMQ's own topics or
    groups, which else are shown only where they are named.
    """

    table: str
    options: Mapping[str, str | None] = field(default_factory=dict)
    wanted: Callable[[pa.Table], pa.Array] | None = None
    number: int = 0
    system: bool = False

    @property
    def given(self) -> dict[str, str]:
        """The options that are set."""
        return {name: text for name, text in self.options.items() if text is not None}


def show_table(named: Named, form: Form, query: TableQuery) -> None:
    """Print the rows of a table, in its order.

    Raises InvalidOptionError, UnknownTopicError, UnknownGroupError, and what opening the places
    and reading them raises.
    """
    rows = read_table(named, query)
    if query.wanted is not None:
        rows = rows.filter(query.wanted(rows))
    if named.is_live and query.given.get("byTag", "").lower() != "true":
        rows = with_estimates(rows, CATALOG[query.table].estimated)
    first = rows.slice(0, query.number) if query.number else rows
    if not form.written(first):
        view = table_views.view_of(CATALOG[query.table])
        view(render.terminal(), rows_of(first), rows.num_rows)


def read_table(named: Named, query: TableQuery) -> pa.Table:
    """Return the rows of a table, sorted; raises as ``show_table``."""
    table, texts = CATALOG[query.table], query.given
    if query.system and table.owner:  # Others show them anyway.
        texts.setdefault("includeSystemTopics", "true")
    with own_advice():
        options = named.read_options(query.table, texts)
        with closing(open_stores(options)) as stores:
            parts = plan_table(options, stores, table.schema.names)
        batches: list[pa.RecordBatch] = []
        with Bar("Reading") as bar:
            for number, part in enumerate(parts):
                bar(number, len(parts))
                batches += part.batches()
    return _sorted(pa.Table.from_batches(batches, table.schema), table)


def _sorted(rows: pa.Table, table: Table) -> pa.Table:
    return rows.sort_by([(name, "ascending") for name in table.order]) if table.order else rows
