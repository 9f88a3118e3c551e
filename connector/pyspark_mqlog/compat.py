"""What differs between the versions of Spark that mqlog runs on. No other module asks for one.

Everything else is written for the newest. Each name is chosen once, when this module is imported:

- before 4.2 ``to_arrow_schema`` takes no ``timezone``; timestamps are UTC: ``to_arrow``, until
  4.1 goes.
- before 4.2 there is no ``pyspark.sql.streaming.datasource``, for a trigger has no limits that a
  Python source could know: the classes of limits, until 4.1 goes.
- before 4.2 ``latestOffset`` is not told where the batch starts, and AvailableNow is one batch:
  ``stream_reader``, until 4.1 goes. (``first_end`` and ``leaves_some`` of the reader go with it;
  that it understands the offsets they made stays, for checkpoints outlive a Spark.)
- before 4.1 there is no ``DataSourceStreamArrowWriter``, and a stream is written from Rows:
  ``StreamArrowWriter``, until 4.0 goes.
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
        """What a micro-batch may take: everything."""

    class SupportsTriggerAvailableNow:
        """Spark before 4.2 does not ask for it."""

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

        Spark 4.0 gives them to what is a DataSourceArrowWriter, also of a stream
        (pyspark.sql.worker.write_into_data_source), and Rows to any other.
        """


class StartKeepingReader(DataSourceStreamReader):
    """A stream's reader for Spark 4.0 and 4.1, which ask where a batch ends, but not from where.

    A batch starts where the last one ended. Of a query that is restarted Spark first plans the
    last batch: to run it again, or an empty one, to tell where the query stands
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
