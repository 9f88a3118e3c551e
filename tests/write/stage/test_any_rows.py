"""Writing any rows: the store that comes of it keeps every rule, and holds exactly those rows."""

import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from mqstore.errors import StoreError
from mqstore.write.commit import abort, commit
from mqstore.write.prepare import prepare
from mqstore.write.stage.job import CommitResult, Manifest
from mqstore.write.stage.settings import WriteSettings
from mqstore.write.stage.task import stage
from support import goldens, oracle, strategies
from support.contract import assert_contract
from support.oracle import Message
from support.stores import Layout, lay_out

INDEX = (5, 20)
SIZES = {
    "mapped_file_size_commit_log": 4096,
    "mapped_file_size_consume_queue": 160,
    "max_hash_slot_num": INDEX[0],
    "max_index_num": INDEX[1],
    "fsync": "none",  # What reaches the disk when is another question, and a slow one.
}
SCHEMA = pa.schema(
    [
        pa.field("topic", pa.string()),
        pa.field("body", pa.binary()),
        pa.field("tags", pa.string()),
        pa.field("keys", pa.list_(pa.string())),
        pa.field("properties", pa.map_(pa.string(), pa.string())),
        pa.field("queueId", pa.int32()),
        pa.field("flag", pa.int32()),
        pa.field("bornTimestamp", pa.timestamp("us", "UTC")),
        pa.field("waitStoreMsgOK", pa.bool_()),
        pa.field("shardingKey", pa.string()),
        pa.field("delayTimeLevel", pa.int32()),
    ]
)


def settings_for(root: Path, **more: Any) -> WriteSettings:
    return WriteSettings(**{"root": str(root), "create_store": True, **SIZES, **more})


def write(
    settings: WriteSettings, parts: Sequence[Sequence[dict[str, Any]]], schema: pa.Schema = SCHEMA
) -> CommitResult:
    """One job, as Spark runs it: prepare, a task for each part, commit; abort if one fails."""
    job = prepare(settings, schema)
    manifests: list[Manifest] = []
    try:
        for number, rows in enumerate(parts):
            batches = [pa.RecordBatch.from_pylist(list(rows), schema)] if rows else []
            manifests.append(stage(job, iter(batches), partition=number, attempt=0))
        return commit(job, manifests)
    except StoreError:
        abort(job, manifests)
        raise


@dataclass(frozen=True)
class Sent:
    """What must be found of a row."""

    topic: str
    body: bytes
    tags: str | None
    keys: str | None
    user: tuple[tuple[str, str], ...]
    flag: int
    born_timestamp_ms: int


def sent(row: dict[str, Any]) -> Sent:
    return Sent(
        topic=row["topic"],
        body=row["body"],
        tags=row["tags"] or None,
        keys=" ".join(row["keys"] or []) or None,
        user=tuple(sorted((row["properties"] or {}).items())),
        flag=row["flag"] or 0,
        born_timestamp_ms=row["bornTimestamp"] // 1000,
    )


RESERVED = {"TAGS", "KEYS", "UNIQ_KEY", "WAIT", "PGROUP", "__SHARDINGKEY", "DELAY", "REAL_TOPIC"}
RESERVED |= {"REAL_QID"}


def found(m: Message) -> Sent:
    properties = m.properties_map
    return Sent(
        topic=properties.get("REAL_TOPIC", m.topic),
        body=oracle.decompress(m.body, m.sys_flag),
        tags=properties.get("TAGS"),
        keys=properties.get("KEYS"),
        user=tuple(sorted((k, v) for k, v in properties.items() if k not in RESERVED)),
        flag=m.flag,
        born_timestamp_ms=m.born_timestamp_ms,
    )


user_names = strategies.names.filter(
    lambda n: not re.match(r"[A-Z_0-9.]+#?$", n) and not n.startswith("__")
)
rows = st.fixed_dictionaries(
    {
        "topic": st.sampled_from(["T", "Topic_2", "a-b|c", "x" * 127]),
        "body": st.binary(max_size=600),
        "tags": st.one_of(st.none(), strategies.tags.filter(str.strip)),
        "keys": st.one_of(st.none(), st.lists(strategies.key_words, max_size=3)),
        "properties": st.one_of(
            st.none(), st.dictionaries(user_names, strategies.values, max_size=3)
        ),
        "queueId": st.one_of(st.none(), st.integers(0, 3)),
        "flag": st.one_of(st.none(), strategies.int32),
        "bornTimestamp": st.integers(0, strategies.MILLENNIUM_MS).map(lambda ms: ms * 1000),
        "waitStoreMsgOK": st.one_of(st.none(), st.booleans()),
        "shardingKey": st.one_of(st.none(), strategies.values),
        "delayTimeLevel": st.sampled_from([None, 0, 0, 0, 1, 18]),
    }
)
parts = st.lists(st.lists(rows, max_size=12), max_size=3)
compressions = st.sampled_from(
    [
        {},
        {"compression": "none"},
        *(
            {"compression": codec, "compress_over": over}
            for codec in ("zlib", "lz4", "zstd")
            for over in (0, 100)
        ),
    ]
)
other_settings = st.fixed_dictionaries(
    {},
    optional={
        "batch_max_bytes": st.sampled_from([1, 700, 2000, 1_000_000]),
        "batch_max_messages": st.integers(1, 5),
        "batch_builder": st.sampled_from(["default", "keyBased"]),
        "partitioner": st.sampled_from(["roundrobin", "hash", "single", "random"]),
        "uniq_key": st.sampled_from(["deterministic", "random", "none"]),
        "born_host": st.sampled_from(["10.1.2.3:77", "[::1]:5"]),
        "store_host": st.sampled_from(["10.1.2.3", "::1"]),
    },
)
any_settings = st.tuples(other_settings, compressions).map(lambda two: {**two[0], **two[1]})


@given(jobs=st.lists(st.tuples(parts, any_settings), min_size=1, max_size=3))
def test_any_rows_make_a_store_that_keeps_every_rule_and_holds_them(
    tmp_path_factory: pytest.TempPathFactory,
    jobs: list[tuple[list[list[dict[str, Any]]], dict[str, Any]]],
) -> None:
    root = tmp_path_factory.mktemp("written") / "store"
    expected: Counter[Sent] = Counter()
    total = 0
    for made, more in jobs:
        done = write(settings_for(root, **more), made)
        count = sum(map(len, made))
        assert (done.messages, done.skipped) == (count, 0)
        expected.update(sent(row) for part in made for row in part)
        total += count
        if root.exists():
            messages = assert_contract(root, index=INDEX)
            assert len(messages) == total
            assert Counter(map(found, messages)) == expected


@given(made=parts, data=st.data())
def test_rows_go_to_the_queue_they_name_and_keep_their_order_in_it(
    tmp_path_factory: pytest.TempPathFactory, made: list[list[dict[str, Any]]], data: st.DataObject
) -> None:
    root = tmp_path_factory.mktemp("written") / "store"
    number = 0
    for part in made:
        for row in part:
            row |= {"topic": "T", "delayTimeLevel": None, "queueId": data.draw(st.integers(0, 3))}
            row["flag"] = number = number + 1
    write(settings_for(root), made)
    queues: dict[int, list[int]] = {}
    for part in made:
        for row in part:
            queues.setdefault(row["queueId"], []).append(row["flag"])
    written: dict[int, list[int]] = {}
    for m in assert_contract(root) if number else []:
        written.setdefault(m.queue_id, []).append(m.flag)
    assert written == queues


@given(made=parts)
def test_batches_that_barely_fit_a_file_keep_every_rule(
    tmp_path_factory: pytest.TempPathFactory, made: list[list[dict[str, Any]]]
) -> None:
    root = tmp_path_factory.mktemp("written") / "store"
    write(settings_for(root, batch_max_bytes=4000, partitioner="single"), made)
    if root.exists():
        assert_contract(root, index=INDEX)


def rows_of(count: int, topic: str = "T") -> list[dict[str, Any]]:
    return [{"topic": topic, "body": f"{topic} {i}".encode(), "tags": "A"} for i in range(count)]


PLAIN = pa.schema([("topic", pa.string()), ("body", pa.binary()), ("tags", pa.string())])


@pytest.mark.parametrize(
    "bad",
    [
        {"topic": "bad topic", "body": b"x"},
        {"topic": "%RETRY%g", "body": b"x"},
        {"topic": "TBW102", "body": b"x"},
        {"topic": "x" * 128, "body": b"x"},
        {"topic": "..", "body": b"x"},
        {"topic": None, "body": b"x"},
        {"topic": "T", "body": None},
        {"topic": "T", "body": b"x", "tags": "a\x01b"},
        {"topic": "T", "body": b"x", "tags": "a\x02"},
        {"topic": "T", "body": bytes(4000)},
    ],
    ids=str,
)
def test_a_bad_row_fails_the_job_and_leaves_the_store_as_it_was(
    tmp_path: Path, bad: dict[str, Any]
) -> None:
    root = tmp_path / "store"
    write(settings_for(root), [rows_of(20)], PLAIN)
    before = goldens.digest(root)
    with pytest.raises(StoreError, match=r"\[MQLOG_(INVALID_MESSAGE|MESSAGE_TOO_LARGE)\].*row"):
        write(settings_for(root), [rows_of(5), [*rows_of(3), bad]], PLAIN)
    assert goldens.digest(root) == before
    assert len(assert_contract(root, index=INDEX)) == 20


def test_a_store_that_was_never_made_is_not_there_after_a_failed_job(tmp_path: Path) -> None:
    with pytest.raises(StoreError):
        write(settings_for(tmp_path / "store"), [[{"topic": "bad topic", "body": b"x"}]], PLAIN)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("preallocated", [False, True])
@pytest.mark.parametrize("start", [0, 4096 * 3])
def test_a_brokers_store_is_gone_on_with_where_it_ended(
    tmp_path: Path, start: int, preallocated: bool
) -> None:
    old = [
        Message(body=bytes(300), properties=f"UNIQ_KEY\x01{i:032X}\x02".encode()) for i in range(30)
    ]
    layout = Layout(queue_units=8, index_slots=5, index_units=20, start=start,
                    preallocated=preallocated)  # fmt: skip
    laid = lay_out(tmp_path / "store", old, layout)
    settings = WriteSettings(root=str(laid.root))
    write(settings, [rows_of(25), rows_of(10, "New")], PLAIN)
    messages = assert_contract(laid.root, index=INDEX)
    assert messages[:30] == list(laid.messages)
    assert [oracle.decompress(m.body, m.sys_flag) for m in messages[30:]]
    assert Counter(m.topic for m in messages) == {"T": 55, "New": 10}


@pytest.mark.parametrize("expired", [1, 2])
def test_a_store_whose_head_has_expired_is_gone_on_with(tmp_path: Path, expired: int) -> None:
    old = [Message(body=bytes(300), queue_id=i % 2) for i in range(40)]
    layout = Layout(queue_units=8, index_slots=5, index_units=20, expired_files=expired)
    laid = lay_out(tmp_path / "store", old, layout)
    write(WriteSettings(root=str(laid.root)), [rows_of(25)], PLAIN)
    messages = assert_contract(laid.root)
    assert messages[: len(laid.held)] == list(laid.held)
    assert len(messages) == len(laid.held) + 25


def test_writing_to_a_golden_store_keeps_what_it_held(
    golden: tuple[str, Path], tmp_path: Path
) -> None:
    version, _ = golden
    root = goldens.unpack(version, tmp_path)
    before = assert_contract(root)
    write(WriteSettings(root=str(root)), [rows_of(700), rows_of(300, "New")], PLAIN)
    after = assert_contract(root)
    assert after[: len(before)] == before
    assert len(after) == len(before) + 1000
