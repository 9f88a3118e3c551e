"""How the rows of a command are written: for people, as JSON lines or as CSV."""

from collections.abc import Iterable
from dataclasses import dataclass

import pyarrow as pa

from mqlog_jobs.output import render
from mqstore.errors import InvalidOptionError


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
            render.json_lines(rows_of(rows))
        elif self.as_csv:
            render.comma_separated(rows.schema.names, rows_of(rows))
        return self.as_json or self.as_csv


def with_estimates(rows: pa.Table, names: Iterable[str]) -> pa.Table:
    """Return the rows with those columns named as estimates: bytesEstimate in place of bytes."""
    named = {name: f"{name}{render.ESTIMATED}" for name in names}
    return rows.rename_columns([named.get(name, name) for name in rows.schema.names])


def rows_of(batch: pa.RecordBatch | pa.Table) -> list[dict[str, object]]:
    """Return the rows of a batch as dictionaries, columns in the batch's order.

    Maps within a struct, as typed bodies have them, are dictionaries too, and so are maps that are
    no properties.
    """
    rows: list[dict[str, object]] = batch.to_pylist()
    for field in batch.schema:
        if pa.types.is_map(field.type) and field.name != "properties":
            for row in rows:
                pairs = row[field.name]
                row[field.name] = dict(pairs) if isinstance(pairs, list) else None
        if pa.types.is_struct(field.type):
            values = batch.column(field.name).to_pylist(maps_as_pydicts="lossy")
            for row, value in zip(rows, values, strict=True):
                row[field.name] = value
    return rows
