"""A descriptor set of a shop, and a decoder of its bodies that shares nothing with a library."""

import random
import struct
from decimal import Decimal
from typing import Any, Final

from google.protobuf import descriptor_pb2

_TYPES: Final = {
    "double": 1, "float": 2, "int64": 3, "uint64": 4, "int32": 5, "fixed64": 6, "fixed32": 7,
    "bool": 8, "string": 9, "message": 11, "bytes": 12, "uint32": 13, "enum": 14, "sfixed32": 15,
    "sfixed64": 16, "sint32": 17, "sint64": 18,
}  # fmt: skip
ORDER: Final = {
    "id": (1, "int64"), "pieces": (2, "int32"), "zig": (3, "sint64"), "big": (4, "uint64"),
    "size": (5, "uint32"), "note": (6, "string"), "data": (7, "bytes"), "paid": (8, "bool"),
    "weight": (9, "float"), "price": (10, "double"), "state": (11, ".shop.State"),
    "lines": (12, "*.shop.Order.Line"), "codes": (13, "*sint32"),
    "left": (14, "fixed64"), "right": (15, "sfixed32"), "first": (16, ".shop.Order.Line"),
    "names": (17, "*string"),
}  # fmt: skip
LINE: Final = {"sku": (1, "string"), "n": (2, "int32")}
_MESSAGES: Final = {".shop.Order.Line": LINE}
STATES: Final = {0: "NEW", 1: "PAID"}


def _fields(message: Any, fields: dict[str, tuple[int, str]]) -> None:
    for name, (number, word) in fields.items():
        kind = word.lstrip("*")
        field = message.field.add(name=name, number=number, label=3 if word[0] == "*" else 1)
        if kind.startswith("."):
            field.type = 14 if kind == ".shop.State" else 11
            field.type_name = kind
        else:
            field.type = _TYPES[kind]


def descriptor_set() -> bytes:
    """Return the bytes of the set: a message Other, and Order with Line within it."""
    files = descriptor_pb2.FileDescriptorSet()
    file = files.file.add(name="shop/order.proto", package="shop", syntax="proto3")
    _fields(file.message_type.add(name="Other"), {"x": (1, "int32")})
    order = file.message_type.add(name="Order")
    _fields(order, ORDER)
    _fields(order.nested_type.add(name="Line"), LINE)
    state = file.enum_type.add(name="State")
    for number, name in STATES.items():
        state.value.add(name=name, number=number)
    return bytes(files.SerializeToString())


def varint(number: int) -> bytes:
    """Return a number of up to 64 bits as Protobuf writes it."""
    number &= 2**64 - 1
    written = b""
    while number > 127:
        written += bytes([number & 127 | 128])
        number >>= 7
    return written + bytes([number])


def tagged(number: int, wire: int, data: bytes) -> bytes:
    """Return a field."""
    return varint(number << 3 | wire) + data


def order(rng: random.Random) -> bytes:
    """Return a body with some of the fields of an order, in any order of them."""
    parts = []
    for number, word in ORDER.values():
        if rng.random() < 0.6:
            kind = word.lstrip("*")
            parts.append(_some(rng, number, kind))
            if word[0] == "*":
                parts += [_some(rng, number, kind) for _ in range(rng.randrange(3))]
    rng.shuffle(parts)
    return b"".join(parts)


def _some(rng: random.Random, number: int, kind: str) -> bytes:
    if kind in {"double", "fixed64", "sfixed64"}:
        data = struct.pack("<d", 1.25) if kind == "double" else rng.randbytes(8)
        return tagged(number, 1, data)
    if kind in {"float", "fixed32", "sfixed32"}:
        data = struct.pack("<f", -0.5) if kind == "float" else rng.randbytes(4)
        return tagged(number, 5, data)
    if kind in {"string", "bytes"} or kind == ".shop.Order.Line":
        data = "单x".encode() * rng.randrange(3) if kind == "string" else rng.randbytes(5)
        if kind == ".shop.Order.Line":
            data = tagged(1, 2, b"\x02s1") + tagged(2, 0, varint(rng.randrange(300)))
        return tagged(number, 2, varint(len(data)) + data)
    top = {".shop.State": 3, "bool": 2}.get(kind, 2 ** rng.choice([3, 31]))
    return tagged(number, 0, varint(rng.randrange(top)))


def read(body: bytes) -> dict[str, Any]:
    """Return the order of a body as Spark has it; raises ValueError where it is none."""
    return _message(body, ORDER)


def _message(body: bytes, fields: dict[str, tuple[int, str]]) -> dict[str, Any]:
    by_number = {number: (name, word) for name, (number, word) in fields.items()}
    found: dict[str, Any] = {
        name: [] if word[0] == "*" else None for name, (_, word) in fields.items()
    }
    at = 0
    while at < len(body):
        tag, at = _varint(body, at)
        value, at = _wire(body, at, tag)
        name, word = by_number.get(tag >> 3, ("", ""))
        if not name:
            continue
        kind = word.lstrip("*")
        if word[0] == "*":
            found[name] += _repeated(kind, tag & 7, value)
        elif tag & 7 == _wire_of(kind):
            found[name] = _merged(found[name], kind, value)
    return found


def _wire_of(kind: str) -> int:
    if kind in {"double", "fixed64", "sfixed64"}:
        return 1
    if kind in {"float", "fixed32", "sfixed32"}:
        return 5
    return 2 if kind in {"string", "bytes", ".shop.Order.Line"} else 0


def _repeated(kind: str, wire: int, value: Any) -> list[Any]:
    if wire == _wire_of(kind):
        return [_value(kind, value)]
    if wire != 2 or _wire_of(kind) == 2:
        return []
    found, at = [], 0
    while at < len(value):
        number, at = _varint(value, at)
        found.append(_value(kind, number))
    return found


def _merged(before: Any, kind: str, value: Any) -> Any:
    """Return the last of a field that comes twice; of messages the fields of both."""
    made = _value(kind, value)
    if isinstance(made, dict):
        return {n: v if v is not None else (before or {}).get(n) for n, v in made.items()}
    return made if made not in {0, "", b""} else None  # Not to be told from one that is absent.


def _value(kind: str, value: Any) -> Any:
    if kind in _MESSAGES:
        return _message(value, _MESSAGES[kind])
    if kind == "string":
        return value.decode()
    if kind in {"double", "float", "fixed64", "sfixed32"}:
        form = {"double": "<d", "float": "<f", "fixed64": "<Q", "sfixed32": "<i"}[kind]
        number = struct.unpack(form, value)[0]
        return Decimal(number) if kind == "fixed64" else number
    return value if kind == "bytes" else _number(kind, value)


def _number(kind: str, value: int) -> Any:
    if kind == ".shop.State":
        signed = _signed(value, 32)
        return STATES.get(signed, str(signed)) if signed else 0
    if kind == "bool":
        return True if value else 0
    if kind.startswith("sint"):
        cut = value & (2**32 - 1 if kind == "sint32" else 2**64 - 1)
        return (cut >> 1) ^ -(cut & 1)
    if kind == "uint64":
        return Decimal(value)
    return value & (2**32 - 1) if kind == "uint32" else _signed(value, int(kind[-2:]))


def _signed(value: int, bits: int) -> int:
    value &= 2**bits - 1
    return value - 2**bits if value >> (bits - 1) else value


def _varint(body: bytes, at: int) -> tuple[int, int]:
    number = 0
    for place in range(10):
        if at + place >= len(body):
            raise ValueError("ends within a number")
        byte = body[at + place]
        number |= (byte & 127) << (7 * place)
        if byte < 128:
            if place == 9 and byte > 1:
                raise ValueError("more than 64 bits")
            return number, at + place + 1
    raise ValueError("more than 10 bytes")


def _wire(body: bytes, at: int, tag: int) -> tuple[Any, int]:
    wire = tag & 7
    if not 1 <= tag >> 3 < 2**29:
        raise ValueError("no such field")
    if wire == 0:
        return _varint(body, at)
    if wire == 3:
        return b"", _group_end(body, at, tag >> 3)
    sizes = {1: 8, 5: 4}
    if wire == 2:
        size, at = _varint(body, at)
    elif wire in sizes:
        size = sizes[wire]
    else:
        raise ValueError("no such wire type")
    if at + size > len(body):
        raise ValueError("ends within a field")
    return body[at : at + size], at + size


def _group_end(body: bytes, at: int, number: int) -> int:
    while True:
        tag, at = _varint(body, at)
        if tag & 7 == 4:
            if tag >> 3 != number:
                raise ValueError("another group ends")
            return at
        _, at = _wire(body, at, tag)
