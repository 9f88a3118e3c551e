"""Reads a table's parts as Spark's tasks do: from a pickle, a batch at a time."""

import pickle
from collections.abc import Iterator, Sequence
from typing import Any, Protocol

import pyarrow as pa

from mqstore.tables.catalog import CATALOG
from support import expectations


class Part(Protocol):
    def batches(self, columns: Sequence[str]) -> Iterator[pa.RecordBatch]: ...


def rows(table: str, parts: Sequence[Part]) -> list[dict[str, Any]]:
    """All rows, every column checked against the table's schema; timestamps in microseconds."""
    schema = CATALOG[table].schema
    carried: list[Part] = pickle.loads(pickle.dumps(list(parts)))
    batches = [batch for part in carried for batch in part.batches(schema.names)]
    for batch in batches:
        batch.validate(full=True)
    found = pa.Table.from_batches(batches, schema=schema)
    for name in schema.names:
        assert schema.field(name).nullable or not found[name].null_count, name
    return expectations.rows(found)
