"""The texts of a change's values, the same for every producer that sends a value.

Numbers are plain, doubles in their shortest form, times ISO 8601 without zeros at the end of a
fraction, binary is base64. Functions raise ValueError with the reason for a value that has no text.
"""

import base64
import binascii
import json
from datetime import UTC, datetime, timedelta, tzinfo
from decimal import Decimal, InvalidOperation
from typing import Any, Final

from mqstore.bodies.json_values import Fraction, Integer

_ORDINAL_OF_1970: Final = datetime(1970, 1, 1, tzinfo=UTC).toordinal()
_EPOCH_LOCAL: Final = datetime(1970, 1, 1)
_MOST_SCALE: Final = 16_383
"""The most digits behind the point: PostgreSQL's NUMERIC."""
_MOST_PLAIN_EXPONENT: Final = 400


def json_text(value: Any) -> str | None:
    """Return the text of a value of JSON, of no known type; an object or a list is JSON text."""
    if value is None:
        return None
    if isinstance(value, Fraction):
        return number_text(value)
    if isinstance(value, str):
        return str(value)
    if isinstance(value, bool):
        return "true" if value else "false"
    return written(value)


def written(value: Any) -> str:
    """Return the JSON of a value that was read, its numbers as they were written."""
    if isinstance(value, Integer | Fraction):
        return str(value)
    if isinstance(value, dict):
        return "{" + ", ".join(f"{_quoted(k)}: {written(v)}" for k, v in value.items()) + "}"
    if isinstance(value, list):
        return "[" + ", ".join(map(written, value)) + "]"
    return _quoted(value)


def _quoted(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False)


def number_text(text: str) -> str:
    """Return a number with a point or an exponent: as a double if that has all its digits."""
    try:
        number = float(text)
        exact = Decimal(text)
    except (ValueError, InvalidOperation):
        return str(text)
    shortest = repr(number)
    if not exact.is_finite():
        return shortest
    if exact == Decimal(shortest):
        return shortest
    return plain_decimal(exact) if abs(exact.adjusted()) <= _MOST_PLAIN_EXPONENT else str(text)


def double_text(text: str) -> str:
    """Return the shortest text of a double."""
    return repr(float(text))


def plain_decimal(number: Decimal) -> str:
    """Return a decimal without an exponent."""
    return format(number, "f")


def unscaled_decimal(text: str, scale: int) -> str:
    """Return the decimal of base64 of its unscaled integer, big endian."""
    if abs(scale) > _MOST_SCALE:
        raise ValueError(f"a decimal with the scale {scale}")
    unscaled = int.from_bytes(from_base64(text), "big", signed=True)
    digits = str(abs(unscaled))
    sign = "-" if unscaled < 0 else ""
    if scale <= 0:
        return sign + digits + "0" * -scale if unscaled else "0"
    digits = digits.rjust(scale + 1, "0")
    return f"{sign}{digits[:-scale]}.{digits[-scale:]}"


def from_base64(text: str) -> bytes:
    """Return the bytes of base64."""
    try:
        return base64.b64decode(text, validate=True)
    except (binascii.Error, ValueError):
        raise ValueError("no base64") from None


def to_base64(data: bytes) -> str:
    """Return bytes as base64."""
    return base64.b64encode(data).decode("ascii")


def day_text(days: int) -> str:
    """Return the date of a number of days since 1970-01-01."""
    try:
        return datetime.fromordinal(days + _ORDINAL_OF_1970).date().isoformat()
    except (ValueError, OverflowError):
        raise ValueError(f"day {days} since 1970 is outside the years 1 to 9999") from None


def local_text(microseconds: int) -> str:
    """Return the date and time of microseconds since 1970-01-01T00:00:00, without a zone."""
    try:
        moment = _EPOCH_LOCAL + timedelta(microseconds=microseconds)
    except OverflowError:
        raise ValueError("a time outside the years 1 to 9999") from None
    return short_fraction(moment.isoformat())


def short_fraction(text: str) -> str:
    """Return a time without the zeros at the end of its fraction of a second."""
    return text.rstrip("0").removesuffix(".") if "." in text else text


def instant_text(text: str) -> str:
    """Return an ISO time in UTC, with Z."""
    moment = datetime.fromisoformat(text)
    if moment.tzinfo is None:
        raise ValueError("no zone")
    return _in_utc(moment)


def zoned_text(text: str, zone: tzinfo) -> str:
    """Return a time that is of ``zone``, in UTC, with Z."""
    if zone is UTC:
        return short_fraction(text.replace(" ", "T", 1)) + "Z"
    return _in_utc(datetime.fromisoformat(text).replace(tzinfo=zone))


def _in_utc(moment: datetime) -> str:
    try:
        in_utc = moment.astimezone(UTC).replace(tzinfo=None)
    except OverflowError:
        raise ValueError("a time outside the years 1 to 9999") from None
    return short_fraction(in_utc.isoformat()) + "Z"


def clock_text(microseconds: int) -> str:
    """Return the TIME of a number of microseconds, which may be negative or beyond a day."""
    sign = "-" if microseconds < 0 else ""
    seconds, fraction = divmod(abs(microseconds), 1_000_000)
    text = f"{sign}{seconds // 3600:02d}:{seconds // 60 % 60:02d}:{seconds % 60:02d}"
    return short_fraction(f"{text}.{fraction:06d}") if fraction else text


def is_zero_date(text: str) -> bool:
    """Tell whether a date of MySQL has a year, a month or a day that is zero."""
    return text.startswith("0000") or text[5:7] == "00" or text[8:10] == "00"
