"""The stream's reader as Spark before 4.2 calls it: without a start, without a limit."""

import logging
from collections.abc import Iterator
from typing import Final

import pyarrow as pa
from pyspark.sql.datasource import DataSourceStreamReader, InputPartition

from pyspark_mqlog.compat import HAS_LIMITS, Json, ReadMaxBytes, ReadMaxRows
from pyspark_mqlog.stream_reader import MqlogStreamReader
from pyspark_mqlog.versions import SPARK

_LOG = logging.getLogger(__name__)
_REST: Final = (
    "Spark %d.%d ends a query with trigger(availableNow=True) or trigger(once=True) after one "
    "micro-batch, and maxOffsetsPerTrigger or maxBytesPerTrigger leaves messages for the next: "
    "start such a query again until it reads nothing, or without a limit"
)


class StartKeepingReader(DataSourceStreamReader):
    """A stream's reader for Spark 4.0 and 4.1, which give ``latestOffset`` no start.

    A batch starts at the end of the last one. When a query is restarted, Spark first calls
    ``partitions`` with the end of its last batch, to run that batch again or to announce its end
    (PythonMicroBatchStream#setLatestSeenOffset).
    """

    def __init__(self, reader: MqlogStreamReader) -> None:
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


def stream_reader(reader: MqlogStreamReader) -> DataSourceStreamReader:
    """Return the reader as this Spark calls it."""
    return reader if HAS_LIMITS else StartKeepingReader(reader)
