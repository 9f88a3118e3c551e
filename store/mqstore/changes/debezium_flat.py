"""Debezium's flattened rows (ExtractNewRecordState): messages to changes.

A message is the row, with what ``add.fields`` asks for beside it: ``__op``, ``__table``,
``__source_file`` … A row of a deletion is there where ``delete.tombstone.handling.mode`` is
``rewrite``; there is no row before a change.

Reference: io.debezium.transforms.ExtractNewRecordState.
"""

import re
from collections.abc import Mapping
from typing import Any, Final

from mqstore.changes.change import (
    DELETE,
    INSERT,
    OTHER,
    UPDATE,
    Change,
    ChangeMessage,
)
from mqstore.changes.collected import Collected
from mqstore.changes.connect_values import ConnectRow, connect_types
from mqstore.changes.debezium import (
    DEBEZIUM_OPS,
    before_image,
    is_snapshot,
    key_of,
    lsn_sequence,
    no_change,
    object_of,
    set_moved,
    without_schema,
)
from mqstore.changes.decode_context import DecodeContext, binlog_sequence, source_time, text_of

_ADDED: Final = re.compile(
    r"__(?:source_|transaction_)?(?:op|deleted|table|db|schema|ts_ms|ts_us|ts_ns|file|pos|row|lsn"
    r"|sequence|txId|gtid|server_id|snapshot|name|connector|version|thread|query|xmin|scn|id"
    r"|total_order|data_collection_order)"
)


def debezium_flat_changes(message: ChangeMessage, context: DecodeContext) -> list[Change]:
    """Return the changes of a message; raises ValueError for what is none."""
    value = object_of(message.body)
    return [Change(op=OTHER)] if value is None else flattened_changes(value, message, context)


def flattened_changes(
    value: Mapping[str, Any], message: ChangeMessage, context: DecodeContext
) -> list[Change]:
    """Return the changes of an object that was parsed."""
    schema, payload = without_schema(value)
    added = {
        name.removeprefix("__").removeprefix("source_"): content
        for name, content in payload.items()
        if _ADDED.fullmatch(name)
    }
    if "op" not in added and "deleted" not in added:
        noise = no_change(payload)
        if noise is None:
            raise ValueError("no flattened message of Debezium: it has no __op and no __deleted")
        return [noise]
    transaction = payload.get("__transaction_id") or added.get("gtid") or added.get("txId")
    change = Change(
        op=_op(added),
        database=text_of(added.get("schema")) or text_of(added.get("db")),
        table=text_of(added.get("table")),
        source_time_us=source_time(added.get("ts_ms"), 1_000),
        transaction=text_of(transaction),
        snapshot=is_snapshot(added.get("snapshot")) or added.get("op") == "r",
        sequence=binlog_sequence(added.get("file"), added.get("pos"), added.get("row"))
        or lsn_sequence(added.get("sequence"), added.get("lsn")),
    )
    if change.op in {INSERT, UPDATE, DELETE}:
        row = {name: content for name, content in payload.items() if not _ADDED.fullmatch(name)}
        _fill(change, row, schema, message, context)
    collected = Collected()
    collected.add(change)
    return collected.changes


def _fill(
    change: Change,
    row: Mapping[str, Any],
    schema: Mapping[str, Any],
    message: ChangeMessage,
    context: DecodeContext,
) -> None:
    if not row:
        raise ValueError(f"{change.op} without a row")
    table = context.schema(change.database, change.table)
    types = connect_types(schema.get("fields"))
    change.types = {name: kind for name, kind in types.items() if name in row}
    reader = ConnectRow(change.types, table)
    change.keys = tuple(key_of(message.keys) or ()) or (table.keys if table else ())
    unavailable: list[str] = []
    image = reader.image(row, change.problems, unavailable)
    if change.op == DELETE:
        change.before = before_image(image, change.keys, may_be_key=True)
    else:
        change.row = image
        change.unavailable = tuple(unavailable)
    set_moved(change, message, reader)


def _op(added: Mapping[str, Any]) -> str:
    """Return the operation; without ``__op`` a row that is there is an update: it may be new."""
    if added.get("deleted") in (True, "true"):
        return DELETE
    op = DEBEZIUM_OPS.get(str(added.get("op", "u")))
    if op is None:
        raise ValueError(f"no flattened message of Debezium: its __op is {str(added['op'])[:20]}")
    return op
