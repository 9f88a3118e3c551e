"""The options of typed bodies, and what they say together."""

import re
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, Final

import pyarrow as pa

from mqstore.bodies.decoded import BodyDecoder
from mqstore.bodies.framing import AUTO_FRAMING, CONFLUENT, NO_FRAMING, SINGLE
from mqstore.bodies.masks import BODY_MASK, BodyMasks, MaskedBodies, body_masks, masked_type
from mqstore.bodies.schema_text import SCHEMA, BodySchema, body_schema, json_type
from mqstore.bodies.text_bodies import UTF_8, InUtf8, TextBodies, charset
from mqstore.bodies.times import Times, compiled, zone_of
from mqstore.errors import InvalidOptionError
from mqstore.options import grammar
from mqstore.options.option import any_text, one_of, option, options_of
from mqstore.options.secret import HIDDEN, Secret, parse_secret

BINARY_BODY: Final = "binary"
TEXT_BODY: Final = "text"
JSON_BODY: Final = "json"
AVRO_BODY: Final = "avro"
PROTOBUF_BODY: Final = "protobuf"
PERMISSIVE: Final = "PERMISSIVE"
DROP_MALFORMED: Final = "DROPMALFORMED"
FAIL_FAST: Final = "FAILFAST"
CORRUPT_BODY: Final = "_corruptBody"
BODY_ERROR: Final = "_bodyError"
_BODY_FORMATS: Final = (BINARY_BODY, TEXT_BODY, JSON_BODY, AVRO_BODY, PROTOBUF_BODY)
_OF_TEXT: Final = (TEXT_BODY, JSON_BODY)
STRUCTS: Final = (JSON_BODY, AVRO_BODY, PROTOBUF_BODY)
"""The formats whose bodies are structs."""
_OF_FORMATS: Final = {
    "body_schema": STRUCTS,
    "body_message": (PROTOBUF_BODY,),
    "body_framing": (AVRO_BODY, PROTOBUF_BODY),
    "emit_default_values": (PROTOBUF_BODY,),
    "body_mask": STRUCTS,
    "body_mask_secret": STRUCTS,
    "body_mode": (TEXT_BODY, *STRUCTS),
    "corrupt_column": (TEXT_BODY, *STRUCTS),
    "body_charset": _OF_TEXT,
    "body_timestamp_format": (JSON_BODY,),
    "body_date_format": (JSON_BODY,),
    "body_time_zone": (JSON_BODY,),
    "body_timestamp_unit": (JSON_BODY,),
}
"""The formats that take each option."""
_SCHEMA_NEEDED: Final = {
    JSON_BODY: (
        "is needed here: mqlog schema PLACE TOPIC prints one, and a batch read takes one itself"
    ),
    AVRO_BODY: "is needed: the schema of Avro, its file, or a folder of ID.avsc",
    PROTOBUF_BODY: "is needed: the file of a descriptor set, as protoc makes it, or it in base64",
}


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
    body_message: str | None = option("bodyMessage", _column)
    body_framing: str = option(
        "bodyFraming", one_of(NO_FRAMING, AUTO_FRAMING, CONFLUENT, SINGLE), NO_FRAMING
    )
    emit_default_values: bool = option("emitDefaultValues", grammar.boolean, False)
    body_mode: str = option("bodyMode", _mode, PERMISSIVE)
    corrupt_column: str = option("columnNameOfCorruptRecord", _column, CORRUPT_BODY)
    body_charset: str = option("bodyCharset", _charset, UTF_8)
    body_timestamp_format: str | None = option("bodyTimestampFormat", _pattern)
    body_date_format: str | None = option("bodyDateFormat", _pattern)
    body_time_zone: str = option("bodyTimeZone", _zone, "UTC")
    body_timestamp_unit: str = option("bodyTimestampUnit", one_of("s", "ms", "us"), "s")
    body_mask: BodyMasks | None = option(BODY_MASK, body_masks)
    body_mask_secret: Secret | None = option("bodyMaskSecret", parse_secret)


BODY_OPTIONS: Final = options_of(BodyOptions)


def check_formats(options: BodyOptions, given: Any) -> None:
    """Raise InvalidOptionError for an option that the format of bodies does not take.

    ``given`` has the options that were set, by name, as typed. A schema is parsed here.
    """
    for field, formats in _OF_FORMATS.items():
        name = BODY_OPTIONS[field].name
        if name in given and options.body not in formats:
            expected = f"is for body={'|'.join(formats)}, not {options.body}"
            raise InvalidOptionError(name, given[name], expected)
    if (options.body, options.body_framing) == (PROTOBUF_BODY, SINGLE):
        expected = f"is of Avro alone: Protobuf has {NO_FRAMING}, {AUTO_FRAMING}, {CONFLUENT}"
        raise InvalidOptionError("bodyFraming", options.body_framing, expected)
    _check_masks(options)
    if options.body_schema is not None:
        kind = body_type(options)
        for name in (options.corrupt_column, BODY_ERROR):
            if pa.types.is_struct(kind) and kind.get_field_index(name) >= 0:
                expected = f"has a field {name}, the column of bad bodies: name that one otherwise"
                raise InvalidOptionError(SCHEMA, options.body_schema.source, expected)


def _check_masks(options: BodyOptions) -> None:
    """Raise InvalidOptionError for masks without a schema, whose fields nobody can check."""
    if options.body_mask is not None and options.body_schema is None:
        expected = "needs bodySchema: a field that a sample has not would not be hidden"
        raise InvalidOptionError(BODY_MASK, options.body_mask.text, expected)
    if options.body_mask is None and options.body_mask_secret is not None:
        raise InvalidOptionError("bodyMaskSecret", HIDDEN, f"is for {BODY_MASK}, not given")


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
    kind = _type_of_schema(options)
    if options.body_mask is None:
        return kind
    return masked_type(options.body_mask, kind, options.body_mask_secret)


def _type_of_schema(options: BodyOptions) -> pa.DataType:
    """Return the type of bodies as they are decoded, before fields are masked."""
    return _struct(options.body, _needed(options), options.body_message)


def decoder_of(options: BodyOptions) -> BodyDecoder:
    """Return a new decoder of bodies that are typed."""
    if options.body == TEXT_BODY:
        return TextBodies(options.body_charset)
    decoder = _of_json(options) if options.body == JSON_BODY else _of_binary(options)
    if options.body_mask is None:
        return decoder
    kind = _type_of_schema(options)
    return MaskedBodies(decoder, options.body_mask, kind, options.body_mask_secret)


def _of_json(options: BodyOptions) -> BodyDecoder:
    from mqstore.bodies.json_bodies import JsonBodies  # noqa: PLC0415 - reads start without it

    times = Times(
        options.body_time_zone,
        options.body_timestamp_unit,
        options.body_timestamp_format,
        options.body_date_format,
    )
    decoder = JsonBodies(_type_of_schema(options), times)
    return decoder if options.body_charset == UTF_8 else InUtf8(options.body_charset, decoder)


def _of_binary(options: BodyOptions) -> BodyDecoder:
    from mqstore.bodies import avro_bodies, binary_schemas, protobuf_bodies  # noqa: PLC0415 - as above

    schema = _needed(options)
    if options.body == AVRO_BODY:
        schemas = binary_schemas.avro_schemas_of(schema)
        return avro_bodies.AvroBodies(schemas, options.body_framing)
    message, _ = binary_schemas.protobuf_message(schema, options.body_message)
    return protobuf_bodies.ProtobufBodies(
        message, options.body_framing, with_defaults=options.emit_default_values
    )


def _needed(options: BodyOptions) -> BodySchema:
    if options.body_schema is None:
        raise InvalidOptionError(SCHEMA, "", _SCHEMA_NEEDED[options.body])
    return options.body_schema


@lru_cache(maxsize=64)
def _struct(body: str, schema: BodySchema, message: str | None) -> pa.DataType:
    if body == JSON_BODY:
        return json_type(schema)
    from mqstore.bodies import binary_schemas  # noqa: PLC0415 - most reads need no other format

    if body == AVRO_BODY:
        return binary_schemas.avro_schemas_of(schema).reader.type.arrow
    return binary_schemas.protobuf_message(schema, message)[1]
