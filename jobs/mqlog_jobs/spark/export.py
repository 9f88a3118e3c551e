"""Job: the new messages of stores to Parquet, partitioned by topic and date.

    spark-submit jobs/mqlog_jobs/spark/export.py --from /data/store --to parquet:/lake/messages

Each run starts where the last one ended, and takes the messages that exist when it starts. It is
a streaming query that stops (Trigger.AvailableNow): Spark writes the offsets of a micro-batch to
the checkpoint before it reads them, and the files of the batch to the target's own log,
``_spark_metadata``. After a kill the batch is repeated, and its files count once for readers that
use that log, as Spark does.

Messages that expired between two runs are an error. The date is that of storeTimestamp, in UTC.
"""

import sys
from argparse import ArgumentTypeError
from collections.abc import Sequence
from typing import Final

from pyspark.sql import DataFrame, SparkSession

from mqlog_jobs.machine.exit_codes import run
from mqlog_jobs.machine.session import job_session
from mqlog_jobs.output.amounts import several
from mqlog_jobs.spark import arguments
from mqlog_jobs.spark.arguments import RowsPlace
from mqlog_jobs.spark.lake.rows import arriving, check_columns, check_limits, check_loss, dated

CHECKPOINT_FOLDER: Final = "_checkpoint"  # In the target; readers skip names with an underscore.
_NEEDED: Final = ("topic", "storeTimestamp")
ALL_PROGRESS: Final = ("spark.sql.streaming.numRecentProgressUpdates", 1_000_000)


def main(argv: Sequence[str] | None = None) -> int:
    """Run the job with these arguments, those of the process if None; return its exit code."""
    parser = arguments.parser(
        "Export new messages to Parquet, each once, partitioned by topic and date.",
        "export.py --from /data/store --to parquet:/lake/messages --option subscribe=SHOP_ORDERS",
    )
    arguments.add_store(parser)
    parser.add_argument(
        "--to", dest="place", type=_target, required=True, metavar="PLACE", help="parquet:PATH"
    )
    parser.add_argument(
        "--checkpoint",
        metavar="DIR",
        help="directory of the progress (default: PATH/_checkpoint); if you remove it or the "
        "target, remove both",
    )
    given = parser.parse_args(argv)
    options = dict(given.options)
    return run(lambda: _export(given.store, options, given.place, given.checkpoint))


def _target(text: str) -> RowsPlace:
    kind, _, path = text.partition(":")
    if kind != "parquet" or not path:
        raise ArgumentTypeError(f"{text!r}: exports are Parquet; write parquet:PATH")
    return RowsPlace(kind, path)


def _export(store: str, options: dict[str, str], place: RowsPlace, checkpoint: str | None) -> None:
    check_limits(options, "an export")
    check_loss(options, "an export")
    with job_session("mqlog export") as spark:
        spark.conf.set(*ALL_PROGRESS)
        rows = _rows(spark, store, options)
        writer = rows.writeStream.format("parquet").partitionBy("topic", "date")
        writer = writer.option("path", place.where).trigger(availableNow=True)
        progress_in = checkpoint or f"{place.where.rstrip('/')}/{CHECKPOINT_FOLDER}"
        query = writer.option("checkpointLocation", progress_in).start()
        query.awaitTermination()
        count = sum(progress.numInputRows for progress in query.recentProgress)
    sys.stdout.write(f"{several(count, 'message')} exported to {place.where}\n")


def _rows(spark: SparkSession, store: str, options: dict[str, str]) -> DataFrame:
    # Only the first run uses the start; options that the user gives come last and win.
    rows = arriving(spark, store, options)
    check_columns(rows, _NEEDED, "the partitions")
    return dated(rows)


if __name__ == "__main__":
    sys.exit(main())
