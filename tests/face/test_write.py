"""Rows of any library become messages; following gives what is stored."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import duckdb
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest

import mqlog
from mqlog import errors

ROWS = {
    "body": [b"one", b"two"],
    "tags": ["A", None],
    "keys": ["k1 k2", ""],
    "topic": ["T", "T"],
}


def in_types(text: pa.DataType, body: pa.DataType) -> pa.Table:
    """Return the rows with their columns in those types of Arrow."""
    columns = {name: pa.array(values) for name, values in ROWS.items()}
    kinds = {name: body if name == "body" else text for name in ROWS}
    return pa.table({name: column.cast(kinds[name]) for name, column in columns.items()})


FRAMES: dict[str, Callable[[], Any]] = {
    "a table": lambda: pa.table(ROWS),
    "a batch": lambda: pa.table(ROWS).to_batches()[0],
    "a reader": lambda: pa.table(ROWS).to_reader(),
    "large strings": lambda: in_types(pa.large_string(), pa.large_binary()),
    "string views": lambda: in_types(pa.string_view(), pa.binary_view()),
    "dictionaries": lambda: in_types(pa.dictionary(pa.int8(), pa.string()), pa.binary()),
    "pandas": lambda: pd.DataFrame(ROWS),
    "pandas with an index": lambda: pd.DataFrame(ROWS, index=["x", "y"]),
    "Polars": lambda: pl.DataFrame(ROWS),
    "DuckDB": lambda: duckdb.sql(
        "SELECT * FROM (VALUES ('one'::BLOB, 'A', 'k1 k2', 'T'), ('two'::BLOB, NULL, '', 'T')) "
        "AS t(body, tags, keys, topic)"
    ),
}


@pytest.mark.parametrize("kind", FRAMES)
def test_a_frame_of_any_library_is_written(
    kind: str, tmp_path: Path, checked: Callable[[Path], Path]
) -> None:
    root = checked(tmp_path / "store")

    done = mqlog.write(FRAMES[kind](), root, create_store=True, partitioner="single")

    scan = mqlog.open(root).scan("T", columns=["body", "tags", "keys"])
    assert done == mqlog.WriteResult(messages=2, skipped=0, is_repeated=False)
    assert scan.to_table().to_pylist() == [
        {"body": b"one", "tags": "A", "keys": "k1 k2"},
        {"body": b"two", "tags": None, "keys": None},
    ]


@pytest.mark.parametrize(
    "rows",
    [
        pd.DataFrame({"body": ["a", "b"], "properties": [{"x": "1"}, None]}),
        pl.DataFrame({"body": ["a", "b"], "properties": [[{"key": "x", "value": "1"}], None]}),
    ],
    ids=["pandas", "Polars"],
)
def test_properties_are_dicts_of_pandas_and_lists_of_polars(rows: object, tmp_path: Path) -> None:
    mqlog.write(rows, tmp_path / "s", topic="T", create_store=True, partitioner="single")

    found = mqlog.open(tmp_path / "s").scan("T", columns="properties").to_table().to_pylist()

    assert [dict(row["properties"]).get("x") for row in found] == ["1", None]


@pytest.mark.parametrize("convert", [lambda s: s, lambda s: s.to_pandas(), lambda s: s.to_polars()])
def test_messages_that_were_read_are_written_again(
    golden_550: Path, tmp_path: Path, convert: Callable[[mqlog.Scan], object]
) -> None:
    columns = ["body", "tags", "keys", "queueId", "properties", "msgId"]
    scan = mqlog.open(golden_550).scan("GTopic", columns=["topic", *columns])

    mqlog.write(convert(scan), tmp_path / "s", create_store=True, queue_nums=4)

    def rows(found: mqlog.Scan) -> list[str]:
        return [repr(row) for row in found.select(columns[:4]).to_table().to_pylist()]

    assert sorted(rows(mqlog.open(tmp_path / "s").scan("GTopic"))) == sorted(rows(scan))


def test_a_write_that_is_named_happens_once(tmp_path: Path) -> None:
    rows = pa.table({"body": ["a"]})
    once = {"topic": "T", "create_store": True, "txn_app_id": "job", "txn_version": 1}

    first, second = (mqlog.write(rows, tmp_path / "s", **once) for _ in range(2))

    assert (first.messages, first.is_repeated, second.is_repeated) == (1, False, True)
    assert mqlog.open(tmp_path / "s").scan("T").count() == 1


@pytest.mark.parametrize(
    ("rows", "options", "words"),
    [
        ([1], {"topic": "T"}, "a write takes a table"),
        (pa.table({"body": ["a"]}), {}, "column topic"),
        (pa.table({"bdy": ["a"]}), {"topic": "T"}, "did you mean body"),
        (pa.table({"body": ["a"]}), {"topic": "T", "create_stor": True}, "mean create_store"),
        (pa.table({"body": ["a"]}), {"topic": "T", "starting_offsets": "-1"}, "option of reads"),
    ],
)
def test_a_write_that_cannot_be_leaves_nothing(
    rows: object, options: dict[str, Any], words: str, tmp_path: Path
) -> None:
    with pytest.raises(mqlog.MqlogError, match=words):
        mqlog.write(rows, tmp_path / "s", **{"create_store": True, **options})

    assert not (tmp_path / "s").exists()


def test_a_bad_row_leaves_no_store_and_no_staged_file(tmp_path: Path) -> None:
    rows = pa.table({"body": ["a", "b"], "topic": ["T", "T/x"]})

    with pytest.raises(errors.InvalidMessageError):
        mqlog.write(rows, tmp_path / "s", create_store=True)

    assert not (tmp_path / "s").exists()


def test_following_sees_what_is_stored_meanwhile_and_publishes_a_group(tmp_path: Path) -> None:
    root = tmp_path / "s"
    mqlog.write(pa.table({"body": ["a"]}), root, topic="T", create_store=True)
    place = mqlog.open(root)
    loop = place.follow(
        "T", starting_offsets="earliest", columns="body", timeout=60, commit_group="CG_F"
    )

    first, position = next(loop)
    mqlog.write(pa.table({"body": ["b"]}), root, topic="T")
    second, _ = next(loop)
    loop.close()  # type: ignore[attr-defined]
    again, _ = next(place.follow("T", position=position, columns="body", timeout=0))

    assert [b["body"].to_pylist() for b in (first, second, again)] == [[b"a"], [b"b"], [b"b"]]
    offsets = place.table("offsets", groups="CG_F").to_table().to_pylist()
    assert sum(row["consumerOffset"] for row in offsets) == 1


@pytest.mark.parametrize(
    ("position", "words"),
    [({"T": {"0": 99}}, "ends at queue offset"), ({"T": 3}, "position")],
)
def test_a_position_of_another_store_is_refused(
    tmp_path: Path, position: dict[str, Any], words: str
) -> None:
    mqlog.write(pa.table({"body": ["a"]}), tmp_path / "s", topic="T", create_store=True)

    with pytest.raises(mqlog.MqlogError, match=words):
        next(mqlog.open(tmp_path / "s").follow("T", position=position, timeout=0))


def test_following_waits_no_longer_than_it_was_told(tmp_path: Path) -> None:
    mqlog.write(pa.table({"body": ["a"]}), tmp_path / "s", topic="T", create_store=True)

    assert list(mqlog.open(tmp_path / "s").follow("T", timeout=0)) == []
