"""The option changes in reads of a store: columns, modes, filters, types, refusals."""

import json
import logging
import pickle
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pytest

import mqlog
from changes.recordings import Recorded, changes_of, create_tables, names_of, recorded, truth
from mqstore.bodies.errors import CorruptBodyError
from mqstore.changes.change import change_schema
from mqstore.errors import InvalidOptionError, InvalidSchemaError
from mqstore.read.change_rows import warn_of_no_order
from support import oracle
from support.oracle import Message
from support.stores import Layout, MakeStore

BAD = b'{"op": "c", "source": {"db": "shop"}}'
FLAT = recorded("mariadb", "canal_flat")[:200]
WIDE = Layout(commit_log_bytes=1 << 18)
ORDERS = recorded("mariadb", "dbz_schema_shop_orders")[:60]


def stored(messages: list[Recorded], *bad: int) -> list[Message]:
    """The messages in two queues of topic T, each with its KEYS and headers; some are bad."""
    return [
        Message(
            topic="T",
            queue_id=number % 2,
            body=BAD if number in bad else one.message.body,
            properties=oracle.join_properties(
                {**one.message.properties, "TAGS": "odd" if number % 2 else "even"}
            ),
            store_timestamp_ms=1_700_000_000_000 + number,
        )
        for number, one in enumerate(messages)
    ]


@pytest.fixture
def place(store: MakeStore) -> mqlog.Place:
    return mqlog.open(store(stored(FLAT, 7, 30)).root)


def in_order(rows: pa.Table) -> list[dict[str, Any]]:
    by = [("storeTimestamp", "ascending"), ("rowInMessage", "ascending")]
    return rows.sort_by(by).to_pylist()  # type: ignore[no-any-return]


def test_the_rows_are_the_changes_of_each_message_in_its_order(place: mqlog.Place) -> None:
    scan = place.scan("T", changes="auto")
    assert scan.schema == change_schema()
    rows = in_order(scan.to_table())
    right = [list(changes_of([one], "auto")) for one in FLAT]
    right[7] = right[30] = list(changes_of([FLAT[0]], "debezium"))[:1]
    assert len(rows) == sum(map(len, right))
    for number, changes in enumerate(right):
        for in_message, change in enumerate(changes):
            row = rows.pop(0)
            assert (row["queueId"], row["queueOffset"]) == (number % 2, number // 2)
            assert row["rowInMessage"] == in_message
            if number in {7, 30}:
                assert (row["op"], row["_corruptBody"]) == (None, BAD)
                assert row["_bodyError"] == "insert without a row in after"
                continue
            assert (row["op"], row["table"], row["keys"]) == (
                change.op, change.table, list(change.keys),
            )  # fmt: skip
            assert row["row"] == (None if change.row is None else list(change.row.items()))
            assert (row["_corruptBody"], row["_bodyError"]) == (None, None)


def test_the_same_rows_come_by_splits_pickles_and_streams(place: mqlog.Place) -> None:
    scan = place.scan("T", changes="canal", batch_rows=10)
    right = in_order(scan.to_table())
    splits = [pickle.loads(pickle.dumps(one)).to_table() for one in scan.splits(3)]
    assert in_order(pa.concat_tables(splits)) == right
    assert in_order(pickle.loads(pickle.dumps(scan)).to_table()) == right
    followed = place.follow("T", changes="canal", starting_offsets="earliest", timeout=0)
    assert in_order(pa.Table.from_batches([batch for batch, _ in followed])) == right
    assert scan.count() == len(right)


def test_filters_are_those_of_messages_and_leave_their_rows_whole(place: mqlog.Place) -> None:
    rows = place.scan("T", changes="auto").to_table()
    odd = place.scan("T", changes="auto", tags="odd", columns=["op", "QUEUEID", "tags"])
    assert odd.schema.names == ["op", "queueId", "tags"]
    assert set(odd.to_table()["queueId"].to_pylist()) == {1}
    assert odd.count() == pc.sum(pc.equal(rows["queueId"], 1)).as_py()
    some = place.scan("T", changes="auto").filter(pc.field("queueOffset") < 10).to_table()
    assert some.num_rows == pc.sum(pc.less(rows["queueOffset"], 10)).as_py()
    ranged = place.scan("T", changes="auto", ending_offsets='{"T":{"0":5,"1":5}}').to_table()
    assert ranged.num_rows == pc.sum(pc.less(rows["queueOffset"], 5)).as_py()


def test_modes_are_those_of_bodies(place: mqlog.Place) -> None:
    every = place.scan("T", changes="auto").to_table()
    dropped = place.scan("T", changes="auto", body_mode="DROPMALFORMED")
    assert dropped.count() == every.num_rows - 2
    assert dropped.to_table()["op"].null_count == 0
    with pytest.raises(CorruptBodyError, match=r"queue 1, offset 3: .*insert without a row"):
        place.scan("T", changes="auto", body_mode="FAILFAST").to_table()
    named = place.scan("T", changes="auto", column_name_of_corrupt_record="raw")
    assert named.schema.names[-2:] == ["raw", "_bodyError"]
    assert named.to_table()["raw"].null_count == every.num_rows - 2


def test_changes_without_an_order_are_warned_of_once(
    place: mqlog.Place, caplog: pytest.LogCaptureFixture
) -> None:
    warn_of_no_order.cache_clear()
    with caplog.at_level(logging.WARNING):
        place.scan("T", changes="auto").to_table()
        place.scan("T", changes="canal").splits(2)[0].to_table()
    told = [record.getMessage() for record in caplog.records if "no sequence" in record.message]
    assert len(told) == 1
    assert "in topic T" in told[0]


def test_one_table_of_a_schema_makes_rows_structs(store: MakeStore, tmp_path: Path) -> None:
    place = mqlog.open(store(stored(ORDERS), WIDE).root)
    orders = truth("mariadb")["orders"]
    file = tmp_path / "orders.sql"
    file.write_text(create_tables({"orders": orders}).source, encoding="utf-8")
    rows = place.scan("T", changes="debezium", changes_schema=file)
    kind = rows.schema.field("row").type
    assert kind == rows.schema.field("before").type
    assert (kind.field("amount").type, kind.field("id").type) == (pa.decimal128(18, 4), pa.int64())
    maps = in_order(place.scan("T", changes="debezium").to_table())
    for given, same in zip(in_order(rows.to_table()), maps, strict=True):
        assert (given["op"], given["sequence"]) == (same["op"], same["sequence"])
        text = dict(same["row"] or [])
        assert (given["row"] is None) == (same["row"] is None)
        if given["row"]:
            assert str(given["row"]["id"]) == text["id"]
            assert (given["row"]["amount"] is None) == (text["amount"] is None)
            assert given["row"]["remark"] is None
            # The column note was renamed later: the schema, of today, does not have it.
            assert "note" in {problem["column"] for problem in given["problems"]}


def test_types_of_messages_are_those_of_a_sample(
    store: MakeStore, caplog: pytest.LogCaptureFixture
) -> None:
    place = mqlog.open(store(stored(ORDERS), WIDE).root)
    with caplog.at_level(logging.WARNING):
        scan = place.scan("T", changes="debezium", changes_schema="message")
    assert "`amount` string" in caplog.text
    at = scan.schema.field("row").type.field("at").type
    assert at == pa.timestamp("us")
    rows = scan.to_table()
    assert rows["row"].combine_chunks().field("at").null_count < rows.num_rows
    assert pc.list_value_length(rows["problems"]).to_pylist() == [0] * rows.num_rows
    with pytest.raises(InvalidOptionError, match="each start of a stream has the same columns"):
        next(place.follow("T", changes="debezium", changes_schema="message", timeout=0))


def test_rows_of_another_table_than_the_schema_are_named(store: MakeStore) -> None:
    items = recorded("mariadb", "dbz_plain_shop_items")[:5]
    place = mqlog.open(store(stored(items)).root)
    schema = "CREATE TABLE orders (id BIGINT PRIMARY KEY)"
    rows = place.scan("T", changes="debezium", changes_schema=schema).to_table().to_pylist()
    assert {row["row"] for row in rows} == {None}
    assert all("does not have" in row["problems"][0]["reason"] for row in rows)
    problems = place.scan("T", changes="debezium", changes_schema=schema, columns="problems")
    assert all(row["problems"] for row in problems.to_table().to_pylist())


def test_a_key_comes_of_the_schema_where_the_message_has_none(store: MakeStore) -> None:
    flat = [json.loads(one.message.body) for one in FLAT]
    bodies = [
        json.dumps({**body, "pkNames": None}).encode() for body in flat if body["table"] == "orders"
    ]
    messages = [Message(topic="T", body=body) for body in bodies]
    place = mqlog.open(store(messages).root)
    plain = place.scan("T", changes="canal", columns="keys").to_table()
    assert {tuple(keys) for keys in plain["keys"].to_pylist()} == {()}
    schema = str(create_tables(truth("mariadb")).source)
    keyed = place.scan("T", changes="canal", changes_schema=schema, columns="keys,op").to_table()
    of_rows = {tuple(r["keys"]) for r in keyed.to_pylist() if r["op"] in {"insert", "delete"}}
    assert of_rows == {("id",)}


@pytest.mark.parametrize(
    ("options", "told"),
    [
        (
            {"changes": "x"},
            "must be one of canal, canalProtobuf, debezium",
        ),
        ({"changes": "auto", "body": "json"}, "body='json': is not together with changes=auto"),
        ({"changes": "auto", "body_schema": "id INT"}, "is not together with changes=auto"),
        ({"changes_schema": "id INT"}, "is for changes=canal|"),
        ({"changes": "canal", "changes_schema": "id FOO"}, "unknown type: FOO"),
        ({"changes": "auto", "column_name_of_corrupt_record": "row"}, "is a column of changes"),
        ({"changes": "auto", "columns": "op,body"}, "changes=auto has op, database"),
        ({"changes": "auto", "columns": "full"}, "changes=auto has op, database"),
        ({"changes": "auto", "columns": "op,OP"}, "repeated"),
        ({"changes": "auto", "changes_schema": "message"}, "and the sample has"),
        ({"changes": "auto", "body_time_zone": "X/Y"}, "is no time zone"),
    ],
)
def test_options_that_contradict_are_refused(
    place: mqlog.Place, options: dict[str, Any], told: str
) -> None:
    with pytest.raises((InvalidOptionError, InvalidSchemaError)) as caught:
        place.scan("T", **options)
    assert told in str(caught.value)


def test_messages_without_types_have_no_types_of_a_sample(store: MakeStore) -> None:
    plain = recorded("mariadb", "dbz_plain_shop_orders")[:5]
    place = mqlog.open(store(stored(plain)).root)
    with pytest.raises(InvalidOptionError, match="Debezium without schemas"):
        place.scan("T", changes="debezium", changes_schema="message")


def test_another_table_takes_no_changes(place: mqlog.Place) -> None:
    with pytest.raises(InvalidOptionError, match="is for table=messages"):
        place.table("topics", changes="auto")


def test_times_of_canal_are_of_a_zone_that_is_said(store: MakeStore) -> None:
    body = {
        "type": "INSERT", "database": "d", "table": "t", "isDdl": False, "pkNames": ["id"],
        "data": [{"id": "1", "at": "2024-01-01 08:00:00.5", "local": "2024-01-01 08:00:00"}],
        "mysqlType": {"id": "int", "at": "timestamp(1)", "local": "datetime"},
    }  # fmt: skip
    place = mqlog.open(store([Message(topic="T", body=json.dumps(body).encode())]).root)
    for zone, text in (("UTC", "2024-01-01T08:00:00.5Z"), ("+08:00", "2024-01-01T00:00:00.5Z")):
        [row] = place.scan("T", changes="canal", body_time_zone=zone).to_table().to_pylist()
        assert dict(row["row"]) == {"id": "1", "at": text, "local": "2024-01-01T08:00:00"}


def test_all_recordings_of_a_topic_can_be_read_together(store: MakeStore) -> None:
    every = [
        *FLAT[:20],
        *recorded("mariadb", "canal_protobuf")[:5],
        *recorded("mariadb", *names_of("mariadb", "dbz_"))[::40],
    ]
    place = mqlog.open(store(stored(every), WIDE).root)
    rows = place.scan("T", changes="auto").to_table()
    assert rows["op"].null_count == 0
    assert rows.num_rows == sum(len(list(changes_of([one], "auto"))) for one in every)
