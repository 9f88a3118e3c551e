"""The output of jobs for spark-submit that read tables: the console, files or a table."""

import argparse
from collections.abc import Callable

from pyspark.sql import DataFrame, SparkSession

from mqlog_jobs.output.whole_file import FILE_FORMATS
from mqlog_jobs.spark import arguments
from mqlog_jobs.spark.arguments import CONSOLE, TABLE, RowsPlace
from mqlog_jobs.spark.spark_paths import check_writable


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add ``--from`` for stores, ``--to`` for the report, and ``--mode``."""
    parser.add_argument(
        "--from",
        dest="stores",
        action="append",
        required=True,
        metavar="STORE",
        help="a broker's store directory, a glob of several, or the address of a cluster; may be "
        "repeated",
    )
    parser.add_argument(
        "--to",
        dest="place",
        type=arguments.target,
        default=RowsPlace(CONSOLE, ""),
        metavar="PLACE",
        help="console (the default), parquet:PATH, csv:PATH, json:PATH or table:NAME",
    )
    parser.add_argument(
        "--mode",
        choices=("error", "append", "overwrite"),
        default="error",
        help="what to do if the place has rows already (default: error)",
    )


def read(spark: SparkSession, table: str, stores: list[str], options: dict[str, str]) -> DataFrame:
    """Return a table of the stores."""
    reader = spark.read.format("mqlog").options(**options).option("table", table)
    return reader.load(stores[0]) if len(stores) == 1 else reader.load(stores)


def check(spark: SparkSession, place: RowsPlace) -> None:
    """Raise InvalidOptionError if Spark could write nothing to ``place``."""
    if place.format in FILE_FORMATS:
        check_writable(spark, "--to", place.where)


def write(rows: DataFrame, place: RowsPlace, mode: str, show: Callable[[DataFrame], None]) -> None:
    """Write ``rows`` to ``place``; ``show`` prints them on the console."""
    writer = rows.write.mode(mode)
    if place.format == CONSOLE:
        show(rows)
    elif place.format == TABLE:
        writer.saveAsTable(place.where)
    else:
        writer.option("header", value=True).format(place.format).save(place.where)
