"""The column body as a type in reads of a store: columns, modes, pruning, schemas of a sample."""

import json
import logging
import pickle
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import mqlog
from mqstore.bodies import settings as body_settings
from mqstore.errors import InvalidOptionError, InvalidSchemaError, StoreError
from support import oracle
from support.oracle import Message
from support.stores import MakeStore, lay_out

DDL = "id BIGINT, amount DECIMAL(10,2)"
COUNT = 60
BAD = b'{"id": "x", "amount": 2}'


def body(number: int) -> bytes:
    return BAD if number % 10 == 3 else json.dumps({"id": 2**62 + number, "amount": 1.5}).encode()


def messages(bodies: Mapping[int, bytes] | None = None) -> list[Message]:
    return [
        Message(
            topic="T",
            queue_id=number % 2,
            body=(bodies or {}).get(number, body(number)),
            properties=oracle.join_properties({"TAGS": "A" if number % 2 else "B"}),
            store_timestamp_ms=1_700_000_000_000 + 1_000 * number,
        )
        for number in range(COUNT)
    ]


@pytest.fixture
def place(store: MakeStore) -> mqlog.Place:
    return mqlog.open(store(messages()).root)


def test_bodies_are_structs_with_the_bad_ones_beside(place: mqlog.Place) -> None:
    scan = place.scan("T", body="json", body_schema=DDL)
    assert scan.schema.names[-2:] == ["_corruptBody", "_bodyError"]
    rows = scan.to_table().sort_by("storeTimestamp").to_pylist()
    assert [row["body"]["id"] for row in rows] == [
        None if n % 10 == 3 else 2**62 + n for n in range(COUNT)
    ]
    bad = [row for row in rows if row["_bodyError"] is not None]
    assert [row["_corruptBody"] for row in bad] == [BAD] * (COUNT // 10)
    assert str(bad[0]["body"]["amount"]) == "2.00"
    assert bad[0]["_bodyError"] == 'CANNOT_PARSE_VALUE at id: "x" is no BIGINT'


def test_the_same_rows_come_by_splits_pickles_and_streams(place: mqlog.Place) -> None:
    scan = place.scan("T", body="json", body_schema=DDL)
    right = scan.to_table()
    splits = [pickle.loads(pickle.dumps(one)).to_table() for one in scan.splits(3)]
    assert pa.concat_tables(splits).sort_by("storeTimestamp") == right.sort_by("storeTimestamp")
    assert pickle.loads(pickle.dumps(scan)).to_table() == right
    followed = place.follow(
        "T", body="json", body_schema=DDL, starting_offsets="earliest", timeout=0
    )
    batches = pa.Table.from_batches([batch for batch, _ in followed])
    assert batches.sort_by("storeTimestamp") == right.sort_by("storeTimestamp")


def test_whole_numbers_beside_nulls_stay_whole_in_pandas(place: mqlog.Place) -> None:
    frame = place.scan("T", body="json", body_schema=DDL).to_pandas()
    assert {value["id"] for value in frame["body"]} >= {2**62 + 14, None}


def test_other_columns_alone_decode_no_body(
    place: mqlog.Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    scan = place.scan("T", body="json", body_schema=DDL)

    def refuse(*_: object) -> object:
        raise AssertionError("a decoder was made")

    monkeypatch.setattr("mqstore.read.typed_bodies.decoder_of", refuse)
    assert scan.select("queueOffset", "tags").to_table().num_rows == COUNT
    assert scan.count() == COUNT
    with pytest.raises(AssertionError):
        scan.select("_bodyError").to_table()


def test_the_columns_of_bad_bodies_can_be_chosen_and_named(place: mqlog.Place) -> None:
    scan = place.scan(
        "T", body="json", body_schema=DDL, columns=["BODY", "_bodyerror", "bad"],
        column_name_of_corrupt_record="bad",
    )  # fmt: skip
    assert scan.schema.names == ["body", "_bodyError", "bad"]
    assert scan.select("bad").to_table()["bad"].null_count == COUNT - COUNT // 10
    with pytest.raises(InvalidSchemaError):
        scan.select("_corruptBody")


@pytest.mark.parametrize("columns", ["queueOffset", "body", "standard"])
def test_dropped_messages_do_not_depend_on_the_columns(place: mqlog.Place, columns: str) -> None:
    scan = place.scan("T", body="json", body_schema=DDL, body_mode="DROPMALFORMED", columns=columns)
    assert scan.count() == scan.to_table().num_rows == COUNT - COUNT // 10


def test_failfast_names_the_message(place: mqlog.Place) -> None:
    scan = place.scan("T", body="json", body_schema=DDL, body_mode="failfast", columns="body")
    with pytest.raises(StoreError, match=r"\[MQLOG_CORRUPT_BODY\] topic 'T', .*queue 1, offset 1"):
        scan.to_table()


def test_text_that_does_not_decode_keeps_its_bytes(store: MakeStore) -> None:
    bodies = {0: "订单".encode("gbk"), 1: b"\xff"}
    place = mqlog.open(store(messages(bodies)).root)
    scan = place.scan("T", body="text", body_charset="GBK")
    rows = scan.to_table().sort_by("storeTimestamp").to_pylist()
    assert [row["body"] for row in rows[:2]] == ["订单", None]
    assert [row["_corruptBody"] for row in rows[:3]] == [None, b"\xff", None]
    plain = place.scan("T", body="text").to_table().sort_by("storeTimestamp").to_pylist()
    assert [row["body"] for row in plain[:3]] == [None, None, body(2).decode()]


def test_json_of_another_charset_is_read(store: MakeStore) -> None:
    bodies = {0: '{"id": 1, "s": "订单"}'.encode("gbk"), 1: b'{"id": "\xff"}'}
    place = mqlog.open(store(messages(bodies)).root)
    scan = place.scan("T", body="json", body_schema="id INT, s STRING", body_charset="gbk")
    rows = scan.to_table().sort_by("storeTimestamp").to_pylist()
    assert rows[0]["body"] == {"id": 1, "s": "订单"}
    assert rows[1]["_bodyError"].startswith("INVALID_ENCODING")
    assert rows[1]["_corruptBody"] == bodies[1]


def test_a_batch_without_a_schema_takes_one_and_says_which(
    place: mqlog.Place, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.WARNING):
        scan = place.scan("T", body="json")
    assert "60 of 60 sampled bodies fit" in caplog.text
    assert "id STRING, amount DOUBLE" in caplog.text
    assert scan.to_table()["_bodyError"].null_count == COUNT


def test_a_follower_without_a_schema_is_refused(place: mqlog.Place) -> None:
    with pytest.raises(InvalidOptionError, match="mqlog schema PLACE TOPIC prints one"):
        next(place.follow("T", body="json", timeout=0))


def test_bodies_without_an_object_have_no_schema_of_their_own(tmp_path: Path) -> None:
    laid = lay_out(tmp_path / "store", [Message(topic="T", body=b"12")])
    with pytest.raises(InvalidOptionError, match="1 were looked at, and none is an object"):
        mqlog.open(laid.root).scan("T", body="json")


def test_a_schema_may_be_a_file(place: mqlog.Place, tmp_path: Path) -> None:
    file = tmp_path / "schema.json"
    file.write_text(json.dumps({"type": "object", "properties": {"id": {"type": "integer"}}}))
    for path in (file, f"file://{file}"):
        scan = place.scan("T", body="json", body_schema=path)
        assert scan.schema.field("body").type == pa.struct([("id", pa.int64())])
    file.unlink()
    assert scan.to_table().num_rows == COUNT


@pytest.mark.parametrize(
    ("options", "told"),
    [
        ({"body_schema": DDL}, "is for body=json|avro|protobuf, not binary"),
        ({"body": "text", "body_schema": DDL}, "is for body=json|avro|protobuf, not text"),
        ({"body": "json", "columns": "kafka"}, "value, of columns=kafka, has the bytes"),
        ({"body_mode": "FAILFAST"}, "is for body=text|json|avro|protobuf, not binary"),
        ({"body": "json", "body_mode": "x"}, "must be PERMISSIVE, DROPMALFORMED or FAILFAST"),
        ({"body": "json", "body_schema": ""}, "is empty"),
        ({"body": "json", "body_schema": "./no/file"}, "cannot be read"),
        ({"body": "json", "body_schema": "s3://b/f"}, "must be a path of this machine"),
        ({"body": "json", "body_schema": "id FOO"}, "FOO is no type"),
        ({"body": "json", "body_schema": "tags INT, _bodyError INT"}, "a field _bodyError"),
        ({"body": "json", "column_name_of_corrupt_record": "tags"}, "is a column of messages"),
        ({"body": "text", "body_charset": "nope"}, "is no charset"),
        ({"body": "text", "body_charset": "base64"}, "is no charset"),
        ({"body": "json", "body_time_zone": "X/Y"}, "is no time zone"),
        ({"body": "json", "body_timestamp_format": "yyyy-qq"}, "cannot be read"),
        ({"body": "json", "body_timestamp_unit": "ns"}, "must be one of s, ms, us"),
        ({"body": "json", "body_framing": "auto"}, "is for body=avro|protobuf, not json"),
        ({"body": "avro", "body_message": "M"}, "is for body=protobuf, not avro"),
        ({"body": "avro", "body_charset": "gbk"}, "is for body=text|json, not avro"),
        ({"body": "avro"}, "is needed: the schema of Avro"),
        ({"body": "protobuf"}, "is needed: the file of a descriptor set"),
        ({"body": "protobuf", "body_framing": "single"}, "is of Avro alone"),
        ({"body": "avro", "body_framing": "x"}, "must be one of none, auto, confluent, single"),
    ],
)
def test_options_that_contradict_are_refused(
    place: mqlog.Place, options: dict[str, Any], told: str
) -> None:
    with pytest.raises(InvalidOptionError) as caught:
        place.scan("T", **options)
    assert told in str(caught.value)


def test_every_option_of_bodies_names_the_formats_that_take_it() -> None:
    assert body_settings.BODY_OPTIONS.keys() == {"body", *body_settings._OF_FORMATS}
