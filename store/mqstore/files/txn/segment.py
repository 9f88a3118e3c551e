"""Staged segments: frames of encoded records with what the commit must know of each.

The layout is format/staged.py. A task appends frames; the commit reads them back one at a time,
twice: once to verify and count, once to append. Both hold one frame in memory.
"""

import hashlib
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from mqstore.files.txn.errors import CorruptStagingError
from mqstore.files.txn.staging import StagedReader, StagedWriter, segment_name
from mqstore.format.arrays import Bytes, Int32s, Recycled, TopicQueue
from mqstore.format.crc import crc32
from mqstore.format.staged import (
    FILE_HEADER,
    FILE_MAGIC,
    FOOTER,
    FOOTER_MAGIC,
    FRAME,
    FRAME_MAGIC,
    KEY,
    MESSAGE,
    QUEUE,
    TOPIC_SEPARATOR,
    VERSION,
)

Table: TypeAlias = NDArray[Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class Segment:
    """A staged file as its task left it: its name, and what it must be found to hold."""

    name: str
    partition: int
    size: int
    frame_count: int
    message_count: int
    records_bytes: int
    digest: str


@dataclass(frozen=True, slots=True)
class SegmentFrame:
    """One frame: (topic, queueId) of each queue, the tables, and the records if wanted."""

    queues: tuple[TopicQueue, ...]
    messages: Table
    keys: Int32s
    records: Bytes
    records_at: int = 0
    """Where the records lie in the staged file it was read from."""


class SegmentWriter:
    """Writes the frames of one task. The staged file is there only after ``finish``."""

    def __init__(self, directory: str, job_id: str, *, partition: int, attempt: int) -> None:
        self._file = StagedWriter(directory, segment_name(partition, attempt))
        self._partition = partition
        self._job_id = job_id
        self._digest = hashlib.sha256()
        self._frames = self._messages = self._records_bytes = 0

    def append(self, frame: SegmentFrame, host_variant: int) -> None:
        """Write one frame. All frames of a file have one ``host_variant``."""
        if not self._file.size:
            self._file.append(_header(self._job_id, self._partition, host_variant))
        names = list(dict.fromkeys(topic for topic, _ in frame.queues))
        queues = np.array([(names.index(t), q) for t, q in frame.queues], QUEUE)
        topics = TOPIC_SEPARATOR.join(name.encode() for name in names)
        tables = (queues, frame.messages, frame.keys, frame.records)
        parts: list[bytes | memoryview] = [topics]
        parts += [table.view(np.uint8).data for table in tables]
        checksum = 0
        for part in parts:
            checksum = crc32(part, checksum)
        head = np.zeros((), FRAME)
        head["magic"], head["checksum"] = FRAME_MAGIC, checksum
        head["payload_bytes"] = sum(map(len, parts))
        head["records_bytes"], head["topics_bytes"] = frame.records.nbytes, len(topics)
        head["queue_count"], head["message_count"] = len(queues), len(frame.messages)
        head["key_count"] = len(frame.keys)
        for part in (head.tobytes(), *parts):
            self._file.append(part)
        self._digest.update(head.tobytes())
        self._frames += 1
        self._messages += len(frame.messages)
        self._records_bytes += frame.records.nbytes

    def finish(self) -> Segment:
        """Make the file durable and return what the commit needs to find and trust it."""
        self._file.append(
            _footer(self._frames, self._messages, self._records_bytes, self._digest.digest())
        )
        self._file.finish()
        return Segment(
            name=self._file.name,
            partition=self._partition,
            size=self._file.size,
            frame_count=self._frames,
            message_count=self._messages,
            records_bytes=self._records_bytes,
            digest=self._digest.hexdigest(),
        )

    def discard(self) -> None:
        """Remove the file."""
        self._file.discard()


def read_frames(
    directory: str, segment: Segment, *, with_records: bool, memory: Recycled | None = None
) -> Iterator[SegmentFrame]:
    """Yield the frames of a staged file, in order; they lie in ``memory``.

    With records, every byte is checked against its checksum; without, only the tables are read
    (a frame's ``records`` are then empty). Raises CorruptStagingError.
    """
    with StagedReader(directory, segment.name, segment.size, memory) as file:
        position = FILE_HEADER.itemsize
        for _ in range(segment.frame_count):
            head = _read_head(file, position)
            position += FRAME.itemsize
            frame = _read_payload(file, position, head, with_records=with_records)
            yield frame
            if with_records:  # The last time: what else is read of the file is without them.
                file.forget(frame.records_at, len(frame.records))
            position += int(head["payload_bytes"])


def verify(
    directory: str,
    segment: Segment,
    *,
    job_id: str,
    host_variant: int,
    memory: Recycled | None = None,
) -> Iterator[SegmentFrame]:
    """Yield the frames with records, and check that the file is the one its task reported.

    Raises CorruptStagingError at the latest when the last frame was taken.
    """
    digest = hashlib.sha256()
    with StagedReader(directory, segment.name, segment.size, memory) as file:
        header = _header(job_id, segment.partition, host_variant)
        if file.read_few(0, FILE_HEADER.itemsize) != header:
            raise CorruptStagingError(f"{file.path}: not a segment of this job, task and version")
        position, messages, records = FILE_HEADER.itemsize, 0, 0
        for _ in range(segment.frame_count):
            head = _read_head(file, position)
            digest.update(head.tobytes())
            position += FRAME.itemsize
            frame = _read_payload(file, position, head, with_records=True)
            position += int(head["payload_bytes"])
            messages += len(frame.messages)
            records += frame.records.nbytes
            yield frame
        expected = (segment.message_count, segment.records_bytes, segment.digest)
        footer = _footer(segment.frame_count, messages, records, digest.digest())
        at_end = position + FOOTER.itemsize == segment.size
        if (
            (messages, records, digest.hexdigest()) != expected
            or not at_end
            or file.read_few(position, FOOTER.itemsize) != footer
        ):
            raise CorruptStagingError(
                f"{file.path}: {messages} messages of {records} bytes, its task reported "
                f"{segment.message_count} of {segment.records_bytes}"
            )


def _header(job_id: str, partition: int, host_variant: int) -> bytes:
    header = np.zeros((), FILE_HEADER)
    header["magic"], header["version"] = FILE_MAGIC, VERSION
    header["host_variant"], header["partition"] = host_variant, partition
    header["job"] = job_id.encode()
    return header.tobytes()


def _footer(frames: int, messages: int, records_bytes: int, digest: bytes) -> bytes:
    footer = np.zeros((), FOOTER)
    footer["magic"], footer["frame_count"] = FOOTER_MAGIC, frames
    footer["message_count"], footer["records_bytes"] = messages, records_bytes
    footer["digest"] = np.void(digest)
    return footer.tobytes()


def _read_head(file: StagedReader, position: int) -> np.void:
    head: np.void = np.frombuffer(file.read_few(position, FRAME.itemsize), FRAME)[0]
    if head["magic"] != FRAME_MAGIC or int(head["payload_bytes"]) != _payload_bytes(head):
        raise CorruptStagingError(f"{file.path} at byte {position}: no frame starts here")
    return head


def _payload_bytes(head: np.void) -> int:
    return (
        int(head["topics_bytes"])
        + int(head["queue_count"]) * QUEUE.itemsize
        + int(head["message_count"]) * MESSAGE.itemsize
        + int(head["key_count"]) * KEY.itemsize
        + int(head["records_bytes"])
    )


def _read_payload(
    file: StagedReader,
    position: int,
    head: np.void,
    *,
    with_records: bool,
) -> SegmentFrame:
    size = int(head["payload_bytes"])
    if not 0 <= size <= file.size - position:
        raise CorruptStagingError(f"{file.path} at byte {position}: a frame of {size} bytes")
    tables_bytes = size - int(head["records_bytes"])
    data = file.read(position, size if with_records else tables_bytes)
    try:
        frame = _frame(data, position, head)
    except (IndexError, ValueError) as error:
        reason = "the tables of a frame contradict each other"
        raise CorruptStagingError(f"{file.path} at byte {position}: {reason}") from error
    if with_records:
        checksum = crc32(data)
        if checksum != head["checksum"]:
            reason = "checksum of a frame differs"
            raise CorruptStagingError(f"{file.path} at byte {position}: {reason}")
    return frame


def _frame(data: memoryview, position: int, head: np.void) -> SegmentFrame:
    topics_bytes = int(head["topics_bytes"])
    topics = bytes(data[:topics_bytes]).split(TOPIC_SEPARATOR)
    at = topics_bytes
    tables: list[NDArray[Any]] = []
    for dtype, count in (
        (QUEUE, "queue_count"),
        (MESSAGE, "message_count"),
        (KEY, "key_count"),
    ):
        tables.append(np.frombuffer(data, dtype, int(head[count]), at))
        at += tables[-1].nbytes
    queues, messages, keys = tables
    named = tuple((topics[q["topic"]].decode(), int(q["queue_id"])) for q in queues)
    records = np.frombuffer(data, np.uint8)[at:]
    return SegmentFrame(named, messages, keys, records, position + at)
