"""A temporary view for each topic and table of a place."""

import json
from collections.abc import Iterator, Sequence
from os import PathLike
from typing import TYPE_CHECKING, Any

import mqlog
from mqstore.errors import InvalidOptionError
from pyspark_mqlog.schema import to_struct

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def attach(
    spark: "SparkSession",
    path: str | PathLike[str] | Sequence[str | PathLike[str]],
    *,
    prefix: str = "",
    columns: str | Sequence[str] = "standard",
    system: bool = False,
    **options: Any,
) -> list[str]:
    """Make a temporary view for each topic and table of a place; return their names.

    ``path`` and ``options`` are those of ``mqlog.open``. ``prefix`` stands before each name, so
    that two places can be attached; ``columns`` are those of topics; with ``system`` RocketMQ's own
    topics have views too. A view of the name is replaced. Each query of a view reads what is
    stored then. Names with other characters than letters, digits and _ need backquotes in SQL.

    Opens the place. Raises InvalidOptionError for names that differ in case only, and what
    ``mqlog.Place.topics`` raises.
    """
    place = mqlog.open(path, **options)
    made: dict[str, str] = {}
    for name, scan, own in _reads(place, columns, system=system):
        view = prefix + name
        other = made.setdefault(view.lower(), view)
        if other is not view:
            expected = f"{other} has this name already, as case is not significant in Spark"
            raise InvalidOptionError("view", view, expected)
        reader = spark.read.format("mqlog").schema(to_struct(scan.schema))
        frame = reader.options(**place.options, **own).load(list(place.paths))
        frame.createOrReplaceTempView(f"`{view.replace('`', '``')}`")
    return list(made.values())


def _reads(
    place: mqlog.Place, columns: str | Sequence[str], *, system: bool
) -> Iterator[tuple[str, mqlog.Scan, dict[str, str]]]:
    """Yield the name of each topic and table, a scan of it, and the options of the Spark source.

    A table whose name a topic has, in any case, is ``NAME_table``.
    """
    topics = place.topics(system=system)
    for topic in topics:
        scan = place.scan(topic, columns=columns)
        own = {"subscribe": json.dumps([topic]), "columns": ",".join(scan.schema.names)}
        yield topic, scan, own
    taken = {topic.lower() for topic in topics}
    for table in place.tables():
        name = f"{table}_table" if table in taken else table
        yield name, place.table(table), {"table": table}
