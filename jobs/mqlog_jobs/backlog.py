"""Job: what consumer groups have still to consume, to the console, to files or to a table.

    spark-submit jobs/mqlog_jobs/backlog.py --from '/data/brokers/*/store' --to parquet:/out/backlog

The columns are those of ``table=backlog``; its options (groups, subscriptions, lagMode, byTag)
are given with ``--option``.
"""

import sys
from collections.abc import Sequence

from pyspark.sql import DataFrame

from mqlog_jobs import arguments
from mqlog_jobs.arguments import CONSOLE, TABLE, Place
from mqlog_jobs.session import QUIET, job_session

_SHOWN = ("group", "topic", "queueId", "brokerOffset", "consumerOffset", "lag", "lagMatching")


def main(argv: Sequence[str] | None = None) -> int:
    """Run the job with these arguments, those of the process if None; return its exit code."""
    parser = arguments.parser(
        "Report what consumer groups have still to consume.",
        "backlog.py --from /data/broker-a/store --to console --option groups=CG_SHOP",
    )
    parser.add_argument(
        "--from",
        dest="stores",
        action="append",
        required=True,
        metavar="STORE",
        help="a broker's store directory, or a glob of several; once for each",
    )
    parser.add_argument(
        "--to",
        dest="place",
        type=arguments.target,
        default=Place(CONSOLE, ""),
        metavar="PLACE",
        help="console (the default), parquet:PATH, csv:PATH, json:PATH or table:NAME",
    )
    parser.add_argument(
        "--mode",
        choices=("error", "append", "overwrite"),
        default="error",
        help="when the place has rows already (default: error)",
    )
    given = parser.parse_args(argv)
    return arguments.run(
        lambda: _report(given.stores, dict(given.options), given.place, given.mode)
    )


def _report(stores: list[str], options: dict[str, str], place: Place, mode: str) -> None:
    with job_session("mqlog backlog", QUIET) as spark:
        reader = spark.read.format("mqlog").options(**options).option("table", "backlog")
        rows = reader.load(stores[0]) if len(stores) == 1 else reader.load(stores)
        writer = rows.write.mode(mode)
        if place.format == CONSOLE:
            _show(rows)
        elif place.format == TABLE:
            writer.saveAsTable(place.where)
        else:
            writer.option("header", value=True).format(place.format).save(place.where)


def _show(rows: DataFrame) -> None:
    columns = [name for name in (*_SHOWN, "tag", "status") if name in rows.columns]
    ordered = rows.orderBy("brokerName", "group", "topic", "queueId").select("brokerName", *columns)
    ordered.show(2**31 - 1, truncate=False)


if __name__ == "__main__":
    sys.exit(main())
