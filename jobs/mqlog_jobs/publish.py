r"""Job: write rows of Parquet, CSV, JSON or a table as messages to a store.

    spark-submit jobs/mqlog_jobs/publish.py --from parquet:/data/orders --to /data/broker-a/store \
        --select "'ORDERS' AS topic" --select "id AS keys" --select "to_json(struct(*)) AS body"

Rows need the columns of a write (body, topic, tags, keys, properties, …); ``--select`` makes one
from an SQL expression. CSV and JSON have no types of their own: a column of a write is read as
the type that the write needs.
"""

import sys
from collections.abc import Sequence
from typing import Final

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

from mqlog_jobs import arguments
from mqlog_jobs.arguments import TABLE, Place
from mqlog_jobs.exit_codes import run
from mqlog_jobs.session import job_session

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
        "publish.py --from json:/data/orders --to /data/broker-a/store --option topic=ORDERS",
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


def _publish(place: Place, select: list[str], store: str, options: dict[str, str]) -> None:
    with job_session("mqlog publish") as spark:
        rows = _read(spark, place)
        if select:
            rows = rows.selectExpr(*select)
        rows.write.format("mqlog").mode("append").options(**options).save(store)


def _read(spark: SparkSession, place: Place) -> DataFrame:
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
