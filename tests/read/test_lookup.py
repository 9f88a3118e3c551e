"""Finding by key and id: what the IndexFiles narrow down to is what a scan of all would find."""

import logging
import struct
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from mqstore.codec.schema import PROFILES
from mqstore.format.index_file import HEADER, SLOT, UNIT
from mqstore.read import source
from mqstore.read.directory import take
from mqstore.read.scan import scan
from mqstore.read.settings import ScanSettings
from mqstore.read.source import QueueSlice
from support import expectations, oracle, strategies
from support.opened import narrowed
from support.oracle import Message
from support.stores import Layout, lay_out, stored

FULL = PROFILES["full"]


def slices_of(root: Path) -> list[QueueSlice]:
    snapshot = take(root, broker_name="b")
    return source.slices_of(snapshot)


def found(
    root: Path, *, keys: tuple[str, ...] = (), ids: tuple[str, ...] = (), index: bool = True
) -> list[tuple[str, int, int]]:
    slices = slices_of(root)
    parts = narrowed(slices, keys, ids) if index else slices
    settings = ScanSettings(columns=FULL, keys=keys, msg_ids=ids)
    rows: list[dict[str, Any]] = []
    for batch in scan(parts, settings):
        rows += expectations.rows(batch)
    return sorted((row["topic"], row["queueId"], row["queueOffset"]) for row in rows)


def keyed(count: int, *, body: int = 0) -> list[Message]:
    return [
        Message(
            topic="TU"[i % 2],
            queue_id=i % 3,
            body=bytes(body),
            properties=f"KEYS\x01k{i % 7} all\x02UNIQ_KEY\x01{i:032X}".encode(),
        )
        for i in range(count)
    ]


LAYOUT = Layout(commit_log_bytes=2048, index_slots=5, index_units=20)


@given(
    batch=strategies.batches(max_size=30, topics=("T", "U")),
    layout=strategies.layouts(),
    data=st.data(),
)
def test_the_index_of_any_store_finds_what_a_scan_finds(
    tmp_path_factory: pytest.TempPathFactory,
    batch: list[Message],
    layout: Layout,
    data: st.DataObject,
) -> None:
    root = tmp_path_factory.mktemp("store") / "store"
    laid = lay_out(root, batch, layout)
    words = {w for m in batch for w in m.properties_map.get("KEYS", "").split(" ") if w}
    ids = {m.msg_id for m in laid.messages} | {m.offset_msg_id for m in laid.messages}
    if keys := data.draw(st.lists(st.sampled_from([*sorted(words), "none"]), max_size=3)):
        wanted = sorted(
            (m.topic, m.queue_id, m.queue_offset)
            for held in laid.queues.values()
            for m in held
            if set(m.properties_map.get("KEYS", "").split(" ")) & set(keys)
        )
        assert found(root, keys=tuple(keys)) == wanted
    if chosen := data.draw(st.lists(st.sampled_from([*sorted(ids), "0" * 32]), max_size=3)):
        wanted = sorted(
            (m.topic, m.queue_id, m.queue_offset)
            for held in laid.queues.values()
            for m in held
            if {m.offset_msg_id, m.properties_map.get("UNIQ_KEY")} & set(chosen)
        )
        assert found(root, ids=tuple(chosen)) == wanted


@pytest.mark.parametrize(("slots", "units"), [(5, 20), (100, 400), (7, 33), (1, 50), (1000, 9)])
def test_an_index_of_any_shape_is_used(tmp_path: Path, slots: int, units: int) -> None:
    layout = Layout(index_slots=slots, index_units=units)
    laid = lay_out(tmp_path / "store", keyed(60), layout)
    slices = slices_of(laid.root)
    parts = narrowed(slices, ["k3"], [])
    messages = sum(part.end - part.start for part in parts)
    assert messages < 20, "of 60, the index should have left nine and a few to look at"
    assert found(laid.root, keys=("k3",)) == found(laid.root, keys=("k3",), index=False)


def test_the_golden_index_finds_every_key_and_id(golden: tuple[str, Path]) -> None:
    _, root = golden
    messages = [m for _, data in stored(root) for _, m in oracle.walk(data)]
    by_key: dict[str, list[tuple[str, int, int]]] = {}
    for m in messages:
        for word in m.properties_map.get("KEYS", "").split(" "):
            by_key.setdefault(word, []).append((m.topic, m.queue_id, m.queue_offset))
    for key in sorted(set(by_key) - {""})[::29]:
        assert found(root, keys=(key,)) == sorted(by_key[key])
    for m in messages[::131]:
        assert (m.topic, m.queue_id, m.queue_offset) in found(root, ids=(m.msg_id,))
        assert found(root, ids=(m.offset_msg_id.lower(),)) == [
            (m.topic, m.queue_id, m.queue_offset)
        ]


# --- an index that is not whole: slower, never wrong ------------------------------------------


@pytest.mark.parametrize("gone", ["first", "middle", "last", "all"])
def test_a_missing_index_file_hides_no_message(
    tmp_path: Path, gone: str, caplog: pytest.LogCaptureFixture
) -> None:
    laid = lay_out(tmp_path / "store", keyed(60), LAYOUT)
    files = sorted((laid.root / "index").iterdir())
    assert len(files) > 4
    chosen = {"first": files[:2], "middle": files[2:4], "last": files[-2:], "all": files}[gone]
    for path in chosen:
        path.unlink()
    with caplog.at_level(logging.WARNING):
        assert found(laid.root, keys=("k3",)) == found(laid.root, keys=("k3",), index=False)
    assert "they are scanned" in caplog.text


@pytest.mark.parametrize("damage", ["zeros", "ones", "cut", "empty", "header"])
@pytest.mark.parametrize("number", [0, 3, -1])
def test_a_broken_index_file_hides_no_message(tmp_path: Path, damage: str, number: int) -> None:
    laid = lay_out(tmp_path / "store", keyed(60), LAYOUT)
    path = sorted((laid.root / "index").iterdir())[number]
    data = path.read_bytes()
    path.write_bytes(
        {
            "zeros": bytes(len(data)),
            "ones": b"\xff" * len(data),
            "cut": data[: len(data) // 2],
            "empty": b"",
            "header": data[:40],
        }[damage]
    )
    assert found(laid.root, keys=("k3",)) == found(laid.root, keys=("k3",), index=False)


def test_expired_messages_are_not_found_by_their_keys(tmp_path: Path) -> None:
    layout = Layout(commit_log_bytes=2048, index_slots=5, index_units=20, expired_files=2)
    laid = lay_out(tmp_path / "store", keyed(60), layout)
    wanted = sorted(
        (m.topic, m.queue_id, m.queue_offset)
        for m in laid.held
        if "k3" in m.properties_map["KEYS"].split(" ")
    )
    assert found(laid.root, keys=("k3",)) == wanted


def test_keys_are_found_in_a_light_queue_whose_records_are_of_another_topic(tmp_path: Path) -> None:
    laid = lay_out(tmp_path / "store", keyed(20), LAYOUT)
    folder = laid.root / "consumequeue" / "%LMQ%mine" / "0"
    folder.mkdir(parents=True)
    units = b"".join(oracle.unit(m) for m in laid.messages[4:16])
    (folder / ("0" * 20)).write_bytes(units.ljust(320, b"\0"))
    expected = found(laid.root, keys=("k5",), index=False)
    assert [place for place in expected if place[0] == "%LMQ%mine"] == [
        ("%LMQ%mine", 0, 1),
        ("%LMQ%mine", 0, 8),
    ]
    assert found(laid.root, keys=("k5",)) == expected
    assert found(laid.root, ids=(f"{5:032X}",)) == found(laid.root, ids=(f"{5:032X}",), index=False)


@pytest.mark.parametrize("field", ["key_hash", "physical_offset", "previous", "slot"])
def test_what_a_broken_unit_would_hide_is_scanned(
    tmp_path: Path, field: str, caplog: pytest.LogCaptureFixture
) -> None:
    """Each unit in turn, in a store of one file: what is found is what a scan finds."""
    messages, layout = keyed(12), Layout(index_slots=5, index_units=60)
    root = lay_out(tmp_path / "store", messages, layout).root
    (path,) = (root / "index").iterdir()
    whole = path.read_bytes()
    (count,) = struct.unpack_from(">i", whole, 36)
    units = HEADER.itemsize + layout.index_slots * SLOT.itemsize
    wrong = []
    for number in range(1, count, 4):
        data = bytearray(whole)
        if field == "slot":
            position, value = HEADER.itemsize + number % 5 * SLOT.itemsize, count + number
            struct.pack_into(">i", data, position, value)
        else:
            unit = np.frombuffer(data, UNIT, 1, units + number * UNIT.itemsize)
            if field == "previous" and not int(unit[field][0]):
                continue  # It says that none was before it.
            unit[field] = int(unit[field][0]) ^ 1 if field == "key_hash" else 10**6
        path.write_bytes(data)
        asked = [(key,) for key in ("k0", "k3", "all")]
        wrong += [k for k in asked if found(root, keys=k) != found(root, keys=k, index=False)]
    assert wrong == []
    assert "are scanned" in caplog.text
