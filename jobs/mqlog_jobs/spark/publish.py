r"""Job: write rows of Parquet, CSV, JSON or a table as messages to a store.

    spark-submit jobs/mqlog_jobs/spark/publish.py --from parquet:/data/orders --to /data/store \
        --select "'SHOP_ORDERS' AS topic" --select "id AS keys" \
        --select "to_json(struct(*)) AS body"

Rows need the columns of a write (body, topic, tags, keys, properties, …); ``--select`` makes one
from an SQL expression. CSV and JSON have no types of their own: a column of a write is read as
the type that the write needs.
"""

import sys
from collections.abc import Sequence
from typing import Any, Final

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.types import (
    BooleanType,
    DataType,
    IntegerType,
    MapType,
    StringType,
    StructField,
    StructType,
    TimestampType,
)

from mqlog_jobs.machine.exit_codes import run
from mqlog_jobs.machine.session import job_session
from mqlog_jobs.output.amounts import count, several
from mqlog_jobs.spark import arguments
from mqlog_jobs.spark.arguments import TABLE, RowsPlace
from mqstore.errors import NotAStoreError, StoreNotFoundError, shown
from mqstore.options import store_paths
from mqstore.tables import commits
from mqstore.tables.choice import open_root

# The type of a column in CSV and JSON, in place of the inferred one.
_TYPES: Final[dict[str, DataType]] = {
    "body": StringType(),
    "topic": StringType(),
    "tags": StringType(),
    "keys": StringType(),
    "shardingKey": StringType(),
    "properties": MapType(StringType(), StringType()),
    "queueId": IntegerType(),
    "flag": IntegerType(),
    "delayTimeLevel": IntegerType(),
    "waitStoreMsgOK": BooleanType(),
    "bornTimestamp": TimestampType(),
    "storeTimestamp": TimestampType(),
}


def main(argv: Sequence[str] | None = None) -> int:
    """Run the job with these arguments, those of the process if None; return its exit code."""
    parser = arguments.parser(
        "Write rows as messages.",
        "publish.py --from json:/data/orders --to /data/broker-a/store --option topic=SHOP_ORDERS",
    )
    parser.add_argument(
        "--from",
        dest="place",
        type=arguments.source,
        required=True,
        metavar="PLACE",
        help="parquet:PATH, csv:PATH (with a header line), json:PATH or table:NAME",
    )
    parser.add_argument(
        "--to", dest="store", required=True, metavar="STORE", help="a store directory"
    )
    parser.add_argument(
        "--select",
        action="append",
        default=[],
        metavar="EXPRESSION",
        help='a column to write, as SQL: "orderId AS keys"; may be repeated',
    )
    given = parser.parse_args(argv)
    return run(lambda: _publish(given.place, given.select, given.store, dict(given.options)))


def _publish(place: RowsPlace, select: list[str], store: str, options: dict[str, str]) -> None:
    before = _commits(store)
    with job_session("mqlog publish") as spark:
        rows = _read(spark, place)
        if select:
            rows = rows.selectExpr(*select)
        rows.write.format("mqlog").mode("append").options(**options).save(store)
    made = [commit for commit in _commits(store) if commit not in before]
    sys.stdout.write(f"{_said(made, options)} to {shown(store)}\n")


def _commits(store: str) -> list[dict[str, Any]]:
    """Return the commits of a store, as table=commits has them; none if it is not there yet."""
    try:
        (root,) = store_paths.expand([store])
        place = open_root(root)
    except (StoreNotFoundError, NotAStoreError, ValueError):
        return []
    names = commits.SCHEMA.names
    parts = commits.plan(place, on_corrupt="skip")
    return [row for part in parts for batch in part.batches(names) for row in batch.to_pylist()]


def _said(made: list[dict[str, Any]], options: dict[str, str]) -> str:
    """Return what a write did; ``made`` are the commits since it began, maybe of others too."""
    app_id = next((text for name, text in options.items() if name.lower() == "txnappid"), None)
    own = [commit for commit in made if commit["appId"] == app_id]
    if not own:
        return "nothing new written"
    if len(own) > 1:  # Writes beside this one, without a key either.
        return "messages written"
    (commit,) = own
    return f"{several(commit['rows'], 'message')}, {count(commit['bytes'])} bytes, written"


def _read(spark: SparkSession, place: RowsPlace) -> DataFrame:
    if place.format == TABLE:
        return spark.table(place.where)
    if place.format == "parquet":
        return spark.read.parquet(place.where)
    reader = spark.read.format(place.format).option("header", value=True)
    inferred = reader.load(place.where).schema
    types = dict(_TYPES)
    if place.format == "csv":  # A field of CSV cannot be a map.
        del types["properties"]
    typed = [StructField(f.name, types.get(f.name, f.dataType)) for f in inferred.fields]
    return reader.schema(StructType(typed)).load(place.where)


if __name__ == "__main__":
    sys.exit(main())
