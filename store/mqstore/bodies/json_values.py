"""A body of JSON, one at a time and exact: the slow way, and what the fast way must agree with.

Values follow Spark's from_json, but where it loses or changes data: what stands behind the first
value, half a surrogate pair and invalid UTF-8 make a body bad, and the text of a number or of an
object for a STRING is the text as written.

Reference: org.apache.spark.sql.catalyst.json.JacksonParser#makeConverter.
"""

import base64
import json
import re
from collections.abc import Callable, Iterator
from decimal import ROUND_HALF_UP, Context, Decimal, InvalidOperation
from json import decoder as json_decoder
from typing import Any, Final, TypeAlias

import pyarrow as pa

from mqstore.bodies.ddl import LOCAL, UTC, type_ddl
from mqstore.bodies.times import Times
from mqstore.errors import shown

Path: TypeAlias = tuple[str | int, ...]
Convert: TypeAlias = Callable[[Any, Path, "_Body"], Any]

MALFORMED: Final = "MALFORMED_JSON"
NOT_AN_OBJECT: Final = "NOT_AN_OBJECT"
MISFIT: Final = "CANNOT_PARSE_VALUE"
ENCODING: Final = "INVALID_ENCODING"
_BLANKS: Final = re.compile(r"[ \t\n\r]*")
_scanstring: Final[Callable[[str, int], tuple[str, int]]] = vars(json_decoder)["scanstring"]
_DOUBLES: Final = {
    "NaN": "nan", "Infinity": "inf", "+Infinity": "inf", "INF": "inf", "+INF": "inf",
    "-Infinity": "-inf", "-INF": "-inf",
}  # fmt: skip
_SURROGATE: Final = re.compile(r"\\u[dD][89a-fA-F]")
_QUOTED: Final = re.compile(r""""(?:[^"\\]|\\.)*"|'(?:[^'\\]|\\.)*'""", re.DOTALL)
_ESCAPED_QUOTE: Final = re.compile(r"""\\(.)|(")""", re.DOTALL)
_BITS: Final = {pa.int8(): 8, pa.int16(): 16, pa.int32(): 32, pa.int64(): 64}
_WIDE: Final = Context(prec=200, rounding=ROUND_HALF_UP)
_SHOWN_VALUE: Final = 60
_MOST_EXPONENT: Final = 400
"""Of the exponent of a decimal that is worth a look: beyond, it fits no DECIMAL."""


class Integer(str):
    """A number of JSON without a point or an exponent, as written."""

    __slots__ = ()


class Fraction(str):
    """A number of JSON with a point or an exponent, as written, or NaN and the like."""

    __slots__ = ()


class MisfitError(Exception):
    """A value that does not fit its type: where, and why."""

    def __init__(self, path: Path, value: object, kind: pa.DataType, more: str = "") -> None:
        super().__init__(path, value, kind, more)
        self.path = path
        words = shown(_written(value), _SHOWN_VALUE)
        self.reason = f"{MISFIT} at {_place(path)}: {words} is no {type_ddl(kind)}{more}"


_JSON_DECODER: Final = json.JSONDecoder(
    parse_int=Integer, parse_float=Fraction, parse_constant=Fraction, strict=True
)


class _Body:
    """The text of a body, and the reasons that were found so far."""

    __slots__ = ("reasons", "text")

    def __init__(self, text: str) -> None:
        self.text = text
        self.reasons: list[str] = []

    def raw(self, path: Path) -> str:
        """Return the text of the value there, as written."""
        at = _behind_blanks(self.text, 0)
        for step in path:
            at = _member(self.text, at, step)
        return self.text[at : _JSON_DECODER.raw_decode(self.text, at)[1]]


class JsonValues:
    """Reads bodies of one type, a struct."""

    def __init__(self, kind: pa.DataType, times: Times) -> None:
        self._kind = kind
        self._convert = _converter(kind, times)

    def read(self, body: bytes) -> tuple[dict[str, Any] | None, str | None]:
        """Return the value of a body, null where it has none, and the reason why it is bad.

        Values of timestamps and dates are whole numbers.
        """
        try:
            text, value = parsed(body)
        except ValueError as error:
            return None, str(error)
        if value is None:
            return None, None
        own = _Body(text)
        converted = self._convert(value, (), own)
        return converted, own.reasons[0] if own.reasons else None


def parsed(body: bytes) -> tuple[str, dict[str, Any] | None]:
    """Return the text of a body and its object, None where it is blank.

    Numbers are Integer and Fraction, as written. Raises ValueError with the reason of a bad one.
    """
    try:
        text = body.decode()
    except UnicodeDecodeError as error:
        raise ValueError(f"{ENCODING}: byte {error.start} is no UTF-8") from None
    if not text.strip():
        return text, None
    try:
        text, value = _parsed(text)
    except RecursionError:
        raise ValueError(f"{MALFORMED}: nested too deeply") from None
    except ValueError as error:
        raise ValueError(f"{MALFORMED}: {shown(error)}") from None
    if not isinstance(value, dict):
        raise ValueError(f"{NOT_AN_OBJECT}: {shown(_written(value), _SHOWN_VALUE)}")  # noqa: TRY004
    return text, value


def _parsed(text: str) -> tuple[str, Any]:
    """Return the text, with double quotes where it had single ones, and its value."""
    try:
        value = _JSON_DECODER.decode(text)
    except ValueError:
        if "'" not in text:
            raise
        text = _QUOTED.sub(_in_double_quotes, text)
        value = _JSON_DECODER.decode(text)
    if _SURROGATE.search(text):
        for part in _texts(value):
            if any("\ud800" <= c <= "\udfff" for c in part):
                raise ValueError("half of a surrogate pair")
    return text, value


def _in_double_quotes(found: re.Match[str]) -> str:
    quoted = found[0]
    if quoted[0] == '"':
        return quoted
    inner = _ESCAPED_QUOTE.sub(
        lambda m: '\\"' if m[2] else ("'" if m[1] == "'" else m[0]), quoted[1:-1]
    )
    return f'"{inner}"'


def _texts(value: Any) -> Iterator[str]:
    if isinstance(value, dict):
        yield from value
        value = list(value.values())
    if isinstance(value, list):
        for inner in value:
            yield from _texts(inner)
    elif isinstance(value, str):
        yield value


def _behind_blanks(text: str, at: int) -> int:
    blanks = _BLANKS.match(text, at)
    assert blanks is not None  # It matches nothing too.
    return blanks.end()


def _member(text: str, at: int, step: str | int) -> int:
    """Return where the value of a name (the last of it) or an index begins, in the value at."""
    found, number = -1, 0
    at = _behind_blanks(text, at + 1)
    while True:
        if isinstance(step, str):
            name, at = _scanstring(text, at + 1)
            at = _behind_blanks(text, _behind_blanks(text, at) + 1)
            is_it = name == step
        else:
            is_it = number == step
        if is_it:
            found = at
        at = _behind_blanks(text, _JSON_DECODER.raw_decode(text, at)[1])
        if text[at] != ",":
            return found
        at, number = _behind_blanks(text, at + 1), number + 1


def _converter(kind: pa.DataType, times: Times) -> Convert:
    """Return what makes a value of a type of a value of JSON that is not null."""
    is_of = pa.types
    makers: tuple[tuple[Callable[[pa.DataType], bool], Callable[[], Convert]], ...] = (
        (is_of.is_struct, lambda: _struct(kind, times)),
        (is_of.is_map, lambda: _map(kind, _converter(kind.item_type, times))),
        (is_of.is_list, lambda: _list(kind, _converter(kind.value_type, times))),
        (is_of.is_integer, lambda: _integer(kind)),
        (is_of.is_floating, lambda: _floating(kind)),
        (is_of.is_decimal, lambda: _decimal(kind)),
        (is_of.is_boolean, lambda: _boolean),
        (is_of.is_binary, lambda: _binary),
        (is_of.is_string, lambda: _string),
        (is_of.is_temporal, lambda: _time(kind, times)),
    )
    return next(make for has_kind, make in makers if has_kind(kind))()


def _struct(kind: pa.DataType, times: Times) -> Convert:
    fields = [(field.name, _converter(field.type, times)) for field in kind]

    def convert(value: Any, path: Path, body: _Body) -> dict[str, Any]:
        if type(value) is not dict:
            raise MisfitError(path, value, kind)
        members = {}
        for name, of_field in fields:
            inner = value.get(name)
            if inner is None:
                continue
            try:
                members[name] = of_field(inner, (*path, name), body)
            except MisfitError as error:
                body.reasons.append(error.reason)
        return members

    return convert


def _list(kind: pa.DataType, of_element: Convert) -> Convert:
    def convert(value: Any, path: Path, body: _Body) -> list[Any]:
        if type(value) is not list:
            raise MisfitError(path, value, kind)
        return [
            None if inner is None else of_element(inner, (*path, place), body)
            for place, inner in enumerate(value)
        ]

    return convert


def _map(kind: pa.DataType, of_value: Convert) -> Convert:
    def convert(value: Any, path: Path, body: _Body) -> list[tuple[str, Any]]:
        if type(value) is not dict:
            raise MisfitError(path, value, kind)
        return [
            (name, None if inner is None else of_value(inner, (*path, name), body))
            for name, inner in value.items()
        ]

    return convert


def _integer(kind: pa.DataType) -> Convert:
    limit = 1 << (_BITS[kind] - 1)

    def convert(value: Any, path: Path, body: _Body) -> int:
        if type(value) is Integer and len(value) <= 20:
            number = int(value)
            if -limit <= number < limit:
                return number
        raise MisfitError(path, value, kind)

    return convert


def _floating(kind: pa.DataType) -> Convert:
    def convert(value: Any, path: Path, body: _Body) -> float:
        text = _DOUBLES.get(value) if type(value) in {str, Fraction} else None
        if text is None and type(value) in {Integer, Fraction}:
            text = str(value)
        if text is None:
            raise MisfitError(path, value, kind)
        number = float(text)
        if kind == pa.float32() and number - number == 0:
            single: float = pa.scalar(text).cast(kind).as_py()
            return single
        return number

    return convert


def _decimal(kind: pa.DataType) -> Convert:
    step, most = Decimal(1).scaleb(-kind.scale), kind.precision

    def convert(value: Any, path: Path, body: _Body) -> Decimal:
        if type(value) not in {str, Integer, Fraction}:
            raise MisfitError(path, value, kind)
        try:
            number = Decimal(_plain_number(value))
            if abs(number.adjusted()) > _MOST_EXPONENT and number:
                number = Decimal(0) if number.adjusted() < 0 else Decimal("NaN")
            rounded = number.quantize(step, context=_WIDE)
        except InvalidOperation:
            raise MisfitError(path, value, kind) from None
        if not rounded.is_finite() or (rounded and rounded.adjusted() + kind.scale >= most):
            raise MisfitError(path, value, kind, ": too many digits")
        return rounded

    return convert


def _plain_number(value: str) -> str:
    """Return the text of a decimal; of one in a text commas are passed by, as Spark does."""
    if type(value) is not str:
        return value
    if "_" in value or value != value.strip() or not value.isascii():
        raise InvalidOperation
    return value.replace(",", "")


def _boolean(value: Any, path: Path, body: _Body) -> bool:
    if type(value) is not bool:
        raise MisfitError(path, value, pa.bool_())
    return value


def _binary(value: Any, path: Path, body: _Body) -> bytes:
    try:
        if type(value) is str:
            return from_base64(value)
    except ValueError:
        pass
    raise MisfitError(path, value, pa.binary(), ": not base64")


def from_base64(text: str) -> bytes:
    """Return the bytes of a text in base64; raises ValueError."""
    return base64.b64decode(text, validate=True)


def _string(value: Any, path: Path, body: _Body) -> str:
    if isinstance(value, str):
        return str(value)
    return body.raw(path)


def _time(kind: pa.DataType, times: Times) -> Convert:
    reads = {UTC: times.timestamp, LOCAL: times.local}.get(kind, times.date)

    def convert(value: Any, path: Path, body: _Body) -> int:
        more = ""
        try:
            if type(value) is str:
                return reads(value)
            if type(value) is Integer and kind == UTC:
                more = f": in bodyTimestampUnit={times.unit} it lies beyond the years 1 to 9999"
                if len(value) <= 20:
                    return times.number(int(value))
        except (ValueError, OverflowError):
            pass
        raise MisfitError(path, value, kind, more)

    return convert


def _written(value: object) -> str:
    """Return a value as JSON has it, cut where it is long."""
    if isinstance(value, Integer | Fraction):
        return str(value)
    if isinstance(value, str):
        return json.dumps(value[: _SHOWN_VALUE + 1], ensure_ascii=False)
    if isinstance(value, dict):
        return "an object"
    if isinstance(value, list):
        return "a list"
    return json.dumps(value)


def _place(path: Path) -> str:
    words = "".join(f"[{step}]" if isinstance(step, int) else f".{step}" for step in path)
    return shown(words.removeprefix("."))
