"""Odd bodies of JSON, and a decoder of them that shares nothing with mqstore: exact and slow."""

import json
import random
import re
from datetime import UTC, date, datetime, timedelta
from decimal import ROUND_HALF_UP, Decimal, InvalidOperation, localcontext
from typing import Any, Final

DDL: Final = (
    "i BIGINT, n INT, s STRING, d DOUBLE, m DECIMAL(20,4), t TIMESTAMP, day DATE, b BOOLEAN, "
    "a ARRAY<INT>, o STRUCT<x: BIGINT, y: STRING>, os ARRAY<STRUCT<k: INT>>"
)
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
GOOD: Final = b'{"i": 1, "s": "x"}'
ODD: Final[dict[str, bytes]] = {
    "int as text": b'{"i": "7"}',
    "int too large": b'{"i": 9223372036854775808}',
    "int with a fraction": b'{"i": 7.0}',
    "int with an exponent": b'{"i": 1e3}',
    "a number for text": b'{"s": 12}',
    "1.50 for text": b'{"s": 1.50}',
    "an object for text": b'{"s": {"a": 1}}',
    "a boolean for text": b'{"s": true}',
    "an int for a double": b'{"d": 7}',
    "NaN": b'{"d": NaN}',
    "1e999": b'{"d": 1e999}',
    "a double as text": b'{"d": "1.5"}',
    "a decimal": b'{"m": 1.5}',
    "a decimal as text": b'{"m": "1.5"}',
    "a decimal to be rounded": b'{"m": "1.23455"}',
    "a decimal too large": b'{"m": "12345678901234567890.1"}',
    "a time with T": b'{"t": "2024-01-02T03:04:05.123456"}',
    "a time with Z": b'{"t": "2024-01-02T03:04:05Z"}',
    "a time with an offset": b'{"t": "2024-01-02T03:04:05+08:00"}',
    "a time with a blank": b'{"t": "2024-01-02 03:04:05"}',
    "seconds": b'{"t": 1700000000}',
    "milliseconds as seconds": b'{"t": 1700000000123}',
    "a zero date": b'{"t": "0000-00-00 00:00:00"}',
    "a date": b'{"day": "2024-02-29"}',
    "a number for a date": b'{"day": 19000}',
    "no such day": b'{"day": "2023-02-29"}',
    "0 for a boolean": b'{"b": 0}',
    "null": b'{"i": null}',
    "nothing": b"{}",
    "an unknown field": b'{"zz": [1, {"q": 2}]}',
    "a list": b'{"a": [1, null]}',
    "a mixed list": b'{"a": [1, "x"]}',
    "a nested object": b'{"o": {"x": 5, "y": "6", "z": 7}}',
    "a nested misfit": b'{"o": {"x": "5", "y": "6"}}',
    "a misfit in a list of objects": b'{"os": [{"k": 1}, {"k": "z"}]}',
    "a key twice": b'{"i": 1, "i": 2}',
    "another case": b'{"I": 5}',
    "empty": b"",
    "blanks": b"  \n",
    "the word null": b"null",
    "a number": b"12",
    "an array": b'[{"i": 1}]',
    "two documents": b'{"i":1}{"i":2}',
    "two documents in Arrow's own wrap": b'{"i":1}}\n{"b":{"i":2}',
    "another field beside the body": b'{"i":1},"c":{}',
    "NUL behind it": b'{"i":1}\0',
    "cut": b'{"i": 1, "s": "ab',
    "cut behind a value": b'{"i": 1',
    "the rest of one that was cut": b',"s": "x"}',
    "a comma too many": b'{"i": 1,}',
    "a comment": b'{"i": 1 /* c */}',
    "pretty printed": b'{\n "i": 1,\n "s": "x"\n}',
    "a byte order mark": b'\xef\xbb\xbf{"i": 1}',
    "invalid UTF-8": b'{"s": "\xff\xfe"}',
    "half of a surrogate pair": b'{"s": "\\ud800"}',
    "half of a surrogate pair in an unknown field": b'{"zz": "\\udc00"}',
    "a surrogate pair": b'{"s": "\\ud83d\\ude00"}',
    "an escaped NUL": b'{"s": "a\\u0000b"}',
    "a raw tab": b'{"s": "a\tb"}',
    "GBK": '{"s": "订单"}'.encode("gbk"),
}
_FRAGMENTS: Final = (
    b"\xff", b"\xe8\xae\xa2", b"\\ud800", b"\\ud83d\\ude00", b"\\u0000", b'"', b"{", b"}", b"[",
    b"]", b",", b":", b"null", b"true", b"-0", b"01", b"1.", b".5", b"1e3", b"7.0", b"\t", b"\n",
    b"9223372036854775808", b"-9223372036854775808", b"2147483648", b"1.00005", b"\0", b" ",
    b'}\n{"b":', b'},"b":{', b'},"c":2', b'"i":5,', b'"i":"x",', b"/* c */", b'"a"', b'{"x":1}',
    b"[1,null]", b'[{"k":"z"}]', b"12", b'"2024-01-02T03:04:05.1Z"', b"1700000000",
    b"1700000000123", b"1e10", b'"2024-02-29"', b'"2023-02-29"', b"0.1", b"1E5", b'"1E5"',
)  # fmt: skip


def good(rng: random.Random, number: int) -> bytes:
    """A body that fits, of one of several producers."""
    value: dict[str, Any] = {
        "i": rng.randint(-(2**63), 2**63 - 1),
        "n": rng.randint(-9, 9),
        "s": rng.choice(["x", "订单", 'a"b']),
        "d": rng.random() * 10,
        "m": rng.choice([1.5, "2.25", 3]),
        "t": 1_700_000_000 + number if number % 61 == 0 else "2024-01-02T03:04:05.123456+08:00",
        "day": "2024-02-29",
        "b": bool(number & 1),
        "a": [1, None, 2],
        "o": {"x": number, "y": "q"},
        "os": [{"k": 1}],
    }
    if number % 7 == 0:
        value["zz"] = [1, {"q": 2}]
    return json.dumps(value, ensure_ascii=bool(number & 1)).encode()


def mutated(rng: random.Random, body: bytes) -> bytes:
    """The body with one to three changes: bytes put in, taken out, doubled, or other values."""
    data = bytearray(body)
    for _ in range(rng.choice([1, 1, 1, 2, 3])):
        kind, place = rng.random(), rng.randrange(len(data) + 1)
        if kind < 0.3:
            data[place:place] = rng.choice(_FRAGMENTS)
        elif kind < 0.4:
            del data[place : place + rng.randint(1, 4)]
        elif kind < 0.5:
            del data[place:]
        elif kind < 0.55 and data:
            data[min(place, len(data) - 1)] = rng.choice(b'{}[]",:0a\\ \xff')
        elif kind < 0.6:
            data[place:place] = data[rng.randrange(len(data) + 1) :][: rng.randint(1, 30)]
        else:
            _other_value(rng, data)
    return bytes(data)


def _other_value(rng: random.Random, data: bytearray) -> None:
    name = rng.choice(["i", "n", "s", "d", "m", "t", "day", "b", "a", "o", "os"])
    try:
        text = data.decode()
        start = text.index(f'"{name}": ') + len(name) + 4
        end = json.JSONDecoder().raw_decode(text, start)[1]
    except ValueError:
        return
    data[len(text[:start].encode()) : len(text[:end].encode())] = rng.choice(_FRAGMENTS)


class _Written(str):
    """A number as written; ``NaN`` too."""

    __slots__ = ()


_STRICT: Final = re.compile(
    r"\d{4}-\d\d-\d\d(?:[T ]\d\d:\d\d:\d\d(?:\.\d{1,6})?(?:Z|[+-]\d\d:\d\d)?)?", re.ASCII
)


class UnjudgedError(Exception):
    """A text of a time in a form that this decoder does not know: Spark judges those."""


class BadError(Exception):
    """A value that does not fit."""


def reference(body: bytes) -> tuple[dict[str, Any] | None, bool]:
    """The value of a body for DDL, and whether the body is bad: by Python's json and no more."""
    try:
        text = body.decode()
        if not text.strip():
            return None, False
        value = json.loads(text, parse_int=_Written, parse_float=_Written, parse_constant=_Written)
        json.dumps(value, ensure_ascii=False).encode()  # Half of a surrogate pair has no UTF-8.
    except (ValueError, RecursionError):
        return None, True
    if not isinstance(value, dict):
        return None, True
    bad: list[str] = []
    found = {
        "i": _of(value, "i", bad, lambda v: _int(v, 64)),
        "n": _of(value, "n", bad, lambda v: _int(v, 32)),
        "s": _of(value, "s", bad, lambda v: _text(v, text)),
        "d": _of(value, "d", bad, _double),
        "m": _of(value, "m", bad, _decimal),
        "t": _of(value, "t", bad, _time),
        "day": _of(value, "day", bad, _day),
        "b": _of(value, "b", bad, lambda v: v if isinstance(v, bool) else _refuse()),
        "a": _of(value, "a", bad, _ints),
        "o": _of(value, "o", bad, lambda v: _object(v, bad, text)),
        "os": _of(value, "os", bad, lambda v: _objects(v, bad)),
    }
    return found, bool(bad)


def _refuse() -> Any:
    raise BadError


def _of(value: dict[str, Any], name: str, bad: list[str], read: Any) -> Any:
    if value.get(name) is None:
        return None
    try:
        return read(value[name])
    except BadError:
        bad.append(name)
        return None


def _int(value: Any, bits: int) -> int:
    if not isinstance(value, _Written) or any(c in value for c in ".eENI"):
        raise BadError
    number = int(value)
    return number if -(2 ** (bits - 1)) <= number < 2 ** (bits - 1) else _refuse()


def _double(value: Any) -> float:
    if isinstance(value, _Written) or value in ("NaN", "Infinity", "-Infinity"):
        return float(value)
    raise BadError


def _decimal(value: Any) -> Decimal:
    if not isinstance(value, str):
        raise BadError
    try:
        with localcontext(prec=100):
            number = Decimal(value.replace(",", "")).quantize(Decimal("0.0001"), ROUND_HALF_UP)
    except InvalidOperation:
        raise BadError from None
    return number if number.is_finite() and abs(number) < Decimal(10) ** 16 else _refuse()


def _time(value: Any) -> datetime:
    try:
        if isinstance(value, _Written):
            return _EPOCH + timedelta(seconds=_int(value, 64))
        if isinstance(value, str):
            found = datetime.fromisoformat(_judged(value))
            return found if found.tzinfo else found.replace(tzinfo=UTC)
    except (ValueError, OverflowError):
        pass
    raise BadError


def _day(value: Any) -> date:
    if isinstance(value, str) and not isinstance(value, _Written):
        try:
            return datetime.fromisoformat(_judged(value)).date()
        except ValueError:
            pass
    raise BadError


def _judged(text: str) -> str:
    if _STRICT.fullmatch(text):
        return text
    if re.fullmatch(r"\W*[A-Za-z]*\W*", text):
        raise BadError
    raise UnjudgedError


def _ints(value: Any) -> list[int | None]:
    if not isinstance(value, list):
        raise BadError
    return [None if one is None else _int(one, 32) for one in value]


def _object(value: Any, bad: list[str], text: str) -> dict[str, Any]:
    if not isinstance(value, dict):
        raise BadError
    return {
        "x": _of(value, "x", bad, lambda v: _int(v, 64)),
        "y": _of(value, "y", bad, lambda v: _text(v, text)),
    }


def _objects(value: Any, bad: list[str]) -> list[dict[str, Any] | None]:
    if not isinstance(value, list):
        raise BadError
    if any(one is not None and not isinstance(one, dict) for one in value):
        raise BadError
    return [
        None if one is None else {"k": _of(one, "k", bad, lambda v: _int(v, 32))} for one in value
    ]


ANY_TEXT: Final = "§"
"""Stands for the text of an object or a list, which must be JSON of that value."""


def _text(value: Any, text: str) -> str:
    if isinstance(value, str):
        return str(value)
    if isinstance(value, bool):
        return "true" if value else "false"
    return ANY_TEXT + json.dumps(value)
