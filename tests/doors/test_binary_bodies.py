"""Bodies of Avro and Protobuf have the same values at every door."""

import json
import random
from pathlib import Path
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc
import pytest
from pyspark.sql import SparkSession
from pyspark.sql import functions as fn

import mqlog
from bodies.avro_shop import SCHEMA, apache, order, plain, same, written
from bodies.proto_wire import descriptor_set, read
from bodies.proto_wire import order as proto_order
from doors.doors import streamed
from jobs.command import Run
from support import oracle
from support.oracle import Message
from support.stores import MakeStore

COUNT: Final = 40
BAD: Final = (7, 23)
FRAME: Final = b"\x00\x00\x00\x00\x07"
RNG: Final = random.Random(5)
AVRO: Final = [
    b"\x80" if n in BAD else FRAME + written(order(RNG, n)) for n in range(COUNT)
]  # fmt: skip
PROTOBUF: Final = [b"\x07" if n in BAD else proto_order(RNG) for n in range(COUNT)]


@pytest.fixture
def root(store: MakeStore) -> Path:
    made = [
        Message(
            topic=topic,
            body=body,
            properties=oracle.join_properties({"KEYS": f"k{number}"}),
            store_timestamp_ms=1_700_000_000_000 + number,
        )
        for topic, bodies in (("A", AVRO), ("P", PROTOBUF))
        for number, body in enumerate(bodies)
        if body
    ]
    return store(made).root


@pytest.fixture
def texts(tmp_path: Path) -> dict[str, dict[str, str]]:
    """The options of each topic, of schemas in files."""
    ids, descriptors = tmp_path / "ids", tmp_path / "shop.desc"
    ids.mkdir()
    (ids / "7.avsc").write_text(SCHEMA)
    descriptors.write_bytes(descriptor_set())
    return {
        "A": {"body": "avro", "bodySchema": str(ids), "bodyFraming": "confluent"},
        "P": {"body": "protobuf", "bodySchema": str(descriptors), "bodyMessage": "Order"},
    }


def words(options: dict[str, str]) -> list[str]:
    return [word for pair in options.items() for word in ("-o", "=".join(pair))]


def keywords(options: dict[str, str]) -> dict[str, Any]:
    """The options as `import mqlog` spells them."""
    snakes = {
        "bodySchema": "body_schema", "bodyFraming": "body_framing", "bodyMessage": "body_message",
    }  # fmt: skip
    return {snakes.get(name, name): text for name, text in options.items() if name != "subscribe"}


def scanned(root: Path, topic: str, texts: dict[str, dict[str, str]]) -> list[dict[str, Any]]:
    scan = mqlog.open(root).scan(topic, **keywords(texts[topic]))
    rows: list[dict[str, Any]] = scan.to_table().to_pylist()
    return rows


def test_scan_gives_what_other_decoders_read(root: Path, texts: dict[str, dict[str, str]]) -> None:
    avro_rows = scanned(root, "A", texts)
    assert [row["queueOffset"] for row in avro_rows if row["_bodyError"]] == list(BAD)
    for body, row in zip(AVRO, avro_rows, strict=True):
        if row["_bodyError"] is None:
            right = apache(body[len(FRAME) :])
            assert right is not None
            assert same(plain(row["body"]), right)
        else:
            assert row["_corruptBody"] == body
    filled = [body for body in PROTOBUF if body]
    for body, row in zip(filled, scanned(root, "P", texts), strict=True):
        if body == b"\x07":
            assert row["_bodyError"].startswith("MALFORMED_PROTOBUF")
        else:
            assert row["body"] == read(body)


def test_the_command_and_sql_give_the_rows_of_scan(
    root: Path, texts: dict[str, dict[str, str]], run: Run
) -> None:
    for topic, name in (("A", "pieces"), ("P", "pieces")):
        right = scanned(root, topic, texts)
        options = words(texts[topic])
        cat = run("cat", root, topic, "-n", "0", "--json", *options).rows
        query = (
            f"SELECT queueOffset, body.{name} AS n, _bodyError FROM {topic} ORDER BY queueOffset"
        )
        sql = run("sql", root, query, "--json", *options).rows
        for row, of_cat, of_sql in zip(right, cat, sql, strict=True):
            value = (row["body"] or {}).get(name)
            assert of_cat["_bodyError"] == of_sql["_bodyError"] == row["_bodyError"]
            assert of_sql["n"] == value
            given = of_cat["body"]
            assert (given or {}).get(name) == value  # type: ignore[union-attr, attr-defined]


@pytest.mark.parametrize("topic", ["A", "P"])
def test_followers_and_a_search_by_key_give_the_rows_of_scan(
    root: Path, texts: dict[str, dict[str, str]], run: Run, topic: str
) -> None:
    right = scanned(root, topic, texts)
    options = words(texts[topic])
    since = ("--since", "2000-01-01T00:00:00Z")
    cat = run("cat", root, topic, "--follow", *since, "-n", str(len(right)), "--json", *options)
    all_rows = run("cat", root, topic, "-n", "0", "--json", *options).rows
    assert [(row["body"], row["_bodyError"]) for row in cat.rows] == [
        (row["body"], row["_bodyError"]) for row in all_rows
    ]
    batches = mqlog.open(root).follow(
        topic, timeout=0, starting_offsets="earliest", **keywords(texts[topic])
    )
    followed = [row for batch, _ in batches for row in batch.to_pylist()]
    assert [row["body"] for row in followed] == [row["body"] for row in right]
    key = right[-1]["keys"]
    rows = run("find", root, "--topic", topic, "--key", key, "--json", *options).rows
    assert [row["body"] for row in rows] == [row["body"] for row in all_rows if row["keys"] == key]


def test_the_command_judges_a_schema_and_prints_its_ddl(
    root: Path, texts: dict[str, dict[str, str]], run: Run
) -> None:
    (row,) = run("schema", root, "A", "--json", *words(texts["A"])).rows
    assert (row["fit"], row["bad"]) == (COUNT - 2, {"INVALID_FRAMING": 2})
    assert str(row["ddl"]).startswith("id BIGINT, pieces INT, note STRING, price DECIMAL(9,2)")
    refused = run("schema", root, "A", "-o", "body=avro")
    assert "bodySchema" in refused.err
    assert "is needed: the schema of Avro" in refused.err


def test_bodies_of_another_message_have_no_field_and_that_is_told(
    root: Path, texts: dict[str, dict[str, str]], run: Run, tmp_path: Path
) -> None:
    text = json.dumps({
        "type": "record", "name": "R", "fields": [{"name": "f", "type": ["null", "long"]}]
    })  # fmt: skip
    options = {"body": "avro", "bodySchema": text, "bodyFraming": "auto"}
    done = run("schema", root, "P", *words(options))
    assert "0 of 1 fields ever present: these bodies are of another schema" in done.out


@pytest.mark.spark
def test_spark_gives_the_rows_of_scan_in_batches_and_streams(
    spark: SparkSession, root: Path, texts: dict[str, dict[str, str]], tmp_path: Path
) -> None:
    for topic in ("A", "P"):
        right = scanned(root, topic, texts)
        own = {**texts[topic], "subscribe": topic}
        batch = spark.read.format("mqlog").options(**own).load(str(root))
        stream = streamed(spark, root, own, f"binary_{topic}", tmp_path / topic)
        names = ["id", "pieces", "note", "data", "paid", "weight", "price", "lines", "state"]
        for frame in (batch, stream):
            rows = frame.select("queueOffset", "_bodyError", "body.*").orderBy("queueOffset")
            spark_rows = rows.select("queueOffset", "_bodyError", *names).collect()
            assert len(spark_rows) == len(right)
            for row, expected in zip(spark_rows, right, strict=True):
                body = expected["body"] or {}
                assert row["_bodyError"] == expected["_bodyError"]
                for name in names:
                    value = row[name]
                    if name == "lines" and value is not None:
                        value = [line.asDict(recursive=True) for line in value]
                    value = bytes(value) if isinstance(value, bytearray) else value
                    assert value == body.get(name), name
        if topic == "A":
            exact = mqlog.open(root).scan("A", **keywords(own)).to_table()["body"].combine_chunks()
            moments = batch.select(fn.unix_micros("body.exact").alias("at")).orderBy("queueOffset")
            assert [row["at"] for row in moments.collect()] == (
                pc.struct_field(exact, "exact").cast(pa.int64()).to_pylist()
            )
