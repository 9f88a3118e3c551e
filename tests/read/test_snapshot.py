"""Snapshots: the bounds a broker would tell, without reading a record; refusals by name."""

import pickle
import struct
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mqstore.errors import (
    CorruptStoreError,
    NotAStoreError,
    StoreNotFoundError,
    UnsupportedStoreError,
)
from mqstore.files.base.directory import Directory
from mqstore.read.directory import take
from mqstore.read.source import Snapshot
from support import goldens, oracle, strategies
from support.opened import topics_of
from support.oracle import Message
from support.stores import Layout, MakeStore, lay_out


def bounds(snapshot: Snapshot) -> dict[tuple[str, int], tuple[int, int]]:
    return {(q.topic, q.queue_id): (q.low, q.high) for q in snapshot.queues}


@given(
    batch=strategies.batches(max_size=40), layout=strategies.layouts(), expired=st.integers(0, 2)
)
def test_the_bounds_of_any_store_are_the_brokers(
    tmp_path_factory: pytest.TempPathFactory, batch: list[Message], layout: Layout, expired: int
) -> None:
    full = bytes(layout.commit_log_bytes - 200)  # one file each
    filling = [Message(topic="Fill", body=full) for _ in range(expired + 1)]
    root = tmp_path_factory.mktemp("store") / "store"
    laid = lay_out(root, [*batch, *filling], replace(layout, expired_files=expired))
    snapshot = take(root)
    assert bounds(snapshot) == laid.bounds
    assert snapshot.low == laid.low
    assert laid.high <= snapshot.high
    assert pickle.loads(pickle.dumps(snapshot)) == snapshot


def test_the_golden_bounds_are_what_topic_status_printed(golden: tuple[str, Path]) -> None:
    version, root = golden
    found = bounds(take(root))
    for queue, printed in goldens.topic_status(version).items():
        assert found[queue] == printed


def test_every_queue_the_golden_client_pulled_is_there(golden: tuple[str, Path]) -> None:
    version, root = golden
    found = bounds(take(root))
    for row in goldens.expected(version):
        low, high = found[row["topic"], row["queueId"]]
        assert low <= row["queueOffset"] < high


def test_planning_a_thousand_queues_reads_no_record(tmp_path: Path) -> None:
    """The CommitLog here is all holes: whoever reads a record of it finds none."""
    laid = lay_out(tmp_path / "store", [Message(queue_id=i) for i in range(1000)])
    for path in (laid.root / "commitlog").iterdir():
        path.unlink()
        with path.open("wb") as file:
            file.truncate(4096)
    assert bounds(take(laid.root)) == {("T", i): (0, 1) for i in range(1000)}


def test_only_the_topics_asked_for_are_looked_at(store: MakeStore) -> None:
    laid = store([Message(topic=t) for t in ("A", "B", "%RETRY%G")])
    assert bounds(take(laid.root, topics=lambda topic: topic == "B")) == {("B", 0): (0, 1)}
    assert topics_of(laid.root) == {"A", "B", "%RETRY%G"}


def test_a_topic_without_a_queue_is_known_from_topics_json(store: MakeStore) -> None:
    laid = store([Message(topic="A")])
    config = laid.root / "config" / "topics.json"
    config.write_text('{"topicConfigTable":{"A":{},"Empty":{"topicName":"Empty"}}}')
    assert topics_of(laid.root) == {"A", "Empty"}


def test_a_store_whose_topics_are_in_rocksdb_of_the_second_form_is_read_by_its_queues(
    tmp_path: Path,
) -> None:
    """As configManagerVersion=v2 leaves: ConsumeQueues in files, no topics.json."""
    laid = lay_out(tmp_path / "broker-b" / "store", [Message(topic="A")], Layout(config=False))
    (laid.root / "config" / "rdb").mkdir(parents=True)
    (laid.root / "config" / "rdb" / "CURRENT").write_text("MANIFEST-000005\n")
    snapshot = take(laid.root)
    assert bounds(snapshot) == {("A", 0): (0, 1)}
    assert snapshot.broker_name == "broker-b"
    assert topics_of(laid.root) == {"A"}


def test_an_empty_store_is_a_store(store: MakeStore) -> None:
    assert take(store([]).root).queues == ()


@pytest.mark.parametrize(
    ("path", "name"), [("broker-a/store", "broker-a"), ("broker-b", "broker-b")]
)
def test_a_store_that_tells_no_name_is_named_after_its_folder(
    tmp_path: Path, path: str, name: str
) -> None:
    laid = lay_out(tmp_path / path, [Message()])
    assert take(laid.root).broker_name == name
    assert take(laid.root, broker_name="x").broker_name == "x"


def test_a_golden_store_tells_its_brokers_name(golden: tuple[str, Path]) -> None:
    assert take(golden[1]).broker_name == "broker-a"


# --- stores that were not closed ------------------------------------------------------------


@pytest.mark.parametrize("lost", [1, 2, 7])
def test_units_whose_records_never_reached_the_disk_are_not_counted(
    tmp_path: Path, lost: int
) -> None:
    laid = lay_out(tmp_path / "store", [Message() for _ in range(20)], Layout(abort=True))
    for m in laid.messages[-lost:]:
        path, position = laid.file_of(m)
        with path.open("r+b") as file:
            file.seek(position)
            file.write(bytes(m.size))
    snapshot = take(laid.root)
    assert snapshot.is_unclean
    assert bounds(snapshot) == {("T", 0): (0, 20 - lost)}


@pytest.mark.parametrize("lost", [40, 100_000])
def test_units_of_a_log_that_is_gone_are_not_counted_however_many(
    tmp_path: Path, lost: int
) -> None:
    layout = Layout(abort=True, queue_units=20 + lost)
    laid = lay_out(tmp_path / "store", [Message() for _ in range(20)], layout)
    path, position = laid.unit_of(("T", 0), 20)
    units = struct.pack(">qiq", 1 << 40, 100, 0) * lost
    path.write_bytes(path.read_bytes()[:position] + units)
    assert bounds(take(laid.root)) == {("T", 0): (0, 20)}


def test_a_file_missing_before_the_last_units_does_not_hide_the_good_one_between(
    tmp_path: Path,
) -> None:
    laid = lay_out(tmp_path / "store", [Message() for _ in range(80)], Layout(abort=True))
    laid.unit_of(("T", 0), 48)[0].unlink()
    for queue_offset in range(65, 80):
        path, position = laid.unit_of(("T", 0), queue_offset)
        with path.open("r+b") as file:
            file.seek(position)
            file.write(struct.pack(">qiq", 1 << 40, 100, 0))
    assert bounds(take(laid.root, strict=False)) == {("T", 0): (0, 65)}
    with pytest.raises(CorruptStoreError, match="the next file of the queue is missing"):
        take(laid.root)


def test_units_without_a_record_at_the_end_of_a_store_not_closed_are_left_out_with_their_number(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    laid = lay_out(tmp_path / "store", [Message() for _ in range(30)], Layout(abort=True))
    for queue_offset in range(8, 30):
        path, position = laid.unit_of(("T", 0), queue_offset)
        with path.open("r+b") as file:
            file.seek(position)
            file.write(struct.pack(">q", 7))  # Amid the first record: the log is damaged there.
    assert bounds(take(laid.root)) == {("T", 0): (0, 8)}
    assert "T/0: the CommitLog does not have its last 22 messages" in caplog.text
    assert "queue offsets [8, 30), which are left out" in caplog.text


@pytest.mark.parametrize("abort", [False, True])
def test_a_file_allocated_ahead_holds_nothing(tmp_path: Path, abort: bool) -> None:
    layout = Layout(abort=abort, preallocated=True)
    laid = lay_out(tmp_path / "store", [Message() for _ in range(3)], layout)
    assert bounds(take(laid.root)) == {("T", 0): (0, 3)}


@pytest.mark.parametrize("folder", ["commitlog", "consumequeue/T/0"])
def test_a_file_created_but_not_sized_yet_is_not_seen(tmp_path: Path, folder: str) -> None:
    laid = lay_out(tmp_path / "store", [Message() for _ in range(3)], Layout(abort=True))
    (laid.root / folder / f"{2**30:020d}").touch()
    assert bounds(take(laid.root)) == {("T", 0): (0, 3)}


# --- damage that shows before a task runs -----------------------------------------------------


def truncate(path: Path, size: int) -> None:
    with path.open("r+b") as file:
        file.truncate(size)


@pytest.mark.parametrize("number", [0, 1, 2])
def test_a_truncated_commit_log_file_is_refused_with_its_name(tmp_path: Path, number: int) -> None:
    laid = lay_out(tmp_path / "store", [Message(body=bytes(1000)) for _ in range(8)])
    path = sorted((laid.root / "commitlog").iterdir())[number]
    truncate(path, 700)
    with pytest.raises(CorruptStoreError, match=rf"{path.name} at byte 700: .*truncated"):
        take(laid.root)


def test_a_log_of_one_file_cut_below_its_last_record_is_refused(tmp_path: Path) -> None:
    laid = lay_out(tmp_path / "store", [Message(body=bytes(1000)) for _ in range(3)])
    truncate(laid.root / "commitlog" / ("0" * 20), 2000)
    with pytest.raises(CorruptStoreError, match=r"at byte 2000: .*truncated"):
        take(laid.root)


def test_a_truncated_consume_queue_file_is_refused_with_its_name(tmp_path: Path) -> None:
    laid = lay_out(tmp_path / "store", [Message() for _ in range(40)])
    path, _ = laid.unit_of(("T", 0), 16)
    truncate(path, 100)
    with pytest.raises(CorruptStoreError, match=rf"{path.name} at byte 100: .*truncated"):
        take(laid.root)


def test_a_hole_in_the_commit_log_is_refused(tmp_path: Path) -> None:
    laid = lay_out(tmp_path / "store", [Message(body=bytes(1000)) for _ in range(12)])
    sorted((laid.root / "commitlog").iterdir())[1].unlink()
    with pytest.raises(CorruptStoreError, match="the next file is missing"):
        take(laid.root)


def test_damage_waits_for_the_scan_when_asked_to(tmp_path: Path) -> None:
    laid = lay_out(tmp_path / "store", [Message(body=bytes(1000)) for _ in range(12)])
    truncate(sorted((laid.root / "commitlog").iterdir())[1], 700)
    assert bounds(take(laid.root, strict=False)) == {("T", 0): (0, 12)}


# --- what is no store, or none of ours --------------------------------------------------------


def test_a_missing_directory_is_told(tmp_path: Path) -> None:
    with pytest.raises(StoreNotFoundError, match=r"\[MQLOG_STORE_NOT_FOUND\] .*nowhere"):
        take(tmp_path / "nowhere")


def test_a_file_is_no_directory(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(StoreNotFoundError, match="not a directory"):
        take(tmp_path / "file")


def test_a_directory_that_is_no_store_is_told(tmp_path: Path) -> None:
    with pytest.raises(NotAStoreError, match=r"\[MQLOG_NOT_A_STORE\]"):
        take(tmp_path)


def test_the_parent_of_a_store_is_told_where_the_store_is(store: MakeStore) -> None:
    laid = store([Message()])
    with pytest.raises(NotAStoreError, match=f"did you mean {laid.root}"):
        take(laid.root.parent)


def test_a_store_whose_commit_log_lies_elsewhere_is_told_the_option(tmp_path: Path) -> None:
    laid = lay_out(tmp_path / "store", [Message()])
    (laid.root / "commitlog").rename(tmp_path / "elsewhere")
    with pytest.raises(NotAStoreError, match="CommitLog folders in storePathCommitLog"):
        take(laid.root)


FLAVOURS = [
    ("dledger-n0/index/", "DLEDGER"),
]


@pytest.mark.parametrize(("path", "flavour"), FLAVOURS)
def test_each_flavour_we_do_not_read_is_refused_by_name(
    tmp_path: Path, path: str, flavour: str
) -> None:
    laid = lay_out(tmp_path / "store", [])
    target = laid.root / path
    target.parent.mkdir(parents=True, exist_ok=True)
    target.mkdir(parents=True) if path.endswith("/") else target.write_text("MANIFEST\n")
    with pytest.raises(UnsupportedStoreError, match=rf"\[MQLOG_UNSUPPORTED_STORE\.{flavour}\]"):
        take(laid.root)


@pytest.mark.parametrize(
    "path",
    ["rocksdbstore/CURRENT", "timerwheel", "kvStore/CURRENT", "compaction/position-checkpoint",
     "abort.bak", "consumequeue_ext/T/0/x", "config/timercheck"],
)  # fmt: skip
def test_what_a_plain_store_may_have_beside_it_is_no_hindrance(store: MakeStore, path: str) -> None:
    laid = store([Message()])
    (laid.root / path).parent.mkdir(parents=True, exist_ok=True)
    (laid.root / path).write_text("{}")
    assert bounds(take(laid.root)) == {("T", 0): (0, 1)}


# --- several CommitLog folders ----------------------------------------------------------------


def test_the_files_of_several_folders_are_one_log(tmp_path: Path) -> None:
    laid = lay_out(tmp_path / "store", [Message(body=bytes(1000)) for _ in range(12)])
    folders = [tmp_path / "disk1", tmp_path / "disk2"]
    for folder in folders:
        folder.mkdir()
    for number, path in enumerate(sorted((laid.root / "commitlog").iterdir())):
        path.rename(folders[number % 2] / path.name)
    snapshot = take(laid.root, commit_log=[str(folder) for folder in folders])
    assert bounds(snapshot) == {("T", 0): (0, 12)}
    assert snapshot.origin.commit_log == tuple(Directory(str(folder)) for folder in folders)


def test_a_commit_log_folder_that_is_not_there_is_told(store: MakeStore) -> None:
    laid = store([Message()])
    with pytest.raises(StoreNotFoundError, match="no such CommitLog directory"):
        take(laid.root, commit_log=["/nowhere/commitlog"])


def test_a_linked_root_is_a_root(store: MakeStore, tmp_path: Path) -> None:
    laid = store([Message()])
    (tmp_path / "link").symlink_to(laid.root)
    assert bounds(take(tmp_path / "link")) == {("T", 0): (0, 1)}


def test_a_snapshot_leaves_the_store_as_it_was(store: MakeStore) -> None:
    laid = store([Message() for _ in range(40)])
    before = goldens.digest(laid.root)
    take(laid.root)
    assert goldens.digest(laid.root) == before


def test_a_queue_of_three_full_sized_files_is_bisected(tmp_path: Path) -> None:
    laid = lay_out(tmp_path / "store", [Message()])
    folder = laid.root / "consumequeue/T/0"
    for path in folder.iterdir():
        path.unlink()
    unit = oracle.unit(laid.messages[0])
    for number in range(3):
        path = folder / f"{number * 6_000_000:020d}"
        count = 300_000 if number < 2 else 123_456
        path.write_bytes((unit * count).ljust(6_000_000, b"\0"))
    assert bounds(take(laid.root, strict=False)) == {("T", 0): (0, 723_456)}
