"""Job: the backlog of consumer groups, to the console, to files or to a table.

    spark-submit jobs/mqlog_jobs/spark/backlog.py --from '/data/*/store' --to parquet:/out/backlog

The columns are those of ``table=backlog``; its options (groups, subscriptions, lagMode, byTag)
are given with ``--option``.
"""

import sys
from collections.abc import Sequence
from typing import Final

from pyspark.sql import DataFrame

from mqlog_jobs.machine.exit_codes import run
from mqlog_jobs.machine.session import job_session
from mqlog_jobs.spark import arguments, job_output
from mqlog_jobs.spark.arguments import RowsPlace

_BACKLOG_REPORT: Final = (
    "group",
    "topic",
    "queueId",
    "brokerOffset",
    "consumerOffset",
    "lag",
    "lagMatching",
)


def main(argv: Sequence[str] | None = None) -> int:
    """Run the job with these arguments, those of the process if None; return its exit code."""
    parser = arguments.parser(
        "Report the messages that consumer groups have not consumed yet.",
        "backlog.py --from /data/broker-a/store --to console --option groups=CG_WAREHOUSE",
    )
    job_output.add_arguments(parser)
    given = parser.parse_args(argv)
    return run(lambda: _report(given.stores, dict(given.options), given.place, given.mode))


def _report(stores: list[str], options: dict[str, str], place: RowsPlace, mode: str) -> None:
    with job_session("mqlog backlog") as spark:
        job_output.check(spark, place)
        rows = job_output.read(spark, "backlog", stores, options)
        job_output.write(rows, place, mode, _show)


def _show(rows: DataFrame) -> None:
    columns = [name for name in (*_BACKLOG_REPORT, "tag", "status") if name in rows.columns]
    ordered = rows.orderBy("brokerName", "group", "topic", "queueId").select("brokerName", *columns)
    ordered.show(2**31 - 1, truncate=False)


if __name__ == "__main__":
    sys.exit(main())
