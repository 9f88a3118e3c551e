"""The messages that go to a lake, as a DataFrame."""

from collections.abc import Mapping
from typing import Final

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.functions import expr

from mqstore.errors import InvalidOptionError
from pyspark_mqlog.versions import LIMITS_SINCE, SPARK

DATE: Final = "date"
"""The day of storeTimestamp in UTC, for formats that partition by columns alone."""
# Independent of the session's time zone.
_DATE: Final = "date_add(DATE'1970-01-01', int(floor(unix_seconds(storeTimestamp) / 86400)))"
_LIMITS: Final = ("maxoffsetspertrigger", "maxbytespertrigger")


def check_loss(options: Mapping[str, str], what: str) -> None:
    """Raise InvalidOptionError for an option that would hide lost messages from ``what``."""
    for name, value in options.items():
        if name.lower() == "failondataloss" and value.strip().lower() != "true":
            raise InvalidOptionError(
                name, value, f"must be true: {what} reports lost messages as an error"
            )


def check_limits(options: Mapping[str, str], what: str) -> None:
    """Raise InvalidOptionError for a limit that ends a run too early on this Spark."""
    for name, value in options.items():
        if name.lower() in _LIMITS and SPARK < LIMITS_SINCE:
            raise InvalidOptionError(
                name,
                value,
                f"Spark {'.'.join(map(str, SPARK))} ends {what} after one batch, which would "
                "be behind silently with a limit: leave it out, or use Spark 4.2 or newer",
            )


def arriving(spark: SparkSession, place: str, options: Mapping[str, str]) -> DataFrame:
    """Return the messages of a place as a stream from the earliest; options win over the start."""
    reader = spark.readStream.format("mqlog").option("startingOffsets", "earliest")
    return reader.options(**options).load(place)


def stored(spark: SparkSession, place: str, options: Mapping[str, str]) -> DataFrame:
    """Return the messages that a place has now."""
    return spark.read.format("mqlog").options(**options).load(place)


def check_columns(rows: DataFrame, needed: tuple[str, ...], why: str) -> None:
    """Raise InvalidOptionError if the option ``columns`` left out what is needed."""
    missing = [name for name in needed if name not in rows.columns]
    if missing:
        reason = f"{why} need {' and '.join(missing)} too"
        raise InvalidOptionError("columns", ",".join(rows.columns), reason)


def dated(rows: DataFrame) -> DataFrame:
    """Return the rows with the column ``DATE``."""
    return rows.withColumn(DATE, expr(_DATE))
