"""The differences between the versions of Spark that mqlog runs on, 4.0 to 4.x.

The other modules are written for the newest version. Each name below is chosen once, at import:

- Before 4.2 ``to_arrow_schema`` has no parameter ``timezone``; timestamps are UTC. ``to_arrow``
  can go with 4.1.
- Before 4.2 there is no ``pyspark.sql.streaming.datasource``: a trigger has no limits for a Python
  source. The classes of limits can go with 4.1.
- Before 4.2 ``latestOffset`` has no parameter for the start, and AvailableNow is one micro-batch.
  ``stream_reader`` can go with 4.1, and with it ``first_end`` and ``leaves_some`` of the reader.
  Offsets that they made stay readable, for a checkpoint outlives a version of Spark.
- Before 4.1 there is no ``DataSourceStreamArrowWriter``, and a stream is written from Rows.
  ``StreamArrowWriter`` can go with 4.0.
"""

import logging
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa
from pyspark.sql import datasource
from pyspark.sql.datasource import (
    DataSourceArrowWriter,
    DataSourceStreamReader,
    DataSourceStreamWriter,
    InputPartition,
)
from pyspark.sql.pandas import types
from pyspark.sql.types import StructType

from pyspark_mqlog.versions import LIMITS_SINCE, SPARK

if TYPE_CHECKING:
    from pyspark_mqlog.stream_reader import MqlogStreamReader

__all__ = [
    "Json",
    "ReadAllAvailable",
    "ReadLimit",
    "ReadMaxBytes",
    "ReadMaxRows",
    "ReadMinRows",
    "StreamArrowWriter",
    "SupportsTriggerAvailableNow",
    "stream_reader",
    "to_arrow",
]

_LOG = logging.getLogger(__name__)
_HAS_LIMITS: Final = SPARK >= LIMITS_SINCE
_REST: Final = (
    "Spark %d.%d ends a query with trigger(availableNow=True) or trigger(once=True) after one "
    "micro-batch, and maxOffsetsPerTrigger or maxBytesPerTrigger leaves messages for the next: "
    "start such a query again until it reads nothing, or without a limit"
)

Json = dict[str, Any]

if TYPE_CHECKING or _HAS_LIMITS:
    from pyspark.sql.streaming.datasource import (
        ReadAllAvailable,
        ReadLimit,
        ReadMaxBytes,
        ReadMaxRows,
        ReadMinRows,
        SupportsTriggerAvailableNow,
    )
else:

    class ReadLimit:
        """The limit of a micro-batch."""

    class SupportsTriggerAvailableNow:
        """Spark before 4.2 does not look for it."""

    @dataclass
    class ReadAllAvailable(ReadLimit):
        """No limit."""

    @dataclass
    class ReadMinRows(ReadLimit):
        """At least so many."""

        min_rows: int

    @dataclass
    class ReadMaxRows(ReadLimit):
        """At most so many."""

        max_rows: int

    @dataclass
    class ReadMaxBytes(ReadLimit):
        """At most so many bytes."""

        max_bytes: int


if TYPE_CHECKING or SPARK >= (4, 1):
    StreamArrowWriter = datasource.DataSourceStreamArrowWriter
else:

    class StreamArrowWriter(DataSourceStreamWriter, DataSourceArrowWriter):
        """A stream's writer that gets Arrow batches.

        Spark 4.0 gives them to every DataSourceArrowWriter, also of a stream, and Rows to others
        (pyspark.sql.worker.write_into_data_source).
        """


class StartKeepingReader(DataSourceStreamReader):
    """A stream's reader for Spark 4.0 and 4.1, which give ``latestOffset`` no start.

    A batch starts at the end of the last one. When a query is restarted, Spark first calls
    ``partitions`` with the end of its last batch, to run that batch again or to announce its end
    (PythonMicroBatchStream#setLatestSeenOffset).
    """

    def __init__(self, reader: "MqlogStreamReader") -> None:
        self._reader = reader
        self._at: Json | None = None
        self._has_warned = False

    def initialOffset(self) -> Json:  # noqa: N802
        return self._reader.initialOffset()

    def latestOffset(self) -> Json:  # type: ignore[override] # noqa: N802
        limit = self._reader.getDefaultReadLimit()
        if self._at is None:
            self._at = self._reader.first_end(limit)
        else:
            self._at = self._reader.latestOffset(self._at, limit)
        is_limited = isinstance(limit, ReadMaxRows | ReadMaxBytes)
        if is_limited and not self._has_warned and self._reader.leaves_some(self._at):
            self._has_warned = True
            _LOG.warning(_REST, *SPARK)
        return self._at

    def partitions(self, start: Json, end: Json) -> list[InputPartition]:
        self._at = end
        return self._reader.partitions(start, end)

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        return self._reader.read(partition)

    def commit(self, end: Json) -> None:
        self._reader.commit(end)

    def stop(self) -> None:
        self._reader.stop()


def stream_reader(reader: "MqlogStreamReader") -> DataSourceStreamReader:
    """Return the reader as this Spark calls it."""
    return reader if _HAS_LIMITS else StartKeepingReader(reader)


def to_arrow(schema: StructType) -> pa.Schema:
    """Return the Arrow schema that Spark expects of batches of ``schema``."""
    if _HAS_LIMITS:
        return types.to_arrow_schema(schema, timezone="UTC")
    return types.to_arrow_schema(schema)
