"""Apache RocketMQ message stores as a Spark data source: ``spark.read.format("mqlog")``.

Spark imports this package in every session to look for data sources (it takes
``DefaultSource``), and drops all sources if one such import fails. So nothing here needs more
than Spark itself; everything else is imported when the source is used.
"""

from typing import TYPE_CHECKING

from pyspark_mqlog.datasource import MqlogDataSource

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

__all__ = ["DefaultSource", "register"]

DefaultSource = MqlogDataSource


def register(spark: "SparkSession") -> None:
    """Make ``format("mqlog")`` known to ``spark``.

    Not needed where the package is installed. Needed where Spark cannot look it up: with
    ``spark-submit --py-files``, and on clusters that only know registered sources.
    """
    spark.dataSource.register(DefaultSource)
