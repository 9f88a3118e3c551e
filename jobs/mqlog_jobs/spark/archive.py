"""Job: messages to a table of a lake, each once: Delta, Iceberg or Parquet.

    spark-submit --packages io.delta:delta-spark_4.1_2.13:4.4.0 jobs/mqlog_jobs/spark/archive.py \
        --from /data/broker-a/store --to delta:/lake/messages

A stream of Spark: the offsets of a micro-batch are in the checkpoint before it is read, and the
table takes a micro-batch in one transaction that it knows again (mqlog_jobs.spark.lake.tables). So
a run that was killed is repeated, and nothing is there twice. With ``--batch`` the messages that a
place has now are one transaction.
"""

import argparse
import errno
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any, Final

from py4j.protocol import Py4JJavaError  # type: ignore[import-untyped]
from pyspark.errors import StreamingQueryException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.query import StreamingQuery
from pyspark.sql.streaming.readwriter import DataStreamWriter

from mqlog_jobs.machine.exit_codes import run
from mqlog_jobs.machine.session import QUIET, job_session
from mqlog_jobs.output.amounts import several
from mqlog_jobs.spark import arguments
from mqlog_jobs.spark.export import ALL_PROGRESS, CHECKPOINT_FOLDER
from mqlog_jobs.spark.lake import rows
from mqlog_jobs.spark.lake.only_run import IN_USE, only_run
from mqlog_jobs.spark.lake.packages import PACKAGES, check, settings
from mqlog_jobs.spark.lake.tables import LAKE_TABLES, LakeTable
from mqlog_jobs.spark.spark_paths import check_writable, has_path
from mqstore.audit.table_addresses import TableAddress
from mqstore.errors import InvalidOptionError
from mqstore.options import grammar
from pyspark_mqlog.versions import INSTALLED

AVAILABLE_NOW: Final = "availableNow"
_IDENTITY: Final = ("topic", "queueId", "queueOffset", "storeTimestamp")
_NO_SPACE: Final = "No space left on device"
_LEFT: Final = "STATE_STORE_CHECKPOINT_LOCATION_NOT_EMPTY"
_EMPTY_FILES: Final = (
    "has files of a run that ended before its first micro-batch, as on a full disk, and Spark goes "
    "on with none of them: remove the files in its folder offsets whose names begin with a point "
    "and end with .tmp or .tmp.crc. No row was archived then, so none comes twice"
)
_MOST_CAUSES: Final = 20
_CONFLICTS: Final = (
    "CONCURRENT_STREAM_LOG_UPDATE",
    "ConcurrentTransactionException",
    "Race while writing batch",
)
"""What Spark's log, Delta's, and that of Spark's sink of files call a second query."""


def main(argv: Sequence[str] | None = None) -> int:
    """Run the job with these arguments, those of the process if None; return its exit code."""
    given = _parser().parse_args(argv)
    return run(lambda: _archive(given))


def _parser() -> argparse.ArgumentParser:
    parser = arguments.parser(
        "Archive messages in a table of a lake, each once.",
        "archive.py --from /data/broker-a/store --to delta:/lake/messages\n\n"
        "the package of a format is added to spark-submit:\n"
        + "\n".join(
            f"  Spark {line}, {one.format}: --packages {jar}"
            for one in PACKAGES.values()
            for line, jar in one.tried.items()
        ),
    )
    parser.add_argument(
        "--from",
        dest="place",
        required=True,
        metavar="PLACE",
        help="a store directory, a glob of several, or the address of a cluster; with --batch any "
        "place that can be read",
    )
    parser.add_argument(
        "--to",
        dest="target",
        type=_target,
        required=True,
        metavar="TABLE",
        help="delta:PATH, iceberg:CATALOG.DATABASE.TABLE, iceberg:PATH or parquet:PATH",
    )
    parser.add_argument(
        "--trigger",
        default=AVAILABLE_NOW,
        metavar="WHEN",
        help=f"{AVAILABLE_NOW} (the default): take the messages that are there, and end; or how "
        "long from one micro-batch to the next, such as 30s",
    )
    parser.add_argument(
        "--batch", action="store_true", help="one transaction without a checkpoint, of any place"
    )
    parser.add_argument(
        "--checkpoint",
        metavar="DIR",
        help=f"directory of the progress (default: PATH/{CHECKPOINT_FOLDER}); each has one table",
    )
    parser.add_argument(
        "--mode",
        choices=("error", "append"),
        default="error",
        help="what to do if the table has rows already, and the checkpoint is new or there is none "
        "(default: error)",
    )
    return parser


def _target(text: str) -> TableAddress:
    try:
        found = TableAddress.of(text)
    except InvalidOptionError:
        found = None
    if found is None:
        raise argparse.ArgumentTypeError(
            f"{text!r}: write delta:PATH, iceberg:CATALOG.DATABASE.TABLE, iceberg:PATH or "
            "parquet:PATH"
        )
    return found


def _archive(given: argparse.Namespace) -> None:
    trigger = _trigger(given.trigger, batch=given.batch)
    options = dict(given.options)
    if not any(name.lower() == "columns" for name in options):
        options["columns"] = "full"
    if given.trigger == AVAILABLE_NOW and not given.batch:
        rows.check_limits(options, "an archive")
    checkpoint = _checkpoint(given)
    package = PACKAGES.get(given.target.format)
    needed = {} if package is None else settings(package, INSTALLED)
    with job_session("mqlog archive", QUIET, needed) as spark:
        if package is not None:
            check(spark, package)
        table = LAKE_TABLES[given.target.format](spark, given.target.where)
        if table.is_path:
            check_writable(spark, "--to", table.where)
        if given.batch:
            count = _append(table, given.place, options, given.mode)
        else:
            count = _stream(table, given.place, options, (checkpoint, given.mode), trigger)
    sys.stdout.write(f"{several(count, 'message')} archived in {given.target.where}\n")


def _trigger(text: str, *, batch: bool) -> dict[str, bool | str]:
    """Return the trigger of Spark that is meant. Raises InvalidOptionError."""
    if text == AVAILABLE_NOW:
        return {AVAILABLE_NOW: True}
    if batch:
        raise InvalidOptionError("--trigger", text, "is for a stream: leave out --batch")
    return {"processingTime": f"{grammar.milliseconds('--trigger', text)} milliseconds"}


def _checkpoint(given: argparse.Namespace) -> str:
    """Return the directory of the progress, empty for a batch. Raises InvalidOptionError."""
    where = str(given.target.where)
    if given.batch:
        if given.checkpoint:
            raise InvalidOptionError("--checkpoint", given.checkpoint, "a batch has none")
        return ""
    if given.checkpoint:
        return str(given.checkpoint)
    if "/" not in where:
        raise InvalidOptionError(
            "--checkpoint", "", f"{where} has no path: name a directory for the progress"
        )
    return f"{where.rstrip('/')}/{CHECKPOINT_FOLDER}"


def _append(table: LakeTable, place: str, options: dict[str, str], mode: str) -> int:
    """Add what a place has now; return the number of messages."""
    found = table.shaped(_checked(rows.stored(table.spark, place, options)))
    table.prepare(found.schema)
    if mode == "error" and table.has_rows():
        raise InvalidOptionError(
            "--to", table.where, "the table has rows: --mode append adds to them, also again"
        )
    before = table.read().count()
    table.append(found)
    return table.read().count() - before


def _stream(
    table: LakeTable,
    place: str,
    options: dict[str, str],
    progress: tuple[str, str],
    trigger: dict[str, bool | str],
) -> int:
    """Archive what arrives; return the number of messages. ``progress``: checkpoint and mode."""
    checkpoint, mode = progress
    found = table.shaped(_checked(rows.arriving(table.spark, place, options)))
    _check_progress(table, checkpoint, mode)
    table.prepare(found.schema)
    table.spark.conf.set(*ALL_PROGRESS)

    def set_up(writer: DataStreamWriter) -> DataStreamWriter:
        return writer.option("checkpointLocation", checkpoint).trigger(**trigger)  # type: ignore[arg-type]

    with only_run(table.spark, checkpoint), _named(checkpoint):
        query = table.start(found, set_up)
        _wait(query)
    return sum(progress.numInputRows for progress in query.recentProgress)


def _wait(query: StreamingQuery) -> None:
    """Wait until a query ends, or an interrupt stops it."""
    try:
        query.awaitTermination()
    except KeyboardInterrupt:
        query.stop()


@contextmanager
def _named(checkpoint: str) -> Iterator[None]:
    """Give the errors of a query that starts and runs their names.

    Raises InvalidOptionError if another query has its checkpoint, or a full disk left files in it
    that Spark refuses, and OSError where a disk is full.
    """
    try:
        yield
    except (StreamingQueryException, Py4JJavaError) as error:
        text = "\n".join([str(error), *_causes(error)])
        if any(name in text for name in _CONFLICTS):
            raise InvalidOptionError("--checkpoint", checkpoint, IN_USE) from error
        if _NO_SPACE in text:
            raise OSError(errno.ENOSPC, _NO_SPACE, checkpoint) from error
        if _LEFT in text:
            raise InvalidOptionError("--checkpoint", checkpoint, _EMPTY_FILES) from error
        raise


def _causes(error: StreamingQueryException | Py4JJavaError) -> Iterator[str]:
    """Yield what the JVM says of an error, from the outermost cause to the innermost."""
    cause: Any = getattr(error, "_origin", None) or getattr(error, "java_exception", None)
    for _ in range(_MOST_CAUSES):
        if cause is None:
            return
        yield str(cause.toString())
        cause = cause.getCause()


def _checked(found: DataFrame) -> DataFrame:
    rows.check_columns(found, _IDENTITY, "the partitions and the order")
    return found


def _check_progress(table: LakeTable, checkpoint: str, mode: str) -> None:
    """Raise InvalidOptionError if the checkpoint and the table do not belong together."""
    spark: SparkSession = table.spark
    is_known = has_path(spark, f"{checkpoint}/metadata")
    if is_known and not table.exists() and has_path(spark, f"{checkpoint}/commits"):
        raise InvalidOptionError(
            "--checkpoint",
            checkpoint,
            f"its messages are in a table that is gone: {table.where}. Remove the checkpoint to "
            "archive anew what the place still has",
        )
    if mode == "error" and not is_known and table.exists() and table.has_rows():
        raise InvalidOptionError(
            "--to",
            table.where,
            f"the table has rows, and the checkpoint {checkpoint} is new: they would be archived "
            "twice. Name the checkpoint that wrote them, or --mode append if they are others",
        )


if __name__ == "__main__":
    sys.exit(main())
