"""The version of Spark, and the refusal of one that is missing or has no Python data sources.

Imports nothing of Spark SQL.
"""

import re
from typing import Final

try:
    import pyspark
except ModuleNotFoundError as error:
    if error.name != "pyspark":
        raise
    raise ModuleNotFoundError(
        "mqlog reads and writes with Spark where pyspark is: "
        "pip install 'pyspark>=4.0,<5' 'pandas>=2.2,<3'",
        name="pyspark",
    ) from None

OLDEST: Final = (4, 0)
"""The first Spark with Python data sources that read and write streams."""

LIMITS_SINCE: Final = (4, 2)
"""The first Spark that gives a Python source the limit of a trigger, and that runs AvailableNow in
several micro-batches."""


def major_minor(version: str) -> tuple[int, int]:
    """Return the first two numbers of a version such as ``4.1.4`` or ``4.0.0.dev1``."""
    found = re.match(r"(\d+)\.(\d+)", version)
    return (int(found[1]), int(found[2])) if found else (0, 0)


def refuse_older(version: str) -> None:
    """Raise SparkTooOldError if ``version`` of Spark is older than ``OLDEST``."""
    if major_minor(version) < OLDEST:
        raise too_old(version)


def too_old(version: str) -> Exception:
    """Return the SparkTooOldError for a Spark of ``version``, which has no Python data sources."""
    from pyspark_mqlog.errors import SparkTooOldError  # noqa: PLC0415 - keeps imports light

    oldest = ".".join(map(str, OLDEST))
    return SparkTooOldError(
        f"this is Spark {version}, and format('mqlog'), streams and jobs need {oldest} or newer: "
        f"pip install 'pyspark>={oldest},<5', or a cluster with such a Spark. On Spark 3.4 and 3.5 "
        "pyspark_mqlog.read(spark, path, topic) and pyspark_mqlog.write(frame, path) read and write"
    )


INSTALLED: Final[str] = pyspark.__version__
"""The version of the pyspark that is imported: the driver's, or that of a worker."""
SPARK: Final = major_minor(INSTALLED)
HAS_LIMITS: Final = SPARK >= LIMITS_SINCE
