"""A commit that fails, wherever it fails, leaves the store as it was; or it did not fail."""

import errno
import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from mqstore.check import check
from mqstore.errors import NoSpaceError, StoreError, StoreLockedError, UncleanStoreError
from mqstore.files.base import durable
from mqstore.files.base.store_dir import StoreDir
from mqstore.files.base.undo import Undo
from mqstore.files.txn import small_json
from mqstore.files.txn.errors import StagingNotSharedError
from mqstore.files.txn.ledger import Key
from mqstore.write.commit import abort, commit
from mqstore.write.errors import CommitInDoubtError
from mqstore.write.prepare import is_empty
from mqstore.write.recover import RecoverSettings, recover
from support import soak
from support.killed_commit import APP_ID, VERSION, leave
from support.oracle import Message
from support.processes import held_by_another, lock_user
from support.stores import Layout, lay_out
from support.writing import SMALL, append, held, prepared, rows, staged

SEAM = (
    "create",
    "write_at",
    "reserve",
    "truncate",
    "set_mode",
    "fsync",
    "fsync_directory",
    "link",
    "replace",
    "unlink",
    "make_directory",
    "remove_directory",
)


class Disk:
    """Counts the durable calls, and makes the k-th fail, before or after it is done."""

    def __init__(self, patch: pytest.MonkeyPatch, *, at: int = -1, after: bool = False) -> None:
        self.calls = 0
        self.failed = ""
        self._at = at
        self._after = after
        for sync in ("fsync", "fdatasync"):  # What is on the disk is not asked here.
            patch.setattr(os, sync, lambda _: None)
        for name in SEAM:
            patch.setattr(durable, name, self._counted(name, getattr(durable, name)))

    def _counted(self, name: str, call: Callable[..., Any]) -> Callable[..., Any]:
        def counted(*args: Any, **kwargs: Any) -> Any:
            number, self.calls = self.calls, self.calls + 1
            if number != self._at:
                return call(*args, **kwargs)
            self.failed = name
            if self._after and name != "create":  # whose descriptor nobody could close then
                call(*args, **kwargs)
            raise OSError(errno.EIO, f"injected into {name}")

        return counted


def everything(root: Path) -> dict[str, bytes | None]:
    """Return every directory and file below a root."""
    return contents(root, sorted(root.rglob("*")))


def visible(root: Path) -> dict[str, bytes | None]:
    """Return what others see of a store; open(2) of its leased `lock` would wait for 45 s."""
    hidden = {root / "lock", *(root / ".mqlog").rglob("*"), root / ".mqlog"}
    return contents(root, sorted(set(root.rglob("*")) - hidden))


def contents(root: Path, paths: list[Path]) -> dict[str, bytes | None]:
    """Return the bytes of each path below a root, None for a directory."""
    return {str(p.relative_to(root)): p.read_bytes() if p.is_file() else None for p in paths}


def brokers_store(root: Path) -> Path:
    """A store in which whatever we append needs new files and changes old ones."""
    keyed = b"KEYS\x01old\x02"
    old = [Message(queue_id=n % 2, body=bytes(300), properties=keyed) for n in range(30)]
    layout = Layout(commit_log_bytes=8192, queue_units=10, index_slots=11, index_units=20)
    return lay_out(root, old, layout).root


BATCH = rows(30, topic=["T", "New", "T"] * 10, keys="k", tags="t", body=bytes(400))


def count_calls(tmp_path: Path) -> int:
    with pytest.MonkeyPatch.context() as patch:
        root = brokers_store(tmp_path / "counted")
        disk = Disk(patch)
        append(root, BATCH)
        return disk.calls


@pytest.mark.soak
@pytest.mark.parametrize("after", [False, True], ids=["before", "after"])
def test_a_failure_at_any_durable_call_leaves_the_store_as_it_was_or_is_made_good(
    tmp_path: Path, after: bool
) -> None:
    """For each call k of prepare, stage and commit: it fails, and nothing is left of the job.

    Behind the decision it is left in doubt, and recovered.
    """
    calls, untold, in_doubt = count_calls(tmp_path), [], 0
    assert calls > 100
    tried = soak.sample(range(calls), check=4, test=30)
    for k in tried:
        root = brokers_store(tmp_path / f"{k}")
        before = everything(root)
        with pytest.MonkeyPatch.context() as patch:
            disk = Disk(patch, at=k, after=after)
            try:
                append(root, BATCH)
            except CommitInDoubtError:
                in_doubt += 1
            except OSError:
                assert everything(root) == before, f"call {k}, {disk.failed}"
                continue
            else:
                untold.append(disk.failed)
        recover(root, RecoverSettings())
        assert len(held(root)) == 60, f"call {k}, {disk.failed}"
        assert check(root) == []
    # Once all is done, what is left of staging and locks may stay.
    # Of a commit that is in the ledger only what must be removed can still fail.
    removing = {"unlink", "remove_directory", "truncate", "unlock_byte", "drop_lease"}
    assert set(untold) <= {*removing, "fsync_directory", "write_at"}
    assert in_doubt > 20 or len(tried) < calls


@pytest.mark.soak
def test_a_failure_while_a_store_is_made_leaves_no_store(tmp_path: Path) -> None:
    with pytest.MonkeyPatch.context() as patch:
        disk = Disk(patch)
        append(tmp_path / "counted", BATCH, **SMALL)
    for k in soak.sample(range(disk.calls), check=4, test=30):
        root = tmp_path / f"{k}"
        with pytest.MonkeyPatch.context() as patch:
            Disk(patch, at=k)
            try:
                append(root, BATCH, **SMALL)
            except CommitInDoubtError:
                pass
            except OSError:
                assert not root.exists() or is_empty(StoreDir.at(root)), f"call {k}"
                continue
        recover(root, RecoverSettings())
        assert len(held(root)) == 30
        assert check(root) == []


def test_a_full_disk_is_told_before_anything_visible_changes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    root = brokers_store(tmp_path / "s")
    before, seen_before = everything(root), visible(root)
    changed: list[dict[str, bytes | None]] = []

    def reserve(fd: int, position: int, size: int) -> None:
        changed.append(visible(root))
        raise NoSpaceError("no room")

    monkeypatch.setattr(durable, "reserve", reserve)
    with pytest.raises(NoSpaceError):
        append(root, BATCH)
    assert changed == [seen_before]
    assert everything(root) == before


def test_a_write_that_finds_the_disk_full_is_a_no_space_error(tmp_path: Path) -> None:
    fd = os.open("/dev/full", os.O_RDWR)
    try:
        with pytest.raises(NoSpaceError):
            durable.write_at(fd, b"x", 0)
    finally:
        os.close(fd)


@pytest.fixture
def locked(tmp_path: Path) -> Iterator[Path]:
    root = brokers_store(tmp_path / "s")
    with held_by_another(root / "lock"):
        yield root


def test_a_store_that_is_held_is_refused_before_any_task_runs(locked: Path) -> None:
    before = everything(locked)
    with pytest.raises(StoreLockedError, match="lockTimeout"):
        prepared(locked, BATCH.schema)
    with pytest.raises(StoreLockedError, match="waited 60 ms"):
        prepared(locked, BATCH.schema, lock_timeout_ms=60)
    assert everything(locked) == before


def test_a_store_that_is_held_when_the_job_commits_is_refused(tmp_path: Path) -> None:
    root = brokers_store(tmp_path / "s")
    before = everything(root)
    job = prepared(root, BATCH.schema)
    manifests = staged(job, [BATCH])
    with held_by_another(root / "lock"), pytest.raises(StoreLockedError):
        commit(job, manifests)
    assert everything(root) == before


def test_an_unclean_store_is_refused(tmp_path: Path) -> None:
    root = brokers_store(tmp_path / "s")
    (root / "abort").write_bytes(b"4711")
    with pytest.raises(UncleanStoreError):
        prepared(root, BATCH.schema)
    (root / "abort").unlink()
    job = prepared(root, BATCH.schema)
    manifests = staged(job, [BATCH])
    (root / "abort").write_bytes(b"4711")
    before = {k: v for k, v in everything(root).items() if not k.startswith(".mqlog")}
    with pytest.raises(UncleanStoreError):
        commit(job, manifests)
    assert everything(root) == before


@pytest.mark.parametrize("name", ["SEQ", "jobs.json"])
def test_a_file_of_ours_that_cannot_be_written_is_told_before_the_decision(
    tmp_path: Path, name: str
) -> None:
    root = brokers_store(tmp_path / "s")
    append(root, BATCH)
    spoilt = root / ".mqlog" / "txn" / name
    spoilt.unlink()
    spoilt.mkdir()
    before = everything(root)
    with pytest.raises(StoreError) as caught:
        append(root, BATCH)
    assert not isinstance(caught.value, CommitInDoubtError)
    assert everything(root) == before
    spoilt.rmdir()
    assert append(root, BATCH).messages == len(BATCH)


def test_a_commit_is_finished_though_the_ledger_of_another_is_corrupt(tmp_path: Path) -> None:
    root = tmp_path / "s"
    append(root, BATCH, **SMALL, txn_app_id="another", txn_version=1)
    (other,) = (root / ".mqlog" / "txn").glob("app-*.json")
    other.write_bytes(b"{}")
    leave(root, "decided")
    done = recover(root, RecoverSettings())
    assert done.key == Key(APP_ID, VERSION)
    assert check(root) == []


def test_abort_removes_what_was_staged_and_nothing_else(tmp_path: Path) -> None:
    root = brokers_store(tmp_path / "s")
    before = everything(root)
    job = prepared(root, BATCH.schema)
    staged(job, [BATCH], [BATCH])
    abort(job, [None, None])
    assert everything(root) == before


def test_abort_leaves_the_lock_of_a_broker_that_makes_a_store_there(tmp_path: Path) -> None:
    root = tmp_path / "s"
    root.mkdir()
    job = prepared(root, BATCH.schema, **SMALL)
    (root / "lock").touch()
    with lock_user(root / "lock") as broker:
        assert broker.do("open") == "opened"
        abort(job, [])
        assert (root / "lock").exists()
    abort(job, [])
    assert not (root / "lock").exists()


def test_a_task_that_cannot_see_the_drivers_directory_says_so(tmp_path: Path) -> None:
    root = brokers_store(tmp_path / "s")
    job = prepared(root, BATCH.schema)
    nonce = Path(job.target.staging) / "NONCE"
    nonce.write_bytes(b"another")
    with pytest.raises(StagingNotSharedError, match="stagingDir"):
        staged(job, [BATCH])
    nonce.unlink()
    with pytest.raises(StagingNotSharedError, match="stagingDir"):
        staged(job, [BATCH])


def test_a_new_stores_staged_files_may_lie_elsewhere(tmp_path: Path) -> None:
    root, shared = tmp_path / "new" / "s", tmp_path / "shared"
    job = prepared(root, BATCH.schema, **SMALL, staging_dir=str(shared))
    abort(job, staged(job, [BATCH]))
    assert list(tmp_path.iterdir()) == []
    append(root, BATCH, **SMALL, staging_dir=str(shared))
    assert check(root) == []


def test_staged_files_may_lie_elsewhere(tmp_path: Path) -> None:
    root = brokers_store(tmp_path / "s")
    shared = tmp_path / "shared" / "staging"
    job = prepared(root, BATCH.schema, staging_dir=str(shared))
    manifests = staged(job, [BATCH])
    assert len(list(shared.rglob("*.mqb"))) == 1
    commit(job, manifests)
    assert list(shared.rglob("*")) == []
    assert check(root) == []


def test_who_is_interrupted_before_the_decision_is_known_takes_it_back(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupted(_: Undo) -> None:
        raise KeyboardInterrupt

    append(tmp_path / "s", rows(3), **SMALL)
    before = everything(tmp_path / "s")
    with monkeypatch.context() as patch:
        patch.setattr(Undo, "end", interrupted)
        with pytest.raises(KeyboardInterrupt):
            append(tmp_path / "s", rows(3, topic="Another"), **SMALL)
    assert everything(tmp_path / "s") == before


def test_a_commit_that_could_not_be_taken_up_again_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    append(tmp_path / "s", rows(3), **SMALL)
    before = everything(tmp_path / "s")
    spread = rows(30, topic=[f"T{n}" for n in range(30)])
    with monkeypatch.context() as patch:
        patch.setattr(small_json, "_MOST_VALUES", 200)
        with pytest.raises(StoreError, match="30 queues and 1 staged files are more than"):
            append(tmp_path / "s", spread, **SMALL)
    assert everything(tmp_path / "s") == before
    append(tmp_path / "s", spread, **SMALL)
    assert len(held(tmp_path / "s")) == 33
