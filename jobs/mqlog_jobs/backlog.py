"""Job: what consumer groups have still to consume, to the console, to files or to a table.

    spark-submit jobs/mqlog_jobs/backlog.py --from '/data/brokers/*/store' --to parquet:/out/backlog
    spark-submit jobs/mqlog_jobs/backlog.py --from /data/store --to prometheus:/metrics/backlog.prom

The columns are those of ``table=backlog``; its options (groups, subscriptions, lagMode, byTag)
are given with ``--option``. Prometheus text has the exporters' metrics (mqlog_jobs.prometheus),
in a file that node_exporter's textfile collector picks up.
"""

import sys
from collections.abc import Sequence
from typing import Final

from pyspark.sql import DataFrame, SparkSession

from mqlog_jobs import arguments, prometheus, report
from mqlog_jobs.arguments import Place
from mqlog_jobs.session import QUIET, job_session
from mqstore.errors import InvalidOptionError

PROMETHEUS: Final = "prometheus"
_SHOWN = ("group", "topic", "queueId", "brokerOffset", "consumerOffset", "lag", "lagMatching")


def main(argv: Sequence[str] | None = None) -> int:
    """Run the job with these arguments, those of the process if None; return its exit code."""
    parser = arguments.parser(
        "Report what consumer groups have still to consume.",
        "backlog.py --from /data/broker-a/store --to console --option groups=CG_SHOP",
    )
    report.add_arguments(parser, _target)
    given = parser.parse_args(argv)
    return arguments.run(
        lambda: _report(given.stores, dict(given.options), given.place, given.mode)
    )


def _target(text: str) -> Place:
    kind, _, where = text.partition(":")
    return Place(kind, where) if kind == PROMETHEUS and where else arguments.target(text)


def _report(stores: list[str], options: dict[str, str], place: Place, mode: str) -> None:
    with job_session("mqlog backlog", QUIET) as spark:
        rows = _table(spark, "backlog", stores, options)
        if place.format != PROMETHEUS:
            report.write(rows, place, mode, _show)
            return
        if "tag" in rows.columns and any(name.lower() == "bytag" for name in options):
            raise InvalidOptionError("byTag", options, "Prometheus text has no label for a tag")
        topics = _table(spark, "topics", stores, {}).where("isSystem").select("topic").collect()
        system = [row["topic"] for row in topics]
        held = [row.asDict() for row in rows.collect()]
        # It says how things stand, so what stood there before is replaced whatever the mode.
        prometheus.write(place.where, prometheus.text(held, system))


def _table(spark: SparkSession, name: str, stores: list[str], options: dict[str, str]) -> DataFrame:
    reader = spark.read.format("mqlog").options(**options).option("table", name)
    return reader.load(stores[0]) if len(stores) == 1 else reader.load(stores)


def _show(rows: DataFrame) -> None:
    columns = [name for name in (*_SHOWN, "tag", "status") if name in rows.columns]
    ordered = rows.orderBy("brokerName", "group", "topic", "queueId").select("brokerName", *columns)
    ordered.show(2**31 - 1, truncate=False)


if __name__ == "__main__":
    sys.exit(main())
