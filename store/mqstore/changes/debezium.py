"""Debezium's JSON, with and without schemas: messages to changes.

Reference: io.debezium.data.Envelope; io.debezium.connector.mysql.SourceInfo and
io.debezium.connector.postgresql.SourceInfo; io.debezium.pipeline.txmetadata;
io.debezium.server.rocketmq.RocketMqChangeConsumer (the key in KEYS, headers as properties).
"""

import json
from collections.abc import Mapping
from typing import Any, Final

from mqstore.bodies.json_values import parsed
from mqstore.changes.change import (
    DDL,
    DELETE,
    INSERT,
    OTHER,
    TRUNCATE,
    UPDATE,
    Change,
    ChangeMessage,
    ChangeSequence,
    Problem,
    Values,
)
from mqstore.changes.collected import Collected, by_key
from mqstore.changes.connect_values import ConnectRow, connect_types
from mqstore.changes.decode_context import (
    DecodeContext,
    binlog_sequence,
    source_time,
    text_of,
    whole,
)

DEBEZIUM_OPS: Final = {
    "c": INSERT, "r": INSERT, "u": UPDATE, "d": DELETE, "t": TRUNCATE, "m": OTHER,
}  # fmt: skip
_NEW_KEY: Final = "__debezium.newkey"
_OLD_KEY: Final = "__debezium.oldkey"
# Tuples, not sets: what a message has there may be a list, which has no hash.
_NO_SNAPSHOT: Final = (None, "", "false")
_KEY_ALONE: Final = ("postgresql",)
"""Connectors whose ``before`` may be the key alone, with null in every other column."""
_LONGEST_SEQUENCE: Final = 200


def debezium_changes(message: ChangeMessage, context: DecodeContext) -> list[Change]:
    """Return the changes of a message; raises ValueError for what is none."""
    value = object_of(message.body)
    return [Change(op=OTHER)] if value is None else envelope_changes(value, message, context)


def object_of(body: bytes) -> Mapping[str, Any] | None:
    """Return the object of a body; None for a tombstone: an empty body, or null."""
    value = None if body.strip() == b"null" else parsed(body)[1]
    if value is not None and value.keys() == {"schema", "payload"} and value["payload"] is None:
        return None
    return value


def envelope_changes(
    value: Mapping[str, Any], message: ChangeMessage, context: DecodeContext
) -> list[Change]:
    """Return the changes of an object that was parsed."""
    schema, payload = without_schema(value)
    source = payload.get("source")
    if not isinstance(source, dict) or "op" not in payload:
        noise = no_change(payload)
        if noise is None:
            raise ValueError("no message of Debezium: it has no op and source")
        return [noise]
    op = DEBEZIUM_OPS.get(str(payload["op"]))
    if op is None:
        raise ValueError(f"no message of Debezium: its op is {str(payload['op'])[:20]}")
    change = _of_source(op, payload, source)
    if op in {INSERT, UPDATE, DELETE}:
        _fill(change, payload, schema, message, context)
    collected = Collected()
    for one in by_key(change):
        collected.add(one)
    return collected.changes


def without_schema(value: Mapping[str, Any]) -> tuple[Mapping[str, Any], Mapping[str, Any]]:
    """Return the schema and the payload of Connect's JSON; no schema is an empty one."""
    schema, payload = value.get("schema"), value.get("payload")
    if isinstance(payload, dict) and isinstance(schema, dict | None) and "op" not in value:
        return schema or {}, payload
    return {}, value


def no_change(payload: Mapping[str, Any]) -> Change | None:
    """Return the row of a message that is no change: a DDL, a transaction's limit, a heartbeat."""
    if isinstance(payload.get("ddl"), str):
        source = payload.get("source")
        source = source if isinstance(source, dict) else {}
        change = _of_source(DDL, payload, source)
        change.database = text_of(payload.get("databaseName")) or change.database
        change.sql = payload["ddl"]
        return change
    if "status" in payload and "id" in payload:
        time_us = source_time(payload.get("ts_ms"), 1_000)
        return Change(op=OTHER, transaction=text_of(payload["id"]), source_time_us=time_us)
    if payload.keys() == {"ts_ms"}:
        return Change(op=OTHER, source_time_us=source_time(payload["ts_ms"], 1_000))
    return None


def _of_source(op: str, payload: Mapping[str, Any], source: Mapping[str, Any]) -> Change:
    transaction = payload.get("transaction")
    name = transaction.get("id") if isinstance(transaction, dict) else None
    name = name or source.get("gtid") or source.get("txId")
    time_us = source_time(source.get("ts_us"), 1)
    if time_us is None:
        time_us = source_time(source.get("ts_ms") or payload.get("ts_ms"), 1_000)
    return Change(
        op=op,
        database=text_of(source.get("schema")) or text_of(source.get("db")),
        table=text_of(source.get("table")),
        sequence=source_sequence(source),
        source_time_us=time_us,
        transaction=text_of(name),
        snapshot=is_snapshot(source.get("snapshot")) or payload.get("op") == "r",
    )


def _fill(
    change: Change,
    payload: Mapping[str, Any],
    schema: Mapping[str, Any],
    message: ChangeMessage,
    context: DecodeContext,
) -> None:
    """Set the images, the key, and what belongs to them."""
    types = _table_types(schema)
    table = context.schema(change.database, change.table)
    reader = ConnectRow(types, table)
    keys = key_of(message.keys)
    change.keys = tuple(keys or ()) or (table.keys if table else ())
    change.types = types
    before, after = payload.get("before"), payload.get("after")
    unavailable: list[str] = []
    if change.op != DELETE:
        if not isinstance(after, dict) or not after:
            raise ValueError(f"{change.op} without a row in after")
        change.row = reader.image(after, change.problems, unavailable)
        change.unavailable = tuple(unavailable)
    if isinstance(before, dict):
        source: Mapping[str, Any] = payload["source"]
        partial = source.get("connector") in _KEY_ALONE
        change.before = before_image(
            reader.image(before, change.problems), change.keys, may_be_key=partial
        )
    elif change.op == DELETE and keys:
        change.before = key_image(keys, reader, change.problems)
    set_moved(change, message, reader)


def before_image(image: Values, keys: tuple[str, ...], *, may_be_key: bool) -> Values | None:
    """Return the image before, or its key alone where every other column is null."""
    if not may_be_key or not keys:
        return image
    if any(value is not None for name, value in image.items() if name not in keys):
        return image
    return {name: image[name] for name in keys if name in image} or None


def set_moved(change: Change, message: ChangeMessage, reader: ConnectRow) -> None:
    """Set the other key of a changed key, which the headers have."""
    for op, header in ((DELETE, _NEW_KEY), (INSERT, _OLD_KEY)):
        if change.op != op or header not in message.properties:
            continue
        other = key_of(message.properties[header])
        if other:
            moved = key_image(other, reader, change.problems)
            change.moved_to, change.moved_from = (moved, None) if op == DELETE else (None, moved)


def key_image(
    keys: Mapping[str, Any], reader: ConnectRow, problems: list[Problem]
) -> dict[str, str | None]:
    """Return the texts of a key."""
    return reader.image(keys, problems)


def key_of(text: str | None) -> dict[str, Any] | None:
    """Return the columns of a key, which is JSON in KEYS, with or without a schema; else None."""
    if not text or text[0] != "{":
        return None
    try:
        value = parsed(text.encode("utf-8", "surrogatepass"))[1]
    except ValueError:
        return None
    _, payload = without_schema(value or {})
    return dict(payload)


def _table_types(schema: Mapping[str, Any]) -> dict[str, str]:
    """Return column to type, of the schema of an envelope."""
    fields = schema.get("fields")
    for field in fields if isinstance(fields, list) else ():
        if isinstance(field, dict) and field.get("field") in ("after", "before"):
            return connect_types(field.get("fields"))
    return {}


def is_snapshot(value: Any) -> bool:
    """Tell whether ``source.snapshot`` says that a row is of a snapshot."""
    return value is True or (not isinstance(value, bool) and value not in _NO_SNAPSHOT)


def source_sequence(source: Mapping[str, Any]) -> ChangeSequence | None:
    """Return the place of a change in its source; None for a source without a known order."""
    if source.get("file"):
        return binlog_sequence(source["file"], source.get("pos"), source.get("row"))
    return lsn_sequence(source.get("sequence"), source.get("lsn"))


def lsn_sequence(sequence: Any, lsn: Any) -> ChangeSequence | None:
    """Return the sequence of PostgreSQL: of ``["last commit", "lsn"]``, else of the LSN alone."""
    commit: Any = None
    if isinstance(sequence, str) and len(sequence) <= _LONGEST_SEQUENCE:
        try:
            pair = json.loads(sequence)
        except ValueError:
            pair = None
        if isinstance(pair, list) and len(pair) == 2:
            commit, lsn = pair
    position = whole(lsn)
    return None if position is None else ChangeSequence(0, whole(commit), position, 0)
