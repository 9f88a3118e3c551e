"""What the next writer, or `mqlog recover`, makes of a store that was left in the middle."""

import json
import shutil
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from mqstore.check import check
from mqstore.errors import CorruptStoreError, UncleanStoreError
from mqstore.files.base import durable
from mqstore.files.base.store_dir import StoreDir
from mqstore.files.config import checkpoint, config_write
from mqstore.files.txn import intent, ledger, small_json
from mqstore.read.directory import take
from mqstore.write.commit import commit
from mqstore.write.errors import CommitInDoubtError
from mqstore.write.recover import RecoverSettings, recover
from support import goldens, killed_commit, oracle
from support.growing import grow
from support.oracle import Message
from support.stores import Laid, Layout, lay_out
from support.writing import SMALL, append, held, prepared, rows, staged, writer_of

LAYOUT = Layout(commit_log_bytes=8192, queue_units=10, index_slots=11, index_units=50)


@pytest.fixture
def laid(tmp_path: Path) -> Laid:
    return lay_out(tmp_path / "store", old(5), LAYOUT)


def old(count: int) -> list[Message]:
    return [Message(topic="T", queue_id=n % 2, body=f"old {n}".encode()) for n in range(count)]


def bodies(root: Path) -> list[str]:
    return [message.body.decode() for message in held(root)]


def seen(root: Path) -> int:
    return sum(queue.high - queue.low for queue in take(root).queues)


@pytest.mark.parametrize("state", ["decided", "published"])
def test_the_next_write_finishes_what_was_left(laid: Laid, state: str) -> None:
    killed_commit.leave(laid.root, state)
    assert seen(laid.root) == 5
    append(laid.root, rows(2, body=["x", "y"]))
    assert sorted(bodies(laid.root)[5:8]) == ["body 0", "body 1", "body 2"]
    assert sorted(bodies(laid.root)[8:]) == ["x", "y"]
    assert seen(laid.root) == 10
    assert check(laid.root) == []


def test_a_job_that_was_killed_after_its_decision_is_not_done_again(laid: Laid) -> None:
    killed_commit.leave(laid.root, "decided")
    key = {"txn_app_id": killed_commit.APP_ID, "txn_version": killed_commit.VERSION}
    again = append(laid.root, rows(3), **key)
    assert again.is_repeated
    assert again.messages == 0
    assert len(held(laid.root)) == 8
    assert append(laid.root, rows(3), txn_app_id=killed_commit.APP_ID, txn_version=8).messages == 3


def test_a_commit_that_an_older_mqlog_left_without_a_digest_is_finished(laid: Laid) -> None:
    killed_commit.leave(laid.root, "decided")
    path = laid.root / ledger.LEDGER_FOLDER / intent.INTENT_FILES[0]
    body = json.loads(path.read_bytes())["body"]
    assert len(body.pop("digest")) == 16
    path.write_bytes(small_json.document(body))
    key = {"txn_app_id": killed_commit.APP_ID, "txn_version": killed_commit.VERSION}
    assert append(laid.root, rows(3, body=["x", "y", "z"]), **key).is_repeated
    assert sorted(bodies(laid.root)[5:]) == ["body 0", "body 1", "body 2"]


def test_a_broker_that_wrote_in_between_keeps_its_place(laid: Laid) -> None:
    """It saw nothing of the commit, and wrote where the commit was to go."""
    killed_commit.leave(laid.root, "decided")
    (laid.root / "abort").unlink(missing_ok=True)  # It stopped cleanly.
    grow(laid, old(9))
    assert seen(laid.root) == 9
    recover(laid.root, RecoverSettings())
    assert bodies(laid.root)[:9] == [m.body.decode() for m in old(9)]
    assert sorted(bodies(laid.root)[9:]) == ["body 0", "body 1", "body 2"]
    assert seen(laid.root) == 12
    assert [entry.rows for entry in ledger.entries(StoreDir.at(laid.root))] == [3]
    assert check(laid.root) == []


def test_a_broker_that_was_killed_in_between_is_not_passed_over(laid: Laid) -> None:
    killed_commit.leave(laid.root, "decided")
    grow(laid, old(9))
    (laid.root / "abort").write_bytes(b"4711")
    with pytest.raises(UncleanStoreError, match="recoverUnclean"):
        recover(laid.root, RecoverSettings())
    recover(laid.root, RecoverSettings(recover_unclean=True))
    assert len(held(laid.root)) == 12
    assert (laid.root / "abort").read_bytes() == b"4711"


def test_what_is_staged_nowhere_any_more_is_settled_by_who_knows(laid: Laid) -> None:
    before = bodies(laid.root)
    killed_commit.leave(laid.root, "decided")
    shutil.rmtree(laid.root / ".mqlog" / "staging")
    for _ in range(2):
        with pytest.raises(CommitInDoubtError, match="staged"):
            append(laid.root, rows(1))
    told = recover(laid.root, RecoverSettings(assume="lost"))
    assert told.state == "decided"
    assert bodies(laid.root) == before
    assert ledger.entries(StoreDir.at(laid.root)) == []
    assert check(laid.root) == []
    append(laid.root, rows(1))


def test_what_was_published_needs_nothing_staged(laid: Laid) -> None:
    killed_commit.leave(laid.root, "published")
    shutil.rmtree(laid.root / ".mqlog" / "staging")
    with pytest.raises(UncleanStoreError, match="cannot be assumed lost"):
        recover(laid.root, RecoverSettings(assume="lost"))
    recover(laid.root, RecoverSettings())
    assert len(held(laid.root)) == 8
    assert check(laid.root) == []


def test_a_staging_directory_elsewhere_is_named_by_who_recovers(
    laid: Laid, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A store must not be able to make us read, or remove, files outside of it."""
    shared = tmp_path / "shared"
    job = prepared(laid.root, rows(3).schema, staging_dir=str(shared))
    manifests = staged(job, [rows(3)])
    replace_call = durable.replace

    def replace(source: str, target: str) -> None:
        if target.endswith("abort"):
            raise OSError("injected")
        replace_call(source, target)

    with monkeypatch.context() as patch:
        patch.setattr(durable, "replace", replace)
        with pytest.raises(CommitInDoubtError):
            commit(job, manifests)
    with pytest.raises(CommitInDoubtError, match="stagingDir"):
        recover(laid.root, RecoverSettings())
    assert len(list(shared.rglob("*.mqb"))) == 1
    recover(laid.root, RecoverSettings(staging_dir=str(shared)))
    assert len(held(laid.root)) == 8
    assert list(shared.rglob("*.mqb")) == []


def test_a_checkpoint_that_allowed_for_a_commit_that_never_was_is_set_right(laid: Laid) -> None:
    append(laid.root, rows(1, keys="k"))
    ahead = int(_index_clock(laid.root)) + 60_000
    config_write.replace_checkpoint(writer_of(laid.root), {"index_msg_timestamp": ahead})
    recover(laid.root, RecoverSettings())
    assert _index_clock(laid.root) < ahead
    assert check(laid.root) == []


def test_a_mask_of_messages_is_as_short_as_it_is_regular() -> None:
    for mask in (np.ones(100_000, np.bool_), np.arange(77) % 3 == 0, np.zeros(1, np.bool_)):
        assert (intent.unpack(intent.pack(mask), len(mask)) == mask).all()
    assert len(intent.pack(np.ones(1_000_000, np.bool_))) < 1000
    with pytest.raises(ValueError, match="another length"):
        intent.unpack(intent.pack(np.ones(9, np.bool_)), 100)


def test_a_store_of_our_own_takes_what_its_first_commit_left(tmp_path: Path) -> None:
    killed_commit.leave(tmp_path / "store", "decided")
    append(tmp_path / "store", rows(2), **{**SMALL, "create_store": False})
    assert len(held(tmp_path / "store")) == 5
    assert check(tmp_path / "store") == []


def _index_clock(root: Path) -> int:
    noted = checkpoint.load(StoreDir.at(root))
    assert noted is not None
    return int(noted["index_msg_timestamp"])


def test_a_record_that_came_back_to_life_torn_is_made_whole(laid: Laid) -> None:
    """A broker's record ends where it begins, and its last bytes are not on the disk.

    No checksum tells: the broker serves it, with properties of zeros, until it is recovered.
    """
    killed_commit.leave(laid.root, "hidden")
    log = laid.root / "commitlog" / f"{0:020d}"
    data = bytearray(log.read_bytes())
    data[laid.high + 4] = 0xDA  # The first byte of the first magic, which hides them all.
    first, second, third = (m for place, m in oracle.walk(bytes(data)) if place >= laid.high)
    put = replace(first, body=b"y" * len(first.body), body_crc=None)
    end = second.physical_offset + second.size
    data[laid.high : laid.high + first.size] = oracle.encode(put)
    data[end - 20 : end] = bytes(20)
    log.write_bytes(data)
    for message in (put, second, third):
        path, position = laid.unit_of(("T", message.queue_id), message.queue_offset)
        units = bytearray(path.read_bytes())
        units[position : position + 20] = oracle.unit(message)
        path.write_bytes(units)
    recover(laid.root, RecoverSettings())
    after = held(laid.root)
    assert after[5:8] == [put, second, third]
    assert [message.body for message in after[8:]] == [first.body]
    assert seen(laid.root) == 9
    assert [f for f in check(laid.root) if f.severity == "error"] == []


@pytest.mark.parametrize("what", ["twice", "no queue can have it", "a longer file"])
@pytest.mark.parametrize("lost", [False, True])
def test_a_rebuild_that_fails_leaves_the_store_as_it_was(
    tmp_path: Path, what: str, *, lost: bool
) -> None:
    """Also files that brokers would not start with, which a rebuild puts right, stay."""
    laid = lay_out(tmp_path / "store", old(9), LAYOUT)
    if lost:
        shutil.rmtree(laid.root / "consumequeue" / "T" / "0")
    (laid.root / "index" / f"{10**16}").touch()
    folder = laid.root / "consumequeue" / "T" / "1"
    (folder / f"{400:020d}").touch()
    if what == "a longer file":
        (folder / f"{200:020d}").write_bytes(bytes(400))
    else:
        path, position = laid.file_of(laid.messages[8])
        with path.open("r+b") as file:
            file.seek(position + 20)
            number = 2 if what == "twice" else 2**62
            file.write(number.to_bytes(8, "big"))
    before = goldens.digest(laid.root)
    reason = "longer|bytes long" if what == "a longer file" else "no queue can have"
    with pytest.raises(CorruptStoreError, match=reason):
        recover(laid.root, RecoverSettings(rebuild=True))
    assert goldens.digest(laid.root) == before
