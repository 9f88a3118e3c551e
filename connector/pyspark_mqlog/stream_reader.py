"""The stream reader: streaming reads are not supported yet, and say so.

The refusal is a reader that refuses, and no error of ``streamReader``: Spark 4.3 stops the
reader it did not get, and shows that failure instead of ours (python_streaming_source_runner).
"""

from typing import Any, NoReturn

from pyspark.sql.datasource import DataSourceStreamReader

from mqstore.errors import InvalidOptionError
from pyspark_mqlog.worker import named_errors


class RefusingStreamReader(DataSourceStreamReader):
    """Raises InvalidOptionError at what Spark asks first, of a new query or a restarted one."""

    def initialOffset(self) -> NoReturn:  # noqa: N802
        _refuse()

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> NoReturn:
        _refuse()

    def read(self, partition: object) -> NoReturn:
        _refuse()


def _refuse() -> NoReturn:
    with named_errors():
        raise InvalidOptionError("format", "readStream", "not supported yet; use spark.read")
