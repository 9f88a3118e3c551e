"""Topics that the folder of a partition cannot name: they are refused, row by row.

- Spark and Delta read the value of a partition back from its folder's name, and take
  ``__HIVE_DEFAULT_PARTITION__`` there for null, which the empty text is written as, too.
- The folder ``topic=NAME`` has 255 bytes at most on a disk and in HDFS. Spark writes some
  characters of NAME as three bytes (ExternalCatalogUtils#escapePathName), Iceberg more of them
  (PartitionSpec#escape, as in URLs).
"""

from typing import Final

from pyspark.sql import Column, DataFrame
from pyspark.sql.functions import (
    col,
    concat,
    length,
    lit,
    octet_length,
    raise_error,
    regexp_replace,
    url_encode,
    when,
)

from mqstore.errors import InvalidOptionError

_TOPIC: Final = "topic"
_NULLS: Final = ("__HIVE_DEFAULT_PARTITION__", "")
_MOST_VALUE_BYTES: Final = 255 - len("topic=")
_SHORT_CHARS: Final = _MOST_VALUE_BYTES // 12
"""No name of so few characters is too long, each of which may be 12 bytes in a folder's name."""
_AS_IT_IS: Final = r"[^\x01-\x1f\x22#%'*/:=?\x5c\x7f{\[\]^]"
_TOPIC_HERE: Final = "\0"
_LEAVE_OUT: Final = "leave it out by --option subscribe=… or subscribePattern=…"


def named_by_folders(
    rows: DataFrame, where: str, *, is_iceberg: bool = False, is_short: bool = True
) -> DataFrame:
    """Return the rows, of which one with a topic that no folder can name ends the query.

    ``where`` is the table; ``is_short``: the names of its folders have 255 bytes at most. The
    error of the query has the text of an InvalidOptionError.
    """
    topic = col(_TOPIC)
    checked = when(lit(False), topic)
    if not is_iceberg:
        reason = "stands for null in the name of a folder"
        checked = checked.when(topic.isin(*_NULLS), _refusal(where, reason))
    if is_short:
        escaped = octet_length(url_encode(topic)) if is_iceberg else _escaped_bytes()
        reason = f"makes a folder's name of more than {_MOST_VALUE_BYTES} bytes behind topic="
        is_long = (length(topic) > _SHORT_CHARS) & (escaped > _MOST_VALUE_BYTES)
        checked = checked.when(is_long, _refusal(where, reason))
    return rows.withColumn(_TOPIC, checked.otherwise(topic))


def _escaped_bytes() -> Column:
    return octet_length(col(_TOPIC)) + 2 * length(regexp_replace(col(_TOPIC), _AS_IT_IS, ""))


def _refusal(where: str, reason: str) -> Column:
    error = InvalidOptionError("--to", where, f"the topic {_TOPIC_HERE} {reason}: {_LEAVE_OUT}")
    before, after = str(error).split(_TOPIC_HERE)
    return raise_error(concat(lit(before), col(_TOPIC), lit(f"{after}\n"))).cast("string")
