"""Sizes of the files beside a damaged CommitLog: those that most of them have."""

from collections import Counter
from collections.abc import Iterator
from contextlib import suppress
from itertools import islice
from typing import Final

from mqstore.errors import StoreError
from mqstore.files.base.file_sizes import FileSizes, KnownFileSizes, Layout
from mqstore.files.base.store_dir import StoreDir
from mqstore.files.index.index_file import list_index_files
from mqstore.files.known_sizes import noted_sizes
from mqstore.files.queue.consume_queue import each_queue
from mqstore.format import names
from mqstore.format.consume_queue import UNIT

_LOOKED_AT_QUEUES: Final = 1_000


def sizes_of(place: StoreDir, commit_log: int) -> FileSizes:
    """Return the sizes of files for the new store; RocketMQ's own where nothing tells."""
    noted, layout = noted_sizes(place), _layout(place)
    return KnownFileSizes(
        commit_log=commit_log,
        consume_queue=_usual(_queue_sizes(place)) or noted.consume_queue,
        max_hash_slot_num=layout.slots if layout else noted.max_hash_slot_num,
        max_index_num=layout.units if layout else noted.max_index_num,
    ).or_defaults()


def _queue_sizes(place: StoreDir) -> Iterator[int]:
    with suppress(StoreError, OSError):
        for topic, queue_id in islice(each_queue(place), _LOOKED_AT_QUEUES):
            folder = f"{names.CONSUME_QUEUE}/{topic}/{queue_id}"
            for name, kind, size in place.folder.survey(folder):
                start = names.parse_mapped_file_name(name)
                is_file = kind == "file" and start is not None and 0 < size < 2**31
                if is_file and size % UNIT.itemsize == 0 and (start or 0) % size == 0:
                    yield size


def _layout(place: StoreDir) -> Layout | None:
    with suppress(StoreError, OSError, ValueError):
        files = list_index_files(place)
        usual = _usual(file.size for file in files)
        for file in reversed(files):
            if file.size == usual and file.layout:
                return file.layout
    return None


def _usual(sizes: Iterator[int]) -> int | None:
    counted = Counter(sizes)
    return max(counted, key=lambda size: (counted[size], size), default=None)
