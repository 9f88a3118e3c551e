"""Apache RocketMQ message stores as a Spark data source: ``spark.read.format("mqlog")``.

Spark imports this package in every session to look for data sources (it takes
``DefaultSource``), and drops all sources if one such import fails. So nothing here needs more
than Spark itself; everything else is imported when the source is used.

Import it before the session starts, and Spark looks with the interpreter it was imported in.
Raises SparkTooOldError where Spark is older than 4.0.
"""

from typing import TYPE_CHECKING

from pyspark_mqlog import interpreter, versions

versions.refuse_older(versions.INSTALLED)

from pyspark_mqlog.datasource import MqlogDataSource  # noqa: E402 - not there in Spark 3

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

__all__ = ["DefaultSource", "register"]

DefaultSource = MqlogDataSource
interpreter.name_this()


def register(spark: "SparkSession") -> None:
    """Make ``format("mqlog")`` known to ``spark``.

    Not needed where the package is installed and imported before the session starts. Needed
    where Spark cannot look it up: with ``spark-submit --py-files``, on clusters that only know
    registered sources, in a session that was started with another interpreter.

    Raises SparkTooOldError for a session, as of a Spark Connect server, older than 4.0.
    """
    versions.refuse_older(spark.version)
    interpreter.use_this(spark)
    if not interpreter.is_found(spark, DefaultSource.name()):  # Spark warns of one twice.
        spark.dataSource.register(DefaultSource)
