"""The units of a ConsumeQueue in RocksDB, by queue and queue offset.

Reference: RocksDBConsumeQueueTable, RocksDBConsumeQueueOffsetTable.
"""

from collections.abc import Sequence
from contextlib import suppress
from typing import Final

import numpy as np

from mqstore.errors import CorruptStoreError, UnsupportedStoreError
from mqstore.files.base.folder import Folder
from mqstore.files.base.store_dir import BY_LOG, ROCKSDB_CONSUME_QUEUE
from mqstore.files.queue.consume_queue import MOST_QUEUES
from mqstore.files.rocksdb.database import RocksDatabase
from mqstore.format import names
from mqstore.format.arrays import Int64s, Structs, TopicQueue
from mqstore.format.consume_queue import HIGHEST_QUEUE_OFFSET, UNIT
from mqstore.format.rocksdb_queue import (
    CHECKPOINT_TOPIC,
    EDGE_FAMILY,
    KEY_END,
    ROCKSDB_EDGE,
    ROCKSDB_UNIT,
    UNIT_FAMILY,
    checkpoint_key,
    parse_edge,
    unit_key,
    unit_keys,
)

_OF_A_UNIT: Final = ("physical_offset", "size", "tags_code")


class UnitTable:
    """Reads units by queue and queue offset; opened again when it is needed after ``close``."""

    def __init__(self, root: Folder, path: str) -> None:
        """``root/path`` is the database's folder. Raises as RocksDatabase."""
        self._root, self._path = root, path
        self._database: RocksDatabase | None = None
        self.where = f"{root}/{path}"

    def close(self) -> None:
        """Close the database; a later read opens it again."""
        if self._database is not None:
            self._database.close()
        self._database = None

    @property
    def database(self) -> RocksDatabase:
        """The open database."""
        if self._database is None:
            self._database = RocksDatabase(
                self._root, self._path, ROCKSDB_CONSUME_QUEUE, f". {BY_LOG}"
            )
        return self._database

    def ends(self) -> dict[TopicQueue, int]:
        """Return for each queue the queue offset behind its last message.

        What is of no form that a broker writes is left out. Raises CorruptStoreError,
        UnsupportedStoreError for more than a million queues.
        """
        found: dict[TopicQueue, int] = {}
        for key, value in self.database.items(EDGE_FAMILY):
            edge = parse_edge(key)
            if edge is None or not edge.is_last or len(value) != ROCKSDB_EDGE.itemsize:
                continue
            with suppress(UnicodeDecodeError):
                queue = edge.topic.decode(), edge.queue_id
                end = int(np.frombuffer(value, ROCKSDB_EDGE)["queue_offset"][0]) + 1
                if _is_possible(queue) and 0 < end <= HIGHEST_QUEUE_OFFSET + 1:
                    found[queue] = end
            if len(found) > MOST_QUEUES:
                reason = f"more than {MOST_QUEUES} queues"
                raise UnsupportedStoreError(self._root.name, "TOO_LARGE", reason)
        return found

    def checkpoint(self) -> int:
        """Return the physical offset behind the last record with a unit; 0 if it is not known."""
        value = self.database.get(EDGE_FAMILY, checkpoint_key())
        if value is None or len(value) != KEY_END.itemsize:
            return 0
        return max(0, int(np.frombuffer(value, KEY_END)[0]))

    def first(self, queue: TopicQueue, start: int, end: int) -> int | None:
        """Return the first queue offset of [start, end) that has a unit; None if none has."""
        numbers, _ = self._rows(queue, start, end, 1)
        return int(numbers[0]) if len(numbers) else None

    def last(self, queue: TopicQueue, start: int, end: int) -> int | None:
        """Return the last queue offset of [start, end) that has a unit; None if none has."""
        keys = unit_keys(*queue)
        found = self.database.last_key(UNIT_FAMILY, unit_key(keys, end - 1))
        if found is None or not unit_key(keys, start) <= found < unit_key(keys, end):
            return None
        return int(self._numbers(keys, [found])[0])

    def units(self, queue: TopicQueue, start: int, end: int) -> Structs:
        """Return the units from ``start`` on that follow each other, at most up to ``end``."""
        numbers, units = self._rows(queue, start, end, end - start)
        dense = numbers == np.arange(start, start + len(numbers))
        return units if dense.all() else units[: int(np.argmin(dense))]

    def _rows(self, queue: TopicQueue, start: int, end: int, most: int) -> tuple[Int64s, Structs]:
        """Return queue offsets of [start, end) that have a unit, and the units."""
        keys = unit_keys(*queue)
        low, high = unit_key(keys, start), unit_key(keys, end)
        rows = self.database.values(UNIT_FAMILY, low, high, most)
        if any(len(value) != ROCKSDB_UNIT.itemsize for _, value in rows):
            reason = f"a unit of {queue[0]}/{queue[1]} has not {ROCKSDB_UNIT.itemsize} bytes"
            raise CorruptStoreError(self.where, 0, reason)
        found = np.frombuffer(b"".join(value for _, value in rows), ROCKSDB_UNIT)
        units = np.zeros(len(found), UNIT)
        for name in _OF_A_UNIT:
            units[name] = found[name]
        return self._numbers(keys, [key for key, _ in rows]), units

    def _numbers(self, keys: bytes, found: Sequence[bytes]) -> Int64s:
        """Return the queue offsets of keys of one queue."""
        if any(len(key) != len(keys) + KEY_END.itemsize for key in found):
            raise CorruptStoreError(self.where, 0, "a key is longer than that of a unit")
        ends = b"".join(key[len(keys) :] for key in found)
        return np.frombuffer(ends, KEY_END).astype(np.int64)


def _is_possible(queue: TopicQueue) -> bool:
    topic, queue_id = queue
    is_queue = names.is_topic(topic) and 0 <= queue_id <= names.MAX_QUEUE_ID
    return is_queue and topic != CHECKPOINT_TOPIC
