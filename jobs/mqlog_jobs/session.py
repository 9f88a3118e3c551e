"""A SparkSession that knows the source ``mqlog``, wherever the code came from.

Spark finds the source by itself when mqlog is installed, for ``pyspark_mqlog`` names it the
interpreter to look with; it does not when the package arrives with ``--py-files``, so every job
of ours registers it where it was not found.
"""

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from pyspark.sql import SparkSession

import pyspark_mqlog
from mqlog_jobs import java

# What a session of ours starts with. conf/spark-defaults.conf has the same, with the reasons.
SETTINGS: Final = {
    "spark.sql.session.timeZone": "UTC",
    "spark.python.unix.domain.socket.enabled": "true",
}
# What does not belong on the terminal of a command.
QUIET: Final = {
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
}
_LOG4J: Final = Path(__file__).with_name("log4j2.properties")


def session(app: str, settings: dict[str, str] | None = None) -> SparkSession:
    """Return the session that runs, or start one; it knows the source ``mqlog``.

    Under spark-submit its settings win; a session started here takes ``SETTINGS``, then
    ``settings``, and writes only errors to standard error. Raises JavaNotFoundError when there
    is no Java to start.
    """
    running = SparkSession.getActiveSession()
    if running is None:
        running = _start(app, SETTINGS | (settings or {}))
    pyspark_mqlog.register(running)
    return running


@contextmanager
def job_session(app: str, settings: dict[str, str] | None = None) -> Iterator[SparkSession]:
    """Give a job its session, and stop it afterwards unless it ran before."""
    ran_before = SparkSession.getActiveSession() is not None
    spark = session(app, settings)
    try:
        yield spark
    finally:
        if not ran_before:
            spark.stop()


@contextmanager
def said_to(log: Path) -> Iterator[None]:
    """Send standard error to ``log``: a JVM started meanwhile, and its workers, keep it there.

    For a command whose terminal is for people: a JVM says things at every start that nobody
    can act on. Errors reach Python as exceptions; if the block raises, the log is shown.
    """
    sys.stderr.flush()
    terminal = os.dup(2)
    with log.open("ab") as file:
        os.dup2(file.fileno(), 2)
    try:
        yield
    except BaseException:
        os.write(terminal, log.read_bytes())
        raise
    finally:
        os.dup2(terminal, 2)
        os.close(terminal)


def _start(app: str, settings: dict[str, str]) -> SparkSession:
    builder = SparkSession.builder.appName(app)
    if "PYSPARK_GATEWAY_PORT" not in os.environ:  # Under spark-submit the JVM is there already.
        told = java.prepare()
        if told:
            sys.stderr.write(f"{told}\n")
        if _LOG4J.is_file():  # Not inside the zip of --py-files.
            builder = builder.config(
                "spark.driver.extraJavaOptions", f"-Dlog4j2.configurationFile={_LOG4J.as_uri()}"
            )
        for name, value in settings.items():
            builder = builder.config(name, value)
    return builder.getOrCreate()
