"""The differences between the versions of Spark that have the data source, 4.0 to 4.x.

The other modules are written for the newest version. Each name below is chosen once, at import:

- Before 4.2 there is no ``pyspark.sql.streaming.datasource``: a trigger has no limits for a Python
  source. The classes of limits can go with 4.1.
- Before 4.2 ``latestOffset`` has no parameter for the start, and AvailableNow is one micro-batch.
  ``start_keeping`` can go with 4.1, and with it ``first_end`` and ``leaves_some`` of the reader.
  Offsets that they made stay readable, for a checkpoint outlives a version of Spark.
- Before 4.1 there is no ``DataSourceStreamArrowWriter``, and a stream is written from Rows.
  ``StreamArrowWriter`` can go with 4.0.
"""

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from pyspark.sql import datasource
from pyspark.sql.datasource import (
    DataSourceArrowWriter,
    DataSourceStreamWriter,
)

from pyspark_mqlog.versions import HAS_LIMITS, SPARK

__all__ = [
    "HAS_LIMITS",
    "Json",
    "ReadAllAvailable",
    "ReadLimit",
    "ReadMaxBytes",
    "ReadMaxRows",
    "ReadMinRows",
    "StreamArrowWriter",
    "SupportsTriggerAvailableNow",
]

Json = dict[str, Any]

if TYPE_CHECKING or HAS_LIMITS:
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
