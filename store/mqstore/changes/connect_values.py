"""Values of Debezium's JSON as texts: by the schema in the message, or by a column's database type.

Without schemas the unit of a time and the scale of a decimal are not in the message: only the
database's own type tells them (``datetime(6)``, ``decimal(18,4)``).

Reference: io.debezium.time; io.debezium.data; org.apache.kafka.connect.json.JsonConverter;
io.debezium.connector.mysql.MySqlValueConverters.
"""

from collections.abc import Callable, Mapping
from typing import Any, Final

import pyarrow as pa

from mqstore.bodies.json_values import Fraction, Integer
from mqstore.changes.change import Problem
from mqstore.changes.column_types import ColumnType, column_type
from mqstore.changes.table_schemas import TableSchema
from mqstore.changes.texts import (
    clock_text,
    day_text,
    double_text,
    from_base64,
    instant_text,
    json_text,
    local_text,
    to_base64,
    unscaled_decimal,
)

UNAVAILABLE: Final = frozenset(
    {"__debezium_unavailable_value", "X19kZWJleml1bV91bmF2YWlsYWJsZV92YWx1ZQ=="}
)
"""What stands for a value that PostgreSQL did not log (TOAST), as text and in base64."""
_REPLACEMENT: Final = "\ufffd"
_NEGATIVE_BIGINT: Final = 1 << 64
_PER_MICROSECOND: Final = {"Timestamp": 1_000, "Time": 1_000, "MicroTimestamp": 1, "MicroTime": 1}
_MOST_MILLISECOND_DIGITS: Final = 3

_BASE64_DIGITS: Final = 4

Read = Callable[[Any], str | None]


class AmbiguousValueError(ValueError):
    """A value that the modes of Debezium write in the same way for two values."""


def connect_types(fields: Any) -> dict[str, str]:
    """Return column to type of the fields of a struct of Connect's schema."""
    types: dict[str, str] = {}
    for field in fields if isinstance(fields, list) else ():
        if isinstance(field, dict) and isinstance(field.get("field"), str):
            types[field["field"]] = _type_name(field)
    return types


def _type_name(schema: Mapping[str, Any]) -> str:
    name = schema.get("name")
    parameters = schema.get("parameters")
    parameters = parameters if isinstance(parameters, dict) else {}
    kind = str(schema.get("type", "string"))
    if not isinstance(name, str) or not name.startswith(("io.debezium.", "org.apache.kafka.")):
        return {"float": "float32", "double": "float64"}.get(kind, kind)
    if name.endswith(".Decimal"):
        precision, scale = parameters.get("connect.decimal.precision"), parameters.get("scale", "0")
        return f"{name}({scale})" if precision is None else f"{name}({precision},{scale})"
    return f"{name}({parameters['length']})" if "length" in parameters else name


class ConnectRow:
    """Reads rows of one table, by the types of the message's schema and those of changesSchema."""

    def __init__(self, types: Mapping[str, str], schema: TableSchema | None) -> None:
        self._types = types
        self._columns: Mapping[str, str] = schema.columns if schema else {}
        self._readers: dict[str, Read] = {}

    def image(
        self, row: Mapping[str, Any], problems: list[Problem], unavailable: list[str] | None = None
    ) -> dict[str, str | None]:
        """Return the texts of a row, without the columns that the message does not know.

        Their names are added to ``unavailable``. A value that is not of its type stays as it was
        written, with a problem.
        """
        image: dict[str, str | None] = {}
        readers = self._readers
        for name, value in row.items():
            if value is None:
                image[name] = None
                continue
            if _is_unavailable(value):
                if unavailable is not None:
                    unavailable.append(name)
                continue
            reader = readers.get(name)
            if reader is None:
                reader = readers[name] = self._reader(name)
            try:
                text = reader(value)
            except AmbiguousValueError as error:
                problems.append(Problem(name, str(error)))
                if unavailable is not None:
                    unavailable.append(name)
                continue
            except (ValueError, TypeError, KeyError) as error:
                text = json_text(value)
                known = self._types.get(name) or self._columns.get(name, "")
                problems.append(Problem(name, f"no {known[:60]}: {str(error)[:200]}"))
            if text is not None and _REPLACEMENT in text:
                problems.append(Problem(name, "has U+FFFD: characters may be lost"))
            image[name] = text
        return image

    def _reader(self, name: str) -> Read:
        own = self._types.get(name)
        given = self._columns.get(name)
        if own is None:
            return json_reader if given is None else by_database_type(column_type(given))
        read = _by_connect_type(own)
        return read if given is None else _settled(read, column_type(given))


def json_reader(value: Any) -> str | None:
    """Return the text of a value without a type; a decimal with its own scale is plain."""
    if isinstance(value, dict) and value.keys() == {"scale", "value"}:
        return _variable_decimal(value)
    return json_text(value)


def _is_unavailable(value: Any) -> bool:
    if type(value) is str:
        return value in UNAVAILABLE
    return isinstance(value, list) and len(value) == 1 and _is_unavailable(value[0])


def _by_connect_type(text: str) -> Read:
    name, _, arguments = text.partition("(")
    last = name.rpartition(".")[2]
    if name == last:
        return {"float32": _double, "float64": _double}.get(name, json_reader)
    if last == "Decimal":
        scale = int(arguments.rstrip(")").rpartition(",")[2])
        return lambda value: _decimal(value, scale)
    readers: dict[str, Read] = {
        "VariableScaleDecimal": _variable_decimal,
        "Date": lambda value: day_text(_whole(value)),
        "ZonedTimestamp": _instant,
        "Bits": _bits,
        "NanoTimestamp": lambda value: local_text(_whole(value) // 1_000),
        "NanoTime": lambda value: clock_text(_whole(value) // 1_000),
    }
    if last in readers:
        return readers[last]
    if last in _PER_MICROSECOND:
        unit = _PER_MICROSECOND[last]
        made = local_text if last.endswith("stamp") else clock_text
        return lambda value: made(_whole(value) * unit)
    return json_reader


def by_database_type(kind: ColumnType) -> Read:
    """Return what reads a value that Debezium writes, with its defaults, of a database's type."""
    readers: dict[str, Read] = {
        "integer": _integer_of(kind),
        "decimal": lambda value: _decimal_by_mode(value, kind),
        "double": _double,
        "date": _date,
        "datetime": lambda value: _datetime(value, kind),
        "timestamp": _timestamp,
        "time": lambda value: _time(value, kind),
        "bit": _bits,
        "binary": lambda value: to_base64(from_base64(_string(value))),
    }
    return readers.get(kind.kind, json_reader)


def _settled(read: Read, kind: ColumnType) -> Read:
    """Return ``read`` where the database's type says more than the schema of the message."""
    if kind.kind == "integer" and kind.unsigned:
        integer = _integer_of(kind)
        return lambda value: (integer if isinstance(value, Integer) else read)(value)
    if kind.kind == "bit":
        return lambda value: _bits(value) if isinstance(value, bool) else read(value)
    if kind.kind == "integer":
        return lambda value: str(int(value)) if isinstance(value, bool) else read(value)
    return read


def _integer_of(kind: ColumnType) -> Read:
    is_long = kind.unsigned and kind.name.lower().lstrip().startswith(("bigint", "long"))

    def read(value: Any) -> str:
        if isinstance(value, bool):
            return str(int(value))
        number = _whole(value)
        # bigint.unsigned.handling.mode=long writes what is above 2**63 - 1 as negative.
        return str(number + _NEGATIVE_BIGINT if is_long and number < 0 else number)

    return read


def _whole(value: Any) -> int:
    if not isinstance(value, Integer):
        raise ValueError("not a whole number")  # noqa: TRY004
    return int(value)


def _string(value: Any) -> str:
    if not isinstance(value, str) or isinstance(value, Integer | Fraction):
        raise ValueError("not a text")  # noqa: TRY004
    return value


def _double(value: Any) -> str:
    if not isinstance(value, str):
        raise ValueError("not a number")  # noqa: TRY004
    return double_text(value)


def _decimal(value: Any, scale: int) -> str | None:
    if isinstance(value, Integer | Fraction):
        return json_text(value)
    if isinstance(value, dict):
        return _variable_decimal(value)
    return unscaled_decimal(_string(value), scale)


def _decimal_by_mode(value: Any, kind: ColumnType) -> str | None:
    """Return a decimal of decimal.handling.mode precise (base64), string or double.

    A text with a point, or a sign, is no base64. Without a scale digits alone may be both.
    """
    if not isinstance(value, str) or isinstance(value, Integer | Fraction):
        return _decimal(value, kind.scale)
    whole, point, fraction = value.removeprefix("-").partition(".")
    if whole.isdigit() and (fraction.isdigit() if point else value[0] == "-"):
        return value
    if kind.scale < 0:
        raise ValueError("its scale is not known")
    if not (kind.scale == 0 and whole.isdigit()):
        return unscaled_decimal(value, kind.scale)
    if len(value) % _BASE64_DIGITS or _is_beyond(value, kind):
        return value
    raise AmbiguousValueError(
        "these digits are a number with decimal.handling.mode=string, and another one with "
        "precise, the default: only schemas in the messages tell"
    )


def _is_beyond(text: str, kind: ColumnType) -> bool:
    """Tell whether the number of base64 has more digits than the column."""
    precision = kind.arrow.precision if pa.types.is_decimal(kind.arrow) else 0
    return bool(precision) and len(unscaled_decimal(text, 0).lstrip("-")) > precision


def _variable_decimal(value: Any) -> str | None:
    return unscaled_decimal(_string(value["value"]), _whole(value["scale"]))


def _bits(value: Any) -> str:
    if isinstance(value, bool):
        return str(int(value))
    if isinstance(value, Integer):
        return str(value)
    return str(int.from_bytes(from_base64(_string(value)), "little"))


def _instant(value: Any) -> str:
    return instant_text(_string(value))


def _date(value: Any) -> str:
    return day_text(int(value)) if isinstance(value, Integer) else _string(value)


def _datetime(value: Any, kind: ColumnType) -> str:
    if not isinstance(value, Integer):
        return _string(value)
    if kind.name.lower().startswith("timestamp_ntz"):
        raise ValueError("the unit of its number is not known: declare datetime(3) or datetime(6)")
    # Without digits it is DATETIME(0) in MySQL and timestamp(6) in PostgreSQL.
    is_mysql = kind.name.lower().startswith("datetime")
    is_milliseconds = kind.digits <= _MOST_MILLISECOND_DIGITS and (is_mysql or "(" in kind.name)
    return local_text(int(value) * (1_000 if is_milliseconds else 1))


def _timestamp(value: Any) -> str:
    if isinstance(value, Integer):
        raise ValueError("the unit of its number is not known")  # noqa: TRY004
    return instant_text(_string(value))


def _time(value: Any, kind: ColumnType) -> str:
    if not isinstance(value, Integer):
        return _string(value)
    # MySQL's is in microseconds whatever its digits are, PostgreSQL's time(3) in milliseconds.
    is_postgresql = "zone" in kind.name.lower() and "(" in kind.name
    is_milliseconds = is_postgresql and kind.digits <= _MOST_MILLISECOND_DIGITS
    return clock_text(int(value) * (1_000 if is_milliseconds else 1))
