"""Filters and limits of a scan, in the order of the calls."""

import pickle
from collections.abc import Callable
from pathlib import Path
from typing import Any

import polars as pl
import pyarrow as pa
import pyarrow.compute as pc
import pytest

import mqlog
from mqstore.read.settings import ScanSettings
from mqstore.request import plan

COLUMNS = ["queueId", "queueOffset", "tags"]
TAG = pc.field("tags") == "GA"
LATE = pc.field("queueOffset") >= 20

SHAPES: list[Callable[[Any], Any]] = [
    lambda rows: rows.filter(TAG),
    lambda rows: rows.limit(40),
    lambda rows: rows.limit(0),
    lambda rows: rows.filter(TAG).limit(3),
    lambda rows: rows.limit(40).filter(TAG),
    lambda rows: rows.limit(400).filter(LATE).limit(30).filter(TAG).limit(7),
    lambda rows: rows.filter(LATE).filter(TAG).limit(10_000),
    lambda rows: rows.filter(pc.field("queueId") > 99),
]


class Rows:
    """A table with the calls of a scan."""

    def __init__(self, table: pa.Table) -> None:
        self.table = table

    def filter(self, condition: Any) -> "Rows":
        return Rows(self.table.filter(condition))

    def limit(self, number: int) -> "Rows":
        return Rows(self.table.slice(0, number))


@pytest.mark.parametrize("shape", SHAPES)
def test_filters_and_limits_have_the_rows_of_the_table(
    golden_550: Path, shape: Callable[[Any], Any]
) -> None:
    scan = mqlog.open(golden_550).scan("GTopic", columns=COLUMNS, batch_rows=7)
    expected = shape(Rows(scan.to_table())).table

    query = shape(scan)

    assert query.to_table().equals(expected)
    assert query.count() == expected.num_rows
    assert list(query) == expected.to_pylist()
    assert query.select("queueOffset").to_table().equals(expected.select(["queueOffset"]))
    assert query.select("keys").count() == query.select("keys").to_table().num_rows
    assert query.to_polars().height == pl.DataFrame(query).height == expected.num_rows
    assert pickle.loads(pickle.dumps(query)).to_table().equals(expected)


def test_a_filter_narrows_the_read_and_a_limit_ends_it(
    golden_550: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    scan = mqlog.open(golden_550).scan("GTopic", batch_rows=5, columns="full")
    read: list[tuple[set[int], set[str], int]] = []
    real = plan.scan

    def noted(slices: Any, settings: ScanSettings) -> Any:
        for batch in real(slices, settings):
            queues, names = {piece.queue_id for piece in slices}, set(batch.schema.names)
            read.append((queues, names, batch.num_rows))
            yield batch

    monkeypatch.setattr(plan, "scan", noted)
    query = scan.filter(pc.field("queueId") == 1).limit(8).select("keys")

    assert query.to_table().num_rows == 8
    assert {tuple(queues) for queues, _, _ in read} == {(1,)}
    assert {frozenset(names) for _, names, _ in read} == {frozenset({"keys", "queueId"})}
    assert sum(rows for _, _, rows in read) <= 10


@pytest.mark.parametrize("number", [-1, 2.5, "3", None])
def test_a_limit_that_is_no_number_of_rows_is_refused(number: Any) -> None:
    with pytest.raises(mqlog.MqlogError, match="must be a number of rows, 0 or more"):
        mqlog.open("/x").scan().limit(number)


def test_a_filter_that_is_no_expression_is_refused() -> None:
    scan = mqlog.open("/x").scan()

    with pytest.raises(mqlog.MqlogError, match="must be an expression of pyarrow"):
        scan.filter("tags = 'a'")
    assert repr(scan.filter(TAG).limit(3)).endswith('filter (tags == "GA"); limit 3>')
