"""Lines of text to messages: each line a body, a key and a body, or a JSON object.

What is piped in is sent as it is. A line ends with a line feed, which is not part of the message;
an empty line is none.
"""

import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from itertools import islice
from typing import Any, Final

import pyarrow as pa

from mqstore.errors import InvalidMessageError, shown
from mqstore.options import grammar

SCHEMA: Final = pa.schema(
    [
        ("body", pa.binary()),
        ("tags", pa.string()),
        ("keys", pa.string()),
        ("properties", pa.map_(pa.string(), pa.string())),
        ("queueId", pa.int64()),
        ("shardingKey", pa.string()),
        ("flag", pa.int64()),
        ("delayTimeLevel", pa.int64()),
    ]
)
_LINES_AT_ONCE: Final = 1_000
_TEXT_FIELDS: Final = ("tags", "keys", "shardingKey")
_NUMBER_FIELDS: Final = ("queueId", "flag", "delayTimeLevel")


@dataclass(frozen=True, slots=True)
class LineForm:
    """How lines are read, and what every message has that its line does not say.

    With ``separator`` a line is a key, the separator and the body.
    """

    is_json: bool = False
    separator: str | None = None
    defaults: Mapping[str, Any] = field(default_factory=dict)
    properties: Mapping[str, str] = field(default_factory=dict)


def batches(lines: Iterable[bytes], form: LineForm, first: int = 1) -> Iterator[pa.RecordBatch]:
    """Yield the messages of the lines, without their line feeds, as rows of SCHEMA.

    Raises InvalidMessageError with the number of the line; ``first`` is that of the first one.
    """
    rows = (
        _row(number, line, form) for number, line in enumerate(lines, first) if line.strip(b"\r")
    )
    while chunk := list(islice(rows, _LINES_AT_ONCE)):
        yield pa.RecordBatch.from_pylist(chunk, schema=SCHEMA)


def _row(number: int, line: bytes, form: LineForm) -> dict[str, Any]:
    found: dict[str, Any] = {"properties": []}
    if form.is_json:
        found |= _of_json(number, line)
    elif form.separator is not None:
        key, mark, body = line.partition(form.separator.encode())
        if not mark:
            raise bad_line(number, f"has no {form.separator!r} between a key and a body")
        found |= {"keys": _text(number, key), "body": body}
    else:
        found["body"] = line
    own = dict(found["properties"])
    merged = {**form.properties, **own}
    return {**form.defaults, **found, "properties": list(merged.items())}


def _of_json(number: int, line: bytes) -> dict[str, Any]:
    try:
        given = json.loads(_text(number, line))
    except (ValueError, RecursionError) as error:
        raise bad_line(number, f"is not JSON: {error}") from error
    if not isinstance(given, dict):
        raise bad_line(number, 'is no JSON object: write {"body": "…"}')
    for name in given:
        if name not in SCHEMA.names:
            advice = grammar.did_you_mean(name, SCHEMA.names)
            fields = ", ".join(SCHEMA.names)
            raise bad_line(
                number, f"has a field {shown(repr(name))}; {advice}the fields are {fields}"
            )
    return {name: _value(number, name, value) for name, value in given.items() if value is not None}


def _value(number: int, name: str, value: Any) -> Any:
    if name == "properties":
        if isinstance(value, dict) and all(isinstance(v, str) for v in value.values()):
            return list(value.items())
        raise bad_line(number, "has properties that are no object of texts")
    if name == "body" and not isinstance(value, str):
        return json.dumps(value, separators=(",", ":"), ensure_ascii=False).encode()
    if name == "keys" and isinstance(value, list) and all(isinstance(v, str) for v in value):
        return " ".join(value)
    is_number = isinstance(value, int) and not isinstance(value, bool) and abs(value) < 2**63
    if not (isinstance(value, str) if name not in _NUMBER_FIELDS else is_number):
        kind = "a text" if name in _TEXT_FIELDS else "a number"
        raise bad_line(number, f"has a {name} that is not {kind}")
    try:
        return value.encode() if name == "body" else value
    except UnicodeEncodeError as error:
        raise bad_line(number, "has half of a surrogate pair in its body") from error


def _text(number: int, data: bytes) -> str:
    try:
        return data.decode()
    except UnicodeDecodeError as error:
        raise bad_line(number, "is not UTF-8") from error


def bad_line(number: int, why: str) -> InvalidMessageError:
    """Return the error of a line, which ``why`` says more of."""
    return InvalidMessageError(f"line {number} {why}. Lines before it may have been sent")
