"""Messages read as people write it today: struct.unpack, one record after another."""

import struct
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from mqstore.format.names import mapped_file_name

UNIT = struct.Struct(">qiq")
HEADER = struct.Struct(">iiiiiqqiq4siq4siiqi")


def messages(root: Path, topic: str, queue_id: int, count: int) -> Iterator[tuple[Any, ...]]:
    """Yield (queueId, queueOffset, body, storeTimestamp, tags, keys, properties, msgId)."""
    queue = root / "consumequeue" / topic / str(queue_id)
    with (
        (root / "commitlog" / mapped_file_name(0)).open("rb") as log,
        (queue / mapped_file_name(0)).open("rb") as units,
    ):
        for _ in range(count):
            place, size, _ = UNIT.unpack(units.read(UNIT.size))
            log.seek(place)
            yield _decode(log.read(size))


def _decode(record: bytes) -> tuple[Any, ...]:
    header = HEADER.unpack_from(record)
    start = HEADER.size
    end = start + header[-1]
    body = record[start:end]
    end += 1 + record[end]
    (length,) = struct.unpack_from(">h", record, end)
    block = record[end + 2 : end + 2 + length].decode()
    properties = dict(piece.split("\x01", 1) for piece in block.split("\x02") if piece)
    stored = datetime.fromtimestamp(header[11] / 1000, UTC)
    return (
        header[3],
        header[5],
        body,
        stored,
        properties.get("TAGS"),
        properties.get("KEYS"),
        properties,
        properties.get("UNIQ_KEY"),
    )
