"""What a query filters by becomes ranges of the read; its rows are those of all rows, filtered."""

import random
from collections.abc import Callable, Iterator, Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, Final

import duckdb
import polars as pl
import pyarrow as pa
import pyarrow.compute as pc
import pytest
from hypothesis import given
from hypothesis import strategies as st

import mqlog
from mqstore.read.settings import ScanSettings
from mqstore.read.source import QueueSlice
from mqstore.request import plan
from support import oracle
from support.oracle import Message
from support.stores import lay_out

Leaf = tuple[str, str, Any]
Condition = tuple[str, Any, Any]

COLUMNS: Final = ["topic", "brokerName", "queueId", "queueOffset", "storeTimestamp", "tags", "keys"]
START: Final = datetime(2026, 11, 21, tzinfo=UTC)
QUEUES: Final = 3
A_QUEUE: Final = 80
APART: Final = timedelta(minutes=20)
BACK: Final = timedelta(minutes=4)
"""How far the clock goes back at some messages."""
TAGS: Final = ("A", "B", "Aa", "BB", None, "a||b", " A", "\N{EURO SIGN}")


@pytest.fixture(scope="module")
def day(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A store of a day, whose clock goes back now and then. ``Aa`` and ``BB`` have one hash."""
    draw = random.Random(27)
    root = tmp_path_factory.mktemp("day") / "store"
    lay_out(root, map(message, range(QUEUES * A_QUEUE), iter(draw.random, None)))
    return root


def message(number: int, chance: float) -> Message:
    stored = START + number // QUEUES * APART - (BACK if chance < 0.3 else timedelta(0))
    tag = TAGS[int(chance * 100) % len(TAGS)]
    return Message(
        queue_id=number % QUEUES,
        body=b"%d" % number,
        properties=oracle.join_properties({"TAGS": tag} if tag else {"KEYS": "k"}),
        store_timestamp_ms=int(stored.timestamp() * 1000),
    )


@pytest.fixture
def read(monkeypatch: pytest.MonkeyPatch) -> list[tuple[QueueSlice, str]]:
    """The slices that the core read, each with the tags."""
    seen: list[tuple[QueueSlice, str]] = []
    real = plan.scan

    def noted(slices: Sequence[QueueSlice], settings: ScanSettings) -> Iterator[pa.RecordBatch]:
        seen.extend((piece, settings.tags) for piece in slices)
        return real(slices, settings)

    monkeypatch.setattr(plan, "scan", noted)
    return seen


TESTS: Final[dict[str, Callable[[Any, Any], bool]]] = {
    "=": lambda a, b: a == b,
    "<>": lambda a, b: a != b,
    "<": lambda a, b: a < b,
    "<=": lambda a, b: a <= b,
    ">": lambda a, b: a > b,
    ">=": lambda a, b: a >= b,
    "in": lambda a, b: a in b,
    "between": lambda a, b: b[0] <= a <= b[1],
}
VALUES: Final[dict[str, st.SearchStrategy[Any]]] = {
    "topic": st.sampled_from(["T", "GTopic", "X"]),
    "brokerName": st.sampled_from(["broker-a", "b"]),
    "queueId": st.integers(-1, 4),
    "queueOffset": st.integers(-2, A_QUEUE + 2),
    "storeTimestamp": st.integers(-5, 2000).map(lambda n: START + n * timedelta(minutes=1)),
    "tags": st.sampled_from([tag for tag in (*TAGS, "GA", "GB", "") if tag is not None]),
    "keys": st.sampled_from(["k", "late78"]),
}


def leaf(column: str) -> st.SearchStrategy[Leaf]:
    one = VALUES[column]
    return st.one_of(
        st.tuples(st.just(column), st.sampled_from([*TESTS][:6]), one),
        st.tuples(st.just(column), st.just("in"), st.lists(one, min_size=1, max_size=3)),
        st.tuples(st.just(column), st.just("between"), st.tuples(one, one)),
        st.tuples(st.just(column), st.just("null"), st.booleans()),
    )


LEAVES: Final = st.sampled_from([*VALUES]).flatmap(leaf)
CONDITIONS: Final = st.recursive(
    LEAVES, lambda inner: st.tuples(st.sampled_from(["and", "or"]), inner, inner), max_leaves=5
)


def passes(row: dict[str, Any], condition: Condition) -> bool:
    first, second, third = condition
    if first == "and":
        return passes(row, second) and passes(row, third)
    if first == "or":
        return passes(row, second) or passes(row, third)
    value = row[first]
    if second == "null":
        return (value is None) == third
    return value is not None and TESTS[second](value, third)


def as_sql(condition: Condition) -> str:
    first, second, third = condition
    if first in ("and", "or"):
        return f"({as_sql(second)} {first} {as_sql(third)})"
    if second == "null":
        return f"{first} IS {'' if third else 'NOT '}NULL"
    if second == "in":
        return f"{first} IN ({', '.join(map(literal, third))})"
    if second == "between":
        return f"{first} BETWEEN {literal(third[0])} AND {literal(third[1])}"
    return f"{first} {second} {literal(third)}"


def literal(value: Any) -> str:
    if isinstance(value, datetime):
        return f"TIMESTAMPTZ '{value.isoformat()}'"
    return f"'{value}'" if isinstance(value, str) else str(value)


def as_expression(condition: Condition, column: Callable[[str], Any]) -> Any:
    """Return it as an expression of Polars or of Arrow, as ``column`` makes it of a name."""
    first, second, third = condition
    if first in ("and", "or"):
        left, right = as_expression(second, column), as_expression(third, column)
        return left & right if first == "and" else left | right
    found = column(first)
    if second == "null":
        null = found.is_null()
        return null if third else ~null
    if second == "in":
        return found.is_in(third) if isinstance(found, pl.Expr) else found.isin(third)
    if second == "between":
        return (found >= third[0]) & (found <= third[1])
    return {"=": found.__eq__, "<>": found.__ne__, "<": found.__lt__, "<=": found.__le__,
            ">": found.__gt__, ">=": found.__ge__}[second](third)  # fmt: skip


def whole(scan: mqlog.Scan) -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = scan.to_table().to_pylist()
    return rows


def in_order(rows: list[dict[str, Any]]) -> list[str]:
    return sorted(" ".join(str(row[name]) for name in COLUMNS) for row in rows)


def sql(scan: mqlog.Scan, where: str) -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = duckdb.from_arrow(scan).filter(where).to_arrow_table().to_pylist()
    return rows


def polars(scan: mqlog.Scan, predicate: pl.Expr) -> pl.DataFrame:
    return scan.to_polars_lazy().filter(predicate).collect()


def check(root: Path, topic: str, condition: Condition) -> None:
    scan = mqlog.open(root).scan(topic, columns=COLUMNS)
    wanted = in_order([row for row in whole(scan) if passes(row, condition)])

    found = {
        "DuckDB": sql(scan, as_sql(condition)),
        "Polars": polars(scan, as_expression(condition, pl.col)).to_dicts(),
        "Arrow": scan.to_table(filter=as_expression(condition, pc.field)).to_pylist(),
    }

    assert {name: in_order(rows) for name, rows in found.items()} == dict.fromkeys(found, wanted)


@given(condition=CONDITIONS)
def test_a_filter_gives_the_rows_of_a_day_that_pass_it(day: Path, condition: Condition) -> None:
    check(day, "T", condition)


@given(condition=CONDITIONS)
def test_a_filter_gives_the_rows_of_a_brokers_store(golden_550: Path, condition: Condition) -> None:
    check(golden_550, "GTopic", condition)


def test_a_read_without_errors_on_damage_goes_by_queues_and_offsets_only(
    day: Path, read: list[tuple[QueueSlice, str]]
) -> None:
    scan = mqlog.open(day).scan("T", on_corrupt="skip")

    rows = sql(
        scan,
        "queueId = 1 AND queueOffset < 3 AND tags = 'A' AND "
        "storeTimestamp < TIMESTAMPTZ '2026-11-21T00:30Z'",
    )

    assert len(rows) == sum(row["tags"] == "A" for row in whole(scan) if is_early(row))
    assert [(p.queue_id, p.start, p.end, tags) for p, tags in read[:1]] == [(1, 0, 4, "*")]


def is_early(row: dict[str, Any]) -> bool:
    early = row["storeTimestamp"] < START + timedelta(minutes=30)
    return bool(row["queueId"] == 1 and row["queueOffset"] < 3 and early)


MINUTE: Final = (
    "storeTimestamp >= TIMESTAMPTZ '2026-11-21T10:00Z' AND "
    "storeTimestamp < TIMESTAMPTZ '2026-11-21T10:01Z'"
)


@pytest.mark.parametrize(
    ("where", "ranges", "tags"),
    [
        ("queueId = 0 AND queueOffset BETWEEN 5 AND 9", [(0, 5, 10)], "*"),
        ("queueId IN (0, 2) AND queueOffset IN (3, 70)",
         [(0, 3, 4), (0, 70, 71), (2, 3, 4), (2, 70, 71)], "*"),
        ("(queueId = 0 AND queueOffset < 5) OR (queueId = 1 AND queueOffset > 75)",
         [(0, 0, 6), (1, 75, 80)], "*"),
        ("tags = 'A' AND queueId = 1", [(1, 0, 80)], "A"),
        ("tags IN ('Aa', 'A') AND queueId = 1", [(1, 0, 80)], "A||Aa"),
        ("tags = 'a||b' AND queueId = 1", [(1, 0, 80)], "*"),
        ("(tags = 'A' OR tags IS NULL) AND queueId = 1", [(1, 0, 80)], "*"),
        (f"{MINUTE} AND queueId = 2", [(2, 30, 31)], "*"),
        ("topic = 'X'", [], "*"),
        ("brokerName = 'another'", [], "*"),
        ("queueOffset > 5 AND queueOffset < 3", [], "*"),
        ("tags = 'A' AND tags = 'B'", [], "*"),
        ("queueOffset % 2 = 0 AND queueId = 1", [(1, 0, 80)], "*"),
    ],
)  # fmt: skip
def test_a_filter_is_a_range_of_the_read(
    day: Path,
    read: list[tuple[QueueSlice, str]],
    where: str,
    ranges: list[tuple[int, int, int]],
    tags: str,
) -> None:
    sql(mqlog.open(day).scan("T", columns=COLUMNS), where)

    found = [(piece.queue_id, piece.start, piece.end) for piece, _ in read]
    assert found == ranges
    assert {text for _, text in read} <= {tags}


def test_each_engine_reads_the_same_range(day: Path, read: list[tuple[QueueSlice, str]]) -> None:
    scan = mqlog.open(day).scan("T")
    queue, offset, tags = (pl.col(name) for name in ("queueId", "queueOffset", "tags"))
    is_wanted = (queue == 0) & offset.is_between(5, 9) & (tags == "A") & tags.str.contains("A")
    in_arrow = (pc.field("queueId") == 0) & (pc.field("queueOffset") >= 5)
    in_arrow &= (pc.field("queueOffset") <= 9) & (pc.field("tags") == "A")
    asked: dict[str, Callable[[], Any]] = {
        "DuckDB": lambda: (
            duckdb.from_arrow(scan)
            .filter("queueId = 0 AND queueOffset BETWEEN 5 AND 9 AND tags = 'A'")
            .select("body")
            .fetchall()
        ),
        "Polars": lambda: scan.to_polars_lazy().filter(is_wanted).select("body").collect(),
        "Polars, streaming": lambda: (
            scan.to_polars_lazy().filter(is_wanted).select("body").collect(engine="streaming")
        ),
        "a dataset of Polars": lambda: (
            pl.scan_pyarrow_dataset(scan).filter(is_wanted).select("body").collect()
        ),
        "SQL of Polars": lambda: pl.SQLContext(m=scan.to_polars_lazy()).execute(
            "SELECT body FROM m WHERE queueId = 0 AND queueOffset >= 5 AND queueOffset <= 9 "
            "AND tags = 'A'",
            eager=True,
        ),
        "Arrow": lambda: scan.to_table(columns=["body"], filter=in_arrow),
        "a count of Arrow": lambda: scan.count_rows(in_arrow),
    }

    found = {}
    for name, ask in asked.items():
        read.clear()
        ask()
        found[name] = [(p.queue_id, p.start, p.end, text) for p, text in read]

    assert found == {name: [(0, 5, 10, "A")] for name in asked}


def test_the_columns_of_kafka_are_filtered_alike(
    day: Path, read: list[tuple[QueueSlice, str]]
) -> None:
    scan = mqlog.open(day).scan("T", columns="kafka")

    rows = sql(
        scan,
        "partition = 2 AND \"offset\" >= 7 AND timestamp <= TIMESTAMPTZ '2026-11-21T03:20Z'",
    )

    assert [row["offset"] for row in rows] == list(range(7, 11))
    assert [(p.queue_id, p.start, p.end) for p, _ in read] == [(2, 7, 11)]


def test_a_table_is_filtered_by_its_engine(golden_550: Path) -> None:
    backlog = mqlog.open(golden_550).table("backlog")
    rows = backlog.to_table().to_pylist()

    found = sql(backlog, '"queueId" = 1')

    assert found == [row for row in rows if row["queueId"] == 1]
    assert found


def test_tags_that_the_scan_has_are_kept(day: Path, read: list[tuple[QueueSlice, str]]) -> None:
    scan = mqlog.open(day).scan("T", tags="A || Aa")

    found = sql(scan, "tags IN ('Aa', 'BB')")

    assert {row["tags"] for row in found} == {"Aa"}
    assert {text for _, text in read} == {"A || Aa"}


def test_a_long_list_of_values_leaves_the_queue(
    day: Path, read: list[tuple[QueueSlice, str]]
) -> None:
    scan = mqlog.open(day).scan("T", columns=["queueId", "queueOffset", "tags"])
    many = [*range(40, 60), *range(10**6, 10**6 + 500)]

    found = scan.to_table(filter=pc.field("queueOffset").isin(many) & (pc.field("queueId") == 1))

    assert found["queueOffset"].to_pylist() == list(range(40, 60))
    assert {p.queue_id for p, _ in read} == {1}


def test_a_condition_of_another_type_is_left_to_arrow(day: Path) -> None:
    scan = mqlog.open(day).scan("T")

    assert scan.count_rows(pc.field("queueOffset") < 4.5) == 5 * QUEUES
    with pytest.raises((pa.ArrowInvalid, pa.ArrowNotImplementedError)):
        scan.count_rows(pc.field("queueOffset") == pc.field("tags"))
