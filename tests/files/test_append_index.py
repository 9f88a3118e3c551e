"""IndexFiles that grow: unit by unit what the oracle's IndexFile#putKey leaves."""

from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from mqstore.errors import CorruptStoreError
from mqstore.files.base.file_sizes import FileSizes, Layout
from mqstore.files.base.store_dir import StoreDir
from mqstore.files.base.undo import Undo
from mqstore.files.index import index_append
from mqstore.files.index.index_append import IndexAppender, IndexKeys
from mqstore.files.index.index_file import list_index_files
from support import oracle
from support.oracle import Message
from support.writing import writer_of

LAYOUT = Layout(7, 12)


def appender(root: Path, undo: Undo, layout: Layout = LAYOUT) -> IndexAppender:
    sizes = FileSizes(8192, 200, layout.slots, layout.units)
    writer = writer_of(root, sizes, undo)
    writer.make_directories("index")
    return IndexAppender(writer)


def keys_of(messages: list[Message]) -> IndexKeys:
    pairs = [(m, k) for m in messages for k in oracle.index_keys(m, tags=True)]
    hashes = [abs(oracle.java_hash(key)) for _, key in pairs]
    return IndexKeys(
        np.array(hashes, np.int32),
        np.array([m.physical_offset for m, _ in pairs], np.int64),
        np.array([m.store_timestamp_ms for m, _ in pairs], np.int64),
    )


def put(root: Path, messages: list[Message], layout: Layout = LAYOUT) -> None:
    index = appender(root, Undo(), layout)
    keys = keys_of(messages)
    index.reserve(len(keys))
    # In two calls, as frames come.
    for part in (keys.cut(0, len(keys) // 2), keys.cut(len(keys) // 2, len(keys))):
        index.append(part, lambda: f"{int(index.last_name or 0) + 1:017d}")
    index.close()


@given(st.lists(st.lists(st.sampled_from("abcdefgh"), max_size=4), max_size=12), st.integers(0, 12))
def test_keys_are_put_as_the_broker_puts_them(
    tmp_path_factory: pytest.TempPathFactory, words: list[list[str]], cut: int
) -> None:
    messages = [
        Message(
            properties=f"KEYS\x01{' '.join(found)}\x02UNIQ_KEY\x01{n}\x02".encode(),
            physical_offset=n * 100,
            store_timestamp_ms=1_700_000_000_000 + n * 1500,
        )
        for n, found in enumerate(words)
    ]
    root = tmp_path_factory.mktemp("index")
    put(root, messages[:cut])
    put(root, messages[cut:])
    expected = oracle.index_files(messages, slots=7, units=12, tags=True)
    found = [p.read_bytes() for p in sorted((root / "index").iterdir())]
    assert found == [file.bytes() for file in expected]


@pytest.mark.parametrize("count", [1, 9, 40, 120])
def test_slots_of_many_pages_are_all_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, count: int
) -> None:
    """Pages alone, neighbours, more neighbours than are written at once, and the short last one."""
    monkeypatch.setattr(index_append, "_RUN_PAGES", 3)
    layout = Layout(30 * 1024 - 7, 500)
    messages = [
        Message(
            properties=f"UNIQ_KEY\x01{n * n}-{n}\x02".encode(),
            physical_offset=n * 100,
            store_timestamp_ms=1_700_000_000_000,
        )
        for n in range(count)
    ]
    put(tmp_path, messages[: count // 2], layout)
    put(tmp_path, messages[count // 2 :], layout)
    expected = oracle.index_files(messages, slots=layout.slots, units=layout.units, tags=True)
    found = [p.read_bytes() for p in sorted((tmp_path / "index").iterdir())]
    assert found == [file.bytes() for file in expected]


def test_what_was_put_is_taken_back_to_the_byte(tmp_path: Path) -> None:
    old = [Message(properties=b"KEYS\x01a b\x02", physical_offset=n) for n in range(3)]
    put(tmp_path, old)
    before = {p.name: p.read_bytes() for p in (tmp_path / "index").iterdir()}
    undo = Undo()
    index = appender(tmp_path, undo)
    keys = keys_of([Message(properties=b"KEYS\x01a c d\x02", physical_offset=9)] * 6)
    index.reserve(len(keys))
    index.append(keys, lambda: f"{int(index.last_name) + 1:017d}")
    index.close()
    assert len(list((tmp_path / "index").iterdir())) == 3
    assert undo.run() == []
    assert {p.name: p.read_bytes() for p in (tmp_path / "index").iterdir()} == before


def test_a_file_of_another_layout_is_not_appended_to(tmp_path: Path) -> None:
    put(tmp_path, [Message(properties=b"KEYS\x01a b\x02")])
    assert list_index_files(StoreDir.at(tmp_path))[0].layout == LAYOUT
    for layout in (Layout(7, 13), Layout(12, 11)):
        with pytest.raises(CorruptStoreError, match="maxHashSlotNum"):
            appender(tmp_path, Undo(), layout)
