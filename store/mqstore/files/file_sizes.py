"""The fixed sizes of a store's files: what its files tell, else what was noted when we made it.

An empty store has no file that tells; ``.mqlog/store.json`` keeps the sizes it was created with,
so that the first write, whenever it comes, makes the files that broker.conf says.

Reference: MessageStoreConfig#mappedFileSizeCommitLog, #mappedFileSizeConsumeQueue,
#maxHashSlotNum, #maxIndexNum.
"""

import json
from collections.abc import Sequence
from dataclasses import dataclass, fields
from typing import Final

from mqstore.files.config import bounded_json
from mqstore.files.config.config_write import read_small
from mqstore.files.index.index_file import IndexFile, Layout, list_index_files
from mqstore.files.mapped_file_queue import MappedFileQueue, check_sizes
from mqstore.files.queue.consume_queue import ConsumeQueue, each_queue
from mqstore.files.store_dir import StoreDir
from mqstore.format.index_file import file_size
from mqstore.format.names import OURS

NOTE: Final = f"{OURS}/store.json"


@dataclass(frozen=True, slots=True)
class KnownFileSizes:
    """Bytes of a CommitLog and of a ConsumeQueue file, layout of an IndexFile; None: unknown."""

    commit_log: int | None = None
    consume_queue: int | None = None
    max_hash_slot_num: int | None = None
    max_index_num: int | None = None


@dataclass(frozen=True, slots=True)
class FileSizes:
    """The sizes of files that a write makes, in bytes; slots and units of its IndexFiles."""

    commit_log: int
    consume_queue: int
    max_hash_slot_num: int
    max_index_num: int


def find_sizes(store: StoreDir) -> KnownFileSizes:
    """Return the sizes that the store has. Raises CorruptStoreError where its files differ."""
    log = MappedFileQueue.list([(folder, "") for folder in store.commit_log])
    return known_sizes(store.root, log, list_index_files(store.root))


def known_sizes(
    root: str, log: MappedFileQueue, index_files: Sequence[IndexFile]
) -> KnownFileSizes:
    """Return the sizes of the store with that CommitLog and those IndexFiles.

    Raises CorruptStoreError if the CommitLog's files are not all of one size.
    """
    check_sizes([log])
    noted = _noted(root)
    layout = _index_layout(index_files, noted)
    return KnownFileSizes(
        commit_log=log.files[0].size if log.files else noted.commit_log,
        consume_queue=_consume_queue(root) or noted.consume_queue,
        max_hash_slot_num=layout.slots if layout else noted.max_hash_slot_num,
        max_index_num=layout.units if layout else noted.max_index_num,
    )


def note(sizes: KnownFileSizes) -> bytes:
    """Return what ``.mqlog/store.json`` is to hold."""
    values = {field.name: getattr(sizes, field.name) for field in fields(KnownFileSizes)}
    return json.dumps(values, indent=2).encode()


def _consume_queue(root: str) -> int | None:
    for topic, queue_id in each_queue(root):
        files = ConsumeQueue(root, topic, queue_id).files.files
        if files:
            return files[0].size
    return None


def _index_layout(files: Sequence[IndexFile], noted: KnownFileSizes) -> Layout | None:
    slots, units = noted.max_hash_slot_num, noted.max_index_num
    for file in reversed(files):
        if slots and units and file.size == file_size(slots, units):
            return Layout(slots, units)
        if file.layout:
            return file.layout
    return None


def _noted(root: str) -> KnownFileSizes:
    data = read_small(root, NOTE)
    try:
        found = bounded_json.loads(data.decode()) if data else {}
    except ValueError:
        return KnownFileSizes()
    values = {
        field.name: value
        for field in fields(KnownFileSizes)
        if isinstance(found, dict) and _is_size(value := found.get(field.name))
    }
    return KnownFileSizes(**values)


def _is_size(value: object) -> bool:
    return type(value) is int and 0 < value < 2**31
