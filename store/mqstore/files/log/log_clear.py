"""Change what the CommitLog holds: clear bytes behind its end, and correct records of ours.

A broker that cut its log leaves the bytes that it cut off. Should a later record end just where
an old one starts, the old one would count again. Only a recovery corrects records, namely those
of an unpublished commit that a broker brought to life; the body's CRC covers neither the fields
that ``amend`` sets nor the bytes behind the body.

Reference: MappedFileQueue#truncateDirtyFiles, which zeroes nothing.
"""

import os

import numpy as np

from mqstore.files.base import durable
from mqstore.files.base.mapped_file_queue import MappedFileQueue
from mqstore.files.base.new_file import opened, wipe
from mqstore.files.base.store_writer import StoreWriter
from mqstore.files.log.commit_log import CommitLog
from mqstore.format.message import HEADER
from mqstore.format.names import OURS

_QUARANTINE = f"{OURS}/quarantine"
_CHUNK_BYTES = 1 << 20


def quarantine(writer: StoreWriter, low: int, high: int) -> None:
    """Zero physical offsets [low, high); a copy is left as ``.mqlog/quarantine/<low>``."""
    writer.make_directories(_QUARANTINE)
    for file in _log_files(writer).files:
        begin, end = max(low, file.start), min(high, file.end)
        if begin < end:
            copy = writer.path(f"{_QUARANTINE}/{begin:020d}")
            _move(writer, file.name, begin - file.start, end - begin, copy)


def clear(writer: StoreWriter, low: int, high: int) -> None:
    """Zero physical offsets [low, high) for good: the messages that were there are staged."""
    for file in _log_files(writer).files:
        begin, end = max(low, file.start), min(high, file.end)
        if begin < end:
            wipe(file.name, begin - file.start, end - begin)


def remove_files_behind(writer: StoreWriter, tail: int) -> None:
    """Remove the CommitLog files behind ``tail``, which are empty, but for the next one.

    A broker that closed cleanly looks for the end of the log in its last three files, and takes
    the start of an empty one for it.
    """
    files = _log_files(writer).files
    for file in reversed([file for file in files if file.start > tail][1:]):
        durable.unlink(file.name)
        durable.fsync_directory(file.folder.name)


def restore(log: CommitLog, physical_offset: int, record: bytes) -> None:
    """Write a record of ours again to its place, durably. Raises OSError, UnsafePathError."""
    path, position = log.where(physical_offset)
    with opened(path) as fd:
        durable.write_at(fd, record, position)
        durable.fsync(fd)


def amend(log: CommitLog, physical_offset: int, field: str, value: int) -> None:
    """Set one field of a record's header, durably. Raises OSError, UnsafePathError."""
    kind, at = HEADER.fields[field][:2]  # type: ignore[index]
    restore(log, physical_offset + at, np.array(value, kind).tobytes())


def _log_files(writer: StoreWriter) -> MappedFileQueue:
    return MappedFileQueue.list(writer.place.commit_log)


def _move(writer: StoreWriter, path: str, position: int, size: int, copy: str) -> None:
    durable.unlink(copy)
    writer.undo.remember(lambda: durable.unlink(copy))
    fd = durable.create(copy)
    try:
        _copy(path, position, size, fd, 0)
        durable.fsync(fd)
    finally:
        durable.close(fd)

    def move_back() -> None:
        with opened(path) as target:
            _copy(copy, 0, size, target, position)
            durable.fsync(target)

    writer.undo.remember(move_back)
    with opened(path) as source:
        durable.write_zeros(source, position, size)
        durable.fsync(source)


def _copy(path: str, position: int, size: int, target: int, at: int) -> None:
    with opened(path) as source:
        for begin in range(0, size, _CHUNK_BYTES):
            data = os.pread(source, min(_CHUNK_BYTES, size - begin), position + begin)
            durable.write_at(target, data, at + begin)
