"""Canal's flat JSON (``canal.mq.flatMessage=true``), also as DTS writes it: messages to changes.

The form has no position in the source, so a change has no sequence.

Reference: com.alibaba.otter.canal.protocol.FlatMessage;
com.alibaba.otter.canal.connector.core.producer.MQMessageUtils#messageConverter.
"""

from collections.abc import Callable, Mapping
from datetime import tzinfo
from functools import partial
from typing import Any, Final

from mqstore.bodies.json_values import parsed
from mqstore.changes.change import DDL as DDL_OP
from mqstore.changes.change import (
    DELETE,
    INSERT,
    OTHER,
    TRUNCATE,
    UPDATE,
    Change,
    ChangeMessage,
    Problem,
)
from mqstore.changes.collected import Collected, by_key
from mqstore.changes.column_types import ColumnType, column_type
from mqstore.changes.decode_context import DecodeContext, source_time
from mqstore.changes.table_schemas import TableSchema
from mqstore.changes.texts import double_text, is_zero_date, json_text, to_base64, zoned_text
from mqstore.changes.texts import short_fraction as without_zeros

CANAL_OPS: Final = {"INSERT": INSERT, "UPDATE": UPDATE, "DELETE": DELETE}
_LONGEST_LABEL: Final = 255
_MOST_BINARY: Final = 255
_REPLACEMENT: Final = "\ufffd"
_CHARSET_REASON: Final = (
    "has U+FFFD: Canal could not decode the column's charset, the characters are lost"
)


def canal_changes(message: ChangeMessage, context: DecodeContext) -> list[Change]:
    """Return the changes of a flat message; raises ValueError for what is none."""
    value = parsed(message.body)[1] if message.body.strip() != b"null" else None
    if value is None:
        return [Change(op=OTHER)]
    return flat_changes(value, context)


def flat_changes(value: Mapping[str, Any], context: DecodeContext) -> list[Change]:
    """Return the changes of a flat message that was parsed."""
    if value.get("isHeartbeat") in (True, "true"):
        return [Change(op=OTHER)]
    if "type" not in value:
        raise ValueError("no message of Canal: it has no type")
    word = str(value["type"]).upper()
    database, table = (_text(value.get(name)) for name in ("database", "table"))
    base = partial(
        Change,
        database=database,
        table=table,
        source_time_us=source_time(value.get("es"), 1_000),
        transaction=_text(value.get("gtid")),
    )
    is_ddl = value.get("isDdl") in (True, "true")
    if word == "TRUNCATE":
        return [base(op=TRUNCATE, sql=_text(value.get("sql")))]
    if is_ddl:
        return [base(op=DDL_OP, sql=_text(value.get("sql")))]
    if word not in CANAL_OPS:
        return [base(op=OTHER, sql=_text(value.get("sql")))]
    rows, old = value.get("data"), value.get("old")
    if not isinstance(rows, list) or not rows:
        raise ValueError(f"{word} without rows in data")
    if old is not None and not (isinstance(old, list) and len(old) == len(rows)):
        raise ValueError("old is not a list beside data, of the same length")
    return _rows(CANAL_OPS[word], value, rows, old or [None] * len(rows), base, context)


def _rows(
    op: str,
    value: Mapping[str, Any],
    rows: list[Any],
    olds: list[Any],
    base: Callable[..., Change],
    context: DecodeContext,
) -> list[Change]:
    schema = context.schema(_text(value.get("database")), _text(value.get("table")))
    types = value.get("mysqlType")
    types = {str(k): str(v) for k, v in types.items()} if isinstance(types, dict) else {}
    names = value.get("pkNames")
    keys = tuple(map(str, names)) if isinstance(names, list) else ()
    reader = CanalRow(types, schema, context.zone)
    collected = Collected()
    for row, old in zip(rows, olds, strict=True):
        if not isinstance(row, dict) or not row or not isinstance(old, dict | None):
            raise ValueError("a row in data, or what stands for it in old, is no object of columns")
        problems: list[Problem] = []
        image = reader.image(row, problems)
        own_types = types if len(types) <= len(row) else {k: types[k] for k in row if k in types}
        change = base(
            op=op,
            keys=keys or (schema.keys if schema else ()),
            row=None if op == DELETE else image,
            problems=problems,
            types=own_types,
        )
        if op == DELETE:
            change.before = image
        elif op == UPDATE and old is not None:
            change.before = {**image, **reader.image(old, problems)}
        for one in by_key(change):
            collected.add(one)
    return collected.changes


class CanalRow:
    """Reads rows of one table, by the types of the message or those of a schema."""

    def __init__(self, types: Mapping[str, str], schema: TableSchema | None, zone: tzinfo) -> None:
        self._types = {**(schema.columns if schema else {}), **types}
        self._zone = zone
        self._readers: dict[str, Callable[[str], str] | None] = {}

    def image(self, row: Mapping[str, Any], problems: list[Problem]) -> dict[str, str | None]:
        """Return the texts of a row; a value that is not of its type stays as it was written."""
        image: dict[str, str | None] = {}
        readers = self._readers
        for name, value in row.items():
            text = value if type(value) is str or value is None else json_text(value)
            image[name] = text
            if text is None:
                continue
            if name not in readers:
                readers[name] = self._reader(name)
            reader = readers[name]
            if _REPLACEMENT in text:
                problems.append(Problem(name, _CHARSET_REASON))
            if reader is None:
                continue
            try:
                image[name] = reader(text)
            except ValueError as error:
                problems.append(Problem(name, f"no {self._types[name][:60]}: {error}"))
        return image

    def _reader(self, name: str) -> Callable[[str], str] | None:
        return (
            _reader_of(column_type(self._types[name]), self._zone) if name in self._types else None
        )


def _reader_of(kind: ColumnType, zone: tzinfo) -> Callable[[str], str] | None:
    """Return what reads a text of Canal as the text of a change, None where they are the same."""
    readers: dict[str, Callable[[str], str]] = {
        "integer": _integer,
        "decimal": _decimal_of,
        "bit": _integer,
        "double": double_text,
        "date": _date,
        "datetime": _datetime,
        "timestamp": partial(_timestamp, zone),
        "time": _time,
        "enum": partial(_label, kind.labels),
        "set": partial(_labels, kind.labels),
        "binary": partial(_binary, kind.length),
    }
    return readers.get(kind.kind)


def _integer(text: str) -> str:
    digits = text[1:] if text[:1] == "-" else text
    if not (digits.isascii() and digits.isdigit()):
        raise ValueError("not a whole number")
    return text


def _decimal_of(text: str) -> str:
    whole, point, fraction = text.removeprefix("-").partition(".")
    if not (whole + fraction).isascii() or not whole.isdigit():
        raise ValueError("not a decimal")
    if point and not fraction.isdigit():
        raise ValueError("not a decimal")
    return text


def _date(text: str) -> str:
    if len(text) != 10 or text[4] != "-" or text[7] != "-":
        raise ValueError("not a date")
    return text


def _datetime(text: str) -> str:
    if len(text) < 19 or text[10] not in " T" or text[13] != ":":
        raise ValueError("not a date and time")
    return text if is_zero_date(text) else without_zeros(text.replace(" ", "T", 1))


def _timestamp(zone: tzinfo, text: str) -> str:
    if len(text) < 19 or text[10] not in " T" or text[13] != ":":
        raise ValueError("not a date and time")
    return text if is_zero_date(text) else zoned_text(text, zone)


def _time(text: str) -> str:
    if text.count(":") != 2:
        raise ValueError("not a time")
    return without_zeros(text)


def _label(labels: tuple[str, ...], text: str) -> str:
    if not (text.isascii() and text.isdigit()):
        return text
    index = int(text[:10])
    if index == 0:
        return ""
    if index > len(labels) or len(labels[index - 1]) > _LONGEST_LABEL:
        raise ValueError(f"there is no label {text[:20]}")
    return labels[index - 1]


def _labels(labels: tuple[str, ...], text: str) -> str:
    if not (text.isascii() and text.isdigit()):
        return text
    bits = int(text[:21])
    if bits >> min(len(labels), 64) or max(map(len, labels), default=0) > _LONGEST_LABEL:
        raise ValueError(f"there are no labels for {text[:21]}")
    return ",".join(label for place, label in enumerate(labels) if bits >> place & 1)


def _binary(length: int, text: str) -> str:
    try:
        data = text.encode("latin-1")
    except UnicodeEncodeError:
        raise ValueError("characters that are no bytes") from None
    return to_base64(data.ljust(length, b"\0") if 0 < length <= _MOST_BINARY else data)


def _text(value: object) -> str | None:
    return None if value is None or value == "" else str(value)
