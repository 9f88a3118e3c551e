"""Stores with batch ConsumeQueues, laid out byte by byte: records of batches, and their units.

Reference: MessageDecoder#encodeMessage, SendMessageProcessor#sendBatchMessage,
BatchConsumeQueue#putBatchMessagePositionInfo.
"""

import struct
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from support import oracle
from support.oracle import Message
from support.stores import topics_json, write_json

UNIT_BYTES = 46
INNER = 0xC0
LOG_BYTES = 1 << 20
MOST_ADDED = 100
"""Bytes of properties that a record gets, and of the least blank record."""


@dataclass(frozen=True, slots=True)
class Record:
    """A record that was laid out: the queue offset of its first message, and how many it has."""

    message: Message
    base: int
    count: int

    def unit(self) -> bytes:
        """Its unit on disk."""
        m = self.message
        return struct.pack(
            ">qiqqqhii", m.physical_offset, m.size, oracle.tags_code(m), m.store_timestamp_ms,
            self.base, self.count, -1, 0,
        )  # fmt: skip


def client_message(body: bytes, properties: bytes = b"", flag: int = 0) -> bytes:
    """One message as a producer encodes it."""
    size = 22 + len(body) + len(properties)
    head = struct.pack(">iiiii", size, 0, 0, flag, len(body))
    return head + body + struct.pack(">h", len(properties)) + properties


def batch(messages: Sequence[bytes], **fields: object) -> Message:
    """A record of a batch of encoded messages; ``fields`` are of Message."""
    return replace(Message(sys_flag=INNER, body=b"".join(messages)), **fields)  # type: ignore[arg-type]


def place(
    records: Iterable[Message], counts: Sequence[int], first: int = 0, log_bytes: int = LOG_BYTES
) -> list[Record]:
    """Give records their places, one behind the other, and queue offsets from ``first`` on."""
    placed, base, position = [], first, 0
    for m, count in zip(records, counts, strict=True):
        if position % log_bytes + m.size + MOST_ADDED > log_bytes:
            position += log_bytes - position % log_bytes
        inner = f"INNER_NUM\1{count}\2INNER_BASE\1{base}\2".encode()
        properties = inner if m.sys_flag & INNER == INNER else m.properties
        record = replace(m, properties=properties, queue_offset=base, physical_offset=position)
        placed.append(Record(record, base, count))
        base, position = base + count, position + record.size
    return placed


def lay_out(
    root: Path, records: Sequence[Record], per_file: int = 4, log_bytes: int = LOG_BYTES
) -> Path:
    """Write the store of these records, all of one queue of the topic T; return its root."""
    (root / "commitlog").mkdir(parents=True)
    ends = [record.message.physical_offset // log_bytes for record in records]
    for number in range(max(ends) + 1):
        held = [r.message for r, of in zip(records, ends, strict=True) if of == number]
        data = b"".join(map(oracle.encode, held))
        if number < max(ends):
            data += oracle.blank(log_bytes - len(data))
        path = root / "commitlog" / f"{number * log_bytes:020d}"
        path.write_bytes(data.ljust(log_bytes, b"\0"))
    write_units(root, [record.unit() for record in records], per_file)
    (root / "config").mkdir()
    write_json(root / "config" / "topics.json", topics_json({"T": 1}))
    return root


def write_units(root: Path, units: Sequence[bytes], per_file: int = 4) -> None:
    """Write those units as the files of the queue."""
    folder = root / "batchconsumequeue" / "T" / "0"
    folder.mkdir(parents=True, exist_ok=True)
    for old in folder.iterdir():
        old.unlink()
    size = per_file * UNIT_BYTES
    for first in range(0, max(len(units), 1), per_file):
        content = b"".join(units[first : first + per_file])
        (folder / f"{first * UNIT_BYTES:020d}").write_bytes(content.ljust(size, b"\0"))
