"""Recorded messages of real producers, and what their database had at the end."""

import base64
import gzip
import json
import re
from collections.abc import Iterator, Mapping
from decimal import Decimal
from pathlib import Path
from typing import Any, NamedTuple

from mqstore.changes.change import Change, ChangeMessage
from mqstore.changes.decode_context import DecodeContext
from mqstore.changes.formats import CHANGE_FORMATS, decoded
from mqstore.changes.table_schemas import TableSchemas, table_schemas

RECORDINGS = Path(__file__).parents[1] / "golden" / "changes"


class Recorded(NamedTuple):
    topic: str
    queue_id: int
    queue_offset: int
    message: ChangeMessage


class Table(NamedTuple):
    """A table at the end: column to type, names of the key, rows as the client printed them."""

    types: dict[str, str]
    keys: tuple[str, ...]
    rows: list[dict[str, str | None]]


def recorded(folder: str, *names: str) -> list[Recorded]:
    """The messages of files, those of each queue in their order, queue after queue."""
    found = []
    for name in names:
        with gzip.open(RECORDINGS / folder / f"{name}.jsonl.gz", "rt", encoding="utf-8") as lines:
            for line in lines:
                entry = json.loads(line)
                body = (
                    entry["body"].encode() if "body" in entry else base64.b64decode(entry["body64"])
                )
                message = ChangeMessage(body, entry["keys"], entry["properties"])
                found.append(
                    Recorded(entry["topic"], entry["queueId"], entry["queueOffset"], message)
                )
    return sorted(found, key=lambda one: one[:3])


def names_of(folder: str, prefix: str) -> list[str]:
    paths = (RECORDINGS / folder).glob(f"{prefix}*.jsonl.gz")
    return sorted(path.name.removesuffix(".jsonl.gz") for path in paths)


def truth(folder: str) -> dict[str, Table]:
    with gzip.open(RECORDINGS / folder / "truth.json.gz", "rt", encoding="utf-8") as file:
        tables = json.load(file)
    found = {}
    for name, table in tables.items():
        columns = [column[0] for column in table["columns"]]
        rows = [dict(zip(columns, row, strict=True)) for row in table["rows"]]
        keys = tuple(column[0] for column in table["columns"] if column[3] == "PRI")
        found[name] = Table({column[0]: column[1] for column in table["columns"]}, keys, rows)
    return found


def create_tables(tables: Mapping[str, Table]) -> TableSchemas:
    """The tables as SHOW CREATE TABLE has them."""
    statements = []
    for name, table in tables.items():
        columns = [f"  `{column}` {kind}" for column, kind in table.types.items()]
        if table.keys:
            columns.append(f"  PRIMARY KEY ({', '.join(f'`{key}`' for key in table.keys)})")
        lines = ",\n".join(columns)
        statements.append(f"CREATE TABLE `{name}` (\n{lines}\n) ENGINE=InnoDB;")
    return table_schemas("changesSchema", "\n".join(statements))


def changes_of(
    messages: list[Recorded], name: str, schemas: TableSchemas | None = None
) -> Iterator[Change]:
    context = DecodeContext(schemas)
    for one in messages:
        yield from decoded(CHANGE_FORMATS[name], one.message, context)


def printed(text: str | None, kind: str) -> Any:
    """A text of a change as the database's client prints a value of that type."""
    if text is None:
        return None
    base = kind.split("(", maxsplit=1)[0].split(" ", maxsplit=1)[0]
    digits = re.search(r"\((\d)\)$", kind)
    if base in {"float", "double"}:
        return float(text)
    if base == "decimal":
        return Decimal(text)
    if base in {"binary", "varbinary", "blob"}:
        return base64.b64decode(text).hex().upper()
    if base in {"datetime", "timestamp", "time"}:
        text = text.removesuffix("Z").replace("T", " ")
        head, _, fraction = text.partition(".")
        return (
            f"{head}.{fraction.ljust(int(digits[1]), '0')}" if digits and int(digits[1]) else head
        )
    return text


def wanted(text: str | None, kind: str) -> Any:
    """A value of the truth, as ``printed`` gives one."""
    if text is None:
        return None
    base = kind.split("(", maxsplit=1)[0].split(" ", maxsplit=1)[0]
    if base in {"float", "double"}:
        return float(text)
    return Decimal(text) if base == "decimal" else text
