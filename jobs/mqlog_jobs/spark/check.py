"""Job: check every rule that a broker relies on, with one task for each store.

    spark-submit jobs/mqlog_jobs/spark/check.py --from '/data/brokers/*/store'

The exit code is 0 if no store has an error, else 1; the report lists the errors. The columns are
those of ``table=verify``.
"""

import sys
from collections.abc import Sequence
from typing import Final

from pyspark.sql import DataFrame
from pyspark.sql.functions import desc

from mqlog_jobs.machine.codes import FOUND
from mqlog_jobs.machine.exit_codes import run
from mqlog_jobs.machine.session import job_session
from mqlog_jobs.spark import arguments, job_output
from mqlog_jobs.spark.arguments import RowsPlace

_FINDING_COLUMNS: Final = ("brokerName", "severity", "file", "position", "problem", "consequences")


def main(argv: Sequence[str] | None = None) -> int:
    """Run the job with these arguments, those of the process if None; return its exit code."""
    parser = arguments.parser(
        "Check stores: exit code 1 if a rule is broken.",
        "check.py --from '/data/brokers/*/store' --to parquet:/out/findings",
    )
    job_output.add_arguments(parser)
    given = parser.parse_args(argv)
    return run(lambda: _check(given.stores, dict(given.options), given.place, given.mode))


def _check(stores: list[str], options: dict[str, str], place: RowsPlace, mode: str) -> int:
    with job_session("mqlog check") as spark:
        job_output.check(spark, place)
        # Cached: a store is read once, for the report and for the exit code.
        rows = job_output.read(spark, "verify", stores, options).cache()
        try:
            job_output.write(rows, place, mode, _show)
            return FOUND if rows.where("severity = 'error'").count() else 0
        finally:
            rows.unpersist()


def _show(rows: DataFrame) -> None:
    ordered = rows.orderBy("brokerName", "severity", desc("consequences"), "file", "position")
    ordered.select(*_FINDING_COLUMNS).show(2**31 - 1, truncate=False)


if __name__ == "__main__":
    sys.exit(main())
