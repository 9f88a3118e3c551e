"""`import mqlog` beside the core's own scan, and two engines over it beside the same in Parquet.

    python -m benchmarks face

A store of messages with bodies of 1 KiB in four queues, and a Parquet file with its standard
columns, uncompressed; the page cache is warm. ``core`` scans planned slices of the store,
``to_reader`` is a Scan's reader; both make the same columns, planned anew each time. ``duckdb`` and
``polars`` run a query over the Scan, ``… of parquet`` the same one over the file: the number of
messages of each tag, and the sum of the sizes of bodies. The case ``columns`` reads each of all
columns alone: what it costs.
"""

import os
import sys
import tempfile
from collections.abc import Callable
from functools import partial
from pathlib import Path

import duckdb
import polars as pl
import pyarrow.parquet as pq

import mqlog
from benchmarks.laid_out import Shape, lay_out, topic_name
from benchmarks.rounds import ROUNDS, Side, compare
from mqstore.codec.schema import COLUMNS, PROFILES
from mqstore.request.plan import plan_read
from mqstore.request.read import read_options

TOPIC = topic_name(0)
QUERIES = {
    "tags": "SELECT tags, count(*) AS n FROM {} GROUP BY tags",
    "bodies": "SELECT sum(octet_length(body))::BIGINT AS n FROM {}",
}
PROFILES_READ = ("minimal", "standard", "full")


def main(messages: int) -> None:
    """Measure readers, queries, and each column alone."""
    shape = Shape(messages, queues=4)
    rows = shape.each * shape.queues
    with tempfile.TemporaryDirectory() as directory:
        root, file = Path(directory) / "store", Path(directory) / "messages.parquet"
        lay_out(root, shape)
        whole = mqlog.open(root).scan(TOPIC)
        with pq.ParquetWriter(file, whole.schema, compression="none") as writer:
            for batch in whole.to_reader():
                writer.write_batch(batch)
        shape_of = {"messages": rows, "cores": os.cpu_count()}
        for profile in PROFILES_READ:
            sides = [
                Side("core", partial(_core, root, PROFILES[profile]), rows),
                Side("to_reader", partial(_face, root, PROFILES[profile]), rows),
            ]
            compare("face", profile, sides, **shape_of)
        for case in QUERIES:
            compare("face", case, _engines(case, root, file, rows), **shape_of)
        alone = [
            Side(column.name, partial(_face, root, (column.name,)), rows) for column in COLUMNS
        ]
        compare("face", "columns", alone, rounds=min(ROUNDS, 3), **shape_of)


def _core(root: Path, columns: tuple[str, ...]) -> int:
    options = read_options((str(root),), {"subscribe": TOPIC})
    work = plan_read(options, columns).work()
    return sum(batch.num_rows for one in work for batch in one.batches())


def _face(root: Path, columns: tuple[str, ...]) -> int:
    scan = mqlog.open(root).scan(TOPIC, columns=columns)
    return sum(batch.num_rows for batch in scan.to_reader())


def _engines(case: str, root: Path, file: Path, rows: int) -> list[Side]:
    """Return the sides of a query: each checks its answer, and tells of all rows."""
    wanted = {"tags": rows, "bodies": rows * Shape(rows).body_bytes}[case]

    def checked(answer: Callable[[], int]) -> int:
        found = answer()
        if found != wanted:
            raise AssertionError(f"{found} instead of {wanted}")
        return rows

    def over_scan() -> int:
        scan = mqlog.open(root).scan(TOPIC)
        return _summed(duckdb.from_arrow(scan).query("scan", QUERIES[case].format("scan")))

    def over_parquet() -> int:
        return _summed(duckdb.sql(QUERIES[case].format(f"'{file}'")))

    def lazy_scan() -> int:
        return _by_polars(case, mqlog.open(root).scan(TOPIC).to_polars_lazy())

    def lazy_parquet() -> int:
        return _by_polars(case, pl.scan_parquet(file))

    return [
        Side("duckdb", partial(checked, over_scan), rows),
        Side("duckdb of parquet", partial(checked, over_parquet), rows),
        Side("polars", partial(checked, lazy_scan), rows),
        Side("polars of parquet", partial(checked, lazy_parquet), rows),
    ]


def _summed(found: duckdb.DuckDBPyRelation) -> int:
    return sum(row[-1] for row in found.fetchall())


def _by_polars(case: str, frame: pl.LazyFrame) -> int:
    if case == "tags":
        return int(frame.group_by("tags").len().collect()["len"].sum())
    return int(frame.select(pl.col("body").bin.size().sum()).collect().item())


if __name__ == "__main__":
    main(int(sys.argv[1]))
