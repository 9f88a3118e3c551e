"""Stores of any size, laid out fast: what a broker leaves, without a broker.

Records have the seven properties that a 4.9 or 5.x broker stores for a plain send and bodies
of random bytes, 512 different ones; message i goes to queue i mod QUEUES, as a producer that
goes round robin leaves them. Every hundredth message of a queue has the tag ``TagR``, the
others ``TagA``. RocketMQ's own DefaultMessageStore loads such a store: files are of their full
size, sparse behind their last record, and a blank record ends each file of the CommitLog.
"""

import json
import zlib
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from mqstore.format.consume_queue import UNIT, UNITS_PER_FILE
from mqstore.format.hashing import tags_code
from mqstore.format.message import (
    BLANK,
    BLANK_MAGIC,
    CRC_MASK,
    HEADER,
    MIN_BLANK_BYTES,
    RECORD_MAGICS,
)
from mqstore.format.names import mapped_file_name
from mqstore.format.properties import join

Ints: TypeAlias = NDArray[np.int64]

RARE_ONE_IN = 100
FIRST_MS = 1_700_000_000_000
_DISTINCT = 512
_HEX = np.frombuffer(b"0123456789ABCDEF", np.uint8)
_PROPERTIES = {
    "MSG_REGION": "DefaultRegion",
    "UNIQ_KEY": "0" * 32,
    "CLUSTER": "DefaultCluster",
    "WAIT": "true",
    "KEYS": "order-123456",
    "TAGS": "TagA",
    "TRACE_ON": "true",
}
_TOPIC_DIGITS = 5


@dataclass(frozen=True, slots=True)
class Shape:
    """What to lay out: ``queues`` of each of ``topics``, sharing ``messages`` evenly.

    ``per_file`` records at most lie in one file of the CommitLog, which is ``log_bytes`` long
    whatever is in it. ``per_second`` of them are stored a second, by the broker's clock.
    """

    messages: int
    body_bytes: int = 1024
    queues: int = 1
    topics: int = 1
    per_file: int | None = None
    log_bytes: int = 1 << 30
    per_second: int = 100_000

    @property
    def each(self) -> int:
        """Messages of one queue."""
        return self.messages // (self.queues * self.topics)

    @property
    def rare(self) -> int:
        """Messages with the tag TagR."""
        return -(-self.each // RARE_ONE_IN) * self.queues * self.topics


def topic_name(number: int) -> str:
    """Return the name of a store's n-th topic."""
    return f"T{number:0{_TOPIC_DIGITS}d}"


def lay_out(root: Path, shape: Shape) -> int:
    """Write the store, the same one each time; return the bytes of a record."""
    templates = _templates(shape.body_bytes)
    size = templates.shape[1]
    fit = (shape.log_bytes - MIN_BLANK_BYTES) // size
    per_file = min(shape.per_file or fit, fit)
    number = np.arange(shape.each * shape.queues * shape.topics)
    places = number // per_file * shape.log_bytes + number % per_file * size
    log = root / "commitlog"
    log.mkdir(parents=True)
    for index, start in enumerate(range(0, max(1, len(number)), per_file)):
        path = log / mapped_file_name(index * shape.log_bytes)
        part = slice(start, start + per_file)
        _write_file(path, shape, templates, number[part], places[part])
        if start + per_file < len(number):
            _end_file(path, shape.log_bytes, len(number[part]) * size)
    _write_queues(root, shape, size, places)
    _write_topics(root, shape)
    return size


def _write_file(
    path: Path, shape: Shape, templates: NDArray[np.uint8], number: Ints, places: Ints
) -> None:
    count = shape.queues * shape.topics
    marks = _Marks(bytes(templates[0]))
    with path.open("wb") as file:
        for start in range(0, len(number), _DISTINCT):
            part = number[start : start + _DISTINCT]
            records = templates[: len(part)].copy()
            queue, queue_offset = part % count, part // count
            _put(records, "queue_id", queue % shape.queues)
            _put(records, "queue_offset", queue_offset)
            _put(records, "physical_offset", places[start : start + _DISTINCT])
            _put(records, "store_timestamp_ms", FIRST_MS + part * 1000 // shape.per_second)
            shifts = np.arange(28, -1, -4)
            records[:, marks.uniq_key : marks.uniq_key + 8] = _HEX[(part[:, None] >> shifts) & 15]
            tens = 10 ** np.arange(_TOPIC_DIGITS - 1, -1, -1)
            digits = (queue // shape.queues)[:, None] // tens % 10 + ord("0")
            records[:, marks.topic : marks.topic + _TOPIC_DIGITS] = digits
            records[queue_offset % RARE_ONE_IN == 0, marks.tag] = ord("R")
            file.write(records.tobytes())
        file.truncate(shape.log_bytes)


class _Marks:
    """Where in every record its UNIQ_KEY's last 8 digits, topic's number and tag's end are."""

    def __init__(self, record: bytes) -> None:
        self.topic = record.rindex(topic_name(0).encode()) + 1
        self.uniq_key = record.rindex(b"UNIQ_KEY\x01") + len(b"UNIQ_KEY\x01") + 24
        self.tag = record.rindex(b"TAGS\x01TagA") + len(b"TAGS\x01Tag")


def _end_file(path: Path, log_bytes: int, used: int) -> None:
    blank = np.zeros(1, BLANK)
    blank["total_size"], blank["magic"] = log_bytes - used, BLANK_MAGIC
    with path.open("r+b") as file:
        file.seek(used)
        file.write(blank.tobytes())


def _write_queues(root: Path, shape: Shape, size: int, places: Ints) -> None:
    units = np.zeros(len(places), UNIT)
    units["physical_offset"] = places
    units["size"] = size
    count = shape.queues * shape.topics
    rare = np.arange(len(places)) // count % RARE_ONE_IN == 0
    units["tags_code"] = np.where(rare, tags_code("TagR"), tags_code("TagA"))
    for queue in range(count):
        folder = root / "consumequeue" / topic_name(queue // shape.queues)
        folder /= str(queue % shape.queues)
        folder.mkdir(parents=True)
        own = units[queue::count]
        for start in range(0, len(own), UNITS_PER_FILE):
            with (folder / mapped_file_name(start * UNIT.itemsize)).open("wb") as file:
                file.write(own[start : start + UNITS_PER_FILE].tobytes())
                file.truncate(UNITS_PER_FILE * UNIT.itemsize)


def _write_topics(root: Path, shape: Shape) -> None:
    topics = {
        topic_name(number): {
            "topicName": topic_name(number),
            "readQueueNums": shape.queues,
            "writeQueueNums": shape.queues,
            "perm": 6,
        }
        for number in range(shape.topics)
    }
    (root / "config").mkdir()
    (root / "config" / "topics.json").write_text(json.dumps({"topicConfigTable": topics}))


def _put(records: NDArray[np.uint8], field: str, values: NDArray[Any]) -> None:
    dtype, position = HEADER.fields[field][:2]
    wide = values.astype(dtype).view(np.uint8).reshape(len(values), dtype.itemsize)
    records[:, position : position + dtype.itemsize] = wide


def _templates(body_bytes: int) -> NDArray[np.uint8]:
    random = np.random.default_rng(7)
    properties = join(_PROPERTIES)
    topic = topic_name(0).encode()
    tail = bytes([len(topic)]) + topic + len(properties).to_bytes(2) + properties
    head = np.zeros(_DISTINCT, HEADER)
    bodies = [random.bytes(body_bytes) for _ in range(_DISTINCT)]
    head["total_size"] = HEADER.itemsize + body_bytes + len(tail)
    head["magic"], head["body_length"] = RECORD_MAGICS[0], body_bytes
    head["body_crc"] = [zlib.crc32(body) & CRC_MASK for body in bodies]
    head["born_ip"] = head["store_ip"] = np.void(bytes([127, 0, 0, 1]))
    head["store_port"] = 10911
    head["born_timestamp_ms"] = FIRST_MS
    records = [head[i].tobytes() + body + tail for i, body in enumerate(bodies)]
    return np.frombuffer(b"".join(records), np.uint8).reshape(_DISTINCT, -1)
