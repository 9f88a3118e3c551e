r"""Job: messages of a topic on the console, as they come.

    spark-submit jobs/mqlog_jobs/tail.py --from /data/broker-a/store --option subscribe=SHOP_ORDERS

A line a message, in the shape of ``mqlog cat -f``; starts at the end unless told otherwise with
``--option startingOffsets=…``. Without Spark ``mqlog cat`` prints what is there.
"""

import sys
from collections.abc import Sequence
from operator import itemgetter
from typing import Final

from pyspark.sql import DataFrame

from mqlog_jobs import arguments, lines
from mqlog_jobs.lines import Shape
from mqlog_jobs.session import QUIET, job_session

DEFAULT: Final = r"{storeTimestamp}  {topic}/{queueId}@{queueOffset}  {tags}\t{keys}\t{body}"
_ORDER: Final = ("storeTimestamp", "topic", "queueId", "queueOffset")
_LIMIT: Final = {"maxOffsetsPerTrigger": "10000"}  # A micro-batch passes through the driver.


def main(argv: Sequence[str] | None = None) -> int:
    """Run the job with these arguments, those of the process if None; return its exit code."""
    parser = arguments.parser(
        "Print messages as they come.",
        "tail.py --from /data/broker-a/store --option subscribe=SHOP_ORDERS -f '{keys} {body}'",
    )
    arguments.add_store(parser)
    parser.add_argument(
        "-f",
        "--format",
        dest="line",
        default=DEFAULT,
        help="a line for each message, columns in braces",
    )
    parser.add_argument(
        "--interval", type=float, default=1.0, metavar="SECONDS", help="look so often (default: 1)"
    )
    parser.add_argument("--once", action="store_true", help="end when what is there now is printed")
    given = parser.parse_args(argv)
    return arguments.run(
        lambda: _tail(
            given.store, dict(given.options), given.line, None if given.once else given.interval
        )
    )


def _tail(store: str, options: dict[str, str], line: str, interval_s: float | None) -> None:
    shape = lines.parse(line)
    columns = ",".join(dict.fromkeys((*shape.columns, *_ORDER)))
    with job_session("mqlog tail", QUIET) as spark:
        reader = spark.readStream.format("mqlog").options(**_LIMIT).options(**options)
        writer = reader.option("columns", columns).load(store).writeStream
        writer = writer.foreachBatch(lambda rows, _number: _print(rows, shape))
        if interval_s is None:
            writer = writer.trigger(availableNow=True)
        else:
            writer = writer.trigger(processingTime=f"{round(interval_s * 1000)} milliseconds")
        query = writer.start()
        try:
            query.awaitTermination()
        except KeyboardInterrupt:
            query.stop()


def _print(rows: DataFrame, shape: Shape) -> None:
    found: list[dict[str, object]] = rows.toArrow().to_pylist()
    for row in sorted(found, key=itemgetter(*_ORDER)):
        sys.stdout.write(shape.fill(row, escaped=sys.stdout.isatty()))
    sys.stdout.flush()


if __name__ == "__main__":
    sys.exit(main())
