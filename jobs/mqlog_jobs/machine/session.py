"""A SparkSession with the source ``mqlog`` registered, installed or sent with ``--py-files``.

Spark finds the source by itself where mqlog is installed, and does not find a package sent with
``--py-files``; so every job registers it where it was not found.
"""

import logging
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from pyspark.sql import SparkSession

import pyspark_mqlog
from mqlog_jobs.machine import java
from pyspark_mqlog import versions

# Settings of every session that mqlog starts. conf/spark-defaults.conf has them with the reasons.
SETTINGS: Final = {
    "spark.sql.session.timeZone": "UTC",
    "spark.python.unix.domain.socket.enabled": "true",
    "spark.sql.execution.arrow.maxBytesPerBatch": "2m",
}
# Settings of a command, whose terminal shows its own output only.
QUIET: Final = {
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
}
# Of a local session that other machines cannot reach.
LOOPBACK: Final = {
    "spark.driver.host": "127.0.0.1",
    "spark.driver.bindAddress": "127.0.0.1",
}
_LOG4J: Final = Path(__file__).with_name("log4j2.properties")


def session(
    app: str, settings: dict[str, str] | None = None, needed: dict[str, str] | None = None
) -> SparkSession:
    """Return the session that runs, or start one; it knows the source ``mqlog``.

    Under spark-submit its settings win, except over those of ``needed``; a session started here
    takes ``SETTINGS``, then ``settings``, and writes only errors to standard error. Raises
    JavaNotFoundError when there is no Java to start, SparkTooOldError for Spark 3.
    """
    versions.refuse_older(versions.INSTALLED)
    running = SparkSession.getActiveSession()
    if running is None:
        running = _start(app, SETTINGS | (settings or {}), needed or {})
    pyspark_mqlog.register(running)
    return running


@contextmanager
def job_session(
    app: str, settings: dict[str, str] = QUIET, needed: dict[str, str] | None = None
) -> Iterator[SparkSession]:
    """Yield the session of a job, and stop it afterwards unless it was active before.

    What Spark refuses becomes one line of the job's: pyspark's own log of it, with the stack of the
    JVM, is left out.
    """
    was_active = SparkSession.getActiveSession() is not None
    spark = session(app, settings, needed)
    from pyspark.logger import PySparkLogger  # noqa: PLC0415 - Spark 3 has none

    PySparkLogger.getLogger("SQLQueryContextLogger").setLevel(logging.CRITICAL)
    try:
        yield spark
    finally:
        if not was_active:
            spark.stop()


@contextmanager
def stderr_to(log: Path) -> Iterator[None]:
    """Redirect standard error to ``log``, also of a JVM and workers that are started meanwhile.

    A JVM prints warnings at each start that the user of a command cannot act on. Errors reach
    Python as exceptions; if the block raises, the log is printed.
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


def _start(app: str, settings: dict[str, str], needed: dict[str, str]) -> SparkSession:
    builder = SparkSession.builder.appName(app)
    if "PYSPARK_GATEWAY_PORT" not in os.environ:  # Under spark-submit the JVM is there already.
        notice = java.prepare()
        if notice:
            sys.stderr.write(f"{notice}\n")
        if _LOG4J.is_file():  # Not inside the zip of --py-files.
            builder = builder.config(
                "spark.driver.extraJavaOptions", f"-Dlog4j2.configurationFile={_LOG4J.as_uri()}"
            )
        for name, value in settings.items():
            builder = builder.config(name, value)
    for name, value in needed.items():
        builder = builder.config(name, value)
    return builder.getOrCreate()
