"""The types of databases and of Kafka Connect, by their texts, and their Arrow types.

Reference: com.alibaba.otter.canal.protocol.CanalEntry.Column#getMysqlType; io.debezium.time and
io.debezium.data; org.apache.kafka.connect.data.Schema; SHOW CREATE TABLE of MySQL and MariaDB.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Final

import pyarrow as pa

from mqstore.bodies.ddl import LOCAL, MAX_PRECISION, UTC

_MOST_CACHED_TEXT: Final = 4_096
_TYPE_NAME: Final = re.compile(r"\s*([A-Za-z_][\w.]*(?:\s+[A-Za-z]+)*)\s*", re.ASCII)
_TYPE_ARGUMENTS: Final = re.compile(
    r"\(((?:[^()'\"]|'(?:[^'\\]|''|\\.)*'|\"[^\"]*\")*)\)", re.DOTALL
)
_ENUM_LABEL: Final = re.compile(r"'((?:[^'\\]|''|\\.)*)'", re.DOTALL)
_INTEGER_KINDS: Final = {
    "tinyint": (pa.int8(), pa.int16()),
    "byte": (pa.int8(), pa.int16()),
    "smallint": (pa.int16(), pa.int32()),
    "short": (pa.int16(), pa.int32()),
    "smallserial": (pa.int16(), pa.int32()),
    "mediumint": (pa.int32(), pa.int32()),
    "int": (pa.int32(), pa.int64()),
    "integer": (pa.int32(), pa.int64()),
    "serial": (pa.int32(), pa.int64()),
    "bigint": (pa.int64(), pa.decimal128(20, 0)),
    "long": (pa.int64(), pa.decimal128(20, 0)),
    "bigserial": (pa.int64(), pa.decimal128(20, 0)),
}
"""Signed, unsigned."""
_OTHER_KINDS: Final = {
    **dict.fromkeys(("float", "real"), ("double", pa.float32())),
    **dict.fromkeys(("double", "double precision"), ("double", pa.float64())),
    "date": ("date", pa.date32()),
    **dict.fromkeys(
        ("datetime", "timestamp_ntz", "timestamp without time zone"), ("datetime", LOCAL)
    ),
    **dict.fromkeys(
        ("timestamp", "timestamp_ltz", "timestamptz", "timestamp with time zone"),
        ("timestamp", UTC),
    ),
    **dict.fromkeys(
        ("time", "time without time zone", "time with time zone", "timetz"), ("time", pa.string())
    ),
    "year": ("integer", pa.int32()),
    "enum": ("enum", pa.string()),
    "set": ("set", pa.string()),
    **dict.fromkeys(("boolean", "bool"), ("boolean", pa.bool_())),
    **dict.fromkeys(
        ("binary", "varbinary", "tinyblob", "blob", "mediumblob", "longblob", "bytea"),
        ("binary", pa.binary()),
    ),
    **dict.fromkeys(
        (
            *("char", "varchar", "character", "character varying", "bpchar", "string", "json"),
            *("tinytext", "text", "mediumtext", "longtext", "jsonb", "uuid", "xml", "citext"),
            *("nchar", "nvarchar", "inet", "inet4", "inet6", "cidr", "macaddr", "hstore"),
            *("tsvector", "interval", "geometry", "geography", "point", "linestring", "polygon"),
        ),
        ("text", pa.string()),
    ),
}
_CONNECT_KINDS: Final = {
    "boolean": ("boolean", pa.bool_()),
    "int8": ("integer", pa.int8()),
    "int16": ("integer", pa.int16()),
    "int32": ("integer", pa.int32()),
    "int64": ("integer", pa.int64()),
    "float32": ("double", pa.float32()),
    "float64": ("double", pa.float64()),
    "string": ("text", pa.string()),
    "bytes": ("binary", pa.binary()),
    "io.debezium.time.Date": ("date", pa.date32()),
    "org.apache.kafka.connect.data.Date": ("date", pa.date32()),
    "io.debezium.time.Timestamp": ("datetime", LOCAL),
    "io.debezium.time.MicroTimestamp": ("datetime", LOCAL),
    "io.debezium.time.NanoTimestamp": ("datetime", LOCAL),
    "org.apache.kafka.connect.data.Timestamp": ("datetime", LOCAL),
    "io.debezium.time.ZonedTimestamp": ("timestamp", UTC),
    "io.debezium.time.Time": ("time", pa.string()),
    "io.debezium.time.MicroTime": ("time", pa.string()),
    "io.debezium.time.NanoTime": ("time", pa.string()),
    "org.apache.kafka.connect.data.Time": ("time", pa.string()),
    "io.debezium.time.Year": ("integer", pa.int32()),
    "io.debezium.time.MicroDuration": ("integer", pa.int64()),
}


@dataclass(frozen=True, slots=True)
class ColumnType:
    """A column's type: what its values are, and the Arrow type that has them.

    kind: integer, decimal, double, bit, date, datetime (no zone), timestamp (an instant), time,
    enum, set, boolean, binary or text. length: of BINARY and BIT; digits: of a second's fraction.
    A type that is not ``known`` has texts.
    """

    name: str
    kind: str
    arrow: pa.DataType
    length: int = 0
    scale: int = 0
    digits: int = 0
    labels: tuple[str, ...] = ()
    unsigned: bool = False
    known: bool = True


def column_type(text: str) -> ColumnType:
    """Return the type of a text: ``decimal(18,4)``, ``io.debezium.time.MicroTimestamp``, ``int64``.

    A text that is no known type is a type of texts.
    """
    return _cached_type(text) if len(text) <= _MOST_CACHED_TEXT else _column_type(text)


def arrow_fields(types: Mapping[str, str]) -> pa.DataType:
    """Return the Arrow struct of a table, of column to type."""
    return pa.struct([pa.field(name, column_type(text).arrow) for name, text in types.items()])


def _column_type(text: str) -> ColumnType:
    words = _TYPE_NAME.match(text)
    if words is None:
        return ColumnType(text, "text", pa.string(), known=False)
    arguments = _TYPE_ARGUMENTS.match(text, words.end())
    inside = arguments[1] if arguments else ""
    head = words[1]
    if head.split()[0] in _CONNECT_KINDS or head.startswith(("io.", "org.")):
        return _connect_type(text, head, inside)
    behind = text[arguments.end() if arguments else words.end() :].lower().split()
    name = " ".join((*head.lower().split(), *behind))
    unsigned = "unsigned" in name.split() or "zerofill" in name.split()
    name = " ".join(word for word in name.split() if word not in {"unsigned", "signed", "zerofill"})
    return _database_type(text, name, inside, unsigned=unsigned)


_cached_type: Final = lru_cache(maxsize=1_024)(_column_type)


def _connect_type(text: str, name: str, inside: str) -> ColumnType:
    numbers = _numbers(inside)
    if name == "org.apache.kafka.connect.data.Decimal":
        precision, scale = (*numbers, 0, 0)[:2] if len(numbers) > 1 else (0, (*numbers, 0)[0])
        return ColumnType(text, "decimal", _decimal(precision or MAX_PRECISION, scale), scale=scale)
    if name == "io.debezium.data.Bits":
        length = (*numbers, 1)[0]
        return ColumnType(text, "bit", _bits(length), length=length)
    kind, arrow = _CONNECT_KINDS.get(name, ("text", pa.string()))
    return ColumnType(text, kind, arrow, known=name in _CONNECT_KINDS)


def _database_type(text: str, name: str, inside: str, *, unsigned: bool) -> ColumnType:
    numbers = _numbers(inside)
    length = (*numbers, 0)[0]
    if name in _INTEGER_KINDS:
        return ColumnType(text, "integer", _INTEGER_KINDS[name][unsigned], unsigned=unsigned)
    if name in {"decimal", "dec", "numeric", "fixed"}:
        if not numbers and name == "numeric":
            return ColumnType(text, "decimal", pa.string(), scale=-1)
        precision, scale = (*numbers, 0, 0)[:2] if numbers else (10, 0)
        return ColumnType(text, "decimal", _decimal(precision, scale), scale=scale)
    if name in {"bit", "bit varying"}:
        return ColumnType(text, "bit", _bits(length or 1), length=length or 1)
    kind, arrow = _OTHER_KINDS.get(name, ("text", pa.string()))
    labels: tuple[str, ...] = ()
    if kind in {"enum", "set"}:
        labels = tuple(_unquoted(label) for label in _ENUM_LABEL.findall(inside))
    if name == "binary" and not numbers:
        length = 0  # Spark's BINARY has no length.
    elif name != "binary":
        length = 0
    digits = (*numbers, 0)[0] if kind in {"datetime", "timestamp", "time"} else 0
    return ColumnType(
        text, kind, arrow, length=length, digits=digits, labels=labels, known=name in _OTHER_KINDS
    )


def _numbers(inside: str) -> tuple[int, ...]:
    parts = [part.strip() for part in inside.split(",")] if inside.strip() else []
    if not all(re.fullmatch(r"-?\d{1,5}", part, re.ASCII) for part in parts):
        return ()
    return tuple(map(int, parts))


def _decimal(precision: int, scale: int) -> pa.DataType:
    if not 1 <= precision <= MAX_PRECISION or not 0 <= scale <= precision:
        return pa.string()
    return pa.decimal128(precision, scale)


def _bits(length: int) -> pa.DataType:
    return pa.int64() if length < 64 else pa.decimal128(20, 0)


def _unquoted(label: str) -> str:
    return re.sub(r"\\(.)|''", lambda match: match[1] or "'", label, flags=re.DOTALL)
