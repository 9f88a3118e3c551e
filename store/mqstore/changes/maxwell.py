"""Maxwell's JSON: messages to changes. Made of its documentation, no recorded message was read.

A change has a sequence where Maxwell runs with ``output_binlog_position``. The rows of a
transaction may share a position: ``xoffset`` counts them, and the row that commits, which has no
``xoffset``, is the last.

Reference: com.zendesk.maxwell.row.RowMap#toJSON; com.zendesk.maxwell.schema.ddl.DDLMap#toJSON.
"""

from collections.abc import Mapping
from typing import Any, Final

from mqstore.changes.change import (
    DDL,
    DELETE,
    INSERT,
    OTHER,
    UPDATE,
    Change,
    ChangeMessage,
    ChangeSequence,
    Problem,
)
from mqstore.changes.collected import Collected, by_key
from mqstore.changes.debezium import object_of
from mqstore.changes.decode_context import (
    LAST_ROW,
    DecodeContext,
    binlog_sequence,
    source_time,
    text_of,
    whole,
)
from mqstore.changes.table_schemas import TableSchema
from mqstore.changes.texts import json_text

_MAXWELL_OPS: Final = {
    "insert": INSERT,
    "update": UPDATE,
    "delete": DELETE,
    "bootstrap-insert": INSERT,
}
_DDL_TYPES: Final = ("table-", "database-")
_FIRST_MILLISECONDS: Final = 100_000_000_000
"""A time from here on is in milliseconds, as of DDL; of rows it is in seconds."""


def maxwell_changes(message: ChangeMessage, context: DecodeContext) -> list[Change]:
    """Return the changes of a message; raises ValueError for what is none."""
    value = object_of(message.body)
    return [Change(op=OTHER)] if value is None else row_changes(value, context)


def row_changes(value: Mapping[str, Any], context: DecodeContext) -> list[Change]:
    """Return the changes of an object that was parsed."""
    word = value.get("type")
    if not isinstance(word, str) or "database" not in value:
        raise ValueError("no message of Maxwell: it has no type and database")
    time = whole(value.get("ts")) or 0
    change = Change(
        op=_MAXWELL_OPS.get(word, DDL if word.startswith(_DDL_TYPES) else OTHER),
        database=text_of(value["database"]),
        table=text_of(value.get("table")),
        sequence=_sequence(value),
        source_time_us=source_time(time, 1_000 if time >= _FIRST_MILLISECONDS else 1_000_000),
        transaction=text_of(value.get("gtid")) or text_of(value.get("xid")),
        snapshot=word.startswith("bootstrap-"),
        sql=text_of(value.get("sql")),
    )
    if word not in _MAXWELL_OPS:
        return [change]
    data, old = value.get("data"), value.get("old")
    if not isinstance(data, dict) or not data:
        raise ValueError(f"{word} without a row in data")
    schema = context.schema(change.database, change.table)
    names = value.get("primary_key_columns")
    change.keys = tuple(map(str, names)) if isinstance(names, list) else ()
    change.keys = change.keys or (schema.keys if schema else ())
    image = _image(data, schema)
    change.problems = [
        Problem(name, "has U+FFFD: characters may be lost")
        for name, text in image.items()
        if text is not None and "\ufffd" in text
    ]
    if change.op == DELETE:
        change.before = image
    else:
        change.row = image
    if change.op == UPDATE and isinstance(old, dict):
        change.before = {**image, **_image(old, schema)}
    collected = Collected()
    for one in by_key(change):
        collected.add(one)
    return collected.changes


def _sequence(value: Mapping[str, Any]) -> ChangeSequence | None:
    position = value.get("position")
    if not isinstance(position, str):
        return None
    file, _, at = position.rpartition(":")
    xoffset = whole(value.get("xoffset"))
    return binlog_sequence(file, at, LAST_ROW if xoffset is None else xoffset)


def _image(row: Mapping[str, Any], schema: TableSchema | None) -> dict[str, str | None]:
    columns: Mapping[str, str] = schema.columns if schema else {}
    return {name: _value(content, columns.get(name, "")) for name, content in row.items()}


def _value(content: Any, kind: str) -> str | None:
    """Return the text of a value; a SET, which only a schema tells from JSON, has its labels."""
    if isinstance(content, list) and kind.lower().lstrip().startswith("set("):
        return ",".join(json_text(label) or "" for label in content)
    return json_text(content)
