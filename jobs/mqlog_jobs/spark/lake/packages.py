"""The packages of table formats: which build fits which line of Spark, and whether it is there.

mqlog downloads none of them. The user names one to spark-submit (``--packages`` or ``--jars``).
"""

import os
import re
from dataclasses import dataclass
from typing import Any, Final

from py4j.protocol import Py4JJavaError  # type: ignore[import-untyped]
from pyspark import SparkConf, SparkContext
from pyspark.sql import SparkSession

from mqstore.errors import InvalidOptionError
from pyspark_mqlog.versions import major_minor

_EXTENSIONS: Final = "spark.sql.extensions"


@dataclass(frozen=True, slots=True)
class Package:
    """A table format: what its package is called, and what a session needs to write it."""

    format: str
    title: str
    extension: str
    """The class for ``spark.sql.extensions``."""
    settings: dict[str, str]
    """Further settings of a session."""
    jar: str
    """The beginning of the name of its jar, in front of the line of Spark that it is built for."""
    tried: dict[str, str]
    """Line of Spark → Maven coordinates of the build that the tests run on it."""


DELTA: Final = Package(
    format="delta",
    title="Delta",
    extension="io.delta.sql.DeltaSparkSessionExtension",
    settings={"spark.sql.catalog.spark_catalog": "org.apache.spark.sql.delta.catalog.DeltaCatalog"},
    jar="delta-spark_",
    tried={
        "4.0": "io.delta:delta-spark_4.0_2.13:4.4.0",
        "4.1": "io.delta:delta-spark_4.1_2.13:4.4.0",
        "4.2": "io.delta:delta-spark_4.2_2.13:4.4.0",
    },
)
ICEBERG: Final = Package(
    format="iceberg",
    title="Iceberg",
    extension="org.apache.iceberg.spark.extensions.IcebergSparkSessionExtensions",
    settings={},
    jar="iceberg-spark-runtime-",
    tried={
        "4.0": "org.apache.iceberg:iceberg-spark-runtime-4.0_2.13:1.11.0",
        "4.1": "org.apache.iceberg:iceberg-spark-runtime-4.1_2.13:1.12.0",
    },
)
PACKAGES: Final = {one.format: one for one in (DELTA, ICEBERG)}


def settings(package: Package, version: str) -> dict[str, str]:
    """Return the settings that a session of Spark ``version`` needs to write the format.

    Extensions that spark-submit was given stay. Raises InvalidOptionError for a line of Spark on
    which no build of the package was tried.
    """
    coordinates(package, version)
    given = ""
    if "PYSPARK_GATEWAY_PORT" in os.environ:  # Under spark-submit the JVM has settings already.
        SparkContext._ensure_initialized()
        given = SparkConf().get(_EXTENSIONS, "") or ""
    names = [name.strip() for name in given.split(",") if name.strip()]
    extensions = ",".join(dict.fromkeys((*names, package.extension)))
    return {_EXTENSIONS: extensions, **package.settings}


def coordinates(package: Package, version: str) -> str:
    """Return the Maven coordinates of the build for Spark ``version``.

    Raises InvalidOptionError for a line on which none was tried.
    """
    line = "{}.{}".format(*major_minor(version))
    if line not in package.tried:
        fitting = ", ".join(f"Spark {one} with {jar}" for one, jar in package.tried.items())
        raise _refused(
            package, f"this is Spark {version}, and {package.title} was tried on {fitting}"
        )
    return package.tried[line]


def check(spark: SparkSession, package: Package) -> None:
    """Raise InvalidOptionError unless the session has the package, built for its Spark, set up."""
    wanted = coordinates(package, spark.version)
    jar = _jar(spark, package)
    if jar is None:
        raise _refused(package, f"its package is missing: add --packages {wanted} to spark-submit")
    built = re.search(rf"{package.jar}(\d+\.\d+)_", jar)
    line = "{}.{}".format(*major_minor(spark.version))
    if built is not None and built[1] != line:
        raise _refused(
            package,
            f"this is Spark {spark.version}, and {jar} is built for Spark {built[1]}: use "
            f"--packages {wanted}",
        )
    for name, value in {_EXTENSIONS: package.extension, **package.settings}.items():
        if value not in str(spark.conf.get(name, "")):
            raise _refused(package, f"the session needs --conf {name}={value}")


def _jar(spark: SparkSession, package: Package) -> str | None:
    """Return the name of the file that the class of the extension is loaded from."""
    jvm: Any = spark._jvm
    try:
        loader = jvm.java.lang.Thread.currentThread().getContextClassLoader()
        source = loader.loadClass(package.extension).getProtectionDomain().getCodeSource()
    except Py4JJavaError as error:
        if "ClassNotFoundException" not in str(error.java_exception):
            raise
        return None
    return str(source.getLocation().getPath()).rpartition("/")[2]


def _refused(package: Package, reason: str) -> InvalidOptionError:
    return InvalidOptionError("--to", package.format, reason)
