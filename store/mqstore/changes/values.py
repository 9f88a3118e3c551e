"""Texts of a change's values as Arrow columns: one struct a row, and what does not fit its type.

``typed_rows`` takes the maps of change rows (``row``, ``before``) and the struct of a table, which
``column_types.arrow_fields`` makes of the types of messages, or ``table_schemas`` of CREATE TABLE.
A column that a row does not have is null; so is a value that does not fit, and it is a problem.
"""

import base64
import binascii
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from decimal import Decimal, InvalidOperation
from functools import partial
from typing import Any, Final, TypeAlias

import pyarrow as pa

from mqstore.bodies.ddl import type_ddl
from mqstore.bodies.times import day, moment
from mqstore.changes.change import Problem, Values
from mqstore.changes.texts import is_zero_date
from mqstore.errors import shown

ConvertText: TypeAlias = Callable[[str], Any]

_SHOWN_TEXT: Final = 60
_LOCAL_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_BITS_OF_INTEGERS: Final = {pa.int8(): 8, pa.int16(): 16, pa.int32(): 32, pa.int64(): 64}
_TRUTH_TEXTS: Final = {"true": True, "false": False, "1": True, "0": False, "t": True, "f": False}
_MOST_NUMBER_TEXT: Final = 1_000


def typed_rows(
    rows: pa.MapArray | Sequence[Values | None], table: pa.DataType
) -> tuple[pa.StructArray, dict[int, list[Problem]]]:
    """Return the rows as structs, null for a null row, and the problems by the number of a row.

    A column of a row that the table does not have is a problem too: it is left out.
    """
    maps: Sequence[Any] = _dicts(rows) if isinstance(rows, pa.MapArray) else rows
    problems: dict[int, list[Problem]] = {}
    columns = [_column(maps, field, problems) for field in table]
    names = {field.name for field in table}
    for number, row in enumerate(maps):
        if row and not row.keys() <= names:
            reason = "is not in the schema of the table: its value is left out"
            problems.setdefault(number, []).extend(
                Problem(name, reason) for name in row if name not in names
            )
    missing = pa.array([row is None for row in maps], pa.bool_())
    fields = [pa.field(field.name, field.type) for field in table]
    return pa.StructArray.from_arrays(columns, fields=fields, mask=missing), problems


def _dicts(rows: pa.MapArray) -> list[dict[str, str | None] | None]:
    return [None if row is None else dict(row) for row in rows.to_pylist()]


def _column(
    maps: Sequence[Mapping[str, str | None] | None],
    field: pa.Field,
    problems: dict[int, list[Problem]],
) -> pa.Array:
    texts = [None if row is None else row.get(field.name) for row in maps]
    if pa.types.is_string(field.type):
        return pa.array(texts, field.type)
    convert = converter(field.type)
    values: list[Any] = []
    for number, text in enumerate(texts):
        value = None
        if text is not None:
            try:
                value = convert(text)
            except ValueError as error:
                words = shown(text, _SHOWN_TEXT)
                reason = f"{words} is no {type_ddl(field.type)}: {error}"
                problems.setdefault(number, []).append(Problem(field.name, reason))
        values.append(value)
    return pa.array(values, field.type)


def converter(kind: pa.DataType) -> ConvertText:
    """Return what makes a value of an Arrow type of a text; it raises ValueError."""
    if kind in _BITS_OF_INTEGERS:
        return partial(_integer, _BITS_OF_INTEGERS[kind])
    if pa.types.is_decimal(kind):
        return partial(_decimal, kind.precision, kind.scale)
    if pa.types.is_timestamp(kind):
        return partial(_timestamp, kind.tz is not None)
    for test, convert in _CONVERTERS:
        if test(kind):
            return convert
    raise ValueError(f"a change has no value of the type {type_ddl(kind)}")


def _integer(bits: int, text: str) -> int:
    if len(text) > _MOST_NUMBER_TEXT:
        raise ValueError("it is too long")
    if text in _TRUTH_TEXTS:
        return int(_TRUTH_TEXTS[text])
    try:
        number = int(text)
    except ValueError:
        raise ValueError("not a whole number") from None
    if not -(1 << bits - 1) <= number < 1 << bits - 1:
        raise ValueError(f"it does not fit {bits} bits")
    return number


def _decimal(precision: int, scale: int, text: str) -> Decimal:
    if len(text) > _MOST_NUMBER_TEXT:
        raise ValueError("it is too long")
    try:
        number = Decimal(text)
    except InvalidOperation:
        raise ValueError("not a number") from None
    exponent = number.as_tuple().exponent
    if not isinstance(exponent, int):
        raise ValueError("not a number")  # noqa: TRY004 - NaN is a number to Decimal
    if number and (number.adjusted() >= precision - scale or exponent < -_MOST_NUMBER_TEXT):
        raise ValueError("it has too many digits")
    rounded = round(number, scale)
    if rounded != number:
        raise ValueError(f"it has more than {scale} digits behind the point")
    return rounded


def _double(text: str) -> float:
    try:
        return float(text)
    except ValueError:
        raise ValueError("not a number") from None


def _boolean(text: str) -> bool:
    if text not in _TRUTH_TEXTS:
        raise ValueError("not true or false")
    return _TRUTH_TEXTS[text]


def _date(text: str) -> int:
    try:
        return day(text)
    except ValueError:
        raise ValueError(_of_time(text)) from None


def _timestamp(with_zone: bool, text: str) -> datetime:
    try:
        microseconds = moment(text, UTC if with_zone else None)
    except ValueError:
        raise ValueError(_of_time(text)) from None
    instant = _LOCAL_EPOCH + timedelta(microseconds=microseconds)
    return instant if with_zone else instant.replace(tzinfo=None)


def _of_time(text: str) -> str:
    if len(text) >= len("2024-01-01") and is_zero_date(text):
        return "a zero date, which no table of a lake has"
    if text.removeprefix("-").isdigit():
        return "the unit of the number is not known: changesSchema tells it, as datetime(6)"
    return "not a date or time"


def _binary(text: str) -> bytes:
    try:
        return base64.b64decode(text, validate=True)
    except (binascii.Error, ValueError):
        raise ValueError("not base64") from None


_CONVERTERS: Final[tuple[tuple[Callable[[pa.DataType], bool], ConvertText], ...]] = (
    (pa.types.is_floating, _double),
    (pa.types.is_boolean, _boolean),
    (pa.types.is_date, _date),
    (pa.types.is_binary, _binary),
    (pa.types.is_string, str),
)
