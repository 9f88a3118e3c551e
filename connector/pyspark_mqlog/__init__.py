"""Apache RocketMQ message stores as a Spark data source: ``spark.read.format("mqlog")``.

Spark imports this package in every session to look for data sources (``DefaultSource``), and
drops all sources if one such import fails. So this module imports Spark only, and mqlog's version;
the rest is imported when the source is used.

Import it before the session starts, and Spark looks with the interpreter that runs the program.
Raises ModuleNotFoundError, with what to install, where there is no pyspark, and SparkTooOldError
where Spark is older than 4.0.
"""

from typing import TYPE_CHECKING

from mqstore import __version__
from pyspark_mqlog import versions

versions.refuse_older(versions.INSTALLED)

from pyspark_mqlog import interpreter  # noqa: E402 - py4j comes with Spark
from pyspark_mqlog.datasource import MqlogDataSource  # noqa: E402 - not there in Spark 3

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from pyspark_mqlog.views import attach

__all__ = ["DefaultSource", "__version__", "attach", "register"]

DefaultSource = MqlogDataSource
interpreter.name_this()


def register(spark: "SparkSession") -> None:
    """Make ``format("mqlog")`` known to ``spark``.

    Needed only where Spark cannot find an installed package: with ``spark-submit --py-files``, on
    clusters that only use registered sources, and in a session that was started before this
    package was imported.

    Raises SparkTooOldError for a session, also of a Spark Connect server, older than 4.0.
    """
    versions.refuse_older(spark.version)
    interpreter.use_this(spark)
    if not interpreter.is_found(spark, DefaultSource.name()):  # Spark warns of a second one.
        spark.dataSource.register(DefaultSource)


def __getattr__(name: str) -> object:
    if name != "attach":
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from pyspark_mqlog.views import attach  # noqa: PLC0415 - not for every session

    return attach
