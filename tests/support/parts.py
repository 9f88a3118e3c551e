"""Reads a table's parts as Spark's tasks do: from a pickle, a batch at a time."""

import pickle
from collections.abc import Iterator, Sequence
from contextlib import closing
from pathlib import Path
from typing import Any, Protocol

import pyarrow as pa

from mqstore.request.chosen_queues import open_stores
from mqstore.request.read import read_options
from mqstore.request.tables import TableWork, plan_table
from mqstore.tables.catalog import CATALOG
from mqstore.tables.owners import Owners
from support import expectations


class Part(Protocol):
    def batches(self, columns: Sequence[str]) -> Iterator[pa.RecordBatch]: ...


def rows(table: str, parts: Sequence[Part]) -> list[dict[str, Any]]:
    """All rows, every column checked against the table's schema; timestamps in microseconds."""
    schema = CATALOG[table].schema
    carried: list[Part] = pickle.loads(pickle.dumps(list(parts)))
    batches = [batch for part in carried for batch in part.batches(schema.names)]
    owner = CATALOG[table].owner
    if owner:  # What a plan of the table adds, and its parts alone do not have.
        batches = [Owners(owner).marked(batch).select(schema.names) for batch in batches]
    for batch in batches:
        batch.validate(full=True)
    found = pa.Table.from_batches(batches, schema=schema)
    for name in schema.names:
        assert schema.field(name).nullable or not found[name].null_count, name
    return expectations.rows(found)


def planned(root: Path, table: str, **options: str) -> list[TableWork]:
    """The work of reading all columns of a table of one store, as the connector plans it."""
    texts = {"table": table, **{name.lower(): text for name, text in options.items()}}
    if CATALOG[table].needs:
        texts.setdefault(CATALOG[table].needs.lower(), str(root))
    parsed = read_options((str(root),), texts)
    with closing(open_stores(parsed)) as stores:
        return plan_table(parsed, stores, CATALOG[table].schema.names)
