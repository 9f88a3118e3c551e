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
from mqstore.files.base.store_dir import StoreDir
from mqstore.files.config.config_text import parse_object
from mqstore.files.rocksdb.database import RocksDatabase, check_installed, has_database
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


TABLE_OF: Final[Mapping[str, RocksTable]] = {
    config.TOPICS: RocksTable("topics", "topic"),
    config.SUBSCRIPTION_GROUP: RocksTable("subscriptionGroups", "subscriptionGroup"),
    config.CONSUMER_OFFSET: RocksTable("consumerOffsets", "consumerOffset"),
}
"""The tables that stand for files of config/."""
TABLE_KEY: Final[Mapping[str, str]] = {
    config.TOPICS: "topicConfigTable",
    config.SUBSCRIPTION_GROUP: "subscriptionGroupTable",
    config.CONSUMER_OFFSET: "offsetTable",
}
"""Where the files have them."""


@dataclass(frozen=True, slots=True)
class TableContent:
    """One table: JSON texts by key, its dataVersion, and where it lies below config/."""

    texts: Mapping[str, bytes]
    version: Mapping[str, Any]
    folder: str
    path: str

    @property
    def counter(self) -> int:
        """How often it was changed."""
        return counter_of(self.version)

    def entries(self) -> dict[str, dict[str, Any]]:
        """Return the objects by key. Raises CorruptConfigError."""
        return {
            key: parse_object(text.decode(errors="replace"), self.path)
            for key, text in self.texts.items()
        }

    def document(self, name: str) -> dict[str, Any]:
        """Return what the file ``name`` of config/ would be. Raises CorruptConfigError.

        Its dataVersion counts 1 at least, as brokers with RocksDB take over no file of version 0.
        """
        table: dict[str, Any] = self.entries()
        if name == config.CONSUMER_OFFSET:
            table = {key: entry.get(TABLE_KEY[name]) for key, entry in table.items()}
            table = {key: queues for key, queues in table.items() if isinstance(queues, dict)}
        version = {"stateVersion": 0, "timestamp": 0} | dict(self.version)
        return {TABLE_KEY[name]: table, "dataVersion": version | {"counter": max(self.counter, 1)}}


@dataclass(frozen=True, slots=True)
class TablePlace:
    """A database below config/, and the column families of a table and of its version."""

    folder: str
    family: str
    versions: str


def newest_table(place: StoreDir, table: RocksTable) -> TableContent | None:
    """Return the content of a table; None if it is not in RocksDB.

    Raises UnsupportedStoreError without the package that reads RocksDB, and for the form
    of configManagerVersion=v2; CorruptConfigError, UnsafePathError.
    """
    if has_database(place.folder, f"{names.CONFIG}/{_OF_V2}"):
        reason = (
            f"{names.CONFIG}/{_OF_V2} is configuration of configManagerVersion=v2, which mqlog "
            "does not read (a broker exports it as JSON files: mqadmin rocksDBConfigToJson)"
        )
        raise UnsupportedStoreError(place.root, ROCKSDB_CONFIG, reason)
    found = [read_table(place, where) for where in table_places(place, table)]
    return max(found, key=lambda content: content.counter, default=None)


def table_places(place: StoreDir, table: RocksTable) -> list[TablePlace]:
    """Return where the table may lie, of the databases that are there."""
    both = (
        TablePlace(_ALL_TABLES, table.family, f"{table.family}Version"),
        TablePlace(table.folder, "default", "kvDataVersion"),
    )
    return [one for one in both if has_database(place.folder, f"{names.CONFIG}/{one.folder}")]


def config_databases(place: StoreDir) -> list[str]:
    """Return the folders below config/ with a database, sorted.

    Raises UnsupportedStoreError without the package that reads those with tables.
    """
    folders = [name for name, kind, _ in place.folder.survey(names.CONFIG) if kind == "directory"]
    found = [name for name in folders if has_database(place.folder, f"{names.CONFIG}/{name}")]
    if any(table_places(place, table) for table in TABLE_OF.values()):
        check_installed(f"{place.root}/{names.CONFIG}", ROCKSDB_CONFIG)
    return found


def counter_of(version: object) -> int:
    """Return how often a table was changed, as its dataVersion says; 0 if it does not."""
    counter = version.get("counter") if isinstance(version, dict) else None
    return counter if type(counter) is int else 0


def read_table(place: StoreDir, where: TablePlace) -> TableContent:
    """Return the content of a table in one database. Raises as ``newest_table``."""
    path = f"{names.CONFIG}/{where.folder}"
    name = f"{place.root}/{path}"
    try:
        with RocksDatabase(place.folder, path, ROCKSDB_CONFIG) as database:
            texts = _bounded(database.items(where.family), name)
            version = database.get(where.versions, _VERSION_KEY) or b"{}"
    except CorruptStoreError as error:
        raise CorruptConfigError(*error.args) from error
    except FileNotFoundError as error:
        reason = "RocksDB cannot read this database: its files vanish"
        raise CorruptConfigError(name, 0, reason) from error
    found = parse_object(version.decode(errors="replace"), name)
    return TableContent(texts, found, where.folder, name)


def _bounded(items: Iterator[tuple[bytes, bytes]], where: str) -> dict[str, bytes]:
    texts, size = {}, 0
    for key, value in items:
        texts[key.decode(errors="replace")] = value
        size += len(key) + len(value)
        if size > config.MAX_CONFIG_BYTES:
            reason = f"more than {config.MAX_CONFIG_BYTES} bytes"
            raise CorruptConfigError(where, 0, reason)
    return texts
