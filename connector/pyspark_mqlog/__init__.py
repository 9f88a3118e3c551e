"""Apache RocketMQ message stores as a Spark data source: ``spark.read.format("mqlog")``.

Spark imports this package in every session to look for data sources (``DefaultSource``), and
drops all sources if one such import fails. So this module imports Spark only, and mqlog's version;
the rest is imported when the source is used.

Spark 3.4 and 3.5 have no Python data sources: ``DefaultSource`` is None there, ``register`` raises
SparkTooOldError, and ``read`` and ``write`` do a batch on any Spark from 3.4 on.

Import it before the session starts, and Spark looks with the interpreter that runs the program.
Raises ModuleNotFoundError, with what to install, where there is no pyspark.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Final

from mqstore import __version__
from pyspark_mqlog import versions

from pyspark_mqlog import interpreter  # isort: skip - py4j comes with Spark

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from pyspark_mqlog.datasource import MqlogDataSource
    from pyspark_mqlog.functions import read, write
    from pyspark_mqlog.views import attach

__all__ = ["DefaultSource", "__version__", "attach", "read", "register", "write"]

_FUNCTIONS: Final = {"attach": "views", "read": "functions", "write": "functions"}


def _source() -> "type[MqlogDataSource] | None":
    """Return the data source; None where Spark lacks a class that it is made of."""
    try:
        from pyspark.sql.datasource import (  # noqa: PLC0415 - the capability is asked for
            DataSourceArrowWriter,  # noqa: F401
            DataSourceStreamReader,  # noqa: F401
            DataSourceStreamWriter,  # noqa: F401
        )
    except ImportError:
        return None
    from pyspark_mqlog.datasource import MqlogDataSource  # noqa: PLC0415

    return MqlogDataSource


DefaultSource = _source()
interpreter.name_this()


def register(spark: "SparkSession") -> None:
    """Make ``format("mqlog")`` known to ``spark``.

    Needed only where Spark cannot find an installed package: with ``spark-submit --py-files``, on
    clusters that only use registered sources, and in a session that was started before this
    package was imported.

    Raises SparkTooOldError for a session, also of a Spark Connect server, without Python data
    sources.
    """
    if DefaultSource is None or not hasattr(spark, "dataSource"):
        raise versions.too_old(spark.version)
    interpreter.use_this(spark)
    if interpreter.is_found(spark, DefaultSource.name()):  # Spark warns of a second one.
        return
    try:
        spark.dataSource.register(DefaultSource)
    except Exception as error:
        if versions.major_minor(spark.version) < versions.OLDEST:  # A server of Spark Connect.
            raise versions.too_old(spark.version) from error
        raise


def __getattr__(name: str) -> object:
    if name not in _FUNCTIONS:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{_FUNCTIONS[name]}"), name)
