"""Bodies of Protobuf to a struct array, by Google's library.

A scalar that is not on the wire is null, as in Spark's from_protobuf; bytes of another message are
often a valid one with unknown fields, and no reader can tell.

Reference: org.apache.spark.sql.protobuf.ProtobufDeserializer#getFieldValue.
"""

from collections.abc import Callable
from decimal import Decimal
from typing import Any, Final

import pyarrow as pa

from mqstore.bodies import framing
from mqstore.bodies.avro_walk import read_long
from mqstore.bodies.decoded import DecodedBodies, by_pieces
from mqstore.bodies.json_values import ENCODING, MISFIT
from mqstore.bodies.libraries import protobuf_library
from mqstore.bodies.protobuf_types import TIMESTAMP_MESSAGE, is_map, is_repeated, message_type
from mqstore.bodies.times import FIRST_US, LAST_US

MALFORMED_PROTOBUF: Final = "MALFORMED_PROTOBUF"
_MOST_INDEXES: Final = 100
FieldConvert = Callable[[Any], Any]


class ProtobufBodies:
    """Reads bodies of one message, batch by batch."""

    def __init__(self, message: Any, framed: str, *, with_defaults: bool) -> None:
        """``message`` is its class; ``with_defaults``: what is not on the wire has its default."""
        self._class = message
        self._framed = framed
        self._path = _index_path(message.DESCRIPTOR)
        self._kind = message_type(message.DESCRIPTOR)
        self._reasons: list[str] = []
        """Why values of the body that is read are null: it has its other values."""
        self._convert = self._message(message.DESCRIPTOR, with_defaults, "")
        self._error = protobuf_library("message").DecodeError
        self._required = _has_required(message.DESCRIPTOR)

    def decode(self, bodies: pa.BinaryArray) -> DecodedBodies:
        """Return the values of bodies, and the reasons of those that are bad."""
        partly: dict[int, str] = {}

        def read(row: int, body: bytes) -> Any:
            self._reasons.clear()
            value = self._one(body)
            if self._reasons:
                partly[row] = self._reasons[0]
            return value

        decoded = by_pieces(
            bodies, read, lambda values: (pa.array(values, self._kind), {}), self._kind
        )
        return DecodedBodies(decoded.values, {**partly, **decoded.reasons})

    def _one(self, body: bytes) -> Any:
        start = 0
        if self._framed == framing.CONFLUENT or (
            self._framed == framing.AUTO_FRAMING and framing.has_confluent(body)
        ):
            start = self._behind_indexes(body)
        try:
            message = self._class.FromString(body[start:] if start else body)
            if self._required and not message.IsInitialized():
                raise ValueError(f"{MALFORMED_PROTOBUF}: a required field is missing")
            return self._convert(message)
        except self._error as error:
            reason = str(error).removeprefix("Error parsing message").strip(" :")
            raise ValueError(f"{MALFORMED_PROTOBUF}: {reason or 'cannot be parsed'}") from None
        except UnicodeDecodeError:
            raise ValueError(f"{ENCODING}: a string is no UTF-8") from None

    def _behind_indexes(self, body: bytes) -> int:
        """Return where the message begins; raises ValueError where it is another one."""
        framing.confluent_id(body)
        count, at = _index(body, framing.CONFLUENT_BYTES)
        if not 0 <= count <= _MOST_INDEXES:
            raise ValueError(f"{framing.FRAMING}: {count} indexes of messages")
        path = []
        for _ in range(count):
            index, at = _index(body, at)
            path.append(index)
        path = path or [0]
        if path != self._path:
            name = self._class.DESCRIPTOR.full_name
            raise ValueError(
                f"{framing.UNKNOWN_SCHEMA}: message {path} of its file, and {name} is {self._path}"
            )
        return at

    def _message(self, descriptor: Any, with_defaults: bool, path: str) -> FieldConvert:
        """Return what makes the members of a message."""
        fields = {
            field.number: (field.name, self._field(field, with_defaults, f"{path}{field.name}"))
            for field in descriptor.fields
        }
        absent = {
            field.name: value
            for field in descriptor.fields
            if (value := _of_absent(field, with_defaults, fields[field.number][1])) is not None
        }

        def convert(message: Any) -> dict[str, Any]:
            members = dict(absent)
            for field, value in message.ListFields():
                known = fields.get(field.number)
                if known is not None and not field.is_extension:
                    members[known[0]] = known[1](value)
            return members

        return convert

    def _field(self, field: Any, with_defaults: bool, path: str) -> FieldConvert:
        if is_map(field):
            entry = field.message_type.fields_by_name
            key = self._value(entry["key"], with_defaults, path)
            value = self._value(entry["value"], with_defaults, f"{path}{{}}.")
            return lambda pairs: [(key(one), value(pairs[one])) for one in pairs]
        convert = self._value(field, with_defaults, path)
        return (lambda values: list(map(convert, values))) if is_repeated(field) else convert

    def _value(self, field: Any, with_defaults: bool, path: str) -> FieldConvert:
        message = field.message_type
        if message is not None:
            if message.full_name == TIMESTAMP_MESSAGE:
                return lambda moment: self._moment(moment, path)
            return self._message(message, with_defaults, f"{path}.")
        if field.cpp_type == field.CPPTYPE_UINT64:
            return Decimal
        if field.enum_type is not None:
            names = {
                number: value.name for number, value in field.enum_type.values_by_number.items()
            }
            return lambda number: names.get(number) or str(number)
        return _same

    def _moment(self, moment: Any, path: str) -> int | None:
        micros = int(moment.seconds) * 1_000_000 + int(moment.nanos) // 1_000
        if FIRST_US <= micros <= LAST_US:
            return micros
        self._reasons.append(
            f"{MISFIT} at {path}: {moment.seconds} s lie beyond the years 1 to 9999"
        )
        return None


def _index(body: bytes, at: int) -> tuple[int, int]:
    """Return a number of the indexes of a message, and where it ends; raises ValueError."""
    try:
        return read_long(body, at)
    except IndexError:
        raise ValueError(f"{framing.FRAMING}: ends within the indexes of messages") from None
    except ValueError:
        raise ValueError(f"{framing.FRAMING}: an index of more than 64 bits") from None


def _same(value: Any) -> Any:
    return value


def _of_absent(field: Any, with_defaults: bool, convert: FieldConvert) -> Any:
    """Return what stands for a field that is not on the wire; None: null."""
    if is_map(field) or is_repeated(field):
        return []
    if field.message_type is not None:
        return None
    if field.has_default_value or (with_defaults and not field.has_presence):
        return convert(field.default_value)
    return None


def _has_required(descriptor: Any, above: frozenset[str] = frozenset()) -> bool:
    if descriptor.full_name in above:
        return False
    above |= {descriptor.full_name}
    return any(
        _is_required(field)
        or (field.message_type is not None and _has_required(field.message_type, above))
        for field in descriptor.fields
    )


def _is_required(field: Any) -> bool:
    is_required = getattr(field, "is_required", None)
    return bool(field.label == field.LABEL_REQUIRED if is_required is None else is_required)


def _index_path(descriptor: Any) -> list[int]:
    """Return the place of a message in its file: of the outermost one, then within each."""
    outer = descriptor.containing_type
    if outer is not None:
        return [*_index_path(outer), _place(outer.nested_types, descriptor)]
    return [_place(descriptor.file.message_types_by_name.values(), descriptor)]


def _place(descriptors: Any, wanted: Any) -> int:
    return [descriptor.full_name for descriptor in descriptors].index(wanted.full_name)
