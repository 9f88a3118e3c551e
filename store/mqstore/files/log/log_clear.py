"""Clear bytes behind the end of a CommitLog that are no records, and keep a copy of them.

A broker that cut its log leaves what it cut off. Should a later record end just where an old one
starts, the old one would come back to life.

Reference: MappedFileQueue#truncateDirtyFiles, which zeroes nothing.
"""

import os

from mqstore.files import durable
from mqstore.files.mapped_file_queue import MappedFileQueue
from mqstore.files.new_file import opened, wipe
from mqstore.files.store_dir import StoreDir
from mqstore.files.undo import Undo, make_directories
from mqstore.format.names import OURS

_FOLDER = f"{OURS}/quarantine"
_CHUNK_BYTES = 1 << 20


def scrub(store: StoreDir, low: int, high: int, undo: Undo) -> None:
    """Zero physical offsets [low, high); a copy is left as ``.mqlog/quarantine/<low>``."""
    make_directories(store.root, _FOLDER, undo)
    files = MappedFileQueue.list([(folder, "") for folder in store.commit_log]).files
    for file in files:
        begin, end = max(low, file.start), min(high, file.end)
        if begin < end:
            copy = f"{store.root}/{_FOLDER}/{begin:020d}"
            _move(file.name, begin - file.start, end - begin, copy, undo)


def clear(store: StoreDir, low: int, high: int) -> None:
    """Zero physical offsets [low, high) for good: what was there is staged as well."""
    for file in MappedFileQueue.list([(folder, "") for folder in store.commit_log]).files:
        begin, end = max(low, file.start), min(high, file.end)
        if begin < end:
            wipe(file.name, begin - file.start, end - begin)


def remove_files_behind(store: StoreDir, tail: int) -> None:
    """Remove the CommitLog files behind ``tail``, which are empty, but for the next one.

    A broker that closed cleanly looks for the end of the log in its last three files, and takes
    the start of an empty one for it.
    """
    files = MappedFileQueue.list([(folder, "") for folder in store.commit_log]).files
    for file in reversed([file for file in files if file.start > tail][1:]):
        durable.unlink(file.name)
        durable.fsync_directory(file.folder)


def _move(path: str, position: int, size: int, copy: str, undo: Undo) -> None:
    durable.unlink(copy)
    undo.remember(lambda: durable.unlink(copy))
    fd = durable.create(copy)
    try:
        _copy(path, position, size, fd, 0)
        durable.fsync(fd)
    finally:
        durable.close(fd)

    def restore() -> None:
        with opened(path) as target:
            _copy(copy, 0, size, target, position)
            durable.fsync(target)

    undo.remember(restore)
    with opened(path) as source:
        durable.write_zeros(source, position, size)
        durable.fsync(source)


def _copy(path: str, position: int, size: int, target: int, at: int) -> None:
    with opened(path) as source:
        for begin in range(0, size, _CHUNK_BYTES):
            data = os.pread(source, min(_CHUNK_BYTES, size - begin), position + begin)
            durable.write_at(target, data, at + begin)
