"""Object container files of Avro, as Iceberg writes its manifests.

Iceberg gives the fields of records a number, ``field-id``, and by it they are known. Arrays and
maps are passed over, and a field that takes no byte is left out: time follows the bytes of a file,
and memory those of one block, whatever its schema says.

Reference: Avro 1.12, Object Container Files, and Binary Encoding.
"""

import json
import zlib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Final, TypeAlias

import pyarrow as pa

_AVRO_MAGIC: Final = b"Obj\x01"
_SYNC_BYTES: Final = 16
_MOST_AVRO_BYTES: Final = 256 << 20
_MOST_AVRO_HEADER_BYTES: Final = 4 << 20
_MOST_BLOCK_BYTES: Final = 8 << 20
"""Values take many times their bytes in memory. Avro's writer ends a block at 64,000 bytes."""
_MOST_UNPACKED_BYTES: Final = 1 << 30
_NUMBER_OF_FIELD: Final = "field-id"
_MOST_VARINT_BYTES: Final = 10
_MOST_DEPTH: Final = 40
AVRO_ERRORS: Final = (
    *(pa.ArrowException, OSError, ValueError, zlib.error),
    *(IndexError, KeyError, TypeError, AttributeError, OverflowError, RecursionError),
)
"""What ``records`` raises for a file that is damaged or made to harm."""

_ReadValue: TypeAlias = Callable[[bytes, int], tuple[Any, int]]
"""Reads a value at a position; returns it and the position behind it."""
Fields: TypeAlias = dict[int, Any]
"""The values of a record by the numbers of its fields."""


def records(path: Path) -> Iterator[Fields]:
    """Yield the records of a file. Raises ``AVRO_ERRORS``."""
    if path.stat().st_size > _MOST_AVRO_BYTES:
        raise ValueError(f"has more than {_MOST_AVRO_BYTES:,} bytes")
    data = path.read_bytes()
    if not data.startswith(_AVRO_MAGIC):
        raise ValueError("is no container file of Avro")
    pairs: list[tuple[str, bytes]] = []
    header = data[:_MOST_AVRO_HEADER_BYTES]
    at = _each_item(_pair_of(_bytes), header, len(_AVRO_MAGIC), pairs.append)
    facts = dict(pairs)
    sync, at = _cut(data, at, _SYNC_BYTES)
    read = _reader(json.loads(facts["avro.schema"]), {}, _MOST_DEPTH)
    if read is None:
        raise ValueError("has records of no bytes")
    codec = facts.get("avro.codec", b"null")
    left = _MOST_UNPACKED_BYTES
    while at < len(data):
        count, at = _long(data, at)
        packed, at = _bytes(data, at)
        mark, at = _cut(data, at, _SYNC_BYTES)
        if mark != sync:
            raise ValueError("has a block without the mark of the file")
        block = _unpacked(packed, codec)
        left -= len(block)
        if left < 0:
            raise ValueError(f"unpacks to more than {_MOST_UNPACKED_BYTES:,} bytes")
        place = 0
        for _ in range(count):
            record, place = read(block, place)
            yield record
        if place != len(block):
            raise ValueError("has a block of other records than it says")


def _unpacked(packed: bytes, codec: bytes) -> bytes:
    if codec == b"null":
        found = packed
    elif codec == b"deflate":
        found = zlib.decompressobj(-zlib.MAX_WBITS).decompress(packed, _MOST_BLOCK_BYTES)
    elif codec == b"zstandard":
        with pa.CompressedInputStream(pa.BufferReader(packed), "zstd") as stream:
            found = bytes(stream.read(_MOST_BLOCK_BYTES))
    else:
        raise ValueError(f"is packed by {codec!r}, and deflate, zstandard and null are read")
    if len(found) >= _MOST_BLOCK_BYTES:
        raise ValueError(f"has a block of more than {_MOST_BLOCK_BYTES:,} bytes")
    return found


def _reader(schema: Any, named: dict[str, _ReadValue | None], depth: int) -> _ReadValue | None:
    """Return what reads a value of a schema; None if it takes no byte."""
    if not depth:
        raise ValueError("has a schema that is nested too deep")
    if isinstance(schema, list):
        return _union_of([_reader(one, named, depth - 1) for one in schema])
    if isinstance(schema, str):
        return named[schema] if schema in named else _PLAIN_TYPES[schema]
    kind = schema["type"]
    if kind == "record":
        found = _record_of(
            [
                (one.get(_NUMBER_OF_FIELD), _reader(one["type"], named, depth - 1))
                for one in schema["fields"]
            ]
        )
    elif kind == "fixed":
        found = _fixed_of(int(schema["size"]))
    elif kind == "enum":
        found = _long
    elif kind == "array":
        return _passed_over(_needed(_reader(schema["items"], named, depth - 1)))
    elif kind == "map":
        return _passed_over(_pair_of(_needed(_reader(schema["values"], named, depth - 1))))
    else:
        return _reader(kind, named, depth - 1)
    named[schema["name"]] = found
    return found


def _needed(read: _ReadValue | None) -> _ReadValue:
    if read is None:
        raise ValueError("has a list of values of no bytes")
    return read


def _cut(data: bytes, at: int, size: int) -> tuple[bytes, int]:
    if size < 0 or size > len(data) - at:
        raise ValueError("ends within a value")
    return data[at : at + size], at + size


def _long(data: bytes, at: int) -> tuple[int, int]:
    found = shift = 0
    for at_next in range(at + 1, at + 1 + _MOST_VARINT_BYTES):
        digit = data[at_next - 1]
        found |= (digit & 0x7F) << shift
        if digit < 0x80:
            return (found >> 1) ^ -(found & 1), at_next
        shift += 7
    raise ValueError("has a number that is too long")


def _bytes(data: bytes, at: int) -> tuple[bytes, int]:
    size, at = _long(data, at)
    return _cut(data, at, size)


def _text(data: bytes, at: int) -> tuple[str, int]:
    found, at = _bytes(data, at)
    return found.decode(), at


def _boolean(data: bytes, at: int) -> tuple[bool, int]:
    return data[at] != 0, at + 1


def _fixed_of(size: int) -> _ReadValue | None:
    return (lambda data, at: _cut(data, at, size)) if size else None


def _record_of(fields: list[tuple[Any, _ReadValue | None]]) -> _ReadValue | None:
    taken = [(number, read) for number, read in fields if read is not None]

    def read_record(data: bytes, at: int) -> tuple[Fields, int]:
        found = {}
        for number, read in taken:
            found[number], at = read(data, at)
        return found, at

    return read_record if taken else None


def _union_of(branches: list[_ReadValue | None]) -> _ReadValue:
    def read_union(data: bytes, at: int) -> tuple[Any, int]:
        number, at = _long(data, at)
        if number < 0:
            raise ValueError("has a value of no type")
        read = branches[number]
        return (None, at) if read is None else read(data, at)

    return read_union


def _pair_of(read: _ReadValue) -> _ReadValue:
    def read_pair(data: bytes, at: int) -> tuple[tuple[str, Any], int]:
        name, at = _text(data, at)
        value, at = read(data, at)
        return (name, value), at

    return read_pair


def _passed_over(read: _ReadValue) -> _ReadValue:
    """Return what reads an array or a map, and keeps no item: none of them is needed."""
    return lambda data, at: (None, _each_item(read, data, at, lambda _: None))


def _each_item(read: _ReadValue, data: bytes, at: int, take: Callable[[Any], object]) -> int:
    """Give each item of an array or a map to ``take``; return the position behind the last one."""
    while True:
        count, at = _count(data, at)
        if not count:
            return at
        for _ in range(count):
            item, at = read(data, at)
            take(item)


def _count(data: bytes, at: int) -> tuple[int, int]:
    """Return the length of a block of an array or a map, and where it begins."""
    count, at = _long(data, at)
    if count < 0:  # The bytes of the block follow.
        _, at = _long(data, at)
    return abs(count), at


_PLAIN_TYPES: Final[dict[str, _ReadValue | None]] = {
    "null": None,
    "boolean": _boolean,
    "int": _long,
    "long": _long,
    "float": _fixed_of(4),
    "double": _fixed_of(8),
    "bytes": _bytes,
    "string": _text,
}
