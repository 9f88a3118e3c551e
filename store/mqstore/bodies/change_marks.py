"""How messages of changes of a database are known, by the marks of each format.

Reference: com.alibaba.otter.canal.protocol.FlatMessage; io.debezium.data.Envelope;
io.debezium.transforms.ExtractNewRecordState; com.zendesk.maxwell.row.RowMap.
"""

from collections.abc import Mapping
from typing import Any, Final

CANAL: Final = "Canal (flat JSON)"
CANAL_PACKET: Final = "Canal (protobuf)"
DEBEZIUM: Final = "Debezium (JSON)"
DEBEZIUM_FLAT: Final = "Debezium (flattened JSON)"
MAXWELL: Final = "Maxwell (JSON)"
OCEANBASE: Final = "OceanBase (JSON)"
PACKET: Final = b"\x10\x01\x18\x07\x2a"
"""How a packet of Canal begins: magic 1, type MESSAGES, then its body."""
_DEBEZIUM_OPS: Final = frozenset("crudtm")
_MAXWELL_TYPES: Final = ("insert", "update", "delete", "bootstrap-", "table-", "database-")
_FLAT_MARKS: Final = ("__op", "__deleted", "__source_ts_ms")


def change_of(value: Mapping[str, Any]) -> tuple[str, str] | None:
    """Return the format and the table of a change, None for a body that is none."""
    if {"data", "table", "type"} <= value.keys() and ("isDdl" in value or "mysqlType" in value):
        return CANAL, _table(value.get("database"), value.get("table"))
    inner = value.get("payload", value)
    source = inner.get("source") if isinstance(inner, Mapping) else None
    if isinstance(source, Mapping) and str(inner.get("op")) in _DEBEZIUM_OPS:
        return DEBEZIUM, _table(source.get("schema") or source.get("db"), source.get("table"))
    if isinstance(inner, Mapping) and any(mark in inner for mark in _FLAT_MARKS):
        return DEBEZIUM_FLAT, _table(inner.get("__db"), inner.get("__table"))
    if {"recordType", "allMetaData"} <= value.keys():
        metadata = value["allMetaData"] if isinstance(value["allMetaData"], Mapping) else {}
        return OCEANBASE, _table(metadata.get("db"), metadata.get("table_name"))
    is_maxwell = {"database", "table", "type", "ts"} <= value.keys()
    if is_maxwell and str(value["type"]).startswith(_MAXWELL_TYPES):
        return MAXWELL, _table(value.get("database"), value.get("table"))
    return None


def _table(database: object, table: object) -> str:
    return ".".join(str(name) for name in (database, table) if name) or "?"
