"""Tables that an archive writes to: Delta, Iceberg, and Parquet with Spark's own log of files.

Each has what makes a write of Spark's stream count once:

- Delta: a transaction with the query's id and the number of the micro-batch. Delta skips one that
  is in its log (``txnAppId``, ``txnVersion``; its own sink does the same, without the sort).
- Iceberg: the sink notes query and micro-batch in the snapshot, and skips one that is noted
  (``SparkWrite.StreamingAppend#commit``).
- Parquet: the files of a micro-batch are in ``_spark_metadata`` (``FileStreamSink``).
"""

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from hashlib import sha256
from typing import Any, Final

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.functions import col, partitioning
from pyspark.sql.streaming.query import StreamingQuery
from pyspark.sql.streaming.readwriter import DataStreamWriter
from pyspark.sql.types import StructType

from mqlog_jobs.spark.lake.columns import check_columns, fitted, quoted
from mqlog_jobs.spark.lake.rows import DATE, dated
from mqlog_jobs.spark.lake.topics import named_by_folders
from mqlog_jobs.spark.spark_paths import has_path, names_in
from mqstore.errors import InvalidOptionError

SetUp = Callable[[DataStreamWriter], DataStreamWriter]
_BY_TOPIC: Final = "topic"
_ORDER_IN_FILE: Final = ("brokerName", "queueId", "queueOffset")
_RENAMING: Final = ("", "file", "hdfs", "viewfs", "abfs", "abfss")
"""Schemes of file systems whose rename makes a file appear whole and once."""
_SHORT_NAMES: Final = ("", "file", "hdfs", "viewfs")
"""Schemes of file systems in which a name has 255 bytes at most."""


@dataclass(frozen=True)
class LakeTable(ABC):
    """A table in a lake. ``where`` is its path or, of a catalog, its name."""

    spark: SparkSession
    where: str

    @property
    def is_path(self) -> bool:
        """Whether ``where`` is a path."""
        return "/" in self.where

    @property
    def has_short_names(self) -> bool:
        """Whether the names of its folders have 255 bytes at most, as far as that is known."""
        return self.is_path and _scheme(self.where) in _SHORT_NAMES

    @property
    def name(self) -> str:
        """The table's name for SQL."""
        return self.where

    @property
    def renames(self) -> str:
        """The statement that the table needs before a column can be renamed; empty for none."""
        return ""

    def columns(self) -> StructType:
        """Return its columns, with what is known of each: NOT NULL, a default."""
        return self.spark.table(self.name).schema

    @abstractmethod
    def shaped(self, rows: DataFrame) -> DataFrame:
        """Return messages with the columns that the table has of them."""

    @abstractmethod
    def exists(self) -> bool:
        """Tell whether the table is there."""

    @abstractmethod
    def create(self, schema: StructType) -> None:
        """Make the table without rows."""

    @abstractmethod
    def read(self) -> DataFrame:
        """Return its rows."""

    def read_now(self) -> DataFrame:
        """Return the rows that it has now, also if it is written to before they are read."""
        return self.read()

    def append(self, rows: DataFrame) -> None:
        """Add rows in one transaction. Raises InvalidOptionError if the format has none."""
        raise InvalidOptionError(
            "--batch",
            self.where,
            "its format has no transactions: leave out --batch, or write delta:PATH",
        )

    @abstractmethod
    def start(self, rows: DataFrame, set_up: SetUp) -> StreamingQuery:
        """Start a stream that adds each micro-batch in one transaction.

        ``set_up`` gives a writer its trigger and its checkpoint.
        """

    def prepare(self, schema: StructType) -> None:
        """Make the table if it is not there; else look whether rows can be appended by name.

        Raises InvalidOptionError, which names the statement to run, if they cannot.
        """
        if not self.exists():
            self.create(schema)
            return
        check_columns(self.where, self.name, self.columns(), schema, self.renames)

    def has_rows(self) -> bool:
        """Tell whether there are any."""
        return bool(self.read().take(1))


class DeltaTable(LakeTable):
    """A Delta table at a path, partitioned by day and topic."""

    def shaped(self, rows: DataFrame) -> DataFrame:
        """Return the messages with the day, which Delta partitions by."""
        return dated(named_by_folders(rows, self.where, is_short=self.has_short_names))

    @property
    def name(self) -> str:
        """The table's path as a name for SQL."""
        return f"delta.{quoted(self.where)}"

    @property
    def renames(self) -> str:
        """A Delta table keeps the names of its columns in its files at first."""
        return f"ALTER TABLE {self.name} SET TBLPROPERTIES ('delta.columnMapping.mode' = 'name')"

    def exists(self) -> bool:
        """Tell whether there is a log of Delta."""
        delta: Any = self.spark._jvm.io.delta.tables.DeltaTable  # type: ignore[union-attr]
        return bool(delta.isDeltaTable(self.spark._jsparkSession, self.where))

    def create(self, schema: StructType) -> None:
        """Make the table without rows, in one transaction."""
        nothing = self.spark.createDataFrame([], schema)
        nothing.write.format("delta").partitionBy(DATE, _BY_TOPIC).save(self.where)

    def read(self) -> DataFrame:
        """Return its rows."""
        return self.spark.read.format("delta").load(self.where)

    def read_now(self) -> DataFrame:
        """Return the rows of the version that is the last one now."""
        history = f"DESCRIBE HISTORY {self.name} LIMIT 1"
        version = self.spark.sql(history).collect()[0]["version"]
        return self.spark.sql(f"SELECT * FROM {self.name} VERSION AS OF {int(version)}")

    def append(self, rows: DataFrame) -> None:
        """Add rows in one transaction."""
        self._append(rows, {})

    def start(self, rows: DataFrame, set_up: SetUp) -> StreamingQuery:
        """Start a stream whose micro-batches are transactions with its id and their number."""

        def write(batch: DataFrame, number: int) -> None:
            context = batch.sparkSession.sparkContext
            query = context.getLocalProperty("sql.streaming.queryId")
            assert query is not None
            self._append(batch, {"txnAppId": query, "txnVersion": str(number)})

        return set_up(rows.writeStream.foreachBatch(write)).start()

    def _append(self, rows: DataFrame, transaction: dict[str, str]) -> None:
        # Delta keeps an order that begins with the columns of its partitions.
        order = [DATE, _BY_TOPIC, *(name for name in _ORDER_IN_FILE if name in rows.columns)]
        writer = rows.sortWithinPartitions(*order).write.format("delta").mode("append")
        writer.options(**transaction).save(self.where)


class IcebergTable(LakeTable):
    """An Iceberg table, partitioned by day and topic, with its own order of rows in a file.

    A path is a table of a Hadoop catalog, whose warehouse is the folder around it.
    """

    def shaped(self, rows: DataFrame) -> DataFrame:
        """Return the messages as they are: Iceberg makes the day itself."""
        is_short = self.has_short_names
        return named_by_folders(rows, self.where, is_iceberg=True, is_short=is_short)

    @property
    def name(self) -> str:
        """The table's name for SQL; a path's catalog is made known to the session."""
        if not self.is_path:
            return self.where
        warehouse, _, name = self.where.rstrip("/").rpartition("/")
        catalog = f"mqlog_{sha256(warehouse.encode()).hexdigest()[:12]}"
        setting = f"spark.sql.catalog.{catalog}"
        self.spark.conf.set(setting, "org.apache.iceberg.spark.SparkCatalog")
        self.spark.conf.set(f"{setting}.type", "hadoop")
        self.spark.conf.set(f"{setting}.warehouse", warehouse or "/")
        return f"{catalog}.{quoted(name)}"

    def exists(self) -> bool:
        """Tell whether the catalog has the table.

        Raises InvalidOptionError for a path that Iceberg cannot keep a table at.
        """
        if self.is_path and _scheme(self.where) not in _RENAMING:
            raise InvalidOptionError(
                "--to",
                self.where,
                "an object store cannot rename a file in one step, which an Iceberg table at a "
                "path needs: name a table of a catalog, iceberg:CATALOG.DATABASE.TABLE",
            )
        return self.spark.catalog.tableExists(self.name)

    def create(self, schema: StructType) -> None:
        """Make the table without rows."""
        nothing = self.spark.createDataFrame([], schema)
        writer = nothing.writeTo(self.name).using("iceberg")
        # By default rows would be shuffled, and read twice for it, to make fewer files.
        writer = writer.tableProperty("write.distribution-mode", "none")
        writer.partitionedBy(partitioning.days("storeTimestamp"), col(_BY_TOPIC)).create()

    def prepare(self, schema: StructType) -> None:
        """Make the table if it is not there, and give it its order if it has none."""
        super().prepare(schema)
        found = self.spark.sql(f"SHOW TBLPROPERTIES {self.name}").collect()
        if "sort-order" not in {row["key"] for row in found}:
            order = ", ".join(name for name in _ORDER_IN_FILE if name in schema.names)
            self.spark.sql(f"ALTER TABLE {self.name} WRITE LOCALLY ORDERED BY {order}")

    def read(self) -> DataFrame:
        """Return its rows."""
        return self.spark.table(self.name)

    def read_now(self) -> DataFrame:
        """Return the rows of the snapshot that is the table's now; all, if it has none yet."""
        main = f"SELECT snapshot_id FROM {self.name}.refs WHERE name = 'main'"
        found = self.spark.sql(main).collect()
        if not found:
            return self.read()
        number = int(found[0]["snapshot_id"])
        return self.spark.sql(f"SELECT * FROM {self.name} VERSION AS OF {number}")

    def append(self, rows: DataFrame) -> None:
        """Add rows in one snapshot."""
        fitted(rows, self.columns()).writeTo(self.name).append()

    def start(self, rows: DataFrame, set_up: SetUp) -> StreamingQuery:
        """Start a stream by Iceberg's sink."""
        # By its name: given a path, Spark does not know the functions of the order's partitions.
        ours = fitted(rows, self.columns())
        return set_up(ours.writeStream.format("iceberg")).toTable(self.name)


class ParquetFiles(LakeTable):
    """Parquet files by topic and day, of which Spark's log names those that count."""

    def shaped(self, rows: DataFrame) -> DataFrame:
        """Return the messages with the day, the name of a folder."""
        return dated(named_by_folders(rows, self.where, is_short=self.has_short_names))

    def exists(self) -> bool:
        """Tell whether there is a log of Spark's sink."""
        return has_path(self.spark, self._log)

    @property
    def _log(self) -> str:
        return f"{self.where.rstrip('/')}/_spark_metadata"

    def create(self, schema: StructType) -> None:
        """Do nothing: the stream makes the folder."""

    def prepare(self, schema: StructType) -> None:
        """Do nothing: the files of a stream may have other columns than those before."""

    def has_rows(self) -> bool:
        """Tell whether a micro-batch wrote there: a full disk leaves a log without entries."""
        return any(name[:1].isdecimal() for name in names_in(self.spark, self._log))

    def read(self) -> DataFrame:
        """Return its rows; none, without columns, if there is no file."""
        if not self.has_rows():
            return self.spark.createDataFrame([], StructType())
        return self.spark.read.parquet(self.where)

    def start(self, rows: DataFrame, set_up: SetUp) -> StreamingQuery:
        """Start a stream by Spark's own sink of files."""
        writer = rows.writeStream.format("parquet").partitionBy(_BY_TOPIC, DATE)
        return set_up(writer).start(self.where)


LAKE_TABLES: Final[dict[str, type[LakeTable]]] = {
    "delta": DeltaTable,
    "iceberg": IcebergTable,
    "parquet": ParquetFiles,
}


def _scheme(path: str) -> str:
    """Return the scheme of a path's file system: empty for the one that Spark takes by default."""
    return path.partition(":")[0] if ":/" in path else ""
