"""Tables of a broker's configuration in RocksDB (storeType=defaultRocksDB).

A table lies in a database of its own, or since 5.5 in a column family of config/metadata
(useSingleRocksDBForAllConfigs). Keys are names, values JSON. Each table has a version that counts
up. A broker that finds a JSON file, or a database of its own, with a higher one takes that over.

Reference: RocksDBConfigManager, RocksDBTopicConfigManager#merge, #migrateFromSeparateRocksDBs,
RocksDBSubscriptionGroupManager, RocksDBConsumerOffsetManager.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final

from mqstore.errors import CorruptConfigError, CorruptStoreError, UnsupportedStoreError
from mqstore.files.config.config_text import parse_object
from mqstore.files.rocksdb.database import RocksDatabase, has_database
from mqstore.files.store_dir import StoreDir
from mqstore.format import config, names

ROCKSDB_CONFIG: Final = "ROCKSDB_CONFIG"

_ALL_TABLES: Final = "metadata"
_VERSION_KEY: Final = b"kvDataVersionKey"
_OF_V2: Final = "rdb"


@dataclass(frozen=True, slots=True)
class RocksTable:
    """Where a table may lie: its own database below config/, or a column family of metadata."""

    folder: str
    family: str


TOPIC_TABLE: Final = RocksTable("topics", "topic")
GROUP_TABLE: Final = RocksTable("subscriptionGroups", "subscriptionGroup")
OFFSET_TABLE: Final = RocksTable("consumerOffsets", "consumerOffset")


@dataclass(frozen=True, slots=True)
class TableContent:
    """One table: JSON texts by key, how often it was changed, and where it lies below config/."""

    texts: Mapping[str, bytes]
    counter: int
    folder: str
    path: str

    def entries(self) -> dict[str, dict[str, Any]]:
        """Return the objects by key. Raises CorruptConfigError."""
        return {
            key: parse_object(text.decode(errors="replace"), self.path)
            for key, text in self.texts.items()
        }


def newest_table(place: StoreDir, table: RocksTable) -> TableContent | None:
    """Return the content of a table; None if it is not in RocksDB.

    Raises UnsupportedStoreError without the package that reads RocksDB, and for the form
    of configManagerVersion=v2; CorruptConfigError, UnsafePathError.
    """
    if has_database(place.root, f"{names.CONFIG}/{_OF_V2}"):
        reason = (
            f"{names.CONFIG}/{_OF_V2} is configuration of configManagerVersion=v2, which mqlog "
            "does not read (a broker exports it as JSON files: mqadmin rocksDBConfigToJson)"
        )
        raise UnsupportedStoreError(place.root, ROCKSDB_CONFIG, reason)
    found = [
        _content(place, *where)
        for where in (
            (_ALL_TABLES, table.family, f"{table.family}Version"),
            (table.folder, "default", "kvDataVersion"),
        )
        if has_database(place.root, f"{names.CONFIG}/{where[0]}")
    ]
    return max(found, key=lambda content: content.counter, default=None)


def counter_of(version: object) -> int:
    """Return how often a table was changed, as its dataVersion says; 0 if it does not."""
    counter = version.get("counter") if isinstance(version, dict) else None
    return counter if type(counter) is int else 0


def _content(place: StoreDir, folder: str, family: str, versions: str) -> TableContent:
    path = f"{names.CONFIG}/{folder}"
    where = f"{place.root}/{path}"
    try:
        with RocksDatabase(place.root, path, ROCKSDB_CONFIG) as database:
            texts = _bounded(database.items(family), where)
            version = database.get(versions, _VERSION_KEY) or b"{}"
    except CorruptStoreError as error:
        raise CorruptConfigError(*error.args) from error
    except FileNotFoundError as error:
        reason = "RocksDB cannot read this database: its files vanish"
        raise CorruptConfigError(where, 0, reason) from error
    counter = counter_of(parse_object(version.decode(errors="replace"), where))
    return TableContent(texts, counter, folder, where)


def _bounded(items: Iterator[tuple[bytes, bytes]], where: str) -> dict[str, bytes]:
    texts, size = {}, 0
    for key, value in items:
        texts[key.decode(errors="replace")] = value
        size += len(key) + len(value)
        if size > config.MAX_CONFIG_BYTES:
            reason = f"more than {config.MAX_CONFIG_BYTES} bytes"
            raise CorruptConfigError(where, 0, reason)
    return texts
