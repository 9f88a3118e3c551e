"""Points of a repository: each is the store at one moment, and has only new bytes."""

import errno
import os
import shutil
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mqstore.check import check
from mqstore.copy import restore_point as restore_module
from mqstore.copy.copy_store import copy_store
from mqstore.copy.hold_points import Budget, guard_once, held_bytes
from mqstore.copy.keep_rules import KeepRule, parse_keep
from mqstore.copy.point_continues import Accepted
from mqstore.copy.point_target import PointTarget
from mqstore.copy.prune_points import prune_points
from mqstore.copy.restore_point import restore_point
from mqstore.copy.take_point import take_point
from mqstore.errors import (
    CorruptStoreError,
    InvalidOptionError,
    NoSpaceError,
    NotARepositoryError,
    PointNotFoundError,
    StoreLockedError,
    StoreNotFoundError,
)
from mqstore.files.base import durable
from mqstore.files.base.folder import Folder
from mqstore.files.copy_target import Copy
from mqstore.files.log.commit_log import OPEN_FILES
from mqstore.files.points.folder import point_folder
from mqstore.files.points.repository import Repository, WantedPoint
from snapshot_copy.copied import SMALL, errors, growing, messages, rows
from snapshot_copy.pointed import at, backing, files, is_whole, kept_at, needed, restored, rows_of
from support import goldens, rocksdb, soak
from support.growing import grow
from support.processes import held_by_another
from support.stores import Layout, MakeStore, lay_out

RESTORES = soak.size("restores_meanwhile", check=10, test=30, whole=1_000)


def test_a_point_of_a_brokers_store_reads_and_restores_as_the_store(
    golden: tuple[str, Path], tmp_path: Path
) -> None:
    _, root = golden
    head = take_point(root, backing(tmp_path / "repository"))
    store = restored(tmp_path / "repository", 1, tmp_path / "restored")

    assert rows_of(at(backing(tmp_path / "repository"), 1)) == rows(root) == rows(store)
    assert check(store) == [found for found in check(root) if "abort" not in found.file]
    assert head.messages == sum(map(len, rows(root).values()))
    assert not (store / "abort").exists()
    for name in ("topics.json", "consumerOffset.json", "subscriptionGroup.json"):
        config = Path("config", name)
        assert (store / config).read_bytes() == (root / config).read_bytes()


def test_each_point_is_the_store_as_it_was_then(tmp_path: Path) -> None:
    counts = [3, 20, 21, 60]
    laid, heads = kept_at(tmp_path, counts, SMALL)
    shutil.rmtree(laid.root)

    assert [head.messages for head in heads] == counts
    for number, count in enumerate(counts, 1):
        then = rows(lay_out(tmp_path / f"then-{number}", messages(count), SMALL).root)
        store = restored(tmp_path / "repository", number, tmp_path / f"restored-{number}")
        assert rows_of(at(backing(tmp_path / "repository"), number)) == then == rows(store)
        assert check(store) == []


def test_a_read_of_a_point_of_many_files_leaves_none_open(tmp_path: Path) -> None:
    laid, _ = kept_at(tmp_path, [300, 600], SMALL)
    assert len(list((laid.root / "commitlog").iterdir())) > 2 * OPEN_FILES
    before = sorted(Path("/dev/fd").iterdir())
    found = rows_of(at(backing(tmp_path / "repository"), 2))
    assert sorted(Path("/dev/fd").iterdir()) == before
    assert found == rows(laid.root)


def test_a_full_file_is_taken_once_by_a_link_and_a_tail_by_its_new_bytes(tmp_path: Path) -> None:
    laid, heads = kept_at(tmp_path, [40, 41, 41], SMALL)
    repository = tmp_path / "repository"

    assert heads[0].linked_bytes > 0
    inodes = {path.stat().st_ino for path in (repository / "objects").rglob("*")}
    full = sorted((laid.root / "commitlog").iterdir())[:-1]
    assert {path.stat().st_ino for path in full} <= inodes
    assert heads[1].written_bytes < 1024 + 2048  # The record, its units, its cell of the index.
    assert heads[2].written_bytes == heads[2].linked_bytes == 0
    assert not (repository / "objects" / "00000003").exists()


def test_without_links_a_full_file_is_taken_once_as_well(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(source: str, target: str) -> None:
        raise OSError(errno.EXDEV, "Invalid cross-device link", source, None, target)

    monkeypatch.setattr(durable, "link", refuse)
    laid, heads = kept_at(tmp_path, [10, 40, 40], SMALL)

    assert [head.linked_bytes for head in heads] == [0, 0, 0]
    assert heads[2].written_bytes == 0
    log = sum(path.stat().st_size for path in (laid.root / "commitlog").iterdir())
    units = sum(path.stat().st_size for path in (laid.root / "consumequeue").rglob("*"))
    index = sum(path.stat().st_size for path in (laid.root / "index").iterdir())
    assert sum(head.written_bytes for head in heads) <= log + units + 3 * index + 3 * 8192
    store = restored(tmp_path / "repository", 3, tmp_path / "restored")
    assert rows(store) == rows(laid.root)
    assert check(store) == []


def test_a_log_that_was_cut_and_written_again_is_taken_anew(tmp_path: Path) -> None:
    laid, _ = kept_at(tmp_path, [20], SMALL)
    shutil.rmtree(laid.root)
    later = [replace(m, store_timestamp_ms=m.store_timestamp_ms + 9) for m in messages(22)]
    lay_out(laid.root, later, SMALL)
    take_point(laid.root, backing(tmp_path / "repository"), accepted=Accepted(other_store=True))

    assert rows_of(at(backing(tmp_path / "repository"), 2)) == rows(laid.root)
    assert check(restored(tmp_path / "repository", 2, tmp_path / "restored")) == []


def test_a_topic_that_was_made_again_under_its_name_is_taken_anew(tmp_path: Path) -> None:
    layout = Layout(commit_log_bytes=1024, queue_units=4)
    laid, _ = kept_at(tmp_path, [40], layout)
    shutil.rmtree(laid.root)
    lay_out(laid.root, [m for m in messages(80) if m.topic == "A"][5:], layout)
    take_point(laid.root, backing(tmp_path / "repository"), accepted=Accepted(other_store=True))

    assert rows_of(at(backing(tmp_path / "repository"), 2)) == rows(laid.root)


@given(before=st.integers(0, 30), more=st.integers(1, 30), step=st.integers(0, 60))
def test_a_store_that_grows_meanwhile_is_kept_as_it_was(
    tmp_path_factory: pytest.TempPathFactory, before: int, more: int, step: int
) -> None:
    """The broker is at work between any two files that are taken: `step` says which."""
    folder = tmp_path_factory.mktemp("grows")
    laid, _ = kept_at(folder, [before], SMALL)
    held, calls = rows(laid.root), ("link", "create", "make_directory", "write_at")
    with growing(laid, before + more, folder / "more", step, calls):
        take_point(laid.root, backing(folder / "repository"))

    late = rows(folder / "more")
    found = rows_of(at(backing(folder / "repository"), 2))
    assert {queue: late[queue][: len(its)] for queue, its in found.items()} == found
    assert all(found[queue][: len(its)] == its for queue, its in held.items())
    assert errors(restored(folder / "repository", 2, folder / "restored")) == []
    shutil.rmtree(folder)


def test_a_point_is_found_by_number_and_by_time(tmp_path: Path) -> None:
    _, heads = kept_at(tmp_path, [1, 2, 3], SMALL)
    found = Repository(backing(tmp_path / "repository"))
    times = [head.began_ms for head in heads]

    assert times == sorted(set(times))
    assert found.find(WantedPoint("latest")) == 3
    assert [found.find(WantedPoint("time", ms)) for ms in times] == [1, 2, 3]
    assert found.find(WantedPoint("time", times[2] - 1)) == 2
    with pytest.raises(PointNotFoundError, match="no point early: its first point, 1, is later"):
        found.find(WantedPoint("time", times[0] - 1, "early"))
    with pytest.raises(PointNotFoundError, match="no point 9: it has points from 1 to 3, 3 in all"):
        found.find(WantedPoint("number", 9, "9"))


def test_prune_removes_what_no_point_needs_and_nothing_else(tmp_path: Path) -> None:
    _, heads = kept_at(tmp_path, [5, 30, 31, 60], SMALL)
    repository = tmp_path / "repository"
    last = rows_of(at(backing(repository), 4))
    before = goldens.digest(repository)
    rules = (KeepRule(1, 0),)

    assert [h.number for h in prune_points(backing(repository), rules, dry_run=True).gone] == [
        1,
        2,
        3,
    ]
    assert goldens.digest(repository) == before
    pruned = prune_points(backing(repository), rules)
    assert [head.number for head in pruned.gone] == [1, 2, 3]
    assert pruned.stay == (heads[3],)
    assert files(repository) == needed(repository)
    assert is_whole(repository)
    assert rows_of(at(backing(repository), 4)) == last
    with pytest.raises(PointNotFoundError):
        rows_of(at(backing(repository), 1))


def test_what_is_removed_is_gone_for_good_before_the_note_of_it_is(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    kept_at(tmp_path, [10, 20, 30], SMALL)
    unlink, sync, pending = durable.unlink, durable.fsync_directory, set[str]()
    ends: list[set[str]] = []

    def unlinks(path: str) -> None:
        if path.endswith(".gone"):
            ends.append({folder for folder in pending if os.path.isdir(folder)})  # noqa: PTH112
        elif "/objects/" in path or "/points/" in path:
            pending.add(os.path.dirname(path))  # noqa: PTH120
        unlink(path)

    def syncs(folder: str) -> None:
        pending.discard(folder)
        sync(folder)

    monkeypatch.setattr(durable, "unlink", unlinks)
    monkeypatch.setattr(durable, "fsync_directory", syncs)
    prune_points(backing(tmp_path / "repository"), parse_keep("keep", "1d:1d"))
    assert Repository(backing(tmp_path / "repository")).numbers() == [3]
    assert ends[-1:] == [set()]


def test_the_guard_keeps_what_expires_until_its_budget_is_reached(tmp_path: Path) -> None:
    laid, _ = kept_at(tmp_path, [40], SMALL)
    place, told = backing(tmp_path / "repository"), list[str]()
    first = rows_of(at(place, 1))
    for path in sorted((laid.root / "commitlog").iterdir())[:2]:
        path.unlink()
    free = guard_once(laid.root, place, Budget(10**9), told=told.append)
    assert (free.dropped, told) == ((), [])
    assert rows_of(at(place, 1)) == first
    held = held_bytes(place)
    assert held >= 2 * 1024

    tight = guard_once(laid.root, place, Budget(held - 2048), told=told.append)
    assert tight.dropped[0] == 1
    assert f"point 1 is removed: the repository held {held:,} bytes that no store has" in told[0]
    assert held_bytes(place) < held
    assert is_whole(tmp_path / "repository")


def test_a_file_of_a_full_disk_leaves_the_repository_as_it_was(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    laid, _ = kept_at(tmp_path, [30], SMALL)
    grow(laid, messages(60), SMALL)
    before = goldens.digest(tmp_path / "repository")
    write = os.pwrite

    def full_at(name: str) -> Callable[[int, bytes, int], int]:
        def full(fd: int, data: bytes, position: int) -> int:
            if name in os.readlink(f"/proc/self/fd/{fd}"):  # noqa: PTH115
                raise OSError(errno.ENOSPC, "No space left on device")
            return write(fd, data, position)

        return full

    for name in ("/pack", "/points/", "/unfinished"):
        with monkeypatch.context() as patch:
            patch.setattr(os, "pwrite", full_at(name))
            with pytest.raises(NoSpaceError):
                take_point(laid.root, backing(tmp_path / "repository"))
        assert goldens.digest(tmp_path / "repository") == before
    with monkeypatch.context() as patch:
        patch.setattr(os, "pwrite", full_at("/copy/"))
        with pytest.raises(NoSpaceError):
            restored(tmp_path / "repository", 1, tmp_path / "restored")
    assert not list(tmp_path.glob("restored*"))
    take_point(laid.root, backing(tmp_path / "repository"))
    assert is_whole(tmp_path / "repository")


def test_a_restore_looks_for_room_before_it_writes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    _, heads = kept_at(tmp_path, [30], SMALL)
    real = os.statvfs(tmp_path)

    def free(count: int) -> os.statvfs_result:
        values = list(real)
        values[0] = values[1] = 1  # f_bsize and f_frsize
        values[4] = count
        return os.statvfs_result(values)

    monkeypatch.setattr(os, "statvfs", lambda _: free(heads[0].bytes - 1))
    with monkeypatch.context() as patch:
        patch.setattr(restore_module, "_write", lambda *_: pytest.fail("it began"))
        told = rf"the point has {heads[0].bytes} bytes, and {heads[0].bytes - 1} are free"
        with pytest.raises(NoSpaceError, match=told):
            restored(tmp_path / "repository", 1, tmp_path / "restored")
    assert not list(tmp_path.glob("restored*"))
    monkeypatch.setattr(os, "statvfs", lambda _: free(heads[0].bytes))
    restored(tmp_path / "repository", 1, tmp_path / "restored")


@pytest.mark.soak
def test_points_are_made_pruned_and_restored_at_once_and_none_is_half(tmp_path: Path) -> None:
    """One makes points, one prunes them, one restores: each ends well, or says why by name."""
    laid, _ = kept_at(tmp_path, [30], SMALL)
    place, whole, stops = backing(tmp_path / "repository"), rows(laid.root), threading.Event()

    def makes() -> None:
        while not stops.is_set():
            with suppress(StoreLockedError):
                take_point(laid.root, place)

    def prunes() -> None:
        while not stops.is_set():
            with suppress(StoreLockedError):
                prune_points(place, [KeepRule(1, 0)])

    done, pruned_meanwhile, told = 0, 0, list[str]()
    with ThreadPoolExecutor(2) as pool:
        others = [pool.submit(makes), pool.submit(prunes)]
        try:
            for number in range(RESTORES):
                target = tmp_path / f"restored-{number}"
                point = point_folder(place, WantedPoint("latest"), "latest")
                try:
                    restore_point(point, target)
                except (PointNotFoundError, CorruptStoreError) as error:
                    told.append(str(error))
                    pruned_meanwhile += not target.exists()
                else:
                    assert rows(target) == whole
                    done += 1
        finally:
            stops.set()
        for other in others:
            other.result()
    assert done
    assert done + pruned_meanwhile == RESTORES
    assert all("pruned meanwhile" in t or "removed meanwhile" in t for t in told)
    assert is_whole(tmp_path / "repository")
    prune_points(place, [KeepRule(1, 0)])
    assert files(tmp_path / "repository") == needed(tmp_path / "repository")
    soak.tell(f"{done} restored, {pruned_meanwhile} pruned meanwhile")


def test_two_processes_do_not_work_on_one_repository(tmp_path: Path) -> None:
    laid, _ = kept_at(tmp_path, [5], SMALL)
    with held_by_another(tmp_path / "repository" / "lock") as other:
        with pytest.raises(StoreLockedError, match=rf"process {other.pid} .* works on this repo"):
            take_point(laid.root, backing(tmp_path / "repository"))
        with pytest.raises(StoreLockedError):
            prune_points(backing(tmp_path / "repository"), [KeepRule(1, 0)])
        assert rows_of(at(backing(tmp_path / "repository"), 1)) == rows(laid.root)
    take_point(laid.root, backing(tmp_path / "repository"))


def test_what_is_no_repository_is_left_alone(store: MakeStore, tmp_path: Path) -> None:
    root = store(messages(3)).root
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "notes").write_text("keep")
    for target, told in (
        (tmp_path / "mine", "is no repository, and has notes in it"),
        (tmp_path / "mine" / "notes", "is no directory"),
        (root / "kept", "lies in the store itself"),
        (root.parent, "the store lies in it"),
        (tmp_path / "no" / "where", "there is no directory"),
    ):
        with pytest.raises(InvalidOptionError, match=told):
            take_point(root, backing(target))
    with pytest.raises(NotARepositoryError, match="mqlog snapshot STORE REPO makes one"):
        prune_points(backing(tmp_path / "mine"), [KeepRule(1, 0)])
    with pytest.raises(StoreNotFoundError):
        take_point(tmp_path / "nowhere", backing(tmp_path / "kept"))
    assert not (tmp_path / "kept").exists()
    assert (tmp_path / "mine" / "notes").read_text() == "keep"


def test_a_missing_object_is_named_and_taken_anew_by_the_next_point(tmp_path: Path) -> None:
    laid, _ = kept_at(tmp_path, [40], SMALL)
    repository = tmp_path / "repository"
    lost = repository / "objects" / "00000001" / "1"
    lost.unlink()

    with pytest.raises(CorruptStoreError, match=r"objects/00000001/1 .*the object is missing"):
        restored(repository, 1, tmp_path / "restored")
    assert not list(tmp_path.glob("restored*"))
    with pytest.raises(CorruptStoreError, match="the object is missing"):
        rows_of(at(backing(repository), 1))
    take_point(laid.root, backing(repository))
    assert rows_of(at(backing(repository), 2)) == rows(laid.root)


def test_bytes_that_changed_are_not_restored(tmp_path: Path) -> None:
    kept_at(tmp_path, [40], SMALL)
    repository = tmp_path / "repository"
    for path in sorted((repository / "objects").rglob("*")):
        if path.is_file():
            data = bytearray(path.read_bytes())
            data[len(data) // 2] ^= 1
            path.unlink()
            path.write_bytes(data)
            assert not is_whole(repository)
            with pytest.raises(CorruptStoreError, match=r"objects/00000001/.* checksum"):
                restored(repository, 1, tmp_path / "restored")
            assert not list(tmp_path.glob("restored*"))
            data[len(data) // 2] ^= 1
            path.write_bytes(data)
            assert is_whole(repository)


def test_a_store_with_databases_is_kept_and_its_sst_files_are_taken_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    pytest.importorskip("rocksdict")
    laid = lay_out(tmp_path / "store", messages(40), SMALL)
    before = rows(laid.root)
    rocksdb.move_queues(laid.root, before=laid.messages[29].physical_offset)
    place = backing(tmp_path / "repository")
    first, second = (take_point(laid.root, place) for _ in range(2))

    assert second.linked_bytes == second.written_bytes == 0
    assert first.messages == 40
    store = restored(tmp_path / "repository", 2, tmp_path / "restored")
    assert rows(store) == before
    for name in ("CURRENT", *(p.name for p in (laid.root / "consumequeue").glob("*.sst"))):
        source = laid.root / "consumequeue" / name
        assert (store / "consumequeue" / name).read_bytes() == source.read_bytes()


@pytest.mark.parametrize("when", [0, 3])
def test_a_database_that_changes_meanwhile_is_taken_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, when: int
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    pytest.importorskip("rocksdict")
    laid = lay_out(tmp_path / "store", messages(40), SMALL)
    before = rows(laid.root)
    shutil.copytree(laid.root, tmp_path / "later" / "store")
    rocksdb.move_queues(laid.root, before=laid.messages[9].physical_offset)
    rocksdb.move_queues(tmp_path / "later" / "store", before=laid.messages[29].physical_offset)
    seen, take = list[str](), PointTarget.take

    def changes(self: PointTarget, folder: Folder, path: str, *given: str, **named: int) -> None:
        if len(seen) == when:
            shutil.rmtree(laid.root / "consumequeue")
            later = tmp_path / "later" / "store" / "consumequeue"
            shutil.copytree(later, laid.root / "consumequeue")
            current = laid.root / "consumequeue" / "CURRENT"
            (laid.root / "consumequeue" / current.read_text().strip()).rename(
                laid.root / "consumequeue" / "MANIFEST-000999"
            )
            current.write_text("MANIFEST-000999\n")
        seen.append(path)
        take(self, folder, path, *given, **named)

    monkeypatch.setattr(PointTarget, "take", changes)
    take_point(laid.root, backing(tmp_path / "repository"))
    assert len(seen) > len(set(seen))
    assert rows(restored(tmp_path / "repository", 1, tmp_path / "restored")) == before


@pytest.mark.parametrize("times", [1, 9, 10])
def test_a_log_whose_last_file_is_deleted_meanwhile_is_taken_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, times: int
) -> None:
    root = lay_out(tmp_path / "store", messages(40), SMALL).root
    for target in (PointTarget, Copy):
        monkeypatch.setattr(target, "take", expiring(target.take, times))
    repository, copy = backing(tmp_path / "repository"), tmp_path / "copy"
    if times == 10:
        for made in (lambda: take_point(root, repository), lambda: copy_store(root, copy)):
            with pytest.raises(StoreLockedError, match="deletes the files that a copy would end"):
                made()
        assert not copy.exists()
        return
    take_point(root, repository)
    assert rows(restored(tmp_path / "repository", 1, tmp_path / "restored")) == rows(root)
    assert files(tmp_path / "repository") == needed(tmp_path / "repository")
    copied = copy_store(root, copy)
    assert rows(copy) == rows(root)
    held = [path for path in copy.rglob("*") if path.is_file()]
    assert copied.linked_bytes == sum(one.stat().st_size for one in held if one.stat().st_nlink > 1)


def expiring(take: Callable[..., None], times: int) -> Callable[..., None]:
    """``take``, but the first files of a log are deleted before it comes to them."""
    left = list(range(times))

    def expires(self: object, folder: Folder, path: str, *given: str, **named: int) -> None:
        if "commitlog" in f"{folder}" and left:
            left.pop()
            raise FileNotFoundError(path)
        take(self, folder, path, *given, **named)

    return expires
