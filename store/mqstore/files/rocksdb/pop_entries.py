"""Entries of POP's KV service: messages that were popped and not acknowledged, in RocksDB.

The database ``kvStore`` of a broker with popConsumerKVServiceInit (5.3.2 on) has one entry for each
such message, in the column family ``popState``. Its key, big-endian:

    bytes  field         meaning
    -----  ------------  ---------------------------------------
        8  visible_ms    pop time + invisible time
        …  group @       consumer group
        …  topic @       topic, or the retry topic
        4  queue_id
        1  @
        8  queue_offset

Its value is JSON: popTime in ms, attemptTimes, and what the key says once more. An acknowledgement
deletes the entry; a change of the invisible time puts another one and deletes it. A broker syncs
each write to the write-ahead log, so kill -9 loses none.

Reference: PopConsumerRecord#getKeyBytes, PopConsumerRocksdbStore.
"""

import re
from array import array
from collections.abc import Iterator
from contextlib import closing
from typing import Final

from mqstore.errors import CorruptStoreError, UnsupportedStoreError
from mqstore.files.base import bounded_json
from mqstore.files.base.folder import Folder
from mqstore.files.rocksdb.database import RocksDatabase
from mqstore.format.names import KV_STORE, MAX_QUEUE_ID, is_topic
from mqstore.format.pop import KvEntry, KvPops

POP_KV_STORE: Final = "POP_KV_STORE"
KV_FAMILY: Final = "popState"
MOST_KV_ENTRIES: Final = 10_000_000

_MOST_KV_LOG_BYTES: Final = 640 << 20  # Brokers have at most 4 write buffers of 128 MiB each.
_MOST_KV_VALUE_BYTES: Final = 64 << 10
_MOST_AVERAGE_BYTES: Final = 4 << 10
_MOST_KV_FIELDS: Final = 100
_ENTRY_NUMBERS: Final = 5
_KEY_TIME_BYTES: Final = 8
_KEY_END_BYTES: Final = 14  # @, queueId, @, queue offset
_BEYOND: Final = 2**63
_RAW_SIZES: Final = re.compile(r"# entries=(\d+);.*raw value size=(\d+);", re.DOTALL)
_READ_LIVE: Final = (
    f". {KV_STORE} has the messages that POP groups have not acknowledged; the broker may be read "
    "live instead"
)


class _EntryColumns:
    """Entries in columns, 40 bytes each; iterable, as often as one likes."""

    def __init__(self) -> None:
        self._queues: dict[tuple[str, str, int], int] = {}
        self._columns = array("q")

    def add(self, entry: KvEntry) -> None:
        """Note an entry."""
        name = entry.group, entry.topic, entry.queue_id
        queue = self._queues.setdefault(name, len(self._queues))
        row = (queue, entry.visible_ms, entry.queue_offset, entry.pop_ms, entry.deliveries)
        self._columns.extend(row)

    def __len__(self) -> int:
        return len(self._columns) // _ENTRY_NUMBERS

    def __iter__(self) -> Iterator[KvEntry]:
        names, columns = list(self._queues), self._columns
        for at in range(0, len(columns), _ENTRY_NUMBERS):
            queue, visible, place, popped, deliveries = columns[at : at + _ENTRY_NUMBERS]
            yield KvEntry(visible, *names[queue], place, popped, deliveries)

    @property
    def pairs(self) -> frozenset[tuple[str, str]]:
        """Return the (topic, group) of all entries."""
        return frozenset((topic, group) for group, topic, _ in self._queues)


def has_entries(root: Folder) -> bool:
    """Tell whether the store ``root`` has anything in the folder of the KV service."""
    return bool(root.names(KV_STORE))


def read_entries(root: Folder) -> KvPops:
    """Return the messages that groups popped with the KV service and have not acknowledged.

    As the database is now: its broker may run. It is opened to be read only. Memory: 40 bytes an
    entry, one value of at most 64 KiB, and the write-ahead log, of at most 640 MiB.

    Raises UnsupportedStoreError without the package that reads RocksDB, in an object store, and
    for more entries, a larger log or larger values than are read; CorruptStoreError,
    UnsafePathError, FileNotFoundError.
    """
    found = _EntryColumns()
    database = RocksDatabase(root, KV_STORE, POP_KV_STORE, _READ_LIVE, _MOST_KV_LOG_BYTES)
    with closing(database):
        for entry in _read(database, f"{root}/{KV_STORE}"):
            found.add(entry)
            if len(found) > MOST_KV_ENTRIES:
                reason = f"more than {MOST_KV_ENTRIES:,} entries{_READ_LIVE}"
                raise UnsupportedStoreError(f"{root}/{KV_STORE}", "TOO_LARGE", reason)
        return KvPops(found, found.pairs, is_used=database.writes > 0)


def _read(database: RocksDatabase, where: str) -> Iterator[KvEntry]:
    _check_values(database, where)
    for key, value in database.items(KV_FAMILY):
        found = _parsed(key, value)
        if found is None:
            reason = f"no broker writes an entry of POP with the key {key[:300]!r}"
            raise CorruptStoreError(where, 0, reason)
        yield found


def _check_values(database: RocksDatabase, where: str) -> None:
    """Raise UnsupportedStoreError for values that would take much memory to be looked at."""
    told = _RAW_SIZES.search(database.about(KV_FAMILY, "rocksdb.aggregated-table-properties"))
    if told is None:
        return
    entries, size = map(int, told.groups())
    if size > entries * _MOST_AVERAGE_BYTES + _MOST_KV_VALUE_BYTES:
        reason = f"{entries} entries have values of {size} bytes{_READ_LIVE}"
        raise UnsupportedStoreError(where, "TOO_LARGE", reason)


def _parsed(key: bytes, value: bytes) -> KvEntry | None:
    """Return the message of an entry; None if no broker wrote it."""
    middle, end = key[_KEY_TIME_BYTES:-_KEY_END_BYTES], key[-_KEY_END_BYTES:]
    group, mark, topic = middle.decode(errors="replace").partition("@")
    if not mark or end[:1] + end[5:6] != b"@@" or len(value) > _MOST_KV_VALUE_BYTES:
        return None
    visible_ms, queue_id, queue_offset = (
        int.from_bytes(part, "big", signed=True) for part in (key[:8], end[1:5], end[6:])
    )
    try:
        fields = bounded_json.loads(value.decode(), _MOST_KV_FIELDS)
    except (ValueError, RecursionError):
        return None
    if not isinstance(fields, dict) or not (group and is_topic(topic)):
        return None
    pop_ms, attempts = _number(fields.get("popTime")), _number(fields.get("attemptTimes", 0))
    if pop_ms is None or attempts is None or visible_ms < 0 or queue_offset < 0:
        return None
    if not 0 <= queue_id <= MAX_QUEUE_ID:
        return None
    return KvEntry(visible_ms, group, topic, queue_id, queue_offset, pop_ms, attempts)


def _number(found: object) -> int | None:
    return found if type(found) is int and 0 <= found < _BEYOND else None
