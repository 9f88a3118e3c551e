"""A copy of a store: whole, a prefix of the source, whatever the source does meanwhile."""

import os
import shutil
import struct
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mqstore.check import check
from mqstore.copy import copy_end
from mqstore.copy import copy_store as copy_store_module
from mqstore.copy.copy_store import copy_store
from mqstore.errors import InvalidOptionError, StoreNotFoundError, UnsupportedStoreError
from mqstore.files.base import durable
from mqstore.files.queue.units import Units
from mqstore.format.config import MAX_CONFIG_BYTES
from mqstore.format.consume_queue import UNIT
from snapshot_copy.copied import SMALL, errors, growing, messages, rows
from support import goldens
from support.stores import Layout, MakeStore, lay_out


def test_the_copy_of_a_brokers_store_is_whole_and_reads_the_same(
    golden: tuple[str, Path], tmp_path: Path
) -> None:
    _, root = golden
    copied = copy_store(root, tmp_path / "copy")

    assert check(tmp_path / "copy") == [f for f in check(root) if "abort" not in f.file]
    assert rows(tmp_path / "copy") == rows(root)
    assert not copied.left_out
    assert not (tmp_path / "copy" / "lock").exists()
    assert not (tmp_path / "copy.partial").exists()
    for name in ("topics.json", "consumerOffset.json", "subscriptionGroup.json"):
        config = Path("config", name)
        assert (tmp_path / "copy" / config).read_bytes() == (root / config).read_bytes()


def test_full_files_are_links_and_the_tails_are_not(store: MakeStore, tmp_path: Path) -> None:
    root = store(messages(40), SMALL).root
    copied = copy_store(root, tmp_path / "copy")

    for folder in ("commitlog", "consumequeue/A/0", "index"):
        files = sorted((tmp_path / "copy" / folder).iterdir())
        assert [path.stat().st_nlink for path in files[:-1]] == [2] * (len(files) - 1)
        assert files[-1].stat().st_nlink == 1 or folder.startswith("consumequeue")
    assert copied.linked_bytes > copied.copied_bytes > 0


def test_a_large_file_of_config_is_copied_whole_or_refused(
    store: MakeStore, tmp_path: Path
) -> None:
    root, size = store(messages(4), SMALL).root, MAX_CONFIG_BYTES + 1
    (root / "config" / "notes.db").touch()
    os.truncate(root / "config" / "notes.db", size)
    copy_store(root, tmp_path / "copy")
    assert (tmp_path / "copy" / "config" / "notes.db").stat().st_size == size
    (root / "config" / "notes.db").rename(root / "config" / "offsets.db")
    with pytest.raises(UnsupportedStoreError, match=r"TOO_LARGE.*config/offsets\.db"):
        copy_store(root, tmp_path / "second")


def test_a_file_system_that_cannot_link_gets_bytes(
    store: MakeStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(source: str, target: str) -> None:
        raise OSError(18, "Invalid cross-device link", source, None, target)

    monkeypatch.setattr(durable, "link", refuse)
    root = store(messages(40), SMALL).root
    copied = copy_store(root, tmp_path / "copy")

    assert copied.linked_bytes == 0
    assert goldens.digest(tmp_path / "copy" / "commitlog") == goldens.digest(root / "commitlog")
    assert errors(tmp_path / "copy") == []


@given(before=st.integers(0, 30), more=st.integers(1, 30), step=st.integers(0, 60))
def test_a_store_that_grows_meanwhile_is_copied_as_it_was(
    tmp_path_factory: pytest.TempPathFactory, before: int, more: int, step: int
) -> None:
    """The broker is at work between any two files that are copied: `step` says which."""
    folder = tmp_path_factory.mktemp("grows")
    laid = lay_out(folder / "store", messages(before), SMALL)
    held, calls = rows(laid.root), ("link", "create", "make_directory", "copy_range")
    with growing(laid, before + more, folder / "more", step, calls):
        copy_store(laid.root, folder / "copy")

    assert errors(folder / "copy") == []
    found = rows(folder / "copy")
    late = rows(folder / "more")
    # A prefix of what there is in the end, and no less than there was.
    assert {queue: late[queue][: len(its)] for queue, its in found.items()} == found
    assert all(found[queue][: len(its)] == its for queue, its in held.items())
    shutil.rmtree(folder)


def test_a_running_brokers_store_is_copied_without_its_abort(
    store: MakeStore, tmp_path: Path
) -> None:
    layout = Layout(commit_log_bytes=1024, queue_units=4, abort=True, preallocated=True)
    root = store(messages(25), layout).root
    copy_store(root, tmp_path / "copy")

    assert not (tmp_path / "copy" / "abort").exists()
    assert check(tmp_path / "copy") == []
    assert rows(tmp_path / "copy") == rows(root)


def test_what_is_copied_may_be_written_to(store: MakeStore, tmp_path: Path) -> None:
    """A tail shares no bytes with the source's."""
    root = store(messages(10), SMALL).root
    before = goldens.digest(root)
    copy_store(root, tmp_path / "copy")
    tail = sorted((tmp_path / "copy" / "commitlog").iterdir())[-1]
    fd = durable.open_for_write(str(tail))
    durable.write_at(fd, b"changed", 0)
    durable.close(fd)

    assert goldens.digest(root) == before


def test_an_empty_store_is_copied(store: MakeStore, tmp_path: Path) -> None:
    copy_store(store([]).root, tmp_path / "copy")

    assert rows(tmp_path / "copy") == {}


def test_the_tail_takes_no_more_room_than_its_messages(golden_550: Path, tmp_path: Path) -> None:
    copy_store(golden_550, tmp_path / "copy")
    tail = sorted((tmp_path / "copy" / "commitlog").iterdir())[-1]

    assert tail.stat().st_size == (golden_550 / "commitlog" / tail.name).stat().st_size
    assert tail.stat().st_blocks * 512 <= tail.stat().st_size


def test_a_target_that_is_there_or_inside_is_refused(store: MakeStore, tmp_path: Path) -> None:
    root = store(messages(3)).root
    (tmp_path / "there").mkdir()
    for target, told in (
        (tmp_path / "there", "is there already"),
        (root / "copy", "lies in the store itself"),
        (tmp_path / "no" / "where", "there is no"),
    ):
        with pytest.raises(InvalidOptionError, match=told):
            copy_store(root, target)
    for source, why in ((tmp_path / "nowhere", "no such"), (root / "checkpoint", "not a")):
        with pytest.raises(StoreNotFoundError, match=f"{why} directory"):
            copy_store(source, tmp_path / "copy")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["broker-1", "there"]


@pytest.mark.parametrize("times", [1, 2])
def test_a_queues_file_that_expires_between_two_looks_is_left_out(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, times: int
) -> None:
    root = lay_out(tmp_path / "store", messages(60), SMALL).root
    look, left = copy_store_module._queue_cut, list(range(times))

    def expires(queue: Units, end: Any) -> int:
        if left and queue.files.files:
            left.pop()
            delete_expired(root, 2)
            raise FileNotFoundError
        return look(queue, end)

    monkeypatch.setattr(copy_store_module, "_queue_cut", expires)
    copy_store(root, tmp_path / "copy")
    monkeypatch.undo()
    assert goldens.digest(tmp_path / "copy" / "consumequeue") == (
        goldens.digest(root / "consumequeue")
    )


def delete_expired(root: Path, log_files: int) -> None:
    """Delete the first files of the log, and those of queues that point there, as a broker does."""
    log = sorted((root / "commitlog").iterdir())
    low = int(log[log_files].name)
    for path in log[:log_files]:
        path.unlink()
    for folder in (root / "consumequeue").glob("*/*"):
        for path in sorted(folder.iterdir())[:-1]:
            (last,) = struct.unpack_from(
                ">q", path.read_bytes(), path.stat().st_size - UNIT.itemsize
            )
            if last < low:
                path.unlink()


@pytest.mark.parametrize("number", range(1, 40, 3))
def test_files_that_expire_while_a_store_is_copied_leave_no_gap(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, number: int
) -> None:
    root = lay_out(tmp_path / "store", messages(120), SMALL).root
    link, linked = durable.link, []

    def expires(source: str, target: str) -> None:
        link(source, target)
        linked.append(target)
        if len(linked) == number:
            delete_expired(root, 10)

    monkeypatch.setattr(durable, "link", expires)
    copy_store(root, tmp_path / "copy")
    assert len(linked) >= number
    assert errors(tmp_path / "copy") == []
    left, copied = rows(root), rows(tmp_path / "copy")
    assert left == {queue: its[-len(left[queue]) :] for queue, its in copied.items()}


@pytest.mark.parametrize("is_entered", [True, False])
def test_what_a_broker_acknowledged_before_a_copy_is_in_it_once_it_has_its_units(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
    is_entered: bool,
) -> None:
    laid = lay_out(tmp_path / "store", messages(40), SMALL)
    (laid.root / "abort").touch()
    every = rows(laid.root)
    lay_out(tmp_path / "before", messages(31), SMALL)
    shutil.move(laid.root / "consumequeue", tmp_path / "entered")
    shutil.move(tmp_path / "before" / "consumequeue", laid.root / "consumequeue")
    looks: list[float] = []

    def pause(seconds: float) -> None:
        looks.append(seconds)
        if is_entered and len(looks) == 3:
            shutil.rmtree(laid.root / "consumequeue")
            shutil.copytree(tmp_path / "entered", laid.root / "consumequeue")

    monkeypatch.setattr(copy_end.time, "sleep", pause)
    monkeypatch.setattr(copy_end, "ENTERED_UNSEEN_S", 60.0 if is_entered else 0.0)
    copy_store(laid.root, tmp_path / "copy")
    assert errors(tmp_path / "copy") == []
    assert len(looks) == 3 or not is_entered
    if is_entered:
        assert rows(tmp_path / "copy") == every
    else:
        assert sum(map(len, rows(tmp_path / "copy").values())) == 31
        assert (
            "the last 9 messages of the CommitLog are in no ConsumeQueue: left out" in caplog.text
        )
