"""Copies that fail, are killed, or are made by two processes at once."""

import errno
import random
import shutil
from pathlib import Path

import pytest

from crash.disk import Disk, Recorder, standing_in
from mqstore.check import check
from mqstore.copy.copy_store import copy_store
from mqstore.errors import InvalidOptionError, NotAStoreError
from mqstore.files.base import durable
from snapshot_copy.copied import SMALL, kill_at, messages, rows
from support import goldens, soak
from support.processes import held_by_another
from support.stores import MakeStore, lay_out

CUTS = soak.size("copy_cuts", check=5, test=80, whole=5_000)


def test_a_copy_that_fails_leaves_nothing(
    store: MakeStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    root = store(messages(40), SMALL).root
    act, left = durable.create, 5

    def create(path: str) -> int:
        nonlocal left
        left -= 1
        if not left:
            raise OSError(28, "No space left on device", path)
        return act(path)

    monkeypatch.setattr(durable, "create", create)
    with pytest.raises(OSError, match="No space left"):
        copy_store(root, tmp_path / "copy")

    assert sorted(path.name for path in tmp_path.iterdir()) == ["broker-1"]


def test_what_a_killed_copy_left_is_removed_by_the_next(store: MakeStore, tmp_path: Path) -> None:
    root = store(messages(40), SMALL).root
    before = goldens.digest(root)
    left = kill_at(5, root, tmp_path / "copy")
    assert len([path for path in left.rglob("*") if path.stat().st_nlink > 1]) >= 4
    copy_store(root, tmp_path / "copy")

    assert rows(tmp_path / "copy") == rows(root)
    assert goldens.digest(root) == before
    assert sorted(path.name for path in tmp_path.iterdir()) == ["broker-1", "copy"]
    assert not list((tmp_path / "copy").glob("*progress*"))


@pytest.mark.soak
def test_a_copy_killed_anywhere_is_made_by_the_next(tmp_path: Path) -> None:
    disk_root, killed = tmp_path / "disk", tmp_path / "killed"
    disk_root.mkdir()
    lay_out(disk_root / "store", messages(5), SMALL)
    expected = rows(disk_root / "store")
    recorder = Recorder(disk_root)
    with standing_in(recorder):
        copy_store(disk_root / "store", disk_root / "copy")
    disk = Disk(recorder)
    count = len(disk.ops)
    for prefix in soak.sample(range(count + 1), check=3, test=30):
        killed.mkdir()
        disk.kill(prefix, killed)
        if (killed / "copy").exists():
            assert rows(killed / "copy") == expected
            (killed / "copy").rename(killed / "yesterday")
        copy_store(killed / "store", killed / "copy")
        assert rows(killed / "copy") == expected
        assert not (killed / "copy.partial").exists()
        shutil.rmtree(killed)


def tried(root: Path, target: Path) -> str:
    """Copy, and return why it was refused; nothing if it was made."""
    try:
        copy_store(root, target)
    except InvalidOptionError as error:
        return error.message()
    return ""


@pytest.mark.parametrize(
    "step", ["make_directory", "open_lock", "lock_byte", "link", "replace", "unlink"]
)
def test_two_copies_to_one_place_do_not_harm_each_other(
    store: MakeStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, step: str
) -> None:
    """The second begins while the first is at that step: one of them makes the copy."""
    root = store(messages(20), SMALL).root
    act, second = getattr(durable, step), list[str]()

    def begin_the_second(*arguments: object) -> object:
        if not second:
            second.append("begun")
            second[0] = tried(root, tmp_path / "copy")
        return act(*arguments)

    monkeypatch.setattr(durable, step, begin_the_second)
    told = [tried(root, tmp_path / "copy"), *second]

    assert sorted(map(bool, told)) == [False, True]
    assert any(why in max(told) for why in ("makes a copy there now", "is there already"))
    assert rows(tmp_path / "copy") == rows(root)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["broker-1", "copy"]


def test_a_copy_that_another_process_makes_is_named(store: MakeStore, tmp_path: Path) -> None:
    root = store(messages(20), SMALL).root
    left = kill_at(5, root, tmp_path / "copy")
    (mark,) = left.glob("*progress*")
    before = goldens.digest(left)
    with held_by_another(mark) as other:
        told = rf"process {other.pid} \(.*\) makes a copy there now"
        with pytest.raises(InvalidOptionError, match=told):
            copy_store(root, tmp_path / "copy")

    assert goldens.digest(left) == before
    copy_store(root, tmp_path / "copy")


def test_what_no_copy_left_is_not_removed(store: MakeStore, tmp_path: Path) -> None:
    root = store(messages(20), SMALL).root
    left = kill_at(5, root, tmp_path / "copy")
    (mark,) = left.glob("*progress*")

    def refused(told: str) -> None:
        before = goldens.digest(tmp_path)
        with pytest.raises(InvalidOptionError, match=told) as raised:
            copy_store(root, tmp_path / "copy")
        assert f"={str(tmp_path / 'copy')!r}: {left}, where" in raised.value.message()
        assert goldens.digest(tmp_path) == before

    (left / "mine").write_text("keep")
    refused(r"has more in it than a copy: mine\. Remove it, or name another directory")
    (left / "mine").unlink()
    mark.rename(left.parent / "mark")
    refused("has no mark of ours")
    mark.write_text("something else")
    refused("is not ours")
    left.rename(tmp_path / "elsewhere")
    left.symlink_to(tmp_path / "elsewhere")
    refused("no directory")


def test_what_a_killed_copy_left_is_not_removed_while_it_is_read(
    store: MakeStore, tmp_path: Path
) -> None:
    left = kill_at(9, store(messages(40), SMALL).root, tmp_path / "copy")
    before = goldens.digest(left)
    with pytest.raises(InvalidOptionError, match="where the copy would be made"):
        copy_store(left / "copy", tmp_path / "copy")
    with pytest.raises(NotAStoreError, match="was not finished"):
        copy_store(left, tmp_path / "copy")

    assert goldens.digest(left) == before


def test_without_locks_what_was_left_is_for_a_person_to_remove(
    store: MakeStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    root = store(messages(20), SMALL).root

    def refuse(fd: int) -> bool:
        raise OSError(errno.ENOLCK, "No locks available")

    monkeypatch.setattr(durable, "lock_byte", refuse)
    copy_store(root, tmp_path / "copy")
    assert rows(tmp_path / "copy") == rows(root)
    kill_at(5, root, tmp_path / "other")
    with pytest.raises(InvalidOptionError, match="has no locks to tell"):
        copy_store(root, tmp_path / "other")


def test_a_target_that_is_made_meanwhile_is_kept(
    store: MakeStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    root = store(messages(5), SMALL).root
    sync = durable.fsync_directory

    def appear(path: str) -> None:
        (tmp_path / "copy" / "mine").mkdir(parents=True, exist_ok=True)
        sync(path)

    monkeypatch.setattr(durable, "fsync_directory", appear)
    with pytest.raises(InvalidOptionError, match="made by another process"):
        copy_store(root, tmp_path / "copy")
    assert [path.name for path in (tmp_path / "copy").iterdir()] == ["mine"]
    assert not (tmp_path / "copy.partial").exists()


@pytest.mark.soak
def test_a_power_cut_leaves_no_copy_or_all_of_it(tmp_path: Path) -> None:
    disk_root, cut = tmp_path / "disk", tmp_path / "cut"
    disk_root.mkdir()
    lay_out(disk_root / "store", messages(30), SMALL)
    expected = rows(disk_root / "store")
    recorder = Recorder(disk_root)
    with standing_in(recorder):
        copy_store(disk_root / "store", disk_root / "copy")
    disk, rng = Disk(recorder), random.Random(1)
    ends = [disk.state(len(disk.ops), 0)]
    for state in [*ends, *(disk.draw(rng) for _ in range(CUTS))]:
        cut.mkdir()
        state.write(cut)
        if (cut / "copy").exists() or state in ends:
            assert rows(cut / "copy") == expected
            assert not list(check(cut / "copy"))
        shutil.rmtree(cut)
