"""Typed bodies have the same values at every door."""

import json
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession
from pyspark.sql import functions as fn

import mqlog
from bodies.odd import DDL, GOOD, ODD, UnjudgedError, reference
from doors.doors import streamed
from jobs.command import Run
from mqstore.errors import InvalidOptionError
from pyspark_mqlog.datasource import MqlogDataSource
from support import oracle
from support.oracle import Message
from support.stores import MakeStore

BODIES = [body for odd in ODD.values() for body in (odd, GOOD)]
OPTIONS = ("-o", "body=json", "-o", f"bodySchema={DDL}")
STRICTER = {
    "two documents", "two documents in Arrow's own wrap", "another field beside the body",
    "NUL behind it", "invalid UTF-8", "GBK", "half of a surrogate pair",
    "half of a surrogate pair in an unknown field", "milliseconds as seconds",
    "1.50 for text", "an object for text",
}  # fmt: skip
"""Where the guide says that Spark loses or changes data, or writes it otherwise."""


@pytest.fixture
def root(store: MakeStore) -> Path:
    made = [
        Message(
            topic="T",
            body=body,
            properties=oracle.join_properties({"KEYS": f"k{number}"}),
            store_timestamp_ms=1_700_000_000_000 + number,
        )
        for number, body in enumerate(BODIES)
    ]
    return store(made).root


def scanned(root: Path, **options: Any) -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = (
        mqlog.open(root).scan("T", body="json", body_schema=DDL, **options).to_table().to_pylist()
    )
    return rows


def test_the_command_gives_the_rows_of_scan(root: Path, run: Run) -> None:
    right = scanned(root)
    cat = run("cat", root, "T", "-n", "0", "--json", *OPTIONS).rows
    sql = run("sql", root, 'SELECT * FROM "T" ORDER BY queueOffset', "--json", *OPTIONS).rows
    assert len(cat) == len(sql) == len(right)
    for row, of_cat, of_sql in zip(right, cat, sql, strict=True):
        for given in (of_cat, of_sql):
            assert given["_bodyError"] == row["_bodyError"]
            body = row["body"]
            if body is None:
                assert given["body"] is None
                continue
            assert isinstance(given["body"], dict)
            for name in ("i", "n", "s", "b", "a", "o", "os"):
                assert given["body"][name] == body[name], (name, row)
            if body["m"] is not None:
                assert float(str(given["body"]["m"])) == float(body["m"])
    found = run("find", root, "--key", "k1", "--json", *OPTIONS).rows
    assert found[0]["body"]["i"] == 1  # type: ignore[index, call-overload]
    line = run("cat", root, "T/0@1", "-n", "1", "-f", "{body}", *OPTIONS).out
    assert json.loads(line)["s"] == "x"


def test_sql_reads_a_field_of_a_topic_without_a_schema(root: Path, run: Run) -> None:
    done = run("sql", root, "SELECT count(body.s) AS n FROM T", "--json", "-o", "body=json")
    assert done.code == 0, done.err
    assert int(str(done.rows[0]["n"])) > len(ODD)


def test_a_follower_of_the_command_has_typed_bodies(root: Path, run: Run) -> None:
    lines = run(
        "cat", root, "T", "--follow", "--since", "2000-01-01T00:00:00Z", "-n", "3", "--json",
        *OPTIONS,
    )  # fmt: skip
    assert lines.rows[1]["body"]["i"] == 1  # type: ignore[index, call-overload]
    refused = run("cat", root, "T", "--follow", "-n", "1", "-o", "body=json")
    assert "bodySchema" in refused.err


@pytest.mark.spark
def test_spark_gives_the_rows_of_scan_in_batches_and_streams(
    spark: SparkSession, root: Path, tmp_path: Path
) -> None:
    right = {row["queueOffset"]: row for row in scanned(root)}
    own = {"body": "json", "bodySchema": DDL}
    batch = spark.read.format("mqlog").options(**own).load(str(root))
    stream = streamed(spark, root, own, "typed_bodies", tmp_path / "checkpoint")
    for frame in (batch, stream):
        rows = frame.select(
            "queueOffset", "_bodyError", fn.col("_corruptBody").alias("raw"), "body.i", "body.n",
            "body.s", "body.m", "body.b", "body.a", fn.unix_micros("body.t").alias("t"),
        ).collect()  # fmt: skip
        assert len(rows) == len(right)
        for row in rows:
            same = right[row.queueOffset]
            body = same["body"] or {}
            assert row["_bodyError"] == same["_bodyError"]
            assert (None if row.raw is None else bytes(row.raw)) == same["_corruptBody"]
            for name in ("i", "n", "s", "m", "b", "a"):
                assert row[name] == body.get(name), (name, same)


@pytest.mark.spark
def test_from_json_of_spark_gives_the_same_but_where_the_guide_says_otherwise(
    spark: SparkSession, root: Path
) -> None:
    plain = spark.read.format("mqlog").load(str(root))
    schema = f"{DDL}, bad STRING"
    parsed = plain.select(
        "queueOffset",
        fn.from_json(fn.col("body").cast("string"), schema, {"columnNameOfCorruptRecord": "bad"})
        .alias("v"),
    )  # fmt: skip
    fields = ["i", "n", "s", "d", "m", "day", "b", "a", "bad"]
    rows = parsed.select("queueOffset", *[f"v.{name}" for name in fields]).collect()
    names = [name for name in ODD for _ in range(2)]
    right = {row["queueOffset"]: row for row in scanned(root)}
    differ = set()
    for row in rows:
        same = right[row.queueOffset]
        body = same["body"] or {}
        equal = all(str(row[name]) == str(body.get(name)) for name in fields if name != "bad") and (
            row.bad is None
        ) == (same["_bodyError"] is None)
        if not equal:
            differ.add(names[row.queueOffset])
    assert differ <= STRICTER


@pytest.mark.spark
def test_spark_takes_a_schema_of_the_read_and_of_a_sample(spark: SparkSession, root: Path) -> None:
    given = (
        spark.read.format("mqlog")
        .option("body", "json")
        .schema("queueOffset BIGINT, body STRUCT<i: BIGINT>")
        .load(str(root))
    )
    right = {row["queueOffset"]: (row["body"] or {}).get("i") for row in scanned(root)}
    assert {row.queueOffset: row.i for row in given.select("queueOffset", "body.i").collect()} == (
        right
    )
    sampled = spark.read.format("mqlog").option("body", "json").load(str(root))
    assert sampled.filter("_bodyError IS NULL").count() > len(ODD)


def test_a_stream_of_spark_without_a_schema_is_refused(root: Path) -> None:
    source = MqlogDataSource({"path": str(root), "subscribe": "T", "body": "json"})
    reader = source.streamReader(source.schema())
    with pytest.raises(InvalidOptionError, match="is needed here"):
        reader.initialOffset()


def test_the_reference_decoder_judges_the_rows_of_the_doors(root: Path) -> None:
    for body, row in zip(BODIES, scanned(root), strict=True):
        try:
            _, is_bad = reference(body)
        except UnjudgedError:
            continue
        assert is_bad == (row["_bodyError"] is not None), body


MASK = "s=last4, n=drop, i=hash"
MASKED = ("-o", f"bodyMask={MASK}", "-o", "bodyMaskSecret=pepper")


def hidden(root: Path) -> list[dict[str, Any]]:
    return scanned(root, body_mask=MASK, body_mask_secret="pepper")


def test_masked_bodies_are_the_same_at_the_command_and_in_sql_and_have_no_bytes(
    root: Path, run: Run
) -> None:
    right, plain = hidden(root), scanned(root)
    cat = run("cat", root, "T", "-n", "0", "--json", *OPTIONS, *MASKED).rows
    sql = run("sql", root, "SELECT * FROM T ORDER BY queueOffset", "--json", *OPTIONS, *MASKED).rows
    follow = run(
        "cat", root, "T", "--follow", "--since", "2000-01-01T00:00:00Z", "-n", str(len(right)),
        "--json", *OPTIONS, *MASKED,
    ).rows  # fmt: skip
    assert len(cat) == len(sql) == len(follow) == len(right)
    for of_scan, unmasked, *others in zip(right, plain, cat, sql, follow, strict=True):
        assert of_scan["_corruptBody"] is None
        assert (of_scan["_bodyError"] is None) == (unmasked["_bodyError"] is None)
        for row in others:
            assert row["_corruptBody"] is None
            assert row["_bodyError"] == of_scan["_bodyError"]
            assert (row["body"] is None) == (of_scan["body"] is None)
            if of_scan["body"] is not None:
                assert "n" not in row["body"]
                assert {n: row["body"][n] for n in "si"} == {n: of_scan["body"][n] for n in "si"}
    assert {row["body"]["s"] for row in right if row["body"]} >= {None, "****"}


def test_masks_that_cannot_be_checked_are_refused(root: Path, run: Run) -> None:
    text = ("-o", "body=json", *MASKED)
    assert "needs bodySchema" in run("cat", root, "T", *text).err
    assert (
        "fone is not in the schema"
        in run("cat", root, "T", *OPTIONS, "-o", "bodyMask=fone=last4").err
    )
    lonely = run("cat", root, "T", *OPTIONS, *MASKED[2:]).err
    assert "is for bodyMask" in lonely
    assert "pepper" not in lonely
    with pytest.raises(InvalidOptionError, match="body_mask_secret"):
        scanned(root, body_mask="i=hash")


@pytest.mark.spark
def test_spark_gives_masked_bodies_in_batches_and_streams(
    spark: SparkSession, root: Path, tmp_path: Path
) -> None:
    right = {row["queueOffset"]: row for row in hidden(root)}
    own = {"body": "json", "bodySchema": DDL, "bodyMask": MASK, "bodyMaskSecret": "pepper"}
    batch = spark.read.format("mqlog").options(**own).load(str(root))
    stream = streamed(spark, root, own, "masked_bodies", tmp_path / "checkpoint")
    for frame in (batch, stream):
        assert "n" not in frame.select("body.*").columns
        rows = frame.select("queueOffset", "_bodyError", "_corruptBody", "body.s", "body.i")
        assert rows.count() == len(right)
        for row in rows.collect():
            same = right[row.queueOffset]
            body = same["body"] or {"s": None, "i": None}
            assert (row.s, row.i) == (body["s"], body["i"])
            assert (row._bodyError, row._corruptBody) == (same["_bodyError"], None)
