r"""Job: print the messages of a topic on the console as they are stored.

    spark-submit jobs/mqlog_jobs/spark/tail.py --from /data/store --option subscribe=SHOP_ORDERS

One line for each message, in the format of ``mqlog cat -f``. It starts at the end of the topic,
or where ``--option startingOffsets=…`` says. ``mqlog cat`` prints stored messages without Spark.
"""

import sys
from collections.abc import Sequence
from operator import itemgetter
from typing import Final

from pyspark.sql import DataFrame

from mqlog_jobs.machine.exit_codes import run
from mqlog_jobs.machine.session import job_session
from mqlog_jobs.output import line_format
from mqlog_jobs.output.line_format import LineFormat
from mqlog_jobs.spark import arguments

_ORDER: Final = ("storeTimestamp", "topic", "queueId", "queueOffset")
_LIMIT: Final = {"maxOffsetsPerTrigger": "10000"}  # The driver holds a micro-batch.


def main(argv: Sequence[str] | None = None) -> int:
    """Run the job with these arguments, those of the process if None; return its exit code."""
    parser = arguments.parser(
        "Print messages as they are stored.",
        "tail.py --from /data/store --option subscribe=SHOP_ORDERS -f '{keys} {body}'",
    )
    arguments.add_store(parser)
    parser.add_argument(
        "-f",
        "--format",
        dest="line",
        default=line_format.ONE_LINE,
        help="one line for each message, columns in braces",
    )
    parser.add_argument(
        "--interval",
        type=float,
        default=1.0,
        metavar="SECONDS",
        help="between reads (default: 1)",
    )
    parser.add_argument("--once", action="store_true", help="end after the messages stored now")
    given = parser.parse_args(argv)
    return run(
        lambda: _tail(
            given.store, dict(given.options), given.line, None if given.once else given.interval
        )
    )


def _tail(store: str, options: dict[str, str], line: str, interval_s: float | None) -> None:
    form = line_format.parse(line)
    columns = ",".join(dict.fromkeys((*form.columns, *_ORDER)))
    with job_session("mqlog tail") as spark:
        reader = spark.readStream.format("mqlog").options(**_LIMIT).options(**options)
        writer = reader.option("columns", columns).load(store).writeStream
        writer = writer.foreachBatch(lambda rows, _number: _print(rows, form))
        if interval_s is None:
            writer = writer.trigger(availableNow=True)
        else:
            writer = writer.trigger(processingTime=f"{round(interval_s * 1000)} milliseconds")
        query = writer.start()
        try:
            query.awaitTermination()
        except KeyboardInterrupt:
            query.stop()


def _print(rows: DataFrame, form: LineFormat) -> None:
    messages: list[dict[str, object]] = rows.toArrow().to_pylist()
    for row in sorted(messages, key=itemgetter(*_ORDER)):
        sys.stdout.write(form.fill(row, escaped=sys.stdout.isatty()))
    sys.stdout.flush()


if __name__ == "__main__":
    sys.exit(main())
