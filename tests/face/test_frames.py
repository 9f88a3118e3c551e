"""Columns of any library become the right messages, or an error with the column and the row."""

import datetime as dt
from collections.abc import Callable
from decimal import Decimal
from pathlib import Path
from typing import Any, Final

import duckdb
import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest

import mqlog
from mqlog.frames import reader_of_rows
from support.oracle import Message
from support.stores import lay_out

Make = Callable[[], Any]

BODY: Final = [b"x", b"y"]
BORN: Final = dt.datetime(2026, 11, 21, 9, tzinfo=dt.UTC)
PAIRS: Final = [[("a", "1")], None]
TEXT: Final = pa.string()


def batches(count: int = 3) -> list[pa.RecordBatch]:
    return pa.table({"body": [b"%d" % n for n in range(count)]}).to_batches(max_chunksize=1)


def of_polars(name: str, values: list[Any], kind: Any) -> pl.DataFrame:
    return pl.DataFrame({"body": BODY, name: pl.Series(values, dtype=kind)})


def of_arrow(name: str, values: pa.Array) -> pa.Table:
    return pa.table({"body": BODY, name: values})


def coded(values: list[Any], kind: pa.DataType) -> pa.Array:
    """Return values as a dictionary whose values are of a kind, some of them unused."""
    places = [None if value is None else n + 1 for n, value in enumerate(values)]
    words = pa.array(["unused", *(value or "" for value in values)], kind)
    return pa.DictionaryArray.from_arrays(pa.array(places, pa.int32()), words)


TAKEN: Final[dict[str, tuple[Make, str, list[Any]]]] = {
    "Categorical": (lambda: of_polars("tags", ["a", None], pl.Categorical), "tags", ["a", None]),
    "Enum": (lambda: of_polars("tags", ["a", None], pl.Enum(["b", "a"])), "tags", ["a", None]),
    "a list of Categorical": (
        lambda: of_polars("keys", [["a", "b"], None], pl.List(pl.Categorical)),
        "keys",
        ["a b", None],
    ),
    "Array": (
        lambda: of_polars("keys", [["a", "b"], None], pl.Array(pl.String, 2)),
        "keys",
        ["a b", None],
    ),
    "a slice of lists": (
        lambda: pl.concat(
            [
                of_polars("keys", [["z"], ["y"]], pl.List(pl.String)),
                of_polars("keys", [["a"], None], pl.List(pl.String)),
            ]
        ).tail(2),
        "keys",
        ["a", None],
    ),
    "Int128": (lambda: of_polars("flag", [2**31 - 1, None], pl.Int128), "flag", [2**31 - 1, 0]),
    "UInt8": (lambda: of_polars("flag", [3, None], pl.UInt8), "flag", [3, 0]),
    "Datetime": (
        lambda: of_polars("bornTimestamp", [BORN, BORN], pl.Datetime("ns", "Asia/Shanghai")),
        "bornTimestamp",
        [BORN, BORN],
    ),
    "lists of structs": (
        lambda: of_polars(
            "properties",
            [[{"value": "1", "key": "a"}], None],
            pl.List(pl.Struct({"value": pl.String, "key": pl.String})),
        ),
        "properties",
        PAIRS,
    ),
    "lists of structs with other names": (
        lambda: of_polars(
            "properties",
            [[{"k": "a", "v": 1}], None],
            pl.List(pl.Struct({"k": pl.String, "v": pl.Int64})),
        ),
        "properties",
        PAIRS,
    ),
    "a slice of lists of structs": (
        lambda: pl.DataFrame(
            {
                "body": [b"w", *BODY],
                "properties": [[{"key": "z", "value": "0"}], [{"key": "a", "value": "1"}], None],
            }
        ).tail(2),
        "properties",
        PAIRS,
    ),
    "pandas Int64": (
        lambda: pd.DataFrame({"body": BODY, "flag": pd.array([3, None], "Int64")}),
        "flag",
        [3, 0],
    ),
    "pandas string": (
        lambda: pd.DataFrame({"body": BODY, "tags": pd.array(["a", None], "string")}),
        "tags",
        ["a", None],
    ),
    "pandas of Arrow": (
        lambda: pd.DataFrame(
            {"body": BODY, "tags": pd.array(["a", None], pd.ArrowDtype(pa.large_string()))}
        ),
        "tags",
        ["a", None],
    ),
    "a category": (
        lambda: pd.DataFrame({"body": BODY, "tags": pd.Categorical(["a", None])}),
        "tags",
        ["a", None],
    ),
    "boolean": (
        lambda: pd.DataFrame({"body": BODY, "waitStoreMsgOK": pd.array([None, False], "boolean")}),
        "properties",
        [[("WAIT", "true")], [("WAIT", "false")]],
    ),
    "numbers in properties": (
        lambda: pd.DataFrame(
            {"body": BODY, "properties": [{"a": 1, "b": True}, {"a": np.int8(2)}]}
        ),
        "properties",
        [[("a", "1"), ("b", "true")], [("a", "2")]],
    ),
    "properties that are NaN and NA": (
        lambda: pd.DataFrame({"body": BODY, "properties": [float("nan"), pd.NA]}),
        "properties",
        [None, None],
    ),
    "bytes and texts": (lambda: pd.DataFrame({"body": [b"x", "y"]}), "body", BODY),
    "a dictionary of views": (
        lambda: of_arrow("tags", coded(["a", None], pa.string_view())),
        "tags",
        ["a", None],
    ),
    "a dictionary of integers": (
        lambda: of_arrow("flag", pa.array([3, 4]).dictionary_encode()),
        "flag",
        [3, 4],
    ),
    "runs": (
        lambda: of_arrow("tags", pa.RunEndEncodedArray.from_arrays([1, 2], ["a", None])),
        "tags",
        ["a", None],
    ),
    "a list view": (
        lambda: of_arrow("keys", pa.array([["a", "b"], None], pa.list_view(TEXT))),
        "keys",
        ["a b", None],
    ),
    "a map of large strings": (
        lambda: of_arrow("properties", pa.array(PAIRS, pa.map_(pa.large_string(), TEXT))),
        "properties",
        PAIRS,
    ),
    "a slice of a map to integers": (
        lambda: pa.table(
            {
                "body": [b"w", *BODY],
                "properties": pa.array([[("z", 0)], [("a", 1)], None], pa.map_(TEXT, pa.int64())),
            }
        ).slice(1),
        "properties",
        PAIRS,
    ),
    "JSON": (
        lambda: pa.table(
            {"body": pa.ExtensionArray.from_storage(pa.json_(), pa.array(["x", "y"]))}
        ),
        "body",
        BODY,
    ),
    "a dict of columns": (lambda: {"body": BODY, "tags": ["a", None]}, "tags", ["a", None]),
    "a dict of arrays": (
        lambda: {"body": pa.array(BODY), "tags": pd.Series(["a", None]), "flag": np.array([1, 2])},
        "flag",
        [1, 2],
    ),
    "a list of dicts": (
        lambda: [{"body": "x", "properties": {"a": 1}}, {"body": "y"}],
        "properties",
        PAIRS,
    ),
    "an iterator of dicts": (lambda: iter([{"body": "x"}, {"body": b"y"}]), "body", BODY),
    "a generator of batches": (lambda: (batch for batch in batches()), "body", [b"0", b"1", b"2"]),
    "frames of several kinds": (
        lambda: [pl.DataFrame({"body": ["x"]}), pd.DataFrame({"body": ["y"]})],
        "body",
        BODY,
    ),
}


@pytest.mark.parametrize("kind", TAKEN)
def test_a_column_becomes_the_values_of_messages(kind: str, tmp_path: Path) -> None:
    make, name, values = TAKEN[kind]
    columns = ["body", name] if name != "body" else ["body"]

    mqlog.write(make(), tmp_path / "s", topic="T", create_store=True, partitioner="single")

    rows = mqlog.open(tmp_path / "s").scan("T", columns=columns).to_table().to_pylist()
    assert [own(row[name]) for row in rows] == [own(value) for value in values]


def own(value: Any) -> Any:
    """Return properties without what a producer adds: those named in one letter, or WAIT=false."""
    if not isinstance(value, list):
        return value or []
    return [pair for pair in value if pair[0].islower() or pair == ("WAIT", "false")]


REFUSED: Final[dict[str, tuple[Make, str]]] = {
    "half a pair in a body": (
        lambda: pd.DataFrame({"body": ["x", "\ud800"]}),
        "row 1, column body: has half",
    ),
    "half a pair in tags": (
        lambda: pd.DataFrame({"body": BODY, "tags": [None, "\udfff"]}),
        "row 1, column tags: has half",
    ),
    "half a pair in properties": (
        lambda: pd.DataFrame({"body": BODY, "properties": [{"a": "1"}, {"\ud800": "b"}]}),
        "row 1, column properties: .*surrogate",
    ),
    "half a pair in a dict": (lambda: [{"body": "x"}, {"body": "\ud800"}], "row 1, column body"),
    "half a pair far behind": (
        lambda: ({"body": "x" if n != 9_999 else "\ud800"} for n in range(10_000)),
        "row 9999, column body",
    ),
    "half a pair in a later frame": (
        lambda: [*batches(), pd.DataFrame({"body": [b"x", "\ud800"]})],
        "row 4, column body",
    ),
    "a number in a body": (
        lambda: pd.DataFrame({"body": [b"x", 3]}),
        "row 1, column body: Expected",
    ),
    "an object": (lambda: pd.DataFrame({"body": [object()]}), "row 0, column body"),
    "a huge number": (
        lambda: pd.DataFrame({"body": BODY, "flag": [1, 2**70]}),
        "row 1, column flag",
    ),
    "a huge number of 128 bits": (
        lambda: of_polars("flag", [1, 2**70], pl.Int128),
        "row 1, column flag: .*64 bits",
    ),
    "a fraction in properties": (
        lambda: [{"body": "x", "properties": {"a": 2.5}}],
        "row 0, column properties: .*2.5",
    ),
    "a number as a name": (
        lambda: pd.DataFrame({"body": BODY, "properties": [None, {1: "a"}]}),
        "row 1, column properties",
    ),
    "a text as properties": (
        lambda: [{"body": "x", "properties": "a"}],
        "row 0, column properties",
    ),
    "a pair without a name": (
        lambda: of_polars(
            "properties",
            [[{"k": "a", "v": "1"}], [{"k": None, "v": "1"}]],
            pl.List(pl.Struct({"k": pl.String, "v": pl.String})),
        ),
        "row 1, column properties: .*NULL",
    ),
    "a struct": (lambda: of_polars("properties", [{"a": "1"}] * 2, None), r"properties \(struct"),
    "three in a struct": (
        lambda: of_polars("properties", [[{"a": "1", "b": "2", "c": "3"}]] * 2, None),
        r"properties \(.*struct",
    ),
    "a map to fractions": (
        lambda: of_arrow("properties", pa.array([[("a", 1.5)]] * 2, pa.map_(TEXT, pa.float64()))),
        r"column properties \(map<string, double>\)",
    ),
    "a map of binary": (
        lambda: of_arrow(
            "properties", pa.array([[(b"a", b"\xff")]] * 2, pa.map_(pa.binary(), pa.binary()))
        ),
        r"column properties \(map<binary, binary>\)",
    ),
    "Object": (
        lambda: pl.DataFrame({"body": pl.Series([object()], dtype=pl.Object)}),
        "body .Object",
    ),
    "a period": (
        lambda: pd.DataFrame(
            {"body": BODY, "bornTimestamp": pd.period_range("2026-01", periods=2)}
        ),
        r"bornTimestamp \(extension<pandas.period",
    ),
    "complex numbers": (lambda: pd.DataFrame({"body": [1j]}), r"column body \(complex128\)"),
    "decimals": (
        lambda: of_arrow("flag", pa.array([Decimal("1.5")] * 2)),
        r"column flag \(decimal128",
    ),
    "times without a zone": (
        lambda: of_arrow("bornTimestamp", pa.array([BORN] * 2, pa.timestamp("ms"))),
        r"bornTimestamp \(timestamp\[ms\]\): a timestamp with a time zone",
    ),
    "one name twice": (
        lambda: pd.DataFrame([[b"x", b"y"]], columns=["body", "body"]),
        "body .repeated",
    ),
    "a Series of pandas": (lambda: pd.Series([b"x"], name="body"), r"series.to_frame\('body'\)"),
    "a Series of Polars": (lambda: pl.Series("body", [b"x"]), r"series.to_frame\('body'\)"),
    "a LazyFrame": (lambda: pl.DataFrame({"body": BODY}).lazy(), r"frame.collect\(\)"),
    "an array": (lambda: pa.array(["x"]), "a write takes a table"),
    "a text": (lambda: "x", "a write takes a table"),
    "numbers": (lambda: [1], "data='a int': a write takes a table"),
    "one row": (lambda: {"body": "x"}, r"column body is no list; one row is \[\{…\}\]"),
    "columns of two lengths": (lambda: {"body": BODY, "tags": ["a"]}, "1 to 2 rows"),
    "a row that is no dict": (lambda: [{"body": "x"}, "y"], "row 1 is a str, not a dict"),
    "nothing": (lambda: iter([]), "data='an empty list_iterator'"),
    "batches of two kinds": (
        lambda: [*batches(), pa.table({"tags": ["a"]})],
        "part 4 has other columns or types",
    ),
}


@pytest.mark.parametrize("kind", REFUSED)
def test_what_is_no_message_is_refused_by_name_and_leaves_nothing(
    kind: str, tmp_path: Path
) -> None:
    make, words = REFUSED[kind]

    with pytest.raises(mqlog.MqlogError, match=words):
        mqlog.write(make(), tmp_path / "s", topic="T", create_store=True)

    assert not (tmp_path / "s").exists()


def test_a_property_that_rocketmq_keeps_names_the_way_for_messages_that_were_read(
    tmp_path: Path,
) -> None:
    rows = {"body": ["x"], "properties": [{"MSG_REGION": "r"}]}

    with pytest.raises(mqlog.MqlogError, match=r"'MSG_REGION' .*keep a column .*\(msgId\) beside"):
        mqlog.write(rows, tmp_path / "s", topic="T", create_store=True)
    mqlog.write(rows | {"msgId": ["0"]}, tmp_path / "s", topic="T", create_store=True)

    (row,) = mqlog.open(tmp_path / "s").scan("T", columns="properties")
    assert dict(row["properties"]) == {"MSG_REGION": "r"}


def test_rows_of_an_iterator_are_asked_for_as_they_are_written() -> None:
    asked: list[int] = []

    def endless() -> Any:
        while True:
            asked.append(len(asked))
            yield {"body": b"x"}

    reader = reader_of_rows(endless())
    rows = sum(reader.read_next_batch().num_rows for _ in range(3))

    assert 0 < rows <= len(asked) <= 3 * 4_096


@pytest.fixture
def odd(tmp_path: Path) -> Path:
    """A store whose texts are no UTF-8, also those of a retry and of an index."""
    names = b"TAGS\1\xed\xa0\x80\2KEYS\1k\xff\2a\1\xff\2\xfe\1x\2RETRY_TOPIC\1\xff\2"
    root = tmp_path / "store"
    lay_out(
        root,
        [
            Message(topic=topic, body=b"\xff\xed\xa0\x80", properties=names, queue_id=queue)
            for topic in ("T", "%RETRY%CG", "RMQ_SYS_TRACE_TOPIC", "SCHEDULE_TOPIC_XXXX")
            for queue in (0, 1)
        ],
    )
    return root


def test_texts_that_are_no_utf8_reach_every_engine_in_every_table(odd: Path) -> None:
    place = mqlog.open(odd)
    tables = {name: place.table(name) for name in place.tables() if name != "messages"}
    tables["messages"] = place.scan(include_system_topics=True, columns="full")

    for name, table in tables.items():
        rows = table.to_table()
        for column in rows.columns:
            column.validate(full=True)
        assert table.to_polars_lazy().collect().height == rows.num_rows, name
        assert duckdb.from_arrow(table).count("*").fetchall() == [(rows.num_rows,)], name
        assert len(rows.to_pylist()) == len(table.to_pandas()) == rows.num_rows, name

    first = tables["messages"].to_table().to_pylist()[0]
    assert (first["tags"], first["keys"]) == (3 * "\ufffd", "k\ufffd")
    assert first["body"] == b"\xff\xed\xa0\x80"
