"""The events that Spark logs while a test runs, as text."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from pyspark.sql import SparkSession


@contextmanager
def event_log(spark: SparkSession, folder: Path) -> Iterator[Callable[[], str]]:
    """Give a function that returns all events that Spark logs meanwhile."""
    context = spark.sparkContext
    jvm, java = context._jvm, context._jsc.sc()
    assert jvm is not None
    conf = java.conf().clone().set("spark.eventLog.compress", "false")
    listener = jvm.org.apache.spark.scheduler.EventLoggingListener(
        "log",
        jvm.scala.Option.empty(),
        jvm.java.net.URI(folder.as_uri()),
        conf,
        java.hadoopConfiguration(),
    )
    listener.start()
    java.addSparkListener(listener)

    def text() -> str:
        java.listenerBus().waitUntilEmpty()
        java.removeSparkListener(listener)
        listener.stop()
        files = [path for path in folder.rglob("*") if path.is_file()]
        return "".join(path.read_text(errors="replace") for path in files)

    yield text
