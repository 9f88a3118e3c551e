"""Job: the backlog of consumer groups, to the console, to files, to a table or to Prometheus.

    spark-submit jobs/mqlog_jobs/spark/backlog.py --from '/data/*/store' --to parquet:/out/backlog
    spark-submit jobs/mqlog_jobs/spark/backlog.py --from /data/store --to prometheus:/metrics/b.prom

The columns are those of ``table=backlog``; its options (groups, subscriptions, lagMode, byTag)
are given with ``--option``. Prometheus text has the exporters' metrics,
in a file for node_exporter's textfile collector.
"""

import argparse
import sys
from collections.abc import Sequence
from typing import Final

from pyspark.sql import DataFrame

from mqlog_jobs.machine.exit_codes import run
from mqlog_jobs.machine.session import job_session
from mqlog_jobs.output import prometheus
from mqlog_jobs.output.whole_file import check_file, replace_file
from mqlog_jobs.spark import arguments, job_output
from mqlog_jobs.spark.arguments import CONSOLE, RowsPlace
from mqstore.errors import InvalidOptionError
from mqstore.request.places import LIVE

PROMETHEUS: Final = "prometheus"
_BACKLOG_REPORT = (
    "group",
    "topic",
    "queueId",
    "brokerOffset",
    "consumerOffset",
    "lag",
    "lagMatching",
)


# Options that say how a place is opened, whatever is read there.
_OF_PLACES: Final = frozenset(
    name.lower()
    for name in ("brokerName", "storePathCommitLog", *(option.name for option in LIVE.values()))
)


def main(argv: Sequence[str] | None = None) -> int:
    """Run the job with these arguments, those of the process if None; return its exit code."""
    parser = arguments.parser(
        "Report the messages that consumer groups have not consumed yet.",
        "backlog.py --from /data/broker-a/store --to console --option groups=CG_SHOP",
    )
    job_output.add_arguments(parser, _target)
    given = parser.parse_args(argv)
    return run(lambda: _report(given.stores, dict(given.options), given.place, given.mode))


def _target(text: str) -> RowsPlace:
    kind, _, where = text.partition(":")
    if kind == PROMETHEUS and where:
        return RowsPlace(kind, where)
    try:
        return arguments.target(text)
    except argparse.ArgumentTypeError:
        raise arguments.not_a_place(text, CONSOLE, f"{PROMETHEUS}:FILE") from None


def _report(stores: list[str], options: dict[str, str], place: RowsPlace, mode: str) -> None:
    if place.format == PROMETHEUS:
        check_file(place.where)
    with job_session("mqlog backlog") as spark:
        job_output.check(spark, place)
        rows = job_output.read(spark, "backlog", stores, options)
        if place.format != PROMETHEUS:
            job_output.write(rows, place, mode, _show)
            return
        if "tag" in rows.columns and any(name.lower() == "bytag" for name in options):
            raise InvalidOptionError("byTag", options, "Prometheus text has no label for a tag")
        where = {n: text for n, text in options.items() if n.lower() in _OF_PLACES}
        topics = job_output.read(spark, "topics", stores, where).where("isSystem")
        system = [row["topic"] for row in topics.select("topic").collect()]
        measured = [row.asDict() for row in rows.collect()]
        # The file has the newest values only, so it is replaced whatever the mode.
        named = any(name.lower() == "groups" for name in options)
        text = prometheus.text(measured, system, system_groups=named)
        replace_file(place.where, text)


def _show(rows: DataFrame) -> None:
    columns = [name for name in (*_BACKLOG_REPORT, "tag", "status") if name in rows.columns]
    ordered = rows.orderBy("brokerName", "group", "topic", "queueId").select("brokerName", *columns)
    ordered.show(2**31 - 1, truncate=False)


if __name__ == "__main__":
    sys.exit(main())
