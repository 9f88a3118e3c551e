"""The opened store hands out its parts, and lists each of them once."""

import pickle
import shutil
from pathlib import Path

import pytest

from mqstore.errors import CorruptStoreError, NotAStoreError
from mqstore.files.base.file_sizes import KnownFileSizes
from mqstore.files.store import Store
from support.oracle import Message
from support.stores import Layout, lay_out


def messages(count: int) -> list[Message]:
    return [Message(body=bytes(400), properties=f"KEYS\x01k{n}\x02".encode()) for n in range(count)]


def test_a_store_hands_out_its_log_queues_index_sizes_and_small_files(tmp_path: Path) -> None:
    laid = lay_out(tmp_path / "store", messages(20))
    with Store.open(laid.root) as store:
        (queue,) = {(m.topic, m.queue_id) for m in laid.messages}
        assert store.queues == [queue]
        assert store.queue(*queue).bounds(store.log.low) == (0, 20)
        last = laid.messages[-1].physical_offset
        header = store.log.header(last)
        assert header is not None
        assert header["physical_offset"] == last
        assert sum(file.count - 1 for file in store.index_files) == 20
        assert store.sizes == KnownFileSizes(4096, 16 * 20, 7, 40)
        assert list(store.config.topics()) == [queue[0]]
        assert store.checkpoint() is not None
        assert store.timer_checkpoint() is None
        assert not store.is_unclean
        (laid.root / "abort").touch()
        assert store.is_unclean


def test_what_a_broker_adds_is_seen_by_the_next_store_of_the_same_place(tmp_path: Path) -> None:
    laid = lay_out(tmp_path / "store", messages(20))
    with Store.open(laid.root) as store:
        high, queues, index_files = store.log.high, store.queues, store.index_files
        units = store.queue(*queues[0]).files.files
        shutil.rmtree(laid.root)
        lay_out(laid.root, [*messages(40), Message(topic="New")])
        assert (store.log.high, store.queues, store.index_files) == (high, queues, index_files)
        assert store.queue(*queues[0]).files.files == units
    with Store(pickle.loads(pickle.dumps(store.place))) as later:
        assert later.log.high > high
        assert len(later.queues) == len(queues) + 1
        assert len(later.queue(*queues[0]).files.files) > len(units)


def test_a_closed_store_holds_no_descriptor_and_reads_again(tmp_path: Path) -> None:
    laid = lay_out(tmp_path / "store", messages(3))
    before = sorted(p.name for p in Path("/proc/self/fd").iterdir())
    with Store.open(laid.root) as store:
        record = store.log.read(0, 100)
    assert sorted(p.name for p in Path("/proc/self/fd").iterdir()) == before
    assert store.log.read(0, 100) == record
    store.close()


def test_a_folder_that_is_no_store_is_refused_and_a_cut_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(NotAStoreError):
        Store.open(tmp_path)
    laid = lay_out(tmp_path / "store", messages(20), Layout(index=False))
    with (laid.root / "commitlog" / f"{4096:020d}").open("r+b") as file:
        file.truncate(1000)
    with Store.open(laid.root) as store, pytest.raises(CorruptStoreError, match="1000 bytes"):
        _ = store.sizes
