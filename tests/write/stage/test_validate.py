"""Bad rows: every rule, told with the row, the topic and the reason, before anything is staged."""

import re
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from mqstore.check import check
from mqstore.errors import (
    InvalidMessageError,
    InvalidOptionError,
    InvalidSchemaError,
    MessageTooLargeError,
    NotAStoreError,
    StoreNotFoundError,
)
from mqstore.write.commit import abort, commit
from mqstore.write.streams import of_batch
from support.oracle import split_properties
from support.writing import SMALL, append, held, prepared, rows, staged

MAP = pa.map_(pa.string(), pa.string())
BIG = {**SMALL, "mapped_file_size_commit_log": 1 << 20}


def unchecked(first: bytes, second: bytes) -> pa.Array:
    """Return strings of any bytes, as Spark's CAST(binary AS STRING) makes them."""
    return pa.array([first, second], pa.binary()).view(pa.string())


def maps(*found: Sequence[tuple[str, str | None]]) -> pa.Array:
    return pa.array(list(found), MAP)


BAD: list[tuple[str, dict[str, Any], str]] = [
    ("topic is null", {"topic": ["T", None]}, "topic is null"),
    ("topic is empty", {"topic": ["T", ""]}, "topic is empty"),
    ("topic has a space", {"topic": ["T", "a b"]}, "character other than"),
    ("topic leads out", {"topic": ["T", "../x"]}, "character other than"),
    ("topic is too long", {"topic": ["T", "x" * 128]}, "128 bytes, more than 127"),
    ("topic of retries", {"topic": ["T", "%RETRY%g"]}, "allowSystemTopics"),
    ("topic of delays", {"topic": ["T", "SCHEDULE_TOPIC_XXXX"]}, "allowSystemTopics"),
    ("body is null", {"body": [b"x", None]}, "body is null"),
    ("queueId too large", {"queueId": [0, 4]}, "queueId 4 is not one of the topic's 4 queues"),
    ("queueId negative", {"queueId": [0, -1]}, "queueId -1 is not one of"),
    ("the least queueId", {"queueId": [0, -(2**63)]}, "queueId -9223372036854775807 is not one"),
    ("born in microseconds", {"bornTimestamp": [0, 17 * 10**14]}, "not in the years 1 to 9999"),
    ("born before year 1", {"bornTimestamp": [0, -(10**14)]}, "bornTimestamp is -100000000000000"),
    ("delay level", {"delayTimeLevel": [0, 19]}, "delayTimeLevel 19 is not one of 0 to 18"),
    ("delay level negative", {"delayTimeLevel": [0, -1]}, "delayTimeLevel -1"),
    ("flag", {"flag": pa.array([0, 2**31], pa.int64())}, "flag 2147483648 does not fit"),
    ("separator in tags", {"tags": ["a", "b\x02"]}, "tags holds the character U+0001 or"),
    ("separator in keys", {"keys": ["a", "b\x01c"]}, "keys holds the character U+0001 or"),
    ("separator in shardingKey", {"shardingKey": ["a", "\x01"]}, "shardingKey holds the char"),
    ("separator in a name", {"properties": maps([], [("a\x01", "b")])}, "U+0001"),
    ("separator in a value", {"properties": maps([], [("a", "b\x02")])}, "U+0001"),
    ("space in an array key", {"keys": [["a"], ["b c"]]}, "holds a space"),
    ("null in an array key", {"keys": [["a"], [None]]}, "null, empty"),
    ("empty array key", {"keys": [["a"], [""]]}, "null, empty"),
    ("bytes in topic", {"topic": unchecked(b"T", b"\xff")}, "topic holds bytes that are not UTF-8"),
    ("bytes in tags", {"tags": unchecked(b"a", b"\xc3")}, "tags holds bytes that are not UTF-8"),
    ("bytes in keys", {"keys": unchecked("é".encode(), b"\xff")}, "keys holds bytes that are not"),
    (
        "bytes in an array key",
        {"keys": pa.ListArray.from_arrays([0, 1, 2], unchecked(b"a", b"b\xff"))},
        "keys holds bytes that are not UTF-8",
    ),
    ("half a pair in tags", {"tags": unchecked(b"a", b"\xed\xa0\x80")}, "tags holds bytes"),
    ("bytes in shardingKey", {"shardingKey": unchecked(b"a", b"\x80")}, "shardingKey holds bytes"),
    (
        "bytes in a name",
        {"properties": pa.MapArray.from_arrays([0, 1, 2], unchecked(b"a", b"\xff"), ["x", "y"])},
        "properties holds bytes that are not UTF-8",
    ),
    (
        "bytes in a value",
        {"properties": pa.MapArray.from_arrays([0, 1, 2], ["x", "y"], unchecked(b"a", b"\xff"))},
        "properties holds bytes that are not UTF-8",
    ),
    ("reserved name", {"properties": maps([], [("TAGS", "x")])}, "keeps for itself"),
    ("transient name", {"properties": maps([], [("__RMQ.TRANSIENT.x", "y")])}, "for itself"),
    ("empty value", {"properties": maps([], [("a", "")])}, "empty name or value"),
    ("empty name", {"properties": maps([], [("", "a")])}, "empty name or value"),
]


@pytest.mark.parametrize(("columns", "reason"), [b[1:] for b in BAD], ids=[b[0] for b in BAD])
def test_a_bad_row_is_named(tmp_path: Path, columns: dict[str, Any], reason: str) -> None:
    with pytest.raises(InvalidMessageError, match=re.escape(reason)) as caught:
        append(tmp_path / "s", rows(2, **columns), **SMALL)
    assert "partition 0, row 1, topic" in str(caught.value)
    assert "[MQLOG_INVALID_MESSAGE]" in str(caught.value)
    assert not (tmp_path / "s").exists()


def test_properties_fill_just_the_room_there_is(tmp_path: Path) -> None:
    """DefaultMessageStoreTest: 32767 bytes are accepted, one more is not."""
    settings = {**BIG, "uniq_key": "none", "max_message_size": 1 << 20}
    rest = len("a\x01\x02WAIT\x01true\x02")
    append(tmp_path / "s", rows(1, properties=maps([("a", "x" * (32_767 - rest))])), **settings)
    assert len(held(tmp_path / "s")[0].properties) == 32_767
    with pytest.raises(MessageTooLargeError, match="32768 bytes, more than 32767"):
        append(tmp_path / "s", rows(1, properties=maps([("a", "x" * (32_768 - rest))])), **settings)


def test_a_body_over_the_limit_is_too_large(tmp_path: Path) -> None:
    settings = {**BIG, "max_message_size": 1000}
    append(tmp_path / "s", rows(1, body=bytes(1000)), **settings)
    with pytest.raises(MessageTooLargeError, match="1001 bytes, maxMessageSize is 1000") as caught:
        append(tmp_path / "s", rows(1, body=bytes(1001)), **settings)
    assert "[MQLOG_MESSAGE_TOO_LARGE] partition 0, row 0, topic 'T'" in str(caught.value)


OF_4_9 = (
    '{"dataVersion":{"counter":1,"timestamp":1},"topicConfigTable":{"T":{"perm":6,'
    '"readQueueNums":1,"writeQueueNums":1},"Ours":{"attributes":{},"perm":6}}}'
)
OF_5 = (
    '{"dataVersion":{"counter":1,"stateVersion":0,"timestamp":1},"topicConfigTable":{"T":'
    '{"perm":6,"readQueueNums":1,"writeQueueNums":1}}}'
)


def test_a_broker_of_4_9_bounds_the_record_and_one_of_5_the_body(tmp_path: Path) -> None:
    root = tmp_path / "s"
    append(root, rows(1, body=b"x"), **BIG)
    head = held(root)[0].size - 1
    for topics, most in ((OF_4_9, 2000 - head), (OF_5, 2000)):
        (root / "config/topics.json").write_text(topics)
        append(root, rows(1, body=bytes(most)), max_message_size=2000)
        with pytest.raises(MessageTooLargeError, match=r"maxMessageSize (is|\()"):
            append(root, rows(1, body=bytes(most + 1)), max_message_size=2000)


def test_a_record_that_no_file_can_hold_is_too_large(tmp_path: Path) -> None:
    with pytest.raises(MessageTooLargeError, match="mappedFileSizeCommitLog"):
        append(tmp_path / "s", rows(1, body=bytes(8192)), **SMALL)


def test_each_reason_is_told_once_with_its_first_row_and_a_count(tmp_path: Path) -> None:
    bodies = [b"\x00order %d of a long list of orders" % n for n in range(30)]
    batch = rows(30, queueId=[9, 0] * 15, keys=[f"k{n}" for n in range(30)], body=bodies)
    with pytest.raises(InvalidMessageError) as caught:
        append(tmp_path / "s", batch, **SMALL)
    assert (
        "row 0, topic 'T', keys 'k0', body b'\\x00order 0 of a long list '…: queueId 9 is not one "
        "of the topic's 4 queues (and 14 more). Nothing was written"
    ) in str(caught.value)


def test_the_first_ten_reasons_are_told(tmp_path: Path) -> None:
    with pytest.raises(InvalidMessageError, match=r"\(and 5 more reasons\)") as caught:
        append(tmp_path / "s", rows(15, queueId=list(range(4, 19))), **SMALL)
    assert re.findall(r"row (\d+),", str(caught.value)) == [str(n) for n in range(10)]


def test_bad_rows_may_be_skipped_and_are_counted(tmp_path: Path) -> None:
    batch = rows(10, body=[b"x", None] * 5)
    done = append(tmp_path / "s", batch, batch, **SMALL, on_invalid="skip")
    assert (done.messages, done.skipped) == (10, 10)
    assert len(held(tmp_path / "s")) == 10


def test_a_job_of_bad_rows_alone_changes_nothing(tmp_path: Path) -> None:
    root = tmp_path / "s"
    append(root, rows(1), **SMALL)
    done = append(root, rows(3, body=[None] * 3).cast(rows(1).schema), on_invalid="skip")
    assert (done.messages, done.skipped, done.first_physical_offset) == (0, 3, -1)
    assert len(held(root)) == 1


def test_bad_rows_may_be_put_aside_with_the_reason(tmp_path: Path) -> None:
    side = tmp_path / "bad" / "rows"
    batch = rows(6, body=[b"x", None, b"y"] * 2, tags=["a", "b", "c\x01"] * 2)
    done = append(tmp_path / "s", batch, batch, **SMALL, on_invalid=f"side:{side}")
    assert (done.messages, done.skipped) == (4, 8)
    files = sorted(side.iterdir())
    assert [path.name[:5] for path in files] == ["part-"] * 2
    found = pq.read_table(files[0])
    assert found.column_names == [*batch.schema.names, "reason"]
    assert found["reason"].to_pylist()[:2] == [
        "body is null",
        "tags holds the character U+0001 or U+0002, which RocketMQ uses as separators",
    ]
    assert found["tags"].to_pylist() == ["b", "c\x01"] * 2


def test_rows_of_other_bytes_may_be_put_aside_as_they_came(tmp_path: Path) -> None:
    batch = rows(2, tags=unchecked("é".encode(), b"\xc3"), keys=unchecked(b"\xa9", b"x"))
    done = append(tmp_path / "s", batch, **SMALL, on_invalid=f"side:{tmp_path}/bad")
    assert (done.messages, done.skipped) == (0, 2)
    (path,) = (tmp_path / "bad").iterdir()
    found = pq.read_table(path)
    assert found["tags"].cast(pa.binary()).to_pylist() == ["é".encode(), b"\xc3"]
    assert found["reason"].to_pylist() == [
        f"{n} holds bytes that are not UTF-8" for n in ("keys", "tags")
    ]


def test_bad_rows_are_put_aside_even_if_no_row_is_good(tmp_path: Path) -> None:
    side = tmp_path / "bad"
    batch = rows(2, body=[None] * 2).cast(rows(1).schema)
    done = append(tmp_path / "s", batch, **SMALL, on_invalid=f"side:{side}")
    assert (done.messages, done.skipped) == (0, 2)
    assert [path.name[:5] for path in side.iterdir()] == ["part-"]


def test_bad_rows_of_a_micro_batch_are_put_aside_once(tmp_path: Path) -> None:
    side = tmp_path / "bad"
    batch = rows(2, body=[None] * 2).cast(rows(1).schema)
    for is_repeated in (False, True):
        job = prepared(tmp_path / "s", batch.schema, **SMALL, on_invalid=f"side:{side}")
        job = of_batch(job, "query", 3)
        assert commit(job, staged(job, [batch])).is_repeated is is_repeated
    assert [path.name[:5] for path in side.iterdir()] == ["part-"]


def test_what_a_lost_attempt_put_aside_is_removed(tmp_path: Path) -> None:
    side = tmp_path / "bad"
    batch = rows(2, body=[b"x", None])
    job = prepared(tmp_path / "s", batch.schema, **SMALL, on_invalid=f"side:{side}")
    other = prepared(tmp_path / "o", batch.schema, **SMALL, on_invalid=f"side:{side}")
    staged(job, [batch])  # Lost to the attempt that follows.
    staged(other, [batch])  # Of a job that is not done yet.
    commit(job, staged(job, [batch]))
    assert sorted(path.name[:7] for path in side.iterdir()) == ["_mqlog-", f"part-{job.job_id[:2]}"]
    abort(other, [])
    assert [path.name[:5] for path in side.iterdir()] == ["part-"]


def test_a_job_that_fails_leaves_no_bad_rows_aside(tmp_path: Path) -> None:
    side = tmp_path / "bad"
    batch = rows(2, body=[b"x", None])
    job = prepared(tmp_path / "s", batch.schema, **SMALL, on_invalid=f"side:{side}")
    manifests = staged(job, [batch])
    assert [path.name[:7] for path in side.iterdir()] == ["_mqlog-"]
    abort(job, manifests)
    assert not side.exists()


def test_an_array_of_keys_is_joined_and_an_empty_text_is_none(tmp_path: Path) -> None:
    batch = rows(3, keys=[["a", "b"], [], None], tags=["", None, "x"])
    append(tmp_path / "s", batch, **SMALL, partitioner="single")
    found = [split_properties(m.properties) for m in held(tmp_path / "s")]
    assert [p.get("KEYS") for p in found] == ["a b", None, None]
    assert [p.get("TAGS") for p in found] == [None, None, "x"]


MOMENT = datetime(2026, 11, 21, 9, 0, 0, 123_999, tzinfo=UTC)
MOMENT_MS = 1_795_251_600_123


@pytest.mark.parametrize(
    "column",
    [
        pa.array([MOMENT], pa.timestamp("us", "UTC")),
        pa.array([MOMENT], pa.timestamp("us", "Asia/Shanghai")),
        pa.array([MOMENT], pa.timestamp("ns", "UTC")),
        pa.array([MOMENT_MS], pa.timestamp("ms", "America/New_York")),
        pa.array([MOMENT_MS], pa.int64()),
    ],
    ids=lambda column: str(column.type),
)
def test_a_timestamp_is_its_milliseconds_whatever_its_zone(
    tmp_path: Path, column: pa.Array
) -> None:
    append(tmp_path / "s", rows(1, bornTimestamp=column), **SMALL)
    assert held(tmp_path / "s")[0].born_timestamp_ms == MOMENT_MS


@pytest.mark.parametrize(
    ("name", "column"),
    [
        ("body", pa.array(["text"], pa.large_string())),
        ("body", pa.array([b"text"], pa.large_binary())),
        ("body", pa.array(["text"]).dictionary_encode()),
        ("topic", pa.array(["T"]).dictionary_encode()),
        ("tags", pa.array(["x"], pa.string_view())),
        ("queueId", pa.array([1], pa.int8())),
        ("queueId", pa.array([1], pa.int64())),
        ("tags", pa.nulls(1)),
        ("properties", pa.nulls(1)),
        ("keys", pa.array([["k"]], pa.large_list(pa.large_string()))),
        ("properties", pa.array([[("a", "b")]], pa.map_(pa.large_string(), pa.large_string()))),
    ],
)
def test_a_column_may_come_in_any_type_that_says_the_same(
    tmp_path: Path, name: str, column: pa.Array
) -> None:
    append(tmp_path / "s", rows(1, **{name: column}), **SMALL)
    assert len(held(tmp_path / "s")) == 1


@pytest.mark.parametrize(
    ("columns", "told"),
    [
        ({"tag": "x"}, r"column tag .*did you mean tags\?"),
        ({"bornTimestamp": pa.array([MOMENT_MS], pa.timestamp("ms"))}, "time zone"),
        ({"body": [1]}, "string or binary"),
        ({"queueId": ["1"]}, "integer"),
        ({"flag": [1.5]}, "integer"),
        ({"properties": [["a"]]}, "map<string,string>"),
        ({"keys": [[1]]}, "array of strings"),
        ({"waitStoreMsgOK": ["true"]}, "boolean"),
        ({"body": None}, "column body"),
        ({"topic": None}, "option topic"),
    ],
)
def test_a_column_that_cannot_be_written_is_refused_on_the_driver(
    tmp_path: Path, columns: dict[str, Any], told: str
) -> None:
    with pytest.raises(InvalidSchemaError, match=told):
        prepared(tmp_path / "s", rows(1, **columns).schema, **SMALL)
    assert not (tmp_path / "s").exists()


@pytest.mark.parametrize(
    ("settings", "option"),
    [
        ({"partitioner": "nearest"}, "partitioner"),
        ({"compression": "gzip"}, "compression"),
        ({"timestamps": "then"}, "timestamps"),
        ({"on_invalid": "ignore"}, "onInvalid"),
        ({"on_invalid": "side:"}, "onInvalid"),
        ({"on_invalid": "side:s3://bucket/x"}, "onInvalid"),
        ({"queue_nums": 0}, "queueNums"),
        ({"batch_max_bytes": (4 << 20) + 1}, "batchMaxBytes"),
        ({"batch_max_messages": 0}, "batchMaxMessages"),
        ({"max_message_size": 1 << 40}, "maxMessageSize"),
        ({"topic": "a b"}, "topic"),
        ({"topic": "%DLQ%x"}, "topic"),
        ({"born_host": "localhost"}, "bornHost"),
        ({"store_host": "1.2.3.4:99999"}, "storeHost"),
        ({"store_host": "1.2.3.4:" + "1" * 5000}, "storeHost"),
        ({"born_host": "[::1]:" + "1" * 5000}, "bornHost"),
        ({"born_host": "1.2.3.4:٣"}, "bornHost"),
        ({"topic": "\ud800"}, "topic"),
        ({"producer_group": "\ud800"}, "producerGroup"),
        ({"txn_app_id": "\ud800", "txn_version": 1}, "txnAppId"),
        ({"mapped_file_size_commit_log": 10}, "mappedFileSizeCommitLog"),
        ({"mapped_file_size_consume_queue": 30}, "mappedFileSizeConsumeQueue"),
        ({"max_index_num": 1}, "maxIndexNum"),
        ({"max_index_num": 2**30}, "maxIndexNum"),
        ({"producer_group": "a\x02"}, "producerGroup"),
        ({"txn_app_id": "a"}, "txnAppId='a': needs txnVersion too"),
        ({"txn_version": 1}, "txnVersion='1': needs txnAppId too"),
        ({"txn_app_id": "s:a", "txn_version": 1}, "txnAppId"),
        ({"create_topic": "perhaps"}, "createTopic"),
    ],
)
def test_an_option_out_of_range_is_refused_by_name(
    tmp_path: Path, settings: dict[str, Any], option: str
) -> None:
    with pytest.raises(InvalidOptionError, match=option):
        prepared(tmp_path / "s", rows(1).schema, **{**SMALL, **settings})
    assert not (tmp_path / "s").exists()


@pytest.mark.parametrize(
    ("settings", "columns", "told"),
    [
        ({"partitioner": "hash"}, {"shardingKey": "k"}, "needs the column shardingKey"),
        ({"batch_builder": "keyBased"}, {"shardingKey": "k"}, "needs the column shardingKey"),
        (
            {"batch_builder": "keyBased"},
            {"properties": maps([("__SHARDINGKEY", "k")]), "queueOffset": 0},
            "needs the column shardingKey",
        ),
        ({"timestamps": "preserve"}, {"storeTimestamp": 1}, "bornTimestamp or storeTimestamp"),
        ({"timestamps": "preserve"}, {"bornTimestamp": 1}, "bornTimestamp or storeTimestamp"),
    ],
)
def test_an_option_that_needs_a_column_is_refused_without_it(
    tmp_path: Path, settings: dict[str, Any], columns: dict[str, Any], told: str
) -> None:
    append(tmp_path / "s", rows(1, **columns), **SMALL, **settings)
    with pytest.raises(InvalidOptionError, match=told):
        prepared(tmp_path / "s", rows(1).schema, **settings)


def test_compress_over_is_refused_where_nothing_is_compressed(tmp_path: Path) -> None:
    for settings in ({"compress_over": 4096}, {"compress_over": 0, "compression": "none"}):
        with pytest.raises(InvalidOptionError, match=r"option compressOver=.* option compression"):
            prepared(tmp_path / "s", rows(1).schema, **SMALL, **settings)
    batch = rows(2, body=[bytes(4095), bytes(4096)])
    append(tmp_path / "s", batch, **SMALL, compression="zlib", partitioner="single")
    assert [m.sys_flag & 1 for m in held(tmp_path / "s")] == [0, 1]


def test_a_size_that_contradicts_the_store_is_refused(tmp_path: Path) -> None:
    root = tmp_path / "s"
    append(root, rows(3, keys="k"), **SMALL)
    for option, value in (
        ("mapped_file_size_commit_log", 4096),
        ("mapped_file_size_consume_queue", 400),
        ("max_hash_slot_num", 12),
        ("max_index_num", 51),
    ):
        with pytest.raises(InvalidOptionError, match="the store's own is"):
            prepared(root, rows(1).schema, **{option: value})
    append(root, rows(3), **SMALL)
    assert check(root) == []


def test_a_store_is_made_only_where_there_is_nothing(tmp_path: Path) -> None:
    with pytest.raises(StoreNotFoundError, match="s: no such directory: set createStore=true"):
        prepared(tmp_path / "s", rows(1).schema)
    full = tmp_path / "full"
    full.mkdir()
    (full / "precious.txt").write_text("x")
    with pytest.raises(NotAStoreError):
        prepared(full, rows(1).schema, **SMALL)
    empty = tmp_path / "empty"
    empty.mkdir()
    with pytest.raises(StoreNotFoundError, match="an empty directory: set createStore=true"):
        prepared(empty, rows(1).schema)
    append(empty, rows(1), **SMALL)
    assert check(empty) == []


def test_queue_nums_of_a_topic_that_is_there_must_be_its_own(tmp_path: Path) -> None:
    root = tmp_path / "s"
    append(root, rows(1), **SMALL, queue_nums=2)
    append(root, rows(1), topic="T", queue_nums=2)
    append(root, rows(1), topic="T")
    with pytest.raises(InvalidOptionError, match="queueNums='9': is for new topics, and T has 2"):
        append(root, rows(1), topic="T", queue_nums=9)
    # Beside a column topic the option is for those of its topics that are new.
    append(root, rows(2, topic=["T", "New"]), queue_nums=9)


def test_a_topic_is_made_only_if_it_may_be(tmp_path: Path) -> None:
    root = tmp_path / "s"
    append(root, rows(1), **SMALL, queue_nums=2)
    with pytest.raises(InvalidMessageError, match="createTopic=true"):
        append(root, rows(1, topic="U"), create_topic=False)
    append(root, rows(4, queueId=[0, 1, 0, 1]), create_topic=False, queue_nums=9)
    with pytest.raises(InvalidMessageError, match="queueId 2 is not one of the topic's 2"):
        append(root, rows(1, queueId=2))


@pytest.mark.parametrize("moment", [0, -1, -(2**63)])
def test_a_preserved_store_timestamp_before_1970_is_refused_and_never_taken_for_null(
    tmp_path: Path, moment: int
) -> None:
    batch = rows(2, storeTimestamp=pa.array([1_700_000_000_000, moment], pa.int64()))
    with pytest.raises(InvalidMessageError, match=r"row 1, .* storeTimestamp is .* ms, not after"):
        append(tmp_path / "s", batch, timestamps="preserve", **SMALL)
