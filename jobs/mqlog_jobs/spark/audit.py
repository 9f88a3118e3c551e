"""Job: have two places the same messages? Tasks compute digests, for large places and lakes.

    spark-submit jobs/mqlog_jobs/spark/audit.py --from /data/broker-a/store \
        --against /backup/broker-a@latest

The answer is that of ``mqlog audit``, and so is the exit code: 1 where the places differ. Tables of
Delta and Iceberg are read by Spark's own readers of these formats, so only rows that count are.
"""

import argparse
import json
import sys
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, Final

from pyspark.sql import DataFrame, Row, SparkSession
from pyspark.sql.functions import coalesce

from mqlog_jobs.machine.codes import FOUND
from mqlog_jobs.machine.exit_codes import run
from mqlog_jobs.machine.session import QUIET, job_session
from mqlog_jobs.option_flags import in_flags
from mqlog_jobs.output.amounts import instant, several, size
from mqlog_jobs.spark import arguments, job_output
from mqlog_jobs.spark.arguments import CONSOLE, RowsPlace
from mqlog_jobs.spark.audited import (
    BrokersInTasks,
    SideInTasks,
    TableInTasks,
    differences_in_tasks,
    digests_in_tasks,
)
from mqlog_jobs.spark.lake.packages import PACKAGES, check, settings
from mqlog_jobs.spark.lake.tables import LAKE_TABLES
from mqlog_jobs.spark.spark_paths import has_path
from mqstore.audit.delta_files import LOG
from mqstore.audit.iceberg_files import METADATA
from mqstore.audit.parquet import TableSide, topics_wanted
from mqstore.audit.sides import AuditSide, matched
from mqstore.audit.table_addresses import DELTA_FORMAT, ICEBERG_FORMAT, PARQUET_FORMAT, TableAddress
from mqstore.errors import InvalidOptionError, printable, shown
from mqstore.request.audits import audit_options, broker_sides
from pyspark_mqlog.versions import INSTALLED

_INFERENCE: Final = "spark.sql.sources.partitionColumnTypeInference.enabled"
_PLACE_OF: Final = ("Broker", "Topic", "QueueId", "QueueOffset")


def main(argv: Sequence[str] | None = None) -> int:
    """Run the job with these arguments, those of the process if None; return its exit code."""
    given = _parser().parse_args(argv)
    return run(lambda: _audit(given))


def _parser() -> argparse.ArgumentParser:
    parser = arguments.parser(
        "Prove that two places have the same messages, or name those that differ: exit code 1.",
        "audit.py --from /data/broker-a/store --against delta:/lake/messages",
    )
    place = "a store, a glob, a point REPO@TIME, an object store, a cluster, delta:PATH, "
    place += "iceberg:CATALOG.DATABASE.TABLE, iceberg:PATH or parquet:PATH"
    parser.add_argument("--from", dest="first", required=True, metavar="PLACE", help=place)
    parser.add_argument(
        "--against", dest="second", required=True, metavar="OTHER", help="the other place"
    )
    parser.add_argument(
        "--by",
        choices=("offset", "id"),
        help="what makes it the same message: broker, topic, queue and queue offset (the default), "
        "or the message id",
    )
    parser.add_argument(
        "--offset-map",
        metavar="FORMAT:DIR",
        help="the other place is what a replay made of the first: the offset map that it wrote, a "
        "directory of this machine, says which message is which",
    )
    parser.add_argument(
        "--only-mapped",
        action="store_true",
        help="with --offset-map: pass by messages that it does not name",
    )
    parser.add_argument(
        "--unconsumed",
        metavar="GROUP",
        help="what this consumer group has not consumed, by what it committed",
    )
    parser.add_argument(
        "--ignore", metavar="NAMES", help="properties that do not count: a comma list"
    )
    parser.add_argument("--topic", metavar="TOPIC", help="this topic alone")
    parser.add_argument("--system", action="store_true", help="RocketMQ's own topics too")
    parser.add_argument(
        "--to",
        dest="place",
        type=arguments.target,
        default=RowsPlace(CONSOLE, ""),
        metavar="PLACE",
        help="where the differences go: console (the default), parquet:PATH, csv:PATH, json:PATH "
        "or table:NAME",
    )
    parser.add_argument(
        "--mode",
        choices=("error", "append", "overwrite"),
        default="error",
        help="what to do if that place has rows already (default: error)",
    )
    parser.add_argument("--json", action="store_true", help="JSON lines on the console")
    return parser


@in_flags()
def _audit(given: argparse.Namespace) -> int:
    asked = _asked(given)
    rule = audit_options(asked).rule
    tables = [TableAddress.of(text) for text in (given.first, given.second)]
    packages = [PACKAGES[one.format] for one in tables if one and one.format in PACKAGES]
    needed = {n: v for package in packages for n, v in settings(package, INSTALLED).items()}
    with job_session("mqlog audit", QUIET, needed) as spark:
        for package in packages:
            check(spark, package)
        job_output.check(spark, given.place)
        sides = _sides(spark, given, tables, asked)
        digests = digests_in_tasks(spark, sides[0], rule), digests_in_tasks(spark, sides[1], rule)
        counts = [several(one.count, "message") for one in digests]
        names = f"{shown(given.first)} and {shown(given.second)}"
        unequal = digests[0].unequal(digests[1])
        if not unequal:
            total = size(sum(one.bytes for one in digests[0].buckets.values()))
            _tell(given, f"{names}: the same {counts[0]}, {total} of bodies")
            return 0
        found = differences_in_tasks(spark, sides, unequal, rule).persist()
        job_output.write(_sorted(found), given.place, given.mode, _json if given.json else _lines)
        different = several(found.count(), "difference")
        _tell(given, f"{names}: {different}; {counts[0]} and {counts[1]}")
        return FOUND


def _asked(given: argparse.Namespace) -> dict[str, str]:
    """Return the options of the audit, by name in lower case."""
    asked = {
        "identity": given.by,
        "offsetmap": given.offset_map,
        "onlymapped": "true" if given.only_mapped else None,
        "unconsumed": given.unconsumed,
        "ignoredproperties": given.ignore,
    }
    return {name: text for name, text in asked.items() if text is not None}


def _sides(
    spark: SparkSession,
    given: argparse.Namespace,
    tables: Sequence[TableAddress | None],
    asked: Mapping[str, str],
) -> tuple[SideInTasks, SideInTasks]:
    """Return the sides, each with what it has now. Raises as a read of them."""
    rule = audit_options(asked).rule
    brokers = _brokers(given, tables, asked)
    if any(tables):
        texts = zip((given.first, given.second), tables, strict=True)
        audit_options(asked).check_brokers(next(text for text, table in texts if table))
    elif rule.by == "map":
        return BrokersInTasks(brokers[0]), BrokersInTasks(brokers[1])
    wanted = topics_wanted(given.topic, brokers, system=given.system)
    sides = [
        BrokersInTasks(brokers.pop(0))
        if table is None
        else TableInTasks.of(_rows(spark, table), table.where, rule, wanted)
        for table in tables
    ]
    first, second = matched(sides[0].side, sides[1].side)
    for side in (first, second):
        if isinstance(side, TableSide) and rule.by == "offset" and "" in side.names:
            expected = "has rows without brokerName: by offset, compare it with one broker's place"
            raise InvalidOptionError("PLACE", str(side.root), expected)
    return _with(sides[0], first), _with(sides[1], second)


def _with(side: SideInTasks, renamed: AuditSide | TableSide) -> SideInTasks:
    made: Any = side
    found: SideInTasks = replace(made, side=renamed)
    return found


def _brokers(
    given: argparse.Namespace, tables: Sequence[TableAddress | None], asked: Mapping[str, str]
) -> list[AuditSide]:
    """Return the sides that are no tables, in order."""
    texts = {name.lower(): text for name, text in given.options}
    chosen = {"includesystemtopics": str(given.system).lower()}
    chosen |= {} if given.topic is None else {"subscribe": json.dumps([given.topic])}
    paths = [p for p, table in zip((given.first, given.second), tables, strict=True) if not table]
    if paths:
        return list(broker_sides(paths, asked, {**texts, **chosen}))
    for name, text in texts.items():
        raise InvalidOptionError("--option", f"{name}={text}", "tables take none")
    return []


def _rows(spark: SparkSession, table: TableAddress) -> DataFrame:
    """Return the rows that a table has now. Raises InvalidOptionError where there is none."""
    found = LAKE_TABLES[table.format](spark, table.where)
    if table.format == PARQUET_FORMAT:
        for name, held in ((LOG, DELTA_FORMAT), (METADATA, ICEBERG_FORMAT)):
            if has_path(spark, f"{table.where.rstrip('/')}/{name}"):
                raise table.other(held)
        return _parquet(spark, table.where)
    if not found.exists():
        expected = f"there is no {table.format} table"
        raise InvalidOptionError("PLACE", str(table), expected)
    return found.read_now()


def _parquet(spark: SparkSession, where: str) -> DataFrame:
    """Return the rows of Parquet files; a topic whose name is a number stays a text."""
    before = spark.conf.get(_INFERENCE)
    spark.conf.set(_INFERENCE, "false")
    try:
        return spark.read.parquet(where)
    finally:
        spark.conf.set(_INFERENCE, before or "true")


def _sorted(found: DataFrame) -> DataFrame:
    names = [coalesce(found[f"first{one}"], found[f"second{one}"]) for one in _PLACE_OF]
    return found.orderBy(*names)


def _json(found: DataFrame) -> None:
    for row in found.toLocalIterator():
        values: dict[str, Any] = row.asDict()
        values["fields"] = [name for name in values["fields"].split(", ") if name]
        del values["brokerName"]
        sys.stdout.write(json.dumps(values, default=instant) + "\n")


def _lines(found: DataFrame) -> None:
    for row in found.toLocalIterator():
        places = [_place(row, side) for side in ("first", "second")]
        words = [row["difference"], row["messageId"], *places, row["fields"]]
        sys.stdout.write("  ".join(printable(word) for word in words if word) + "\n")


def _place(row: Row, side: str) -> str:
    if row[f"{side}Broker"] is None:
        return f"not in the {side}"
    broker, topic, queue_id, at = (row[f"{side}{name}"] for name in _PLACE_OF)
    return f"{broker} {topic}/{queue_id}@{at}"


def _tell(given: argparse.Namespace, text: str) -> None:
    (sys.stderr if given.json else sys.stdout).write(f"{text}\n")


if __name__ == "__main__":
    sys.exit(main())
