"""What a program that knows the format and none of the dangers does to a store, step by step.

It is written with the oracle alone, and leaves out what a test says: the lock, `abort`, the
ConsumeQueue, the order of things. With it the tests show what each guard is there for.
"""

import fcntl
import struct
from collections.abc import Iterable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import BinaryIO, Final

from support import oracle
from support.oracle import Message

FIRST_MAGIC: Final = 4  # the place of the byte that hides a record
UNIT_BYTES: Final = 20
QUEUE_BYTES: Final = 2_000
PAGE_BYTES: Final = 4_096
Row = tuple[str, int, str, str]
"""Topic, queueId, body and key of a message to come."""


def records(root: Path) -> list[Message]:
    """Return every record of the log, from its first byte to where a scan of it ends."""
    return scan([path.read_bytes() for path in _log(root)])


def scan(files: Iterable[bytes]) -> list[Message]:
    """Return the records of CommitLog files from the first byte on, as far as a broker's scan goes.

    CommitLog#recoverNormally: a file that ends in a blank record leads to the next one.
    """
    found = []
    for data in files:
        end = 0
        try:
            for position, m in oracle.walk(data):
                end = position + m.size
                found.append(m)
        except oracle.NotARecordError:
            break
        if data[end : end + 8] != oracle.blank(len(data) - end)[:8]:
            break
    return found


def is_record(root: Path, physical_offset: int) -> bool:
    """Tell whether a record of that place stands there, whatever comes before it."""
    size = _log(root)[0].stat().st_size
    path = root / "commitlog" / f"{physical_offset // size * size:020d}"
    try:
        found = oracle.decode(path.read_bytes(), physical_offset % size)
    except (OSError, oracle.NotARecordError):
        return False
    return found.physical_offset == physical_offset


def end(root: Path) -> int:
    """Return the physical offset behind the last record."""
    found = records(root)
    return found[-1].physical_offset + found[-1].size if found else 0


def message(row: Row, now_ms: int) -> Message:
    """Return the record of a row, which has no place yet."""
    topic, queue_id, body, key = row
    return Message(
        topic=topic,
        queue_id=queue_id,
        body=body.encode(),
        properties=oracle.join_properties({"KEYS": key, "TAGS": "t"}),
        born_timestamp_ms=now_ms,
        store_timestamp_ms=now_ms,
    )


def placed(root: Path, rows: Iterable[Row], now_ms: int | None = None) -> list[Message]:
    """Return the rows as records that go behind the log's end, where a broker would put them."""
    held = records(root)
    now = now_ms or max((m.store_timestamp_ms for m in held), default=1_700_000_000_000) + 1
    nexts: dict[tuple[str, int], int] = {}
    for m in held:
        nexts[m.topic, m.queue_id] = m.queue_offset + 1
    size = _log(root)[0].stat().st_size
    position, found = end(root), []
    for m in (message(row, now) for row in rows):
        room = size - position % size
        position += room if m.size + 8 > room else 0
        queue = (m.topic, m.queue_id)
        found.append(replace(m, physical_offset=position, queue_offset=nexts.setdefault(queue, 0)))
        nexts[queue] += 1
        position += m.size
    return found


def append(root: Path, messages: Sequence[Message], *, hidden: bool = False) -> None:
    """Write records at their places in the log, `hidden` without the byte that shows the first."""
    start = end(root)
    size = _log(root)[0].stat().st_size
    for m in messages:
        if m.physical_offset // size > start // size and m.physical_offset % size == 0:
            path = root / "commitlog" / f"{m.physical_offset:020d}"
            path.write_bytes(bytes(size))
            _put(root, start, oracle.blank(size - start % size))
        data = bytearray(oracle.encode(m))
        if hidden and m is messages[0]:
            data[FIRST_MAGIC] = 0
        _put(root, m.physical_offset, bytes(data))
        start = m.physical_offset + m.size


def show(root: Path, first: Message) -> None:
    """Write the byte that shows a hidden batch."""
    _put(root, first.physical_offset + FIRST_MAGIC, oracle.encode(first)[FIRST_MAGIC:][:1])


def wipe(root: Path, position: int, size: int) -> None:
    """Write zeros into the log."""
    _put(root, position, bytes(size))


def dispatch(root: Path, messages: Iterable[Message]) -> None:
    """Write the ConsumeQueue units of records."""
    for m in messages:
        file, position = divmod(m.queue_offset * UNIT_BYTES, QUEUE_BYTES)
        folder = root / "consumequeue" / m.topic / str(m.queue_id)
        folder.mkdir(parents=True, exist_ok=True)
        path = folder / f"{file * QUEUE_BYTES:020d}"
        if not path.exists():
            path.write_bytes(bytes(QUEUE_BYTES))
        with path.open("r+b") as out:
            out.seek(position)
            out.write(oracle.unit(m))


def lock_open_file(lock: BinaryIO) -> None:
    """Lock byte 0, as Java's FileLock does; the lock is the open file's, and ends with it."""
    request = struct.pack("hhqqi4x", fcntl.F_WRLCK, 0, 0, 1, 0)
    fcntl.fcntl(lock, fcntl.F_OFD_SETLK, request)


def leave_abort(root: Path) -> None:
    """Leave the file by which a broker knows that the last one did not stop in order."""
    (root / "abort").write_bytes(b"by hand")


def checkpoint(root: Path) -> tuple[int, int, int]:
    """Return what the checkpoint says: of CommitLog, ConsumeQueue and index, in ms."""
    return page_times((root / "checkpoint").read_bytes())


def page_times(page: bytes) -> tuple[int, int, int]:
    """Return what a checkpoint's page says: of CommitLog, ConsumeQueue and index, in ms."""
    log, queues, index = struct.unpack(">qqq", page[:24])
    return log, queues, index


def set_checkpoint(root: Path, log_ms: int, queues_ms: int, index_ms: int) -> None:
    """Say so in the checkpoint."""
    page = bytearray((root / "checkpoint").read_bytes().ljust(PAGE_BYTES, b"\0"))
    page[:24] = struct.pack(">qqq", log_ms, queues_ms, index_ms)
    (root / "checkpoint").write_bytes(page)


def header_end_ms(data: bytes) -> int:
    """Return the store time of the last message in an IndexFile."""
    found: int = struct.unpack(">q", data[8:16])[0]
    return found


def _log(root: Path) -> list[Path]:
    return sorted((root / "commitlog").iterdir())


def _put(root: Path, physical_offset: int, data: bytes) -> None:
    size = _log(root)[0].stat().st_size
    path = root / "commitlog" / f"{physical_offset // size * size:020d}"
    with path.open("r+b") as out:
        out.seek(physical_offset % size)
        out.write(data)
