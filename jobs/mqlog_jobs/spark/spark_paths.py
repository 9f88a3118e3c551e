"""Paths that Spark writes to, in any of Hadoop's file systems."""

from typing import Any
from uuid import uuid4

from py4j.protocol import Py4JJavaError  # type: ignore[import-untyped]
from pyspark.sql import SparkSession

from mqstore.errors import InvalidOptionError, shown


def has_path(spark: SparkSession, path: str) -> bool:
    """Tell whether there is a file or a folder at ``path``."""
    files, target = _found(spark, path)
    return bool(files.exists(target))


def names_in(spark: SparkSession, path: str) -> list[str]:
    """Return the names of what is in a folder; none if it is not there."""
    files, target = _found(spark, path)
    if not files.exists(target):
        return []
    return [str(status.getPath().getName()) for status in files.listStatus(target)]


def local_path(spark: SparkSession, path: str) -> str | None:
    """Return a path for the driver's own file system; None if ``path`` is in another one."""
    files, target = _found(spark, path)
    whole = files.makeQualified(target).toUri()
    return str(whole.getPath()) if whole.getScheme() == "file" else None


def check_writable(spark: SparkSession, option: str, path: str) -> None:
    """Raise InvalidOptionError if Spark's driver can make nothing at ``path``.

    A folder is made there, or beside it if nothing is there yet, and removed. A session of Spark
    Connect has no access to its file systems, and is not checked.

    Source: Hadoop's FileSystem#mkdirs, which Spark's committers call as a job starts
    (FileOutputCommitter#setupJob), and whose failure they only log.
    """
    jvm: Any = getattr(spark, "_jvm", None)
    if jvm is None:
        return
    try:
        files, target = _found(spark, path)
        parent = target if files.exists(target) else target.getParent()
        tried = jvm.org.apache.hadoop.fs.Path(parent, f"_mqlog-{uuid4()}")
        if files.mkdirs(tried):
            files.delete(tried, True)
            return
        problem = "no folder can be made there"
    except Py4JJavaError as error:
        problem = str(error.java_exception.getMessage())
    raise InvalidOptionError(option, path, f"cannot be written: {shown(problem)}")


def _found(spark: SparkSession, path: str) -> tuple[Any, Any]:
    """Return the file system of Hadoop that a path is in, and the path as it takes it."""
    jvm: Any = spark._jvm
    target = jvm.org.apache.hadoop.fs.Path(path)
    return target.getFileSystem(spark.sparkContext._jsc.hadoopConfiguration()), target
