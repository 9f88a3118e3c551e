"""A read that is planned in one store is not done in another one under the same path."""

import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

import mqlog
from mqstore.copy.take_point import take_point
from mqstore.errors import CorruptStoreError
from mqstore.files.base.store_dir import StoreDir
from mqstore.files.log.commit_log import CommitLog
from mqstore.read.errors import StoreNotSharedError
from mqstore.read.witness import witness_of
from snapshot_copy.pointed import backing
from support import goldens
from support.growing import grow
from support.oracle import Message
from support.rocksdb import move_queues
from support.stores import Laid, Layout, MakeStore, lay_out

LAYOUT = Layout(commit_log_bytes=1024, queue_units=16)
FIRST_MS = 1_700_000_000_000


def messages(count: int, first_ms: int = FIRST_MS) -> list[Message]:
    return [
        Message(
            topic="T",
            queue_id=number % 2,
            body=b"%d" % (first_ms + number),
            born_timestamp_ms=first_ms + number,
            store_timestamp_ms=first_ms + number,
        )
        for number in range(count)
    ]


def swap(laid: Laid, other: Laid) -> None:
    """Put another store under the path of a store."""
    shutil.rmtree(laid.root)
    shutil.copytree(other.root, laid.root)


@pytest.mark.parametrize("queues", ["files", "log", "rocksdb"])
def test_another_store_under_the_path_is_an_error_and_its_rows_are_not_given(
    store: MakeStore, queues: str, tmp_path: Path
) -> None:
    laid, other = store(messages(40), LAYOUT), store(messages(40, FIRST_MS + 10_000_000), LAYOUT)
    options: dict[str, Any] = {}
    if queues == "log":
        options = {"queues": queues, "cache_dir": str(tmp_path)}
    if queues == "rocksdb":
        move_queues(laid.root)
        move_queues(other.root)
    splits = mqlog.open(laid.root, **options).scan("T").splits()
    swap(laid, other)
    for split in splits:
        with pytest.raises(StoreNotSharedError, match="has another record there"):
            split.to_table()
    assert mqlog.open(laid.root, **options).scan("T").count() == 40


def test_points_of_another_repository_under_the_path_are_an_error(
    store: MakeStore, tmp_path: Path
) -> None:
    paths = [tmp_path / "repository", tmp_path / "other"]
    for path, first_ms in zip(paths, (FIRST_MS, FIRST_MS + 10_000_000), strict=True):
        take_point(store(messages(40, first_ms), LAYOUT).root, backing(path))
    for address in (f"{paths[0]}@all", f"{paths[0]}@latest"):
        splits = mqlog.open(address).scan("T").splits()
        shutil.move(paths[0], tmp_path / "aside")
        shutil.copytree(paths[1], paths[0])
        with pytest.raises(mqlog.errors.MqlogError):
            splits[0].to_table()
        shutil.rmtree(paths[0])
        shutil.move(tmp_path / "aside", paths[0])
        assert mqlog.open(address).scan("T").count() == 40


def test_another_local_log_beside_the_same_tier_is_an_error(tmp_path: Path) -> None:
    root = goldens.unpack("5.5.1-tiered", tmp_path / "store")
    tier = goldens.unpack("5.5.1-tiered", tmp_path / "tier", "tiered").parent / "tiered"
    scan = mqlog.open(root, store_path_tiered=str(tier)).scan("GtiTopic")
    split = scan.splits()[0]
    witness = witness_of(CommitLog(StoreDir.at(root).commit_log))
    assert witness is not None
    with (root / "commitlog" / f"{witness.physical_offset:020}").open("r+b") as file:
        file.seek(40)
        file.write(FIRST_MS.to_bytes(8) + bytes(8) + FIRST_MS.to_bytes(8))  # born, host, stored
    with pytest.raises(StoreNotSharedError):
        split.to_table()


def test_an_older_copy_is_an_error_that_names_where_it_ends(store: MakeStore) -> None:
    laid, older = store(messages(60), LAYOUT), store(messages(8), LAYOUT)
    splits = mqlog.open(laid.root).scan("T").splits()
    swap(laid, older)
    with pytest.raises(StoreNotSharedError, match="its CommitLog ends at 1024, and was longer"):
        splits[0].to_table()


def test_files_of_another_size_are_of_another_store(store: MakeStore) -> None:
    laid = store(messages(60), LAYOUT)
    other = store(messages(60), replace(LAYOUT, commit_log_bytes=16384))
    splits = mqlog.open(laid.root).scan("T").splits()
    swap(laid, other)
    with pytest.raises(StoreNotSharedError):
        splits[0].to_table()


def test_a_store_that_grows_and_expires_meanwhile_is_the_same(store: MakeStore) -> None:
    laid = store(messages(60), LAYOUT)
    place = mqlog.open(laid.root)
    whole, last = place.scan("T"), place.scan("T", starting_offsets={"T": {"0": 29, "1": 29}})
    splits, of_last = whole.splits(), last.splits()
    grown = grow(laid, messages(400), LAYOUT)
    assert sum(split.to_table().num_rows for split in splits) == 60
    for path in sorted((grown.root / "commitlog").iterdir())[:2]:
        path.unlink()
    assert sum(split.to_table().num_rows for split in of_last) == 2


def test_damage_where_the_witness_is_stays_an_error_of_the_record(store: MakeStore) -> None:
    laid = store(messages(3), LAYOUT)
    split = mqlog.open(laid.root).scan("T").splits()[0]
    file = laid.root / "commitlog" / f"{0:020}"
    data = file.read_bytes()
    for broken in (b"\0" * 91, b"\xff" * 91):
        file.write_bytes(broken + data[91:])
        with pytest.raises(CorruptStoreError):
            split.to_table()
    file.write_bytes(data[:44] + bytes([data[44] ^ 8]) + data[45:])  # A time of birth.
    assert split.to_table().num_rows == 3


@pytest.mark.parametrize("version", goldens.VERSIONS)
def test_a_store_of_a_broker_has_a_witness_that_agrees_with_a_copy(
    version: str, tmp_path: Path
) -> None:
    root = goldens.unpack(version, tmp_path)
    log = CommitLog(StoreDir.at(root).commit_log)
    witness = witness_of(log)
    assert witness is not None
    witness.check(log, str(root))
    assert len(witness.data) == 91


def test_an_empty_store_has_no_witness(tmp_path: Path) -> None:
    laid = lay_out(tmp_path / "store", messages(1), LAYOUT)
    (file,) = (laid.root / "commitlog").iterdir()
    file.write_bytes(bytes(1024))
    assert witness_of(CommitLog(StoreDir.at(laid.root).commit_log)) is None
