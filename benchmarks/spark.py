"""A Spark session for benchmarks: local, on all cores, with conf/spark-defaults.conf."""

import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from pyspark.sql import DataFrame, SparkSession

from benchmarks.peers import PeerMissingError, connector_jars, skip
from mqlog_jobs.machine.session import QUIET, session

CONF = Path(__file__).parents[1] / "conf" / "spark-defaults.conf"
HEAP = "4g"


@contextmanager
def spark_session(
    settings: Mapping[str, str] | None = None, *, kafka: bool = False
) -> Iterator[SparkSession]:
    """Start a session and stop it; with ``kafka`` it knows that connector, if it is to be had."""
    chosen = {"spark.driver.memory": HEAP, "spark.master": "local[*]", **QUIET, **defaults()}
    if kafka:
        try:
            chosen["spark.jars"] = ",".join(connector_jars())
        except PeerMissingError as missing:
            skip("Kafka's connector", str(missing))
    spark = session("mqlog bench", chosen | dict(settings or {}))
    try:
        yield spark
    finally:
        spark.stop()


def defaults() -> dict[str, str]:
    """Return the settings that conf/ recommends."""
    lines = (line.split(None, 1) for line in CONF.read_text().splitlines())
    return {words[0]: words[1] for words in lines if words and not words[0].startswith("#")}


def to_noop(frame: DataFrame) -> None:
    """Read all rows and columns of a DataFrame, and drop them."""
    frame.write.format("noop").mode("overwrite").save()


def told(line: str) -> None:
    """Say on standard error what is being done: loading a peer takes a while."""
    sys.stderr.write(f"{line}\n")
