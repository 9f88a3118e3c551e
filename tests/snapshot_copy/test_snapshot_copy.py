"""A copy of a store: whole, a prefix of the source, whatever the source does meanwhile."""

import errno
import random
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from crash.disk import Disk, Recorder, standing_in
from mqstore.check import check
from mqstore.copy.copy_store import copy_store
from mqstore.errors import (
    CommitInDoubtError,
    InvalidOptionError,
    NotAStoreError,
    StoreLockedError,
    StoreNotFoundError,
)
from mqstore.files import durable
from mqstore.read.plan import QueueSlice
from mqstore.read.scan import scan
from mqstore.read.settings import ScanSettings
from mqstore.read.snapshot import take
from mqstore.txn import intent, ledger
from support import goldens, writing
from support.growing import grow
from support.oracle import Message, join_properties
from support.processes import held_by_another
from support.stores import Layout, MakeStore, lay_out
from support.writing import append

Rows = dict[tuple[str, int], list[tuple[int, int, bytes]]]
SMALL = Layout(commit_log_bytes=1024, queue_units=4, index_slots=5, index_units=12)


def messages(count: int) -> list[Message]:
    return [
        Message(
            topic="AB"[i % 2],
            queue_id=i % 3,
            body=f"message {i}".encode(),
            properties=join_properties({"KEYS": f"k{i}", "TAGS": f"t{i % 2}"}),
        )
        for i in range(count)
    ]


def rows(root: Path) -> Rows:
    snapshot = take(root)
    store = snapshot.store
    settings = ScanSettings(columns=("queueOffset", "physicalOffset", "body"))
    found: Rows = {}
    for q in snapshot.queues:
        piece = QueueSlice(store.root, store.commit_log, "b", q.topic, q.queue_id, q.low, q.high)
        found[q.topic, q.queue_id] = [
            (row["queueOffset"], row["physicalOffset"], row["body"])
            for batch in scan([piece], settings)
            for row in batch.to_pylist()
        ]
    return found


def errors(root: Path) -> list[str]:
    return [str(f) for f in check(root) if f.severity == "error"]


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
    held = rows(laid.root)
    fault = pytest.MonkeyPatch()
    done = 0

    def grows(name: str) -> Callable[..., object]:
        act = getattr(durable, name)

        def call(*arguments: object) -> object:
            nonlocal done
            if done == step:
                grow(laid, messages(before + more), SMALL)
                for path in (folder / "more" / "index").glob("*"):
                    shutil.copyfile(path, laid.root / "index" / path.name)
            done += 1
            return act(*arguments)

        return call

    lay_out(folder / "more", messages(before + more), SMALL)
    with fault.context() as patch:
        for name in ("link", "create", "make_directory", "copy_range"):
            patch.setattr(durable, name, grows(name))
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


def test_a_commit_that_is_not_finished_is_not_copied(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    append(tmp_path / "s", writing.rows(3), **writing.SMALL)
    before, replace = rows(tmp_path / "s"), durable.replace

    def replace_but_the_ledger(source: str, target: str) -> None:
        if target.endswith("jobs.json"):
            raise OSError("injected")
        replace(source, target)

    with monkeypatch.context() as patch:
        patch.setattr(durable, "replace", replace_but_the_ledger)
        with pytest.raises(CommitInDoubtError):
            append(tmp_path / "s", writing.rows(4))
    copy_store(tmp_path / "s", tmp_path / "copy")
    assert rows(tmp_path / "copy") == before
    assert check(tmp_path / "copy") == []
    assert len(ledger.entries(str(tmp_path / "copy"))) == 1


def test_a_commit_that_is_hidden_is_not_told_as_done(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Killed between its line in the ledger and its end: the copy has neither, and takes it."""
    key: Mapping[str, Any] = {"txn_app_id": "loader", "txn_version": 2}
    append(tmp_path / "s", writing.rows(3), **writing.SMALL, txn_app_id="loader", txn_version=1)
    with monkeypatch.context() as patch:
        patch.setattr(intent, "remove", _fail)
        with pytest.raises(CommitInDoubtError):
            append(tmp_path / "s", writing.rows(4), **key)
    assert ledger.last_version(str(tmp_path / "s"), "loader") == 2
    copy_store(tmp_path / "s", tmp_path / "copy")
    assert ledger.last_version(str(tmp_path / "copy"), "loader") == 1
    assert append(tmp_path / "copy", writing.rows(4), **key).messages == 4
    append(tmp_path / "s", writing.rows(1))
    copy_store(tmp_path / "s", tmp_path / "whole")
    assert ledger.last_version(str(tmp_path / "whole"), "loader") == 2


def test_a_commit_that_a_broker_has_entered_is_told_as_done(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Published, and then a broker came and went: its messages are copied, so it must be known."""
    key: Mapping[str, Any] = {"txn_app_id": "loader", "txn_version": 2}
    append(tmp_path / "s", writing.rows(3), **writing.SMALL)
    with monkeypatch.context() as patch:
        patch.setattr(ledger, "record", _fail)
        with pytest.raises(CommitInDoubtError):
            append(tmp_path / "s", writing.rows(4), **key)
    (tmp_path / "s" / "abort").unlink()  # The broker stopped cleanly.
    copy_store(tmp_path / "s", tmp_path / "copy")
    assert sum(map(len, rows(tmp_path / "copy").values())) == 7
    assert append(tmp_path / "copy", writing.rows(4), **key).is_repeated
    assert append(tmp_path / "s", writing.rows(4), **key).is_repeated


def _fail(*_: object) -> None:
    raise OSError("injected")


def test_a_commit_that_ends_meanwhile_is_waited_for_by_whoever_copies(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    append(tmp_path / "s", writing.rows(3), **writing.SMALL)
    link, left = durable.create, [1]

    def append_first(path: str) -> int:
        if left:
            left.clear()
            append(tmp_path / "s", writing.rows(1))
        return link(path)

    monkeypatch.setattr(durable, "create", append_first)
    with pytest.raises(StoreLockedError, match="copy it again"):
        copy_store(tmp_path / "s", tmp_path / "copy")
    assert not (tmp_path / "copy").exists()
    copy_store(tmp_path / "s", tmp_path / "copy")
    assert rows(tmp_path / "copy") == rows(tmp_path / "s")


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


def kill_at(link: int, source: Path, target: Path) -> Path:
    """Kill a process that copies, at the link of that number; return what it leaves."""
    program = f"""
import os, signal
from mqstore.files import durable
from mqstore.copy.copy_store import copy_store
act, done = durable.link, []
def link(source, target):
    done.append(target)
    if len(done) == {link}:
        os.kill(os.getpid(), signal.SIGTERM)
    act(source, target)
durable.link = link
copy_store({str(source)!r}, {str(target)!r})
"""
    command = [sys.executable, "-c", program]
    done = subprocess.run(command, check=False, capture_output=True, timeout=60)
    assert done.returncode == -signal.SIGTERM, done.stderr.decode()
    return target.with_name(f"{target.name}.partial")


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
    for prefix in [*range(12), *range(12, count - 8, 9), *range(count - 8, count + 1)]:
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
    with pytest.raises(InvalidOptionError, match="made by somebody else"):
        copy_store(root, tmp_path / "copy")
    assert [path.name for path in (tmp_path / "copy").iterdir()] == ["mine"]
    assert not (tmp_path / "copy.partial").exists()


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
    for state in [*ends, *(disk.draw(rng) for _ in range(200))]:
        cut.mkdir()
        state.write(cut)
        if (cut / "copy").exists() or state in ends:
            assert rows(cut / "copy") == expected
            assert not list(check(cut / "copy"))
        shutil.rmtree(cut)
