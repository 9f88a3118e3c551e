"""What a commit leaves on disk, byte for byte, as a slow oracle would have written it."""

import json
import shutil
from collections import defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from tempfile import mkdtemp
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from mqstore.check import check
from mqstore.errors import (
    InvalidMessageError,
    InvalidOptionError,
    NondeterministicWriteError,
    StoreError,
)
from mqstore.files.lock.file_system import is_in_memory
from mqstore.files.txn import ledger, small_json
from mqstore.format.properties import RESERVED
from mqstore.read.directory import take
from mqstore.read.scan import scan
from mqstore.read.settings import ScanSettings
from mqstore.read.source import slices_of
from mqstore.write.commit import commit
from support import strategies
from support.opened import narrowed
from support.oracle import Message, decode, decompress, split_properties
from support.stores import Layout, MakeStore, lay_out
from support.writing import SMALL, append, files, held, of_queue, prepared, rows, staged

MEMORY = "/dev/shm"
NAMES = strategies.names.filter(lambda name: name not in RESERVED)
MAP = pa.map_(pa.string(), pa.string())


@st.composite
def frames(draw: st.DrawFn) -> list[dict[str, Any]]:
    """Any rows that a write accepts."""
    row = st.fixed_dictionaries(
        {
            "body": st.binary(max_size=200),
            "topic": st.sampled_from(["T", "Topic_2", "a-b|c"]),
            "tags": st.one_of(st.none(), strategies.tags),
            "keys": st.one_of(st.none(), strategies.keys),
            "properties": st.dictionaries(NAMES, strategies.values, max_size=3),
            "queueId": st.one_of(st.none(), st.integers(0, 3)),
            "shardingKey": st.one_of(st.none(), strategies.values),
            "flag": strategies.int32,
            "bornTimestamp": strategies.timestamps_ms,
            "delayTimeLevel": st.sampled_from([None, 0, 0, 0, 1, 18]),
            "waitStoreMsgOK": st.sampled_from([None, True, False]),
        }
    )
    return draw(st.lists(row, min_size=1, max_size=40))


SCHEMA = pa.schema(
    [
        ("body", pa.binary()),
        ("topic", pa.string()),
        ("tags", pa.string()),
        ("keys", pa.string()),
        ("properties", MAP),
        ("queueId", pa.int32()),
        ("shardingKey", pa.string()),
        ("flag", pa.int32()),
        ("bornTimestamp", pa.int64()),
        ("delayTimeLevel", pa.int32()),
        ("waitStoreMsgOK", pa.bool_()),
    ]
)


def batch_of(frame: list[dict[str, Any]]) -> pa.RecordBatch:
    ready = [{**row, "properties": list(row["properties"].items())} for row in frame]
    return pa.RecordBatch.from_pylist(ready, schema=SCHEMA)


def described(row: dict[str, Any]) -> tuple[Any, ...]:
    """What of a row must be found again, whatever queue it went to."""
    late = bool(row["delayTimeLevel"])
    typed = {
        "TAGS": row["tags"],
        "KEYS": row["keys"],
        "__SHARDINGKEY": row["shardingKey"],
        "WAIT": "false" if row["waitStoreMsgOK"] is False else "true",
        "DELAY": str(row["delayTimeLevel"]) if late else None,
        "REAL_TOPIC": row["topic"] if late else None,
    }
    properties = {**row["properties"], **{k: v for k, v in typed.items() if v}}
    topic = "SCHEDULE_TOPIC_XXXX" if late else row["topic"]
    queue = row["queueId"] if row["queueId"] is not None and not late else None
    return topic, queue, row["body"], row["flag"], row["bornTimestamp"], properties


@given(st.lists(frames(), min_size=1, max_size=3), st.sampled_from(["default", "keyBased"]))
def test_any_rows_become_the_store_that_a_broker_would_have_written(
    tmp_path_factory: pytest.TempPathFactory, parts: list[list[dict[str, Any]]], builder: str
) -> None:
    root = tmp_path_factory.mktemp("written") / "store"
    batches = [batch_of(frame) for frame in parts]
    done = append(root, *batches, **SMALL, batch_builder=builder)
    messages = held(root)
    assert done.messages == len(messages) == sum(map(len, parts))
    assert done.first_physical_offset == messages[0].physical_offset
    assert done.last_physical_offset == messages[-1].physical_offset
    # Each message says what its row said.
    asked = [described(row) for frame in parts for row in frame]
    asked.sort(key=lambda row: row[1] is None)  # Who asked for a queue is looked for first.
    told = []
    for m in messages:
        properties = split_properties(m.properties)
        assert len(properties.pop("UNIQ_KEY")) == 32
        properties.pop("REAL_QID", None)
        told.append((m.topic, m.queue_id, m.body, m.flag, m.born_timestamp_ms, properties))
    for topic, queue, *rest in asked:
        same = [t for t in told if t[0] == topic and queue in (None, t[1]) and [*t[2:]] == rest]
        assert same, (topic, queue, rest)
        told.remove(same[0])
    assert told == []
    # From these messages alone, the oracle lays out the very same files.
    layout = Layout(commit_log_bytes=8192, queue_units=10, index_slots=11, index_units=50)
    twin = tmp_path_factory.mktemp("laid") / "store"
    assert_laid_out_alike(root, twin, messages, layout)
    assert check(root) == []


def assert_laid_out_alike(root: Path, twin: Path, messages: list[Message], layout: Layout) -> None:
    """Compare queues and index byte for byte, and the CommitLog record by record.

    Where a file ends early for a batch the oracle, which knows no batches, would go on.
    """
    laid = lay_out(twin, messages, layout)
    assert [replace(m, physical_offset=0) for m in laid.messages] == [
        replace(m, physical_offset=0) for m in messages
    ]
    if [m.physical_offset for m in laid.messages] == [m.physical_offset for m in messages]:
        for folder in ("commitlog", "consumequeue"):
            ours = {p.relative_to(root): p.read_bytes() for p in files_of(root / folder)}
            theirs = {p.relative_to(twin): p.read_bytes() for p in files_of(twin / folder)}
            assert ours == theirs
        # Names are the time they were made; their order is what counts.
        assert contents(root / "index") == contents(twin / "index")
        ours_page, their_page = ((r / "checkpoint").read_bytes() for r in (root, twin))
        assert ours_page[:16] == their_page[:16]
        assert ours_page[24:] == their_page[24:]


def files_of(folder: Path) -> list[Path]:
    return [path for path in sorted(folder.rglob("*")) if path.is_file()]


def contents(folder: Path) -> list[bytes]:
    return [path.read_bytes() for path in files_of(folder)]


@given(strategies.batches(max_size=30), strategies.layouts(), frames())
def test_a_brokers_store_goes_on_as_it_was(
    tmp_path_factory: pytest.TempPathFactory,
    old: list[Message],
    layout: Layout,
    frame: list[dict[str, Any]],
) -> None:
    """Whatever a broker left: nothing of it changes, and what comes is in place behind it."""
    laid = lay_out(tmp_path_factory.mktemp("broker") / "store", old, layout)
    before = {p: p.read_bytes() for p in files_of(laid.root / "consumequeue")}
    small = [row for row in frame if len(row["body"]) < 100]
    small = [{**r, "properties": {}, "queueId": None, "shardingKey": None} for r in small]
    if not small:
        return
    sizes = {} if layout.index else {"max_hash_slot_num": 11, "max_index_num": 50}
    if not old:
        sizes |= {
            "mapped_file_size_commit_log": layout.commit_log_bytes,
            "mapped_file_size_consume_queue": layout.queue_units * 20,
            "max_hash_slot_num": 11,
            "max_index_num": 50,
        }
    indexed = bool(list((laid.root / "index").iterdir())) if layout.index else False
    if not indexed:
        sizes |= {"max_hash_slot_num": 11, "max_index_num": 50}
    append(laid.root, batch_of(small), fsync="none", **sizes)
    now = held(laid.root)
    assert tuple(now[: len(old)]) == laid.messages
    assert len(now) == len(old) + len(small)
    for path, data in before.items():
        used = len(data.rstrip(b"\0"))
        assert path.read_bytes()[:used] == data[:used]
    assert [f for f in check(laid.root) if f.severity == "error"] == []


def test_queue_offsets_go_on_where_the_queue_ended(store: MakeStore) -> None:
    laid = store([Message(queue_id=n % 2) for n in range(5)])
    append(laid.root, rows(4, queueId=[0, 1, 0, 1]))
    now = held(laid.root)
    assert [m.queue_offset for m in of_queue(now, "T", 0)] == [0, 1, 2, 3, 4]
    assert [m.queue_offset for m in of_queue(now, "T", 1)] == [0, 1, 2, 3]


def test_partitions_are_appended_in_their_order_and_rows_of_a_queue_in_theirs(
    tmp_path: Path,
) -> None:
    first, second = rows(30, queueId=[n % 3 for n in range(30)]), rows(30, body="x", queueId=0)
    append(tmp_path / "s", first, second, **SMALL)
    now = held(tmp_path / "s")
    assert [m.body for m in of_queue(now, "T", 1)] == [
        f"body {n}".encode() for n in range(1, 30, 3)
    ]
    assert [m.body for m in of_queue(now, "T", 0)][10:] == [b"x"] * 30


def test_a_file_takes_a_record_that_leaves_just_a_blank_records_head(tmp_path: Path) -> None:
    """CommitLog: ``len == room - 8`` is written; one byte more rolls."""
    settings = {**SMALL, "batch_max_messages": 1, "uniq_key": "none"}
    append(tmp_path / "probe", rows(1, body=b"", queueId=0), **settings)
    overhead = held(tmp_path / "probe")[0].size
    for extra, places in ((0, [0, 4096, 8192]), (1, [0, 8192])):
        root = tmp_path / f"room-{extra}"
        bodies = [bytes(4096 - overhead), bytes(4096 - 8 - overhead + extra), b"next"]
        append(root, rows(3, body=bodies, queueId=0), **settings)
        assert [m.physical_offset for m in held(root)][: len(places)] == places
        assert check(root) == []


def test_a_batch_never_lies_in_two_files(tmp_path: Path) -> None:
    """With room for half a batch, the whole batch moves to the next file."""
    root = tmp_path / "s"
    append(root, rows(40, body=[bytes(500)] * 40, queueId=0), **SMALL)
    by_file: dict[int, int] = defaultdict(int)
    for m in held(root):
        by_file[m.physical_offset // 8192] += 1
    # A batch takes at most a quarter of a file: three records of it.
    assert set(by_file.values()) - {by_file[max(by_file)]} == {12}


def test_hosts_are_what_the_options_say(tmp_path: Path) -> None:
    root = tmp_path / "s"
    hosts = {"born_host": "[2001:db8::1]:1234", "store_host": "10.1.2.3:10911"}
    append(root, rows(3), **SMALL, **hosts)
    for m in held(root):
        assert str(m.born_host) == "[2001:db8::1]:1234"
        assert str(m.store_host) == "10.1.2.3:10911"
    append(root, rows(1), store_host="::1")
    last = held(root)[-1]
    assert str(last.store_host) == "[::1]:10911"
    append(root, rows(1))
    assert held(root)[-1].store_host == last.store_host, "the store's own host goes on"
    assert check(root) == []


@pytest.mark.parametrize("codec", ["zlib", "lz4", "zstd"])
def test_large_bodies_are_compressed_and_small_ones_are_not(tmp_path: Path, codec: str) -> None:
    root = tmp_path / "s"
    bodies = [b"a" * 5000, b"b" * 10, b"c" * 4096, b"d" * 4095, bytes(range(256)) * 20]
    settings = {**SMALL, "compression": codec}
    append(root, rows(5, body=bodies, queueId=0), **settings)
    now = held(root)
    assert [decompress(m.body, m.sys_flag) for m in now] == bodies
    assert [bool(m.sys_flag & 1) for m in now] == [True, False, True, False, True]
    assert check(root) == []


def test_delayed_messages_wait_for_the_broker_by_level(tmp_path: Path) -> None:
    root = tmp_path / "s"
    append(root, rows(2, delayTimeLevel=[3, 18], queueId=[2, 3], tags="x"), **SMALL)
    first, second = held(root)
    assert (first.topic, first.queue_id, second.queue_id) == ("SCHEDULE_TOPIC_XXXX", 2, 17)
    properties = split_properties(first.properties)
    assert (properties["REAL_TOPIC"], properties["REAL_QID"]) == ("T", "2")
    path = root / "consumequeue" / "SCHEDULE_TOPIC_XXXX" / "2" / f"{0:020d}"
    due = int.from_bytes(path.read_bytes()[12:20], "big")
    assert due == first.store_timestamp_ms + 10_000
    assert {q.topic for q in take(root).queues} == {"SCHEDULE_TOPIC_XXXX"}
    topics = (root / "config" / "topics.json").read_text()
    assert '"T"' in topics, "the broker delivers to a topic that must be there"


@pytest.mark.parametrize(
    "folder", ["", "commitlog", "consumequeue/T/0", "new", ".mqlog", ".mqlog/txn"]
)
@pytest.mark.parametrize("option", ["stagingDir", "onInvalid"])
def test_nothing_is_put_where_brokers_look(tmp_path: Path, folder: str, option: str) -> None:
    """A file of another name in commitlog, and no broker starts."""
    root = tmp_path / "s"
    append(root, rows(1), **SMALL)
    before = [*files(root)]
    (tmp_path / "link").symlink_to(root)
    for place in (root / folder, tmp_path / "link" / folder, root / ".mqlog" / ".." / folder):
        given = {"staging_dir": f"{place}"}
        if option == "onInvalid":
            given = {"on_invalid": f"side:{place}"}
        with pytest.raises(InvalidOptionError, match=f"option {option}=.* lies in the store"):
            prepared(root, rows(1).schema, **given)
        with pytest.raises(InvalidOptionError, match="lies in the store"):
            prepared(tmp_path / "link", rows(1).schema, **given)
    assert [*files(root)] == before


def test_what_is_put_below_our_own_folder_or_beside_the_store_is_in_nobodys_way(
    tmp_path: Path,
) -> None:
    root = tmp_path / "s"
    bad = rows(2, body=[b"x", None])
    for place in (root / ".mqlog" / "bad", tmp_path / "s-bad", tmp_path):
        given = {"on_invalid": f"side:{place}", "staging_dir": f"{place}/staged"}
        assert append(root, bad, **{**SMALL, **given}).skipped == 1
        assert [path.name[:5] for path in place.iterdir() if path.is_file()] == ["part-"]
    assert check(root) == []


@pytest.fixture
def in_memory(on_disk: Path) -> Iterator[Path]:
    """A directory on a file system in memory, beside one on a disk."""
    if not is_in_memory(MEMORY) or is_in_memory(str(on_disk)):
        pytest.skip("needs /dev/shm in memory and temporary files on a disk")
    folder = Path(mkdtemp(dir=MEMORY))
    yield folder
    shutil.rmtree(folder)


def test_rows_of_a_durable_commit_are_not_staged_in_memory(on_disk: Path, in_memory: Path) -> None:
    """A power cut takes them, and with them what finishes the commit."""
    given = {**SMALL, "fsync": "commit", "staging_dir": str(in_memory / "not" / "made")}
    with pytest.raises(InvalidOptionError, match=r"stagingDir=.* lies in memory"):
        prepared(on_disk / "s", rows(1).schema, **given)
    assert list(in_memory.iterdir()) == []
    given["fsync"] = "none"
    assert append(on_disk / "s", rows(3), **given).messages == 3
    assert append(in_memory / "s", rows(3), **{**given, "fsync": "commit"}).messages == 3


def test_rows_may_be_staged_on_another_file_system(on_disk: Path, in_memory: Path) -> None:
    """A commit copies them: no file is linked or renamed from there."""
    given = {**SMALL, "fsync": "commit", "staging_dir": str(on_disk / "staged")}
    assert append(in_memory / "s", rows(3), **given).messages == 3
    assert check(in_memory / "s") == []


def test_tasks_that_run_elsewhere_put_files_where_the_driver_said(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "driver").mkdir()
    (tmp_path / "task").mkdir()
    bad = rows(2, body=[b"x", None])
    monkeypatch.chdir(tmp_path / "driver")
    job = prepared(Path("s"), bad.schema, **SMALL, on_invalid="side:bad", staging_dir="staged")
    monkeypatch.chdir(tmp_path / "task")
    manifests = staged(job, [bad])
    assert commit(job, manifests).skipped == 1
    assert [path.name[:5] for path in (tmp_path / "driver" / "bad").iterdir()] == ["part-"]
    assert list((tmp_path / "task").iterdir()) == []


KEY: Mapping[str, Any] = {"txn_app_id": "a", "txn_version": 3}


def given(**changed: Any) -> pa.RecordBatch:
    """Four rows, all of which have all that a row may give."""
    columns: dict[str, Any] = {
        "tags": ["a", None, "b", "a"],
        "keys": [f"k{n}" for n in range(4)],
        "shardingKey": "s",
        "properties": pa.array([[("p", f"{n}")] for n in range(4)], MAP),
        "queueId": 1,
        "flag": [0, 1, 2, 3],
        "delayTimeLevel": [0, 0, 0, 1],
        "waitStoreMsgOK": [True, False, True, True],
    }
    return rows(4, **columns | changed)


@pytest.mark.parametrize("compression", ["none", "zlib"])
def test_the_same_rows_in_any_order_and_partitions_are_repeated(
    tmp_path: Path, compression: str
) -> None:
    more = {**KEY, "compression": compression, "compress_over": 1}
    more = more if compression != "none" else {**KEY}
    append(tmp_path / "s", given(), **SMALL, **more)
    before = [*files(tmp_path / "s")]
    moved = given().take(pa.array([2, 0, 3, 1]))
    for parts in ([given()], [moved.slice(0, 1), moved.slice(1)], [moved.slice(3), moved[:3]]):
        assert append(tmp_path / "s", *parts, **KEY).is_repeated
    assert [*files(tmp_path / "s")] == before


@pytest.mark.parametrize(
    "changed",
    [
        {"body": [b"body 0", b"body 1", b"body 2", b"other"]},
        {"topic": "U"},
        {"tags": ["a", "a", "b", "a"]},
        {"tags": None},
        {"keys": ["k1", "k0", "k2", "k3"]},
        {"shardingKey": "t"},
        {"properties": pa.array([[("q", "0")]] * 4, MAP)},
        {"queueId": 0},
        {"flag": 0},
        {"delayTimeLevel": 1},
        {"waitStoreMsgOK": True},
    ],
    ids=lambda changed: next(iter(changed)),
)
def test_other_rows_under_a_committed_key_are_an_error(
    tmp_path: Path, changed: dict[str, Any]
) -> None:
    root = tmp_path / "s"
    append(root, given(), **SMALL, **KEY)
    before = [*files(root)]
    with pytest.raises(NondeterministicWriteError, match=r"version 3: 4 rows .* now it has other"):
        append(root, given(**changed), **KEY)
    with pytest.raises(NondeterministicWriteError, match=r"4 rows were .* now it has 3 rows"):
        append(root, given().slice(1), **KEY)
    assert [*files(root)] == before
    assert not (root / ".mqlog" / "staging").exists()


def test_a_key_that_the_ledger_has_no_digest_of_is_told_by_the_number_of_rows(
    tmp_path: Path,
) -> None:
    """As an older mqlog wrote it; bad rows that were skipped are in no number."""
    root = tmp_path / "s"
    append(root, rows(3, body=[b"x", None, b"y"]), **SMALL, **KEY, on_invalid="skip")
    forget_digests(root)
    for count, skips in ((2, False), (2, True), (3, True)):
        skip = {"on_invalid": "skip"} if skips else {}
        assert append(root, rows(count, body=[b"z"] * count), **KEY, **skip).is_repeated
    for count, skips in ((1, True), (3, False)):
        skip = {"on_invalid": "skip"} if skips else {}
        with pytest.raises(NondeterministicWriteError, match=f"2 rows .* has {count} rows"):
            append(root, rows(count), **KEY, **skip)


def forget_digests(root: Path) -> None:
    """Leave the ledger of application a as an older mqlog did."""
    path = root / ledger.path_of("a")
    body = json.loads(path.read_bytes())["body"]
    for commit_ in body["commits"]:
        assert len(commit_.pop("digest")) == 16
    path.write_bytes(small_json.document(body))


def test_bad_rows_that_were_skipped_are_rows_of_the_write(tmp_path: Path) -> None:
    more = {**KEY, "on_invalid": "skip"}
    bad = rows(3, body=[b"x", None, b"y"])
    append(tmp_path / "s", bad, **SMALL, **more)
    assert append(tmp_path / "s", bad.slice(2), bad.slice(0, 2), **more).is_repeated
    with pytest.raises(NondeterministicWriteError):
        append(tmp_path / "s", bad.slice(2), bad.slice(0, 1), **more)


def test_rows_of_a_forgotten_version_are_not_looked_at(tmp_path: Path) -> None:
    append(tmp_path / "s", rows(2), **SMALL, **KEY)
    bad = rows(3, body=[b"x", None, b"y"])
    job = prepared(tmp_path / "s", bad.schema, **{**KEY, "txn_version": 2})
    manifests = staged(job, [bad], [bad])
    assert [path.name for path in Path(job.target.staging).iterdir()] == ["NONCE"]
    assert commit(job, manifests).is_repeated


def test_a_store_that_was_replaced_since_a_repeated_write_began_is_named(tmp_path: Path) -> None:
    root, key = tmp_path / "s", {"txn_app_id": "a", "txn_version": 3}
    append(root, rows(2), **SMALL, **key)
    job = prepared(root, rows(2).schema, **key)
    manifests = staged(job, [rows(2)])
    shutil.rmtree(root / ".mqlog" / "txn")
    with pytest.raises(StoreError, match="the store was replaced"):
        commit(job, manifests)
    assert len(held(root)) == 2


def test_a_retried_task_writes_the_same_ids(tmp_path: Path) -> None:
    batch = rows(50)
    job = prepared(tmp_path / "s", batch.schema, **SMALL)
    lost = staged(job, [batch])
    again = staged(job, [batch.slice(0, 20), batch.slice(20)])
    assert lost[0].segment is not None
    assert again[0].segment is not None
    folder = Path(job.target.staging)
    first, second = ((folder / m[0].segment.name).read_bytes() for m in (lost, again))
    assert ids_in(first) == ids_in(second)
    assert len(set(ids_in(first))) == 50
    commit(job, again)
    assert len(held(tmp_path / "s")) == 50


def ids_in(segment: bytes) -> list[bytes]:
    return sorted(
        part[:32] for part in segment.split(b"UNIQ_KEY\x01")[1:] if part[32:33] == b"\x02"
    )


def test_decode_of_one_record_agrees_with_the_oracle(tmp_path: Path) -> None:
    append(tmp_path / "s", rows(1), **SMALL)
    data = (tmp_path / "s" / "commitlog" / f"{0:020d}").read_bytes()
    assert decode(data) == held(tmp_path / "s")[0]


def test_topics_can_be_pulled_once_they_are_written(store: MakeStore) -> None:
    """PullMessageProcessor: no entry, or a queue beyond readQueueNums, and nobody can read it."""
    laid = store([Message(topic="Listed", queue_id=1), Message(topic="Lost", queue_id=6)])
    path = laid.root / "config" / "topics.json"
    path.write_text(
        '{"dataVersion":{"counter":7},"topicConfigTable":{"Listed":{"topicName":"Listed",'
        '"order":true,"perm":6,"readQueueNums":2,"writeQueueNums":4,"attributes":{"a":"b"}}}}'
    )
    batch = rows(3, topic=["Listed", "Lost", "New"], queueId=[3, 0, 1])
    append(laid.root, batch, queue_nums=2)
    now = json.loads(path.read_text())
    table = now["topicConfigTable"]
    assert table["Listed"] == {
        "topicName": "Listed",
        "order": True,
        "perm": 6,
        "readQueueNums": 4,
        "writeQueueNums": 4,
        "attributes": {"a": "b"},
    }
    assert {t: table[t]["readQueueNums"] for t in ("Lost", "New")} == {"Lost": 7, "New": 2}
    assert now["dataVersion"]["counter"] == 8
    assert json.loads((path.parent / "topics.json.bak").read_text())["dataVersion"]["counter"] == 7
    before = path.read_bytes()
    append(laid.root, batch)
    assert path.read_bytes() == before


def test_topics_that_nobody_could_read_do_not_take_the_place_of_their_bak(tmp_path: Path) -> None:
    """A broker that finds topics.json broken reads the .bak: it must not become broken as well."""
    root = tmp_path / "store"
    append(root, rows(1), create_store=True)
    path = root / "config" / "topics.json"
    good = path.read_bytes()
    (path.parent / "topics.json.bak").write_bytes(good)
    path.write_bytes(good[: len(good) // 2])
    append(root, rows(1, topic="New"))
    assert (path.parent / "topics.json.bak").read_bytes() == good
    assert set(json.loads(path.read_text())["topicConfigTable"]) == {"T", "New"}


def test_a_topic_without_write_permission_takes_no_rows(store: MakeStore) -> None:
    laid = store([Message()])
    path = laid.root / "config" / "topics.json"
    path.write_text('{"topicConfigTable":{"T":{"topicName":"T","perm":4}}}')
    with pytest.raises(InvalidMessageError, match="perm has no write bit"):
        append(laid.root, rows(1))


def test_keys_written_without_an_index_are_still_found_when_later_ones_have_one(
    tmp_path: Path,
) -> None:
    """An IndexFile is taken to know all between its first record and its last."""
    root = tmp_path / "store"
    for keys, build_index in ((["a", "b"], True), (["c", "d"], False), (["e", "f"], True)):
        append(root, rows(2, keys=keys), **SMALL, queue_nums=1, build_index=build_index)
    (piece,) = slices_of(take(root))
    for number, key in enumerate("abcdef"):
        settings = ScanSettings(columns=("queueOffset",), keys=(key,))
        (batch,) = scan(narrowed([piece], (key,), ()), settings)
        assert batch.column(0).to_pylist() == [number]
    assert len(list((root / "index").iterdir())) == 2
    append(root, rows(1, keys=["g"]), **SMALL)
    assert len(list((root / "index").iterdir())) == 2, "no gap, no new file"


def test_messages_without_keys_end_no_index_file(tmp_path: Path) -> None:
    """A broker goes on in the same file: it lacks nothing. Keys that were not put are lacking."""
    root = tmp_path / "store"
    append(root, rows(1, keys="a"), create_store=True)
    append(root, rows(3), uniq_key="none")
    append(root, rows(1, keys="b"))
    assert len(list((root / "index").iterdir())) == 1
    append(root, rows(1, keys="c"), build_index=False)
    append(root, rows(1, keys="d"))
    assert len(list((root / "index").iterdir())) == 2


def test_where_keys_cannot_be_read_the_index_file_ends(tmp_path: Path) -> None:
    """A damaged record may have had keys, and so may all behind it."""
    root = tmp_path / "store"
    append(root, rows(1, keys="a"), **SMALL)
    append(root, rows(9, body=b"damaged"), uniq_key="none")
    log = next((root / "commitlog").iterdir())
    data = log.read_bytes()
    with log.open("r+b") as file:
        file.seek(data.index(b"damaged"))
        file.write(b"D")
    append(root, rows(1, keys="b"))
    assert len(list((root / "index").iterdir())) == 2
