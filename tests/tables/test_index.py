"""The entries of IndexFiles against the oracle that made them."""

from pathlib import Path
from typing import Any

import pytest
from hypothesis import given

from mqstore.errors import CorruptStoreError
from mqstore.read.lookup import hashes_of
from mqstore.tables import index
from mqstore.tables.choice import Window, open_root
from support import oracle, parts, strategies
from support.oracle import Message
from support.stores import Laid, Layout, MakeStore, lay_out


def read(root: Path, window: Window | None = None, hashes: list[int] | None = None) -> list[Any]:
    planned = index.plan(open_root(str(root), broker_name="b"), window or Window(), hashes)
    return parts.rows("index", planned)


def entries(laid: Laid) -> list[dict[str, Any]]:
    layout = laid.layout
    names = sorted(path.name for path in (laid.root / "index").iterdir())
    files = oracle.index_files(
        list(laid.messages),
        slots=layout.index_slots,
        units=layout.index_units,
        tags=layout.index_tags,
    )
    return [
        {
            "brokerName": "b",
            "file": name,
            "unit": number,
            "slot": key_hash % layout.index_slots,
            "keyHash": key_hash,
            "physicalOffset": place,
            "storeTimestamp": (file.begin_timestamp_ms + 1000 * seconds) * 1000,
            "previousUnit": previous,
        }
        for name, file in zip(names, files, strict=True)
        for number, (key_hash, place, seconds, previous) in enumerate(file.entries, start=1)
    ]


@given(messages=strategies.batches(max_size=15), layout=strategies.layouts())
def test_every_entry_has_a_row(
    messages: list[Message], layout: Layout, tmp_path_factory: pytest.TempPathFactory
) -> None:
    laid = lay_out(tmp_path_factory.mktemp("store"), messages, layout)
    assert read(laid.root) == (entries(laid) if layout.index else [])


def keyed(key: str, store_ms: int) -> Message:
    return Message(properties=oracle.join_properties({"KEYS": key}), store_timestamp_ms=store_ms)


def test_entries_are_chosen_by_key_and_by_time(store: MakeStore) -> None:
    messages = [keyed(key, 10_000 * n) for n, key in enumerate("abcabcab", start=1)]
    laid = store(messages, Layout(index_units=5, index_slots=2))
    every = entries(laid)
    for keys in (["a"], ["b", "c"], ["none"]):
        hashes = hashes_of(["T"], keys)
        wanted = [row for row in every if row["keyHash"] in hashes]
        found = read(laid.root, hashes=hashes)
        assert sorted(found, key=lambda r: (r["file"], r["unit"])) == wanted
    window = Window(25_000, 60_000)
    inside = [row for row in every if 25_000_000 <= row["storeTimestamp"] < 60_000_000]
    assert inside
    assert read(laid.root, window) == inside


def test_a_file_that_no_layout_fits_is_an_error_or_passed_by(tmp_path: Path) -> None:
    laid = lay_out(tmp_path / "broken", [keyed("a", 1000)])
    (path,) = (laid.root / "index").iterdir()
    data = bytearray(path.read_bytes())
    data[40:] = bytes([7]) * (len(data) - 40)
    path.write_bytes(data)
    with pytest.raises(CorruptStoreError, match="no number of slots fits"):
        read(laid.root)
    assert index.plan(open_root(str(laid.root)), Window(), on_corrupt="skip") == []
