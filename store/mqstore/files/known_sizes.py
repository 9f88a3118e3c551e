"""The fixed sizes of a store's files: those of the files it has, else of ``.mqlog/store.json``.

An empty store has no files; ``.mqlog/store.json`` holds the sizes it was created with, so that
the first write, whenever it comes, makes files of the sizes in broker.conf.

Reference: MessageStoreConfig#mappedFileSizeCommitLog, #mappedFileSizeConsumeQueue,
#maxHashSlotNum, #maxIndexNum.
"""

import json
from collections.abc import Sequence
from dataclasses import asdict, fields
from typing import Final

from mqstore.files.base import bounded_json
from mqstore.files.base.file_sizes import FileSizes, KnownFileSizes, Layout
from mqstore.files.base.mapped_file_queue import MappedFileQueue, check_sizes
from mqstore.files.base.store_dir import StoreDir
from mqstore.files.index.index_file import IndexFile
from mqstore.files.queue.consume_queue import ConsumeQueue, each_queue
from mqstore.format import index_file
from mqstore.format.consume_queue import UNIT
from mqstore.format.names import OURS

NOTE: Final = f"{OURS}/store.json"


def known_sizes(
    place: StoreDir, log: MappedFileQueue, index_files: Sequence[IndexFile]
) -> KnownFileSizes:
    """Return the sizes of the store with that CommitLog and those IndexFiles.

    Raises CorruptStoreError if the CommitLog's files are not all of one size.
    """
    check_sizes([log])
    noted = noted_sizes(place)
    layout = _index_layout(index_files, noted)
    return KnownFileSizes(
        commit_log=log.files[0].size if log.files else noted.commit_log,
        consume_queue=_consume_queue(place) or noted.consume_queue,
        max_hash_slot_num=layout.slots if layout else noted.max_hash_slot_num,
        max_index_num=layout.units if layout else noted.max_index_num,
    )


def note(sizes: FileSizes) -> bytes:
    """Return the content of ``.mqlog/store.json``."""
    return json.dumps(asdict(sizes), indent=2).encode()


def _consume_queue(place: StoreDir) -> int | None:
    """Return the bytes of a file that can have been a broker's; of the first of the first queue."""
    for topic, queue_id in each_queue(place):
        for file in ConsumeQueue(place, topic, queue_id).files.files:
            if not file.size % UNIT.itemsize:
                return file.size
    return None


def _index_layout(files: Sequence[IndexFile], noted: KnownFileSizes) -> Layout | None:
    slots, units = noted.max_hash_slot_num, noted.max_index_num
    for file in reversed(files):
        if slots and units and file.size == index_file.file_size(slots, units):
            return Layout(slots, units)
        if file.layout:
            return file.layout
    return None


def noted_sizes(place: StoreDir) -> KnownFileSizes:
    """Return what ``.mqlog/store.json`` says; nothing where it cannot be parsed."""
    data = place.folder.read_small(NOTE)
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
