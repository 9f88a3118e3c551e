"""Stores whose queues and configuration are in RocksDB: the same rows as of files, read-only."""

import json
import os
import pickle
import random
import shutil
import sys
from contextlib import closing
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mqstore.backlog import BacklogRequest, measure, plan
from mqstore.check import check
from mqstore.copy.copy_store import copy_store
from mqstore.errors import (
    CorruptConfigError,
    CorruptStoreError,
    InvalidOptionError,
    StoreError,
    UnsafePathError,
    UnsupportedStoreError,
)
from mqstore.files.base.store_dir import StoreDir
from mqstore.files.config.broker_config import BrokerConfig
from mqstore.read.capabilities import followable, group_publisher
from mqstore.read.directory import open_origin, take
from mqstore.read.queues import QueueFilter
from mqstore.read.scan import scan
from mqstore.read.settings import ScanSettings
from mqstore.read.source import Snapshot, slices_of
from mqstore.tables import store as store_tables
from mqstore.write.recover import RecoverSettings, recover
from support import by_log, expectations, rocksdb, soak, strategies
from support.oracle import Message
from support.stores import Laid, Layout, lay_out
from support.writing import append, rows


@pytest.fixture(autouse=True)
def own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))


def copied(root: Path, target: Path) -> Path:
    shutil.copytree(root, target / "store")
    return target / "store"


def state(root: Path) -> list[tuple[str, int, int]]:
    """Names, sizes and times of all below a folder."""
    found = [(str(path), path.lstat()) for path in sorted(root.rglob("*"))]
    return [(path, status.st_size, status.st_mtime_ns) for path, status in found]


def held(snapshot: Snapshot) -> list[tuple[str, int, int, int]]:
    return [(q.topic, q.queue_id, q.low, q.high) for q in snapshot.queues if q.high]


@pytest.mark.parametrize("flushed", ["all", "half", "nothing"])
def test_golden_stores_in_rocksdb_read_the_same_rows(
    golden: tuple[str, Path], tmp_path: Path, flushed: str
) -> None:
    """Of units that are not flushed none is in the database; the log has them."""
    whole = take(golden[1], broker_name="b")
    root = copied(golden[1], tmp_path)
    half = (whole.low + whole.high) // 2
    rocksdb.move_queues(root, before={"all": None, "half": half, "nothing": 0}[flushed])
    before = state(root)
    found = take(root, broker_name="b")
    assert held(found) == held(whole)
    assert by_log.rows(found) == by_log.rows(whole)
    merged = by_log.places(by_log.rows(found, merged=True))
    assert sorted(merged) == sorted(by_log.places(by_log.rows(whole)))
    expected = [row for row in store_tables.queues(whole).to_pylist() if row["maxOffset"]]
    assert store_tables.queues(found).to_pylist() == expected
    assert state(root) == before, "reading changed the store"


@pytest.mark.parametrize("single", [False, True])
def test_configuration_in_rocksdb_says_what_the_files_said(
    golden: tuple[str, Path], tmp_path: Path, single: bool
) -> None:
    root = copied(golden[1], tmp_path)
    files = BrokerConfig(StoreDir.at(golden[1]))
    rocksdb.move_queues(root)
    rocksdb.move_config(root, single=single)
    before = state(root)
    moved = BrokerConfig(StoreDir.at(root))
    assert moved.topics() == files.topics()
    assert moved.groups() == files.groups()
    assert moved.consumer_offsets() == files.consumer_offsets()
    assert {of.source for of in moved.committed().values()} == {
        "metadata" if single else "consumerOffsets"
    }
    request = BacklogRequest()
    waiting = [measure(plan(take(of), request), request, as_of_ms=0) for of in (root, golden[1])]
    assert waiting[0].num_rows > 3
    assert waiting[0].equals(waiting[1])
    assert state(root) == before, "reading changed the store"


def test_a_json_file_counts_if_it_was_changed_more_often_than_rocksdb(tmp_path: Path) -> None:
    laid = lay_out(tmp_path / "store", [Message()])
    rocksdb.move_config(laid.root, counter=5)
    file = laid.root / "config" / "subscriptionGroup.json"
    for counter, expected in ((5, set()), (6, {"Newer"})):
        version, table = {"counter": counter}, {"Newer": {}}
        file.write_text(json.dumps({"dataVersion": version, "subscriptionGroupTable": table}))
        assert BrokerConfig(StoreDir.at(laid.root)).groups() == expected


def test_configuration_of_the_second_form_is_refused_by_name(tmp_path: Path) -> None:
    laid = lay_out(tmp_path / "store", [Message()], Layout(config=False))
    rocksdb.write_database(laid.root / "config" / "rdb", {"default": {}})
    with pytest.raises(UnsupportedStoreError, match=r"ROCKSDB_CONFIG\].*configManagerVersion=v2"):
        BrokerConfig(StoreDir.at(laid.root)).topics()


@given(batch=strategies.batches(max_size=30), layout=strategies.layouts(), share=st.floats(0, 1))
def test_any_store_in_rocksdb_reads_as_the_oracle_says(
    tmp_path_factory: pytest.TempPathFactory, batch: list[Message], layout: Layout, share: float
) -> None:
    folder = tmp_path_factory.mktemp("store")
    laid = lay_out(folder / "store", batch, layout)
    rocksdb.move_queues(laid.root, before=laid.low + round(share * (laid.high - laid.low)))
    found = take(laid.root, broker_name="b", strict=False)
    expected = [expectations.row(m, "b") for _, of in sorted(laid.queues.items()) for m in of]
    assert by_log.rows(found) == expected
    bounds = {queue: of for queue, of in laid.bounds.items() if of[0] < of[1]}
    assert {(q.topic, q.queue_id): (q.low, q.high) for q in found.queues} | bounds == {
        (q.topic, q.queue_id): (q.low, q.high) for q in found.queues
    }


def moved(tmp_path: Path, count: int = 40, *, before: int | None = None) -> Laid:
    """A store with two queues in RocksDB."""
    messages = [Message(body=b"%d" % n, queue_id=n % 2, properties=b"KEYS\1k%d\2" % n,
                        store_timestamp_ms=1_700_000_000_000 + n)
                for n in range(count)]  # fmt: skip
    laid = lay_out(tmp_path / "broker-x" / "store", messages, Layout(index=True))
    rocksdb.move_queues(laid.root, before=before)
    return laid


@pytest.mark.parametrize("before", [None, 2000])
def test_what_a_plan_and_its_tasks_need_works_on_rocksdb(
    tmp_path: Path, before: int | None
) -> None:
    laid = moved(tmp_path, before=before)
    messages = laid.queues["T", 0]
    with closing(open_origin(laid.root).bounds("b")) as source:
        snapshot = source.snapshot()
        queue = snapshot.queue("T", 0)
        assert queue is not None
        assert source.topics() == {"T"}
        ms = messages[7].store_timestamp_ms
        (first,) = source.first_at([queue], [ms])
        assert messages[first].store_timestamp_ms == ms
        assert messages[first - 1].store_timestamp_ms < ms
        slices = pickle.loads(pickle.dumps(slices_of(snapshot)))
        (weighed,) = source.weigh(slices[:1])
        assert weighed.total == sum(m.size for m in messages)
        found = source.narrow(slices, ["k14"], [])
        assert (0, 7, 8) in {(part.queue_id, part.start, part.end) for part in found}
        assert sum(part.end - part.start for part in found) <= 2, "the index leaves few"
        with pytest.raises(InvalidOptionError, match="commitGroup"):
            group_publisher(source, "Mine")
    settings = ScanSettings(columns=by_log.FULL)
    bodies = [row["body"] for batch in scan(slices, settings) for row in batch.to_pylist()]
    assert sorted(bodies) == sorted(m.body for m in laid.messages)


def test_a_stream_sees_what_is_added_to_the_log_and_what_is_flushed(tmp_path: Path) -> None:
    laid = moved(tmp_path, before=2000)
    last = laid.messages[-1]
    path, position = laid.file_of(last)
    whole = path.read_bytes()
    path.write_bytes(whole[:position] + bytes(len(whole) - position))
    with closing(open_origin(laid.root).bounds("b")) as source:
        tail = followable(source).tail(QueueFilter())
        first = tail.look(at_once=True)
        assert first["T", last.queue_id] == (0, last.queue_offset)
        assert tail.look(at_once=True) is first
        path.write_bytes(whole)
        assert tail.look(at_once=True)["T", last.queue_id] == (0, last.queue_offset + 1)
        sizes = [m.size for m in laid.queues["T", last.queue_id][5:8]]
        assert tail.fitting(("T", last.queue_id), 5, 20, sum(sizes) + 1) == (3, sum(sizes))
        shutil.rmtree(laid.root / "consumequeue")
        units = {q: [(m.queue_offset, m.physical_offset, m.size, 0, 0) for m in of]
                 for q, of in laid.queues.items()}  # fmt: skip
        rocksdb.write_queues(laid.root / "consumequeue", units)
        assert tail.look(at_once=True)["T", last.queue_id] == (0, last.queue_offset + 1)
        tail.close()


def test_units_behind_the_last_message_are_left_overs(tmp_path: Path) -> None:
    laid = lay_out(tmp_path / "store", [Message(body=b"%d" % n) for n in range(9)])
    units = rocksdb.move_queues(laid.root)
    shutil.rmtree(laid.root / "consumequeue")
    rocksdb.write_queues(laid.root / "consumequeue", units, {("T", 0): 6})
    assert held(take(laid.root)) == [("T", 0, 0, 6)]


def test_a_queue_that_ends_where_no_queue_can_is_not_believed(tmp_path: Path) -> None:
    laid = lay_out(tmp_path / "store", [Message(body=b"%d" % n) for n in range(9)])
    units = rocksdb.move_queues(laid.root)
    shutil.rmtree(laid.root / "consumequeue")
    rocksdb.write_queues(laid.root / "consumequeue", units | {("T", 1): [(2**61, 0, 100, 0, 0)]})
    assert held(take(laid.root)) == [("T", 0, 0, 9)]
    assert check(laid.root) == []


@pytest.mark.parametrize("name", ["000999.log", "MANIFEST-000999"])
def test_a_database_whose_logs_are_too_large_to_open_is_refused(tmp_path: Path, name: str) -> None:
    """RocksDB reads them whole: 1 TiB of zeros takes minutes."""
    laid = moved(tmp_path)
    (laid.root / "consumequeue" / name).touch()
    os.truncate(laid.root / "consumequeue" / name, 2**40)
    with pytest.raises(UnsupportedStoreError, match=r"TOO_LARGE.* \d{13} bytes.*queues=log"):
        take(laid.root)


def test_a_database_beside_queue_files_is_not_needed(tmp_path: Path) -> None:
    laid = lay_out(tmp_path / "store", [Message()])
    (laid.root / "consumequeue_rocksdb").mkdir()
    (laid.root / "consumequeue_rocksdb" / "CURRENT").write_text("nothing\n")
    assert held(take(laid.root)) == [("T", 0, 0, 1)]


def test_queues_in_a_folder_of_their_own_are_read(tmp_path: Path) -> None:
    """As useSeparateStorePathForRocksdbCQ has it."""
    laid = lay_out(tmp_path / "store", [Message()])
    rocksdb.move_queues(laid.root, folder="consumequeue_rocksdb")
    assert held(take(laid.root)) == [("T", 0, 0, 1)]


@pytest.mark.parametrize("before", [None, 2000])
def test_verify_finds_such_a_store_whole_and_a_unit_that_is_wrong_or_lost(
    tmp_path: Path, before: int | None
) -> None:
    laid = moved(tmp_path, before=before)
    assert check(laid.root) == []
    units = {q: [(m.queue_offset, m.physical_offset, m.size, 0, 0) for m in of if before is None
                 or m.physical_offset < before] for q, of in laid.queues.items()}  # fmt: skip
    lost, wrong = units["T", 0].pop(3), units["T", 1][2]
    units["T", 1][2] = (wrong[0], wrong[1] + 1, *wrong[2:])
    shutil.rmtree(laid.root / "consumequeue")
    rocksdb.write_queues(laid.root / "consumequeue", units)
    found = {
        (f.queue_id, f.queue_offset): f.problem for f in check(laid.root) if f.severity == "error"
    }
    assert "the unit does not point to the queue's record" in {found[0, lost[0]], found[1, 2]}
    assert set(found) >= {(0, lost[0]), (1, 2)}


def test_a_unit_that_is_missing_is_named_and_can_be_skipped(tmp_path: Path) -> None:
    laid = lay_out(tmp_path / "store", [Message(body=b"%d" % n) for n in range(9)])
    units = rocksdb.move_queues(laid.root)
    units["T", 0] = [unit for unit in units["T", 0] if unit[0] not in (3, 4)]
    shutil.rmtree(laid.root / "consumequeue")
    rocksdb.write_queues(laid.root / "consumequeue", units)
    found = take(laid.root, broker_name="b")
    with pytest.raises(CorruptStoreError, match=r"no unit of queue offset 3 of T/0.*queues=log"):
        by_log.rows(found)
    rest = by_log.rows(found, on_corrupt="skip")
    assert [row["queueOffset"] for row in rest] == [0, 1, 2, 5, 6, 7, 8]


def test_without_the_package_reading_says_what_is_missing_and_the_log_is_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    laid = moved(tmp_path)
    rocksdb.move_config(laid.root)
    monkeypatch.setitem(sys.modules, "rocksdict", None)
    said = r"ROCKSDB_CONSUME_QUEUE\].*pip install rocksdict.*queues=log"
    with pytest.raises(UnsupportedStoreError, match=said):
        take(laid.root)
    said = r"ROCKSDB_CONFIG\].*pip install rocksdict"
    with pytest.raises(UnsupportedStoreError, match=said):
        BrokerConfig(StoreDir.at(laid.root)).groups()
    by = by_log.snapshot(laid.root, tmp_path / "walks")
    assert len(by_log.rows(by)) == len(laid.messages)
    file = laid.root / "config" / "subscriptionGroup.json"
    file.write_text('{"subscriptionGroupTable":{"Exported":{}}}')
    assert BrokerConfig(StoreDir.at(laid.root)).groups() == {"Exported"}


def test_nothing_is_written_to_such_a_store(tmp_path: Path) -> None:
    laid = moved(tmp_path)
    before = state(laid.root)
    writers = (
        lambda: append(laid.root, rows(1)),
        lambda: recover(laid.root, RecoverSettings()),
        lambda: copy_store(laid.root, tmp_path / "copy"),
    )
    for write in writers:
        with pytest.raises(UnsupportedStoreError, match=r"ROCKSDB_CONSUME_QUEUE\]"):
            write()
    assert state(laid.root) == before
    assert not (tmp_path / "copy").exists()


@pytest.mark.parametrize("name", ["CURRENT", "MANIFEST", "sst", "extra.sst"])
def test_a_link_in_a_database_is_not_followed(tmp_path: Path, name: str) -> None:
    laid = moved(tmp_path)
    folder = laid.root / "consumequeue"
    path = next((p for p in folder.iterdir() if name in p.name), folder / name)
    outside = tmp_path / "outside"
    outside.write_bytes(path.read_bytes() if path.exists() else b"")
    path.unlink(missing_ok=True)
    path.symlink_to(outside)
    with pytest.raises(UnsafePathError, match="symbolic link"):
        take(laid.root)


def mutated(data: bytes, random_: random.Random) -> bytes:
    """Bytes that are cut off, changed, taken out or put in."""
    found, at = bytearray(data), random_.randrange(len(data))
    kind = random_.randrange(4)
    if kind == 0:
        del found[at:]
    elif kind == 1:
        found[at] ^= 1 << random_.randrange(8)
    elif kind == 2:
        del found[at : at + random_.choice((1, 8, 100))]
    else:
        found[at:at] = random_.randbytes(random_.choice((1, 8, 5000)))
    return bytes(found)


def test_a_damaged_database_is_an_error_with_its_name_or_harmless(tmp_path: Path) -> None:
    laid = moved(tmp_path)
    rocksdb.move_config(laid.root)
    expected = by_log.rows(take(laid.root))
    topics = BrokerConfig(StoreDir.at(laid.root)).topics()
    folders = [laid.root / "consumequeue", laid.root / "config" / "topics"]
    files = [p for folder in folders for p in sorted(folder.iterdir()) if p.stat().st_size]
    random_, errors = random.Random(7), set()
    for _ in range(soak.size("rocksdb_mutants", check=15, test=60, whole=3_000)):
        path = random_.choice(files)
        whole = path.read_bytes()
        path.write_bytes(mutated(whole, random_))
        try:
            assert BrokerConfig(StoreDir.at(laid.root)).topics() in ({}, topics)
            assert by_log.rows(take(laid.root)) == expected
        except StoreError as error:
            errors.add(type(error))
        path.write_bytes(whole)
    assert errors == {CorruptStoreError, CorruptConfigError}
    assert by_log.rows(take(laid.root)) == expected
