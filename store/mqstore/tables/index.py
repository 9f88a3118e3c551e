"""The entries of the IndexFiles: which key's hash leads to which record.

Keys themselves are not in an IndexFile. With ``hashes`` only the entries of those are given,
found by their slots; without, files are read from one end to the other, a chunk at a time.

Reference: org.apache.rocketmq.store.index.IndexFile#putKey, #selectPhyOffset.
"""

import logging
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
import pyarrow as pa

from mqstore.codec.decode import timestamps
from mqstore.codec.schema import TIMESTAMP
from mqstore.errors import CorruptStoreError
from mqstore.files.base.file_sizes import Layout
from mqstore.files.index.index_file import IndexFile
from mqstore.files.store import Store
from mqstore.format import names
from mqstore.format.index_file import FIRST_UNIT
from mqstore.read.lookup import hashes_of
from mqstore.tables.choice import StoreRoot, Window
from mqstore.tables.columns import BROKER_NAME, Columns, schema
from mqstore.tables.table import BY_TIME, BY_TOPIC, Table, TableRequest

COLUMNS: Final[Columns] = (
    BROKER_NAME,
    ("file", pa.string(), False, "name of the IndexFile"),
    ("unit", pa.int32(), False, "number of the entry; the first is 1"),
    ("slot", pa.int32(), False, "slot of the hash"),
    ("keyHash", pa.int32(), False, "hash of topic#key"),
    ("physicalOffset", pa.int64(), False, "byte of the CommitLog where the record starts"),
    ("storeTimestamp", TIMESTAMP, False, "whole seconds after the first entry"),
    ("previousUnit", pa.int32(), False, "next older entry of the slot; 0 ends the chain"),
)
SCHEMA: Final = schema(COLUMNS)

_LOG = logging.getLogger(__name__)
_NO_FILES: Final = (
    "%s has no IndexFile: its broker may keep the index of keys in %s (indexRocksDBEnable), whose "
    "entries are no rows of this table; messages by key are found by a scan"
)
_CHUNK_UNITS: Final = 50_000
_TASK_UNITS: Final = 5_000_000


@dataclass(frozen=True, slots=True)
class IndexPart:
    """Units [start, end) of one IndexFile, or those of ``hashes``. Pickles into a task."""

    broker_name: str
    file: IndexFile
    start: int
    end: int
    window: Window
    hashes: tuple[int, ...] | None

    def batches(self, _columns: Sequence[str]) -> Iterator[pa.RecordBatch]:
        """Yield the entries, oldest first; those of hashes newest first, hash by hash."""
        layout = self.file.layout
        if layout is None:  # It was there when this was planned.
            raise _unreadable(self.file)
        if self.hashes is not None:
            for key_hash in self.hashes:
                for number in self.file.chain(key_hash):
                    yield from self._rows(layout, number, number + 1, key_hash)
            return
        for start in range(self.start, self.end, _CHUNK_UNITS):
            yield from self._rows(layout, start, min(start + _CHUNK_UNITS, self.end), None)

    def _rows(
        self, layout: Layout, start: int, end: int, key_hash: int | None
    ) -> Iterator[pa.RecordBatch]:
        units = self.file.units(start, end)
        hashes = units["key_hash"].astype(np.int64)
        # As IndexFile#selectPhyOffset: what a broker takes for the time of the entry.
        begin = np.int64(self.file.header["begin_timestamp_ms"])
        times = begin + 1000 * units["time_diff_s"].astype(np.int64)
        kept = np.ones(len(units), np.bool_)
        if key_hash is not None:
            kept &= hashes == key_hash
        if self.window.start_ms is not None:
            kept &= times >= self.window.start_ms
        if self.window.end_ms is not None:
            kept &= times < self.window.end_ms
        rows = np.flatnonzero(kept)
        if not len(rows):
            return
        arrays = [
            pa.repeat(pa.scalar(self.broker_name), len(rows)),
            pa.repeat(pa.scalar(self.file.name), len(rows)),
            pa.array((rows + start).astype(np.int32)),
            pa.array((hashes[rows] % layout.slots).astype(np.int32)),
            pa.array(hashes[rows].astype(np.int32)),
            pa.array(units["physical_offset"][rows].astype(np.int64)),
            timestamps(times[rows]),
            pa.array(units["previous"][rows].astype(np.int32)),
        ]
        yield pa.RecordBatch.from_arrays(arrays, schema=SCHEMA)


def plan(
    store: StoreRoot,
    window: Window,
    hashes: Sequence[int] | None = None,
    *,
    on_corrupt: str = "fail",
) -> list[IndexPart]:
    """Return the parts of a store's IndexFiles, large files cut.

    Raises CorruptStoreError for a file that no number of slots fits, unless ``on_corrupt`` says
    to pass it by.
    """
    parts = []
    wanted = None if hashes is None else tuple(hashes)
    files = Store(store.place).index_files
    if not files and store.place.folder.exists(f"{names.ROCKSDB_STORE}/CURRENT"):
        _LOG.warning(_NO_FILES, store.place.root, names.ROCKSDB_STORE)
    for file in files:
        if file.count <= FIRST_UNIT or _is_outside(file, window):
            continue
        if file.layout is None:
            if on_corrupt == "fail":
                raise _unreadable(file)
            continue
        end = min(file.count, file.layout.units)
        step = end if wanted is not None else _TASK_UNITS
        parts += [
            IndexPart(
                store.broker_name,
                IndexFile(file.place, file.name, file.size),
                start,
                min(start + step, end),
                window,
                wanted,
            )
            for start in range(FIRST_UNIT, end, step)
        ]
    return parts


def _is_outside(file: IndexFile, window: Window) -> bool:
    begin = int(file.header["begin_timestamp_ms"])
    # The last entry's time is rounded down to a second after the first; its file's is not.
    end = int(file.header["end_timestamp_ms"])
    early = window.start_ms is not None and end < window.start_ms
    return early or (window.end_ms is not None and begin >= window.end_ms)


def _unreadable(file: IndexFile) -> CorruptStoreError:
    return CorruptStoreError(file.path, 0, "no number of slots fits what the file holds")


def _planned(request: TableRequest) -> list[IndexPart]:
    stores, hashes = request.stores, None
    if request.keys:
        hashes = hashes_of(filter(stores.topic_test(), stores.topics), request.keys)
    return [
        part
        for root in request.roots()
        for part in plan(root, request.window, hashes, on_corrupt=request.on_corrupt)
    ]


INDEX_ENTRIES: Final = Table(
    "index",
    COLUMNS,
    _planned,
    options=BY_TOPIC | BY_TIME | {"keys"},
    of_files="a broker lists no entries of its IndexFiles, and nothing else tells their files and "
    "numbers; to find messages by key, read the table messages with the option keys, and its "
    "columns keys, storeTimestamp and physicalOffset",
)
