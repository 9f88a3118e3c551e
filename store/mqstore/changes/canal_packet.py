"""Canal's protobuf (``canal.mq.flatMessage=false``): packets to changes.

A packet has entries, an entry a header with the place in the binlog and, stored as bytes, a row
change with whole images before and after. Numbers of fields are those of Canal's schema, which is
stable since 2018. The wire format is read here, field by field, and nothing is made of it that is
larger than what the packet has.

Reference: com.alibaba.otter.canal.protocol (CanalProtocol.proto, EntryProtocol.proto).
"""

from collections.abc import Iterator
from functools import partial
from typing import Any, Final, TypeAlias

from mqstore.changes.canal import CanalRow
from mqstore.changes.change import (
    DDL,
    DELETE,
    INSERT,
    OTHER,
    TRUNCATE,
    UPDATE,
    Change,
    ChangeMessage,
    ChangeSequence,
    Problem,
)
from mqstore.changes.collected import Collected, by_key
from mqstore.changes.decode_context import DecodeContext, binlog_sequence, source_time

Field: TypeAlias = tuple[int, Any]

_MESSAGES_PACKET: Final = 7
_ROWDATA_ENTRY: Final = 2
_EVENT_OPS: Final = {1: INSERT, 2: UPDATE, 3: DELETE}
_TRUNCATED: Final = 8
_VARINTS: Final = frozenset({0, 2})
_FIXED: Final = {1: 8, 5: 4}
"""Bytes of the values of wire types."""
_MORE: Final = 128
"""The bit of a byte that another one follows."""
_LONG_BITS: Final = 64


def canal_packet_changes(message: ChangeMessage, context: DecodeContext) -> list[Change]:
    """Return the changes of a packet; raises ValueError for what is none."""
    packet = _by_number(message.body)
    if packet.get(3) != _MESSAGES_PACKET or not isinstance(packet.get(5), bytes):
        raise ValueError("no packet of messages of Canal")
    if packet.get(4, 0) not in {0, 1}:
        raise ValueError("a packet of Canal that is compressed")
    collected = Collected()
    for number, entry in _fields(packet[5]):
        if number == 2:
            _entry(_bytes(entry), collected, context)
    if not collected.changes:
        collected.add(Change(op=OTHER))
    return collected.changes


def _entry(data: bytes, collected: Collected, context: DecodeContext) -> None:
    entry = _by_number(data)
    header = _by_number(_bytes(entry.get(1, b"")))
    place = partial(binlog_sequence, _text(header.get(2)), header.get(3, 0))
    base = partial(
        Change,
        database=_text(header.get(8)),
        table=_text(header.get(9)),
        source_time_us=source_time(_signed(header.get(6)), 1_000),
        transaction=_text(header.get(13)),
    )
    if entry.get(2, _ROWDATA_ENTRY) != _ROWDATA_ENTRY:
        collected.add(base(op=OTHER, sequence=place(0)))
        return
    stored = _bytes(entry.get(3, b""))
    changed = _by_number(stored)
    event = changed.get(2, header.get(11, 0))
    sql = _text(changed.get(11))
    if event == _TRUNCATED:
        collected.add(base(op=TRUNCATE, sequence=place(0), sql=sql))
    elif changed.get(10):
        collected.add(base(op=DDL, sequence=place(0), sql=sql))
    elif event not in _EVENT_OPS:
        collected.add(base(op=OTHER, sequence=place(0), sql=sql))
    else:
        rows = (_bytes(row) for number, row in _fields(stored) if number == 12)
        before = len(collected.changes)
        for number, row in enumerate(rows):
            _row(row, _EVENT_OPS[event], place(number), base, collected, context)
        if len(collected.changes) == before:
            raise ValueError(f"{_EVENT_OPS[event]} without rows")


def _row(
    data: bytes,
    op: str,
    sequence: ChangeSequence | None,
    base: "partial[Change]",
    collected: Collected,
    context: DecodeContext,
) -> None:
    sides: dict[int, dict[str, str | None]] = {1: {}, 2: {}}
    types: dict[str, str] = {}
    keys: list[str] = []
    for number, column in _fields(data):
        if number not in sides:
            continue
        fields = _by_number(_bytes(column))
        name = _text(fields.get(3)) or ""
        sides[number][name] = None if fields.get(6) else _utf8(fields.get(8, b""))
        if 10 in fields:
            types[name] = _utf8(fields[10])
        if fields.get(4) and name not in keys:
            keys.append(name)
    if not sides[1 if op == DELETE else 2]:
        raise ValueError(f"a row of {op} without columns")
    change = base(op=op, sequence=sequence, keys=tuple(keys), types=types)
    schema = context.schema(change.database, change.table)
    if not keys and schema is not None:
        change.keys = schema.keys
    reader = CanalRow(types, schema, context.zone)
    problems: list[Problem] = []
    if op != DELETE:
        change.row = reader.image(sides[2], problems)
    if op != INSERT and sides[1]:
        change.before = reader.image(sides[1], problems)
    change.problems = problems
    for one in by_key(change):
        collected.add(one)


def _fields(data: bytes) -> Iterator[Field]:
    """Yield number and value of each field: an integer, or bytes. Raises ValueError."""
    at, end = 0, len(data)
    while at < end:
        tag = data[at]
        if tag < _MORE:  # Most numbers are of one byte: they are read here.
            at += 1
        else:
            tag, at = _varint(data, at)
        wire = tag & 7
        if wire in _VARINTS:
            value = data[at] if at < end else _MORE
            if value < _MORE:
                at += 1
            else:
                value, at = _varint(data, at)
            if wire == 0:
                yield tag >> 3, value
                continue
            size = value
        elif wire in _FIXED:
            size = _FIXED[wire]
        else:
            raise ValueError(f"byte {at} of a message of Canal has no wire type of protobuf")
        if size > end - at:
            raise ValueError("a message of Canal is cut")
        yield tag >> 3, data[at : at + size]
        at += size


def _varint(data: bytes, at: int) -> tuple[int, int]:
    value = shift = 0
    while at < len(data) and shift < _LONG_BITS + 6:
        byte = data[at]
        at += 1
        value |= (byte & 127) << shift
        if byte < _MORE:
            return value, at
        shift += 7
    raise ValueError("a number of a message of Canal is cut or too long")


def _by_number(data: bytes) -> dict[int, Any]:
    """Return the last value of each field."""
    return dict(_fields(data))


def _signed(value: Any) -> int | None:
    """Return an int64 of the wire."""
    if not isinstance(value, int):
        return None
    return value - (1 << 64) if value >> 63 else value


def _bytes(value: Any) -> bytes:
    if not isinstance(value, bytes):
        raise ValueError("a number stands where a message of Canal has bytes")  # noqa: TRY004
    return value


def _utf8(value: Any) -> str:
    try:
        return _bytes(value).decode()
    except UnicodeDecodeError:
        raise ValueError("a text of a message of Canal is no UTF-8") from None


def _text(value: Any) -> str | None:
    return None if value is None else _utf8(value) or None
