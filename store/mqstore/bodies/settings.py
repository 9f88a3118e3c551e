"""The options of typed bodies, and what they say together."""

import re
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, Final

import pyarrow as pa

from mqstore.bodies.decoded import BodyDecoder
from mqstore.bodies.schema_text import SCHEMA, BodySchema, body_schema, json_type
from mqstore.bodies.text_bodies import UTF_8, InUtf8, TextBodies, charset
from mqstore.bodies.times import Times, compiled, zone_of
from mqstore.errors import InvalidOptionError
from mqstore.options.option import any_text, one_of, option, options_of

BINARY_BODY: Final = "binary"
TEXT_BODY: Final = "text"
JSON_BODY: Final = "json"
PERMISSIVE: Final = "PERMISSIVE"
DROP_MALFORMED: Final = "DROPMALFORMED"
FAIL_FAST: Final = "FAILFAST"
CORRUPT_BODY: Final = "_corruptBody"
BODY_ERROR: Final = "_bodyError"
_BODY_FORMATS: Final = (BINARY_BODY, TEXT_BODY, JSON_BODY)
_OF_FORMATS: Final = {
    "body_schema": (JSON_BODY,),
    "body_mode": (TEXT_BODY, JSON_BODY),
    "corrupt_column": (TEXT_BODY, JSON_BODY),
    "body_charset": (TEXT_BODY, JSON_BODY),
    "body_timestamp_format": (JSON_BODY,),
    "body_date_format": (JSON_BODY,),
    "body_time_zone": (JSON_BODY,),
    "body_timestamp_unit": (JSON_BODY,),
}
"""The formats that take each option."""


def _mode(name: str, text: str) -> str:
    word = text.strip().upper()
    if word not in {PERMISSIVE, DROP_MALFORMED, FAIL_FAST}:
        raise InvalidOptionError(
            name, text, f"must be {PERMISSIVE}, {DROP_MALFORMED} or {FAIL_FAST}"
        )
    return word


def _charset(name: str, text: str) -> str:
    try:
        return charset(text.strip())
    except ValueError as error:
        raise InvalidOptionError(name, text, str(error)) from None


def _pattern(name: str, text: str) -> str:
    try:
        compiled(text)
    except (ValueError, re.error) as error:
        raise InvalidOptionError(name, text, str(error)) from None
    return text


def _zone(name: str, text: str) -> str:
    try:
        zone_of(text.strip())
    except ValueError as error:
        raise InvalidOptionError(name, text, str(error)) from None
    return text.strip()


def _column(name: str, text: str) -> str:
    if not text.strip():
        raise InvalidOptionError(name, text, "is empty: name a column")
    return any_text(name, text)


@dataclass(frozen=True, slots=True, kw_only=True)
class BodyOptions:
    """The options that say how bodies become columns."""

    body: str = option("body", one_of(*_BODY_FORMATS), BINARY_BODY)
    body_schema: BodySchema | None = option(SCHEMA, body_schema)
    body_mode: str = option("bodyMode", _mode, PERMISSIVE)
    corrupt_column: str = option("columnNameOfCorruptRecord", _column, CORRUPT_BODY)
    body_charset: str = option("bodyCharset", _charset, UTF_8)
    body_timestamp_format: str | None = option("bodyTimestampFormat", _pattern)
    body_date_format: str | None = option("bodyDateFormat", _pattern)
    body_time_zone: str = option("bodyTimeZone", _zone, "UTC")
    body_timestamp_unit: str = option("bodyTimestampUnit", one_of("s", "ms", "us"), "s")


BODY_OPTIONS: Final = options_of(BodyOptions)
AS_STORED: Final = BodyOptions()
"""Bodies are bytes."""


def check_formats(options: BodyOptions, given: Any) -> None:
    """Raise InvalidOptionError for an option that the format of bodies does not take.

    ``given`` has the options that were set, by name, as typed. A schema is parsed here.
    """
    for field, formats in _OF_FORMATS.items():
        name = BODY_OPTIONS[field].name
        if name in given and options.body not in formats:
            expected = f"is for body={'|'.join(formats)}, not {options.body}"
            raise InvalidOptionError(name, given[name], expected)
    if options.body_schema is not None:
        kind = body_type(options)
        for name in (options.corrupt_column, BODY_ERROR):
            if pa.types.is_struct(kind) and kind.get_field_index(name) >= 0:
                expected = f"has a field {name}, the column of bad bodies: name that one otherwise"
                raise InvalidOptionError(SCHEMA, options.body_schema.source, expected)


def is_typed(options: BodyOptions) -> bool:
    """Tell whether the column ``body`` is not the bytes."""
    return options.body != BINARY_BODY


def needs_schema(options: BodyOptions) -> bool:
    """Tell whether a schema has to be found before the bodies can be read."""
    return options.body == JSON_BODY and options.body_schema is None


def body_type(options: BodyOptions) -> pa.DataType:
    """Return the type of the column ``body``; raises InvalidOptionError without a schema."""
    if options.body == BINARY_BODY:
        return pa.binary()
    if options.body == TEXT_BODY:
        return pa.string()
    return _struct(options.body, _needed(options))


def decoder_of(options: BodyOptions) -> BodyDecoder:
    """Return a new decoder of bodies that are typed."""
    from mqstore.bodies.json_bodies import JsonBodies  # noqa: PLC0415 - reads start without it

    if options.body == TEXT_BODY:
        return TextBodies(options.body_charset)
    times = Times(
        options.body_time_zone,
        options.body_timestamp_unit,
        options.body_timestamp_format,
        options.body_date_format,
    )
    decoder = JsonBodies(body_type(options), times)
    return decoder if options.body_charset == UTF_8 else InUtf8(options.body_charset, decoder)


def _needed(options: BodyOptions) -> BodySchema:
    if options.body_schema is None:
        expected = (
            "is needed here: mqlog schema PLACE TOPIC prints one, and a batch read takes one itself"
        )
        raise InvalidOptionError(SCHEMA, "", expected)
    return options.body_schema


@lru_cache(maxsize=64)
def _struct(_body: str, schema: BodySchema) -> pa.DataType:
    return json_type(schema)
