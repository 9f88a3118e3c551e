"""A commit of a large job reads the next frame while it writes the last; nothing else differs."""

import os
import threading
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from mqstore.arrays import Recycled
from mqstore.errors import CorruptStagingError
from mqstore.files import durable
from mqstore.stage import task
from mqstore.write import staged_messages
from mqstore.write.ahead import made_ahead
from mqstore.write.commit import commit
from support.writing import SMALL, append, held, prepared, rows, staged

FRAMES = 5
EACH = 20


@pytest.fixture(autouse=True)
def small_frames(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(task, "CHUNK_ROWS", EACH)


def numbers(until: int, made_by: list[int]) -> Iterator[int]:
    for number in range(until):
        made_by.append(threading.get_ident())
        yield number


def test_items_come_in_order_from_one_other_thread() -> None:
    made_by: list[int] = []
    assert list(made_ahead(numbers(40, made_by))) == list(range(40))
    assert len(set(made_by)) == 1
    assert threading.get_ident() not in made_by


def test_what_making_an_item_raises_comes_in_its_place() -> None:
    def failing() -> Iterator[int]:
        yield 1
        raise CorruptStagingError("no frame starts here")

    items = made_ahead(failing())
    assert next(items) == 1
    with pytest.raises(CorruptStagingError, match="no frame"):
        next(items)


def test_one_item_is_made_ahead_and_the_thread_ends_with_the_iterator() -> None:
    made_by: list[int] = []
    items = made_ahead(numbers(40, made_by))
    assert next(items) == 0
    items.close()  # type: ignore[attr-defined]
    assert len(made_by) == 2
    assert made_by[0] not in {thread.ident for thread in threading.enumerate()}


def test_an_item_is_made_with_the_syncs_that_its_taker_wants(tmp_path: Path) -> None:
    def told() -> Iterator[bool]:
        yield durable._SYNCED.get()

    with durable.synced(wanted=False):
        assert list(made_ahead(told())) == [False]
    assert list(made_ahead(told())) == [True]


def test_memory_is_used_again_once_nothing_refers_to_it() -> None:
    memory = Recycled(most=2)
    first = np.frombuffer(memory.take(1000), np.uint8)
    where, part = first.ctypes.data, first[10:20]
    del first
    other = np.frombuffer(memory.take(1000), np.uint8)
    assert other.ctypes.data != where, "a part of the first is in use"
    part[:] = 7
    other[:] = 1
    assert part.tolist() == [7] * 10
    del part
    assert np.frombuffer(memory.take(900), np.uint8).ctypes.data == where


def test_memory_that_is_much_too_large_is_let_go() -> None:
    memory = Recycled(most=1)
    assert len(memory.take(1 << 20)) == 1 << 20
    assert len(memory.take(100)) == 100
    assert [len(held) for held, _ in memory._held] == [125]


class Seen:
    """Which calls of the seam a commit makes, and the threads that read or change anything."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.calls: list[tuple[str, int, int]] = []
        self.readers: set[int] = set()
        self.writers: set[int] = set()
        self._write = durable.write_at
        self._sync = durable.fsync
        self._read = os.preadv
        monkeypatch.setattr(durable, "write_at", self.write_at)
        monkeypatch.setattr(durable, "fsync", self.fsync)
        monkeypatch.setattr(os, "preadv", self.preadv)

    def write_at(self, fd: int, data: bytes | memoryview, position: int) -> None:
        self.writers.add(threading.get_ident())
        # Of small files, written whole, the length depends on the clock's digits.
        size = memoryview(data).nbytes if position else 0
        self.calls.append(("write", size, position))
        self._write(fd, data, position)

    def fsync(self, fd: int) -> None:
        self.writers.add(threading.get_ident())
        self.calls.append(("sync", 0, 0))
        self._sync(fd)

    def preadv(self, fd: int, buffers: list[memoryview], position: int) -> int:
        self.readers.add(threading.get_ident())
        return self._read(fd, buffers, position)


def committed(root: Path, least: int) -> SimpleNamespace:
    given = [rows(EACH, keys=f"k{n}", bornTimestamp=n) for n in range(FRAMES)]
    job = prepared(root, given[0].schema, uniq_key="none", **SMALL)
    manifests = staged(job, given, given[:1])
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(staged_messages, "_LEAST_AHEAD_BYTES", least)
        seen = Seen(patch)
        commit(job, manifests)
    return SimpleNamespace(seen=seen, messages=held(root))


def test_a_commit_that_reads_ahead_makes_the_same_calls_in_the_same_order(tmp_path: Path) -> None:
    ahead, plain = committed(tmp_path / "ahead", 0), committed(tmp_path / "plain", 1 << 40)
    assert ahead.seen.calls == plain.seen.calls
    assert [m.body for m in ahead.messages] == [m.body for m in plain.messages]
    assert len(ahead.messages) == (FRAMES + 1) * EACH
    assert plain.seen.readers == plain.seen.writers == {threading.get_ident()}
    assert ahead.seen.writers == {threading.get_ident()}, "one thread alone changes the store"
    assert len(ahead.seen.readers) > 1, "or nothing was read ahead"


def test_a_staged_file_that_is_damaged_stops_a_commit_that_reads_ahead(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(staged_messages, "_LEAST_AHEAD_BYTES", 0)
    root = tmp_path / "s"
    append(root, rows(3), **SMALL)
    job = prepared(root, rows(1).schema)
    manifests = staged(job, [rows(EACH)] * FRAMES)
    segment = manifests[0].segment
    assert segment is not None
    path = Path(job.target.staging, segment.name)
    content = bytearray(path.read_bytes())
    content[-200] ^= 1
    path.write_bytes(content)
    before: Any = threading.active_count()
    with pytest.raises(CorruptStagingError):
        commit(job, manifests)
    assert threading.active_count() == before
    assert len(held(root)) == 3
