"""`import mqlog` beside the core's own scan, and two engines over it beside the same in Parquet.

    python -m benchmarks face

A store of messages with bodies of 1 KiB in four queues, and a Parquet file with its standard
columns, uncompressed; the page cache is warm. ``core`` scans planned slices of the store,
``to_reader`` is a Scan's reader; both make the same columns, planned anew each time. ``duckdb`` and
``polars`` run a query over the Scan, ``… of parquet`` the same one over the file: the number of
messages of each tag, and the sum of the sizes of bodies. The case ``columns`` reads each of all
columns alone: what it costs.

Three more queries sum the bodies of a few messages: ``offsets``, of a thousand of a queue;
``minute``, of a minute in hours; ``tag``, of a tag of one in a hundred. A side ``… of all`` has the
same filter in a form that no engine hands on, so all messages are read; ``read`` is how many are
read otherwise.
"""

import datetime as dt
import os
import sys
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import duckdb
import polars as pl
import pyarrow.parquet as pq

import mqlog
from benchmarks.laid_out import FIRST_MS, RARE_ONE_IN, Shape, lay_out, topic_name
from benchmarks.rounds import ROUNDS, Side, compare
from mqstore.codec.schema import COLUMNS, PROFILES
from mqstore.request import plan
from mqstore.request.plan import plan_read
from mqstore.request.read import read_options

TOPIC = topic_name(0)
QUERIES = {
    "tags": "SELECT tags, count(*) AS n FROM {} GROUP BY tags",
    "bodies": "SELECT sum(octet_length(body))::BIGINT AS n FROM {}",
}
PER_SECOND = 10
FILTERS = ("offsets", "minute", "tag")
PROFILES_READ = ("minimal", "standard", "full")


def main(messages: int) -> None:
    """Measure readers, queries, and each column alone."""
    shape = Shape(messages, queues=4, per_second=PER_SECOND)
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
        for case in FILTERS:
            condition = Condition(case, rows)
            found = partial(condition.read, root)
            compare("face", case, _filtering(condition, root, file), found=found, **shape_of)
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


@dataclass(frozen=True)
class Condition:
    """A filter of a few of the messages, in SQL, of Polars and of Arrow."""

    case: str
    rows: int

    @property
    def passing(self) -> int:
        """How many messages pass."""
        return {
            "offsets": min(1_000, self.rows // 4 - self.rows // 8),
            "minute": min(60 * PER_SECOND, self.rows - self._before * PER_SECOND),
            "tag": -(-self.rows // 4 // RARE_ONE_IN) * 4,
        }[self.case]

    @property
    def _before(self) -> int:
        """The seconds before the minute in the middle."""
        return self.rows // 2 // PER_SECOND // 60 * 60

    @property
    def times(self) -> tuple[dt.datetime, dt.datetime]:
        """The minute in the middle."""
        first = dt.datetime.fromtimestamp(FIRST_MS / 1000 + self._before, dt.UTC)
        return first, first + dt.timedelta(minutes=1)

    def sql(self, *, of_all: bool) -> str:
        """Return it in SQL; ``of_all``: of columns in a sum, which DuckDB does not hand on."""
        first, (begin, end) = self.rows // 8, self.times
        zero, second, empty = (
            (" + round(random() / 4)", " + INTERVAL 0 SECOND", " || left(random()::VARCHAR, 0)")
            if of_all
            else ("",) * 3
        )
        return {
            "offsets": f"queueId{zero} = 1 AND queueOffset{zero} >= {first} "
            f"AND queueOffset{zero} < {first + 1_000}",
            "minute": f"storeTimestamp{second} >= TIMESTAMPTZ '{begin}' "
            f"AND storeTimestamp{second} < TIMESTAMPTZ '{end}'",
            "tag": f"tags{empty} = 'TagR'",
        }[self.case]

    def polars(self, *, of_all: bool) -> pl.Expr:
        """Return it as an expression of Polars; ``of_all`` as in SQL."""
        first, (begin, end) = self.rows // 8, self.times
        queue, offset, time, tags = map(
            pl.col, ("queueId", "queueOffset", "storeTimestamp", "tags")
        )
        if of_all:
            queue, offset, tags = queue + 0, offset + 0, tags + pl.lit("")
            time = time + dt.timedelta(0)
        return {
            "offsets": (queue == 1) & (offset >= first) & (offset < first + 1_000),
            "minute": (time >= begin) & (time < end),
            "tag": tags == "TagR",
        }[self.case]

    def read(self, root: Path) -> dict[str, int]:
        """Return how many messages are read for it."""
        seen = 0
        scan = mqlog.open(root).scan(TOPIC)
        real = plan.scan

        def counted(slices: Any, settings: Any) -> Any:
            nonlocal seen
            for batch in real(slices, settings):
                seen += batch.num_rows
                yield batch

        plan.scan = counted
        try:
            duckdb.from_arrow(scan).filter(self.sql(of_all=False)).fetchall()
        finally:
            plan.scan = real
        return {"read": seen}


def _filtering(condition: Condition, root: Path, file: Path) -> list[Side]:
    """Return the sides of a query of a few messages: each checks the sum of their bodies."""
    wanted = condition.passing * Shape(1).body_bytes

    def by_duckdb(of_all: bool) -> int:
        scan = mqlog.open(root).scan(TOPIC)
        found = duckdb.from_arrow(scan).filter(condition.sql(of_all=of_all))
        return passed(_summed(found.aggregate("sum(octet_length(body))::BIGINT")))

    def by_polars(frame: pl.LazyFrame, of_all: bool) -> int:
        return passed(_by_polars("bodies", frame.filter(condition.polars(of_all=of_all))))

    def of_parquet() -> int:
        where = condition.sql(of_all=False)
        return passed(
            _summed(duckdb.sql(f"{QUERIES['bodies'].format(repr(str(file)))} WHERE {where}"))
        )

    def passed(found: int) -> int:
        if found != wanted:
            raise AssertionError(f"{condition.case}: {found} instead of {wanted}")
        return condition.passing

    def lazy() -> pl.LazyFrame:
        return mqlog.open(root).scan(TOPIC).to_polars_lazy()

    rows = condition.passing
    return [
        Side("duckdb", lambda: by_duckdb(of_all=False), rows),
        Side("duckdb of all", lambda: by_duckdb(of_all=True), rows),
        Side("duckdb of parquet", of_parquet, rows),
        Side("polars", lambda: by_polars(lazy(), of_all=False), rows),
        Side("polars of all", lambda: by_polars(lazy(), of_all=True), rows),
        Side("polars of parquet", lambda: by_polars(pl.scan_parquet(file), of_all=False), rows),
    ]


def _summed(found: duckdb.DuckDBPyRelation) -> int:
    return sum(row[-1] for row in found.fetchall())


def _by_polars(case: str, frame: pl.LazyFrame) -> int:
    if case == "tags":
        return int(frame.group_by("tags").len().collect()["len"].sum())
    return int(frame.select(pl.col("body").bin.size().sum()).collect().item())


if __name__ == "__main__":
    main(int(sys.argv[1]))
