"""Rows of changes are the same at every door."""

import json
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession
from pyspark.sql import functions as fn

import mqlog
import pyspark_mqlog
from changes.recordings import create_tables, names_of, recorded, truth
from doors.doors import streamed
from jobs.command import Run
from mqstore.errors import InvalidOptionError, InvalidSchemaError
from pyspark_mqlog.datasource import MqlogDataSource
from support import oracle
from support.oracle import Message
from support.stores import Layout, MakeStore

BAD = b'{"op": "c"}'
OWN = ("-o", "changes=auto")
COMPARED = ("op", "database", "table", "keys", "queueId", "queueOffset", "rowInMessage")


@pytest.fixture
def root(store: MakeStore) -> Path:
    """Messages of three producers in two queues of topic T, and a bad one."""
    messages = [
        *recorded("mariadb", "canal_flat")[60:160],
        *recorded("mariadb", "canal_protobuf")[20:30],
        *recorded("mariadb", *names_of("mariadb", "dbz_plain_shop"))[::12],
        *recorded("postgresql", "pg_shop_docs"),
    ]
    made = [
        Message(
            topic="T",
            queue_id=number % 2,
            body=BAD if number == 5 else one.message.body,
            properties=oracle.join_properties({**one.message.properties, "KEYS": f"k{number}"})
            if one.message.keys is None
            else oracle.join_properties({**one.message.properties, "KEYS": one.message.keys}),
            store_timestamp_ms=1_700_000_000_000 + number,
        )
        for number, one in enumerate(messages)
    ]
    return store(made, Layout(commit_log_bytes=1 << 18)).root


def scanned(root: Path, **options: Any) -> list[dict[str, Any]]:
    table = mqlog.open(root).scan("T", changes="auto", **options).to_table()
    by = [("queueId", "ascending"), ("queueOffset", "ascending"), ("rowInMessage", "ascending")]
    rows: list[dict[str, Any]] = table.sort_by(by).to_pylist()
    return rows


def place_of(row: dict[str, Any]) -> tuple[int, int, int]:
    return row["queueId"], row["queueOffset"], row["rowInMessage"]


def test_the_command_gives_the_rows_of_scan(root: Path, run: Run) -> None:
    right = scanned(root)
    assert sum(row["op"] is None for row in right) == 1
    assert {"insert", "update", "delete", "other"} <= {row["op"] for row in right}
    cat: Any = run("cat", root, "T", "-n", "0", "--json", *OWN).rows
    sql: Any = run("sql", root, "SELECT * FROM T", "--json", *OWN).rows
    for given in (cat, sql):
        given.sort(key=place_of)
        assert len(given) == len(right)
        for row, same in zip(given, right, strict=True):
            assert {name: row[name] for name in COMPARED} == {name: same[name] for name in COMPARED}
            for name in ("row", "before", "movedTo", "movedFrom"):
                assert row[name] == (None if same[name] is None else dict(same[name])), same
            assert row["sequence"] == same["sequence"]
            assert row["_bodyError"] == same["_bodyError"]
    found: Any = run("find", root, "--key", "k7", "--json", *OWN).rows
    assert [row["queueOffset"] for row in found] == [3]
    assert found[0]["op"] in {"insert", "update", "delete", "other"}


def test_the_command_shows_changes_as_a_table_and_in_a_format(root: Path, run: Run) -> None:
    table = run("cat", root, "T", "-n", "30", *OWN)
    assert table.code == 0, table.err
    assert "OP" in table.out
    lines = run("cat", root, "T", "-n", "0", "-f", "{op} {table} {keys} {sequence}", *OWN).out
    first = lines.splitlines()[0]
    assert first.split(" ")[0] in {"insert", "update", "delete", "other", ""}
    cards = run("find", root, "--key", "k7", *OWN)
    assert (cards.code, "op" in cards.out) == (0, True)
    followed = run(
        "cat", root, "T", "--follow", "--since", "2000-01-01T00:00:00Z", "-n", "12", *OWN
    )
    assert len(followed.out.splitlines()) == 12
    assert (
        "no message of a producer of changes"
        in run("cat", root, "T", "-n", "0", "--json", *OWN).out
    )
    wrong = run("cat", root, "T", "-f", "{op}")
    assert "MQLOG_INVALID_SCHEMA" in wrong.err
    both = run("cat", root, "T", *OWN, "-o", "body=json")
    assert "not together with changes" in both.err


def test_sql_queries_a_row_of_a_map_and_of_a_struct(root: Path, run: Run) -> None:
    query = "SELECT count(*) AS n FROM T WHERE \"table\" = 'docs' AND \"row\"['id'] = '2'"
    assert run("sql", root, query, "--json", *OWN).rows == [{"n": 2}]
    schema = "CREATE TABLE docs (id INT PRIMARY KEY, doc TEXT)"
    query = 'SELECT sum("row".id) AS n FROM T WHERE "table" = \'docs\''
    rows = run("sql", root, query, "--json", *OWN, "-o", f"changesSchema={schema}").rows
    ids = [
        int(dict(row["row"])["id"]) for row in scanned(root) if row["table"] == "docs" if row["row"]
    ]
    assert int(str(rows[0]["n"])) == sum(ids)


@pytest.mark.spark
def test_spark_gives_the_rows_of_scan_in_batches_and_streams(
    spark: SparkSession, root: Path, tmp_path: Path
) -> None:
    right = {place_of(row): row for row in scanned(root)}
    own = {"changes": "auto"}
    batch = spark.read.format("mqlog").options(**own).load(str(root))
    stream = streamed(spark, root, own, "changes", tmp_path / "checkpoint")
    by_function = pyspark_mqlog.read(spark, root, "T", changes="auto")
    for frame in (batch, stream, by_function):
        rows = frame.select(
            *COMPARED, "row", "before", "movedTo", "sequence.*", "_bodyError", "problems",
            fn.unix_micros("sourceTimestamp").alias("at"),
        ).collect()  # fmt: skip
        assert len(rows) == len(right)
        for row in rows:
            same = right[row.queueId, row.queueOffset, row.rowInMessage]
            assert {name: row[name] for name in COMPARED} == {name: same[name] for name in COMPARED}
            for name in ("row", "before", "movedTo"):
                assert row[name] == (None if same[name] is None else dict(same[name]))
            sequence = same["sequence"] or dict.fromkeys(("epoch", "file", "position", "row"))
            assert row.position == sequence["position"]
            assert row["_bodyError"] == same["_bodyError"]
            assert len(row.problems) == len(same["problems"])
    counted = spark.read.format("mqlog").options(**own).load(str(root))
    assert counted.count() == len(right)
    assert counted.filter("queueOffset < 3").count() == sum(
        row["queueOffset"] < 3 for row in right.values()
    )


@pytest.mark.spark
def test_spark_has_structs_of_a_schema_and_of_a_sample(
    spark: SparkSession, store: MakeStore
) -> None:
    messages = [
        Message(
            topic="T",
            body=one.message.body,
            properties=oracle.join_properties({"KEYS": one.message.keys or "k"}),
        )
        for one in recorded("mariadb", "dbz_schema_shop_orders")[:40]
    ]
    root = store(messages, Layout(commit_log_bytes=1 << 18)).root
    schema = create_tables({"orders": truth("mariadb")["orders"]}).source
    for given in (schema, "message"):
        own = {"changes": "debezium", "changes_schema": given}
        place = mqlog.open(root)
        right = place.scan("T", **own).to_table()  # type: ignore[arg-type]
        options = {"changes": "debezium", "changesSchema": given}
        frame = spark.read.format("mqlog").options(**options).load(str(root))
        amounts = [row.amount for row in frame.select("row.amount").collect()]
        of_scan = right["row"].combine_chunks().field("amount").to_pylist()
        assert sorted(map(str, amounts)) == sorted(map(str, of_scan))
        assert frame.filter("row.id > 0").count() > 0
    source = MqlogDataSource({"path": str(root), "subscribe": "T", **options})
    reader = source.streamReader(source.schema())
    with pytest.raises(InvalidOptionError, match="each start of a stream has the same columns"):
        reader.initialOffset()


def test_spark_refuses_columns_that_changes_do_not_have(root: Path) -> None:
    source = MqlogDataSource({"path": str(root), "changes": "auto", "columns": "op,body"})
    with pytest.raises(InvalidSchemaError, match="changes=auto has op, database"):
        source.schema()
    both = MqlogDataSource({"path": str(root), "changes": "auto", "body": "text"})
    with pytest.raises(InvalidOptionError, match="not together with changes=auto"):
        both.schema()


def test_a_change_can_be_written_as_json(root: Path, run: Run) -> None:
    lines = run("cat", root, "T", "-n", "0", "--json", *OWN).out.splitlines()
    assert all(json.loads(line)["topic"] == "T" for line in lines)
