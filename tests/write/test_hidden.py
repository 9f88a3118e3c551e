"""Readers of a commit under way: none of it or all, whenever they began to look."""

import dataclasses
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from mqstore.errors import NoSpaceError
from mqstore.files.base import durable
from mqstore.files.base.directory import Directory
from mqstore.files.base.store_dir import StoreDir
from mqstore.files.log.log_append import CommitLogAppender
from mqstore.files.queue.consume_queue import ConsumeQueue, list_queues
from mqstore.files.txn import intent
from mqstore.files.txn.intent import CommitFence
from mqstore.read.directory import take
from mqstore.write.errors import CommitInDoubtError
from mqstore.write.recover import RecoverSettings, recover
from support import oracle
from support.writing import SMALL, append, held, rows

_STEPS = ("write_at", "replace", "link", "unlink", "fsync", "fsync_directory")


def test_no_look_that_hides_nothing_sees_part_of_a_commit(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    place = StoreDir.at(tmp_path / "s")
    append(tmp_path / "s", rows(8), **SMALL)
    moments: list[CommitFence] = []
    parts: list[int] = []

    def units() -> int:
        bounds = [ConsumeQueue(place, *queue).bounds(0) for queue in list_queues(place)]
        return sum(high - low for low, high in bounds)

    def watched(call: Callable[..., Any]) -> Callable[..., Any]:
        def step(*args: Any) -> Any:
            done = call(*args)
            moments.append(CommitFence(place))
            found = units()
            if found not in {8, 16}:
                parts.append(sum(moment.cap() is None for moment in moments))
            return done

        return step

    for name in _STEPS:
        monkeypatch.setattr(durable, name, watched(getattr(durable, name)))
    append(tmp_path / "s", rows(8), **{**SMALL, "create_store": False})
    assert parts
    assert set(parts) == {0}


def test_the_first_commit_of_a_store_during_a_look_is_no_loss_of_its_queues(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The queues are listed before it, the log after it: messages without a queue."""
    for folder in ("commitlog", "consumequeue"):
        (tmp_path / "s" / folder).mkdir(parents=True)
    list_bounds = Directory.each

    def each(*args: Any) -> Any:
        found = list_bounds(*args)
        append(tmp_path / "s", rows(8), **{**SMALL, "create_store": False})
        return found

    monkeypatch.setattr(Directory, "each", each)
    assert take(str(tmp_path / "s")).queues == ()
    monkeypatch.undo()
    assert sum(q.high - q.low for q in take(str(tmp_path / "s")).queues) == 8


def test_preserved_timestamps_wait_for_no_broker(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A commit that was left, and a broker that went on for more than an hour since."""
    root = tmp_path / "s"
    append(root, rows(1), **SMALL)
    now_ms = time.time_ns() // 1_000_000
    kept = pa.array([(now_ms + 5_000) * 1000] * 2, pa.timestamp("us", "UTC"))
    with monkeypatch.context() as patch:
        patch.setattr(CommitLogAppender, "publish", _fail)
        with pytest.raises(CommitInDoubtError):
            append(root, rows(2, storeTimestamp=kept), **SMALL, timestamps="preserve")
    later_ms = now_ms + 2 * 3_600_000
    put(root, b"a broker's", later_ms)
    recover(root, RecoverSettings())
    assert intent.load(StoreDir.at(root)) is None
    found = held(root)
    assert [m.body for m in found[:2]] == [b"body 0", b"a broker's"]
    assert sorted(m.body for m in found[2:]) == [b"body 0", b"body 1"]
    assert [m.store_timestamp_ms for m in found[1:]] == [later_ms] * 3


def put(root: Path, body: bytes, store_timestamp_ms: int) -> None:
    """Write behind the first record as a broker does that came, saw no commit, and stopped."""
    log = root / "commitlog" / f"{0:020d}"
    data = bytearray(log.read_bytes())
    first = oracle.decode(bytes(data))
    message = dataclasses.replace(
        first,
        queue_offset=1,
        physical_offset=first.size,
        body=body,
        body_crc=None,
        store_timestamp_ms=store_timestamp_ms,
    )
    record = oracle.encode(message)
    data[first.size : first.size + len(record)] = record
    log.write_bytes(data)
    queue = root / "consumequeue" / "T" / str(first.queue_id) / f"{0:020d}"
    units = bytearray(queue.read_bytes())
    units[20:40] = oracle.unit(message)
    queue.write_bytes(units)
    (root / "abort").unlink()


def _fail(_: CommitLogAppender) -> None:
    raise NoSpaceError("no room")
