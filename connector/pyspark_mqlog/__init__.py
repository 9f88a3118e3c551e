"""Apache RocketMQ message stores as a Spark data source: ``spark.read.format("mqlog")``.

Spark imports this package in every session to look for data sources (``DefaultSource``), and
drops all sources if one such import fails. So this module imports Spark only; the rest is imported
when the source is used.
"""

from typing import TYPE_CHECKING

from pyspark_mqlog.datasource import MqlogDataSource

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

__all__ = ["DefaultSource", "register"]

DefaultSource = MqlogDataSource


def register(spark: "SparkSession") -> None:
    """Make ``format("mqlog")`` known to ``spark``.

    Needed only where Spark cannot find an installed package: with ``spark-submit --py-files``, and
    on clusters that only use registered sources.
    """
    spark.dataSource.register(DefaultSource)
