"""A lazy query of Polars has the rows of the same query of the whole frame, in both engines."""

from collections.abc import Callable
from itertools import permutations
from pathlib import Path
from typing import Any, Final, Literal

import duckdb
import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st
from polars.testing import assert_frame_equal

import mqlog
from support import oracle
from support.oracle import Message
from support.stores import lay_out

Shape = Callable[[Any], Any]

COLUMNS: Final = ["queueId", "queueOffset", "tags", "storeTimestamp"]
ENGINES: Final[tuple[Literal["in-memory", "streaming"], ...]] = ("in-memory", "streaming")
ROWS: Final = 60
LATE: Final = pl.col("tags") == "b"


@pytest.fixture(scope="module")
def scan(tmp_path_factory: pytest.TempPathFactory) -> mqlog.Scan:
    """Messages of three queues, in batches of seven; the last third of a queue has the tag b."""
    root = tmp_path_factory.mktemp("shapes") / "store"
    lay_out(root, [message(number) for number in range(ROWS)])
    return mqlog.open(root).scan("T", columns=COLUMNS, batch_rows=7)


def message(number: int) -> Message:
    tag = "b" if number >= ROWS * 2 // 3 else "a" if number % 2 else None
    return Message(
        queue_id=number % 3,
        properties=oracle.join_properties({"TAGS": tag} if tag else {"KEYS": "k"}),
        store_timestamp_ms=1_790_000_000_000 + number * 60_000,
    )


def numbered(frame: Any) -> Any:
    """Filter by the number of a row, which is its place in what came before."""
    return frame.with_row_index("row").filter(pl.col("row") % 3 == 1).drop("row")


def grouped(frame: Any) -> Any:
    rows = frame.group_by("tags", "queueId", maintain_order=True)
    return rows.agg(pl.col("queueOffset").max(), pl.col("storeTimestamp").first()).select(COLUMNS)


def joined(frame: Any) -> Any:
    other = frame.head(9).filter(pl.col("queueOffset") > 2).select("queueOffset")
    on = other.unique(maintain_order=True)
    return frame.join(on, on="queueOffset", maintain_order="left").select(COLUMNS)


def computed(frame: Any) -> Any:
    doubled = frame.with_columns(pl.col("queueOffset") * 2)
    return doubled.filter(pl.col("queueOffset") >= 8)


def reordered(frame: Any) -> Any:
    return frame.select(pl.col("tags"), "storeTimestamp", "queueOffset", "queueId").select(COLUMNS)


def python_filter(frame: Any) -> Any:
    is_even = pl.col("queueOffset").map_elements(lambda n: n & 1 == 0, return_dtype=pl.Boolean)
    return frame.filter(is_even)


STEPS: Final[dict[str, Shape]] = {
    "head": lambda frame: frame.head(24),
    "limit": lambda frame: frame.limit(45),
    "slice": lambda frame: frame.slice(3, 31),
    "slice from 0": lambda frame: frame.slice(0, 26),
    "tail": lambda frame: frame.tail(33),
    "last": lambda frame: frame.slice(-20, 15),
    "filter of a tag": lambda frame: frame.filter(LATE),
    "filter of a queue": lambda frame: frame.filter(pl.col("queueId") == 1),
    "filter of offsets": lambda frame: frame.filter(pl.col("queueOffset").is_between(2, 15)),
    "filter with a function": python_filter,
    "with_row_index": numbered,
    "with_columns": computed,
    "select": reordered,
    "group_by": grouped,
    "sort": lambda frame: frame.sort("storeTimestamp", "queueId", descending=True),
    "unique": lambda frame: frame.unique(
        ["tags", "queueOffset"], keep="first", maintain_order=True
    ),
    "join": joined,
    "concat": lambda frame: pl.concat([frame.head(13), frame.filter(LATE)]),
    "reverse": lambda frame: frame.reverse(),
    "gather_every": lambda frame: frame.gather_every(3),
    "drop_nulls": lambda frame: frame.drop_nulls("tags"),
    "head of none": lambda frame: frame.head(0),
}
FREQUENT: Final = ("head", "limit", "slice", "tail", "filter of a tag", "filter of a queue",
                   "with_row_index", "with_columns", "select", "sort")  # fmt: skip


def check(scan: mqlog.Scan, shape: list[str]) -> None:
    lazy, whole = scan.to_polars_lazy(), scan.to_polars()
    for step in shape:
        lazy, whole = STEPS[step](lazy), STEPS[step](whole)
    for engine in ENGINES:
        assert_frame_equal(lazy.collect(engine=engine), whole)


@pytest.mark.filterwarnings("ignore::polars.exceptions.PolarsInefficientMapWarning")
@pytest.mark.parametrize("step", STEPS)
def test_each_step_before_and_behind_a_filter_has_the_rows_of_the_frame(
    scan: mqlog.Scan, step: str
) -> None:
    for other in ("filter of a tag", "filter with a function"):
        check(scan, [step, other])
        check(scan, [other, step])
        check(scan, [step, other, "head"])
        check(scan, ["head", step, other])


@pytest.mark.parametrize("shape", [*permutations(FREQUENT, 2)], ids=" then ".join)
def test_two_steps_in_each_order_have_the_rows_of_the_frame(
    scan: mqlog.Scan, shape: tuple[str, str]
) -> None:
    check(scan, [*shape])


@pytest.mark.filterwarnings("ignore::polars.exceptions.PolarsInefficientMapWarning")
@given(shape=st.lists(st.sampled_from([*STEPS]), min_size=3, max_size=6))
def test_steps_in_any_order_have_the_rows_of_the_frame(scan: mqlog.Scan, shape: list[str]) -> None:
    check(scan, shape)


def test_a_query_of_fewer_columns_than_its_filter_has_them_alone(scan: mqlog.Scan) -> None:
    lazy = scan.to_polars_lazy().head(50).filter(LATE & (pl.col("queueId") == 0))

    for engine in ENGINES:
        frame = lazy.select("queueOffset").collect(engine=engine)
        assert frame.columns == ["queueOffset"]
        assert frame["queueOffset"].to_list() == [14, 15, 16]
        assert lazy.select(pl.len()).collect(engine=engine).item() == 3


def test_a_limit_in_front_of_a_filter_is_kept_in_every_engine(scan: mqlog.Scan) -> None:
    rows = scan.to_table().slice(0, 45).to_pylist()
    late = sum(row["tags"] == "b" for row in rows)

    found = {
        "DuckDB": duckdb.sql(
            "SELECT count(*) FROM (SELECT * FROM scan LIMIT 45) WHERE tags = 'b'"
        ).fetchall()[0],
        "a dataset of Polars": pl.scan_pyarrow_dataset(scan)
        .head(45)
        .filter(LATE)
        .select(pl.len())
        .collect()
        .row(0),
        "SQL of Polars": pl.SQLContext(m=scan.to_polars_lazy())
        .execute("SELECT count(*) FROM (SELECT * FROM m LIMIT 45) WHERE tags = 'b'", eager=True)
        .row(0),
    }

    assert found == dict.fromkeys(found, (late,))
    assert late == 5


def test_a_table_is_limited_before_it_is_filtered(golden_550: Path) -> None:
    lazy = mqlog.open(golden_550).table("queues").to_polars_lazy()
    whole = lazy.collect()

    for engine in ENGINES:
        found = lazy.head(6).filter(pl.col("queueId") == 1).collect(engine=engine)
        assert_frame_equal(found, whole.head(6).filter(pl.col("queueId") == 1))
