"""ConsumeQueue: any range of any queue reads back, its bounds are the broker's."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from mqstore.errors import CorruptStoreError
from mqstore.files.base.store_dir import StoreDir
from mqstore.files.queue.consume_queue import ConsumeQueue, list_queues
from mqstore.format.consume_queue import FILLER_SIZE, UNIT
from mqstore.format.names import mapped_file_name
from support import oracle, strategies
from support.oracle import Message
from support.stores import Laid, Layout, MakeStore, lay_out


def units(laid: Laid, queue: tuple[str, int]) -> list[bytes]:
    return [
        oracle.unit(m)
        for m in laid.messages
        if (m.topic, m.queue_id) == queue and m.transaction in (0, oracle.COMMIT)
    ]


@given(
    batch=strategies.batches(max_size=40),
    layout=strategies.layouts(),
    expired=st.integers(0, 3),
    data=st.data(),
)
def test_any_queue_of_any_store_has_the_brokers_bounds_and_reads_back(
    tmp_path_factory: pytest.TempPathFactory,
    batch: list[Message],
    layout: Layout,
    expired: int,
    data: st.DataObject,
) -> None:
    root = tmp_path_factory.mktemp("store") / "store"
    laid = lay_out(root, batch, replace(layout, expired_files=expired))
    assert list_queues(StoreDir.at(root)) == sorted(laid.bounds)
    for queue, (low, high) in laid.bounds.items():
        found = ConsumeQueue(StoreDir.at(root), *queue)
        if laid.low > laid.high:
            continue  # the whole log expired: no broker does that, the last file stays
        assert found.bounds(laid.low) == (low, high)
        look = found.look(laid.low)
        held = laid.queues[queue]
        assert look.end == (held[-1].physical_offset + held[-1].size if held else 0)
        if look.bytes is not None:
            assert (look.bytes, look.place) == (sum(m.size for m in held), held[0].physical_offset)
        start = data.draw(st.integers(low, high))
        end = data.draw(st.integers(start, high))
        expected = b"".join(oracle.unit(m) for m in laid.queues[queue][start - low : end - low])
        assert found.read(start, end).tobytes() == expected


@pytest.mark.parametrize(("held", "told"), [(1, True), (204, True), (205, False)])
def test_a_look_at_a_short_queue_tells_what_its_records_weigh(
    tmp_path: Path, held: int, *, told: bool
) -> None:
    laid = lay_out(tmp_path, [Message()] * held, Layout(queue_units=1000))
    look = ConsumeQueue(StoreDir.at(tmp_path), "T", 0).look(laid.low)
    assert look.bytes == (sum(m.size for m in laid.messages) if told else None)


def _damaged(root: Path, row: int, field: str, value: int) -> ConsumeQueue:
    """A queue of three messages, with another value in one unit."""
    laid = lay_out(root, [Message()] * 3)
    path, _ = laid.unit_of(("T", 0), 0)
    units = np.fromfile(path, UNIT)
    units[row][field] = value
    path.write_bytes(units.tobytes())
    return ConsumeQueue(StoreDir.at(root), "T", 0)


@pytest.mark.parametrize(
    ("field", "value"), [("size", -1), ("physical_offset", -1), ("size", 2**30)]
)
def test_a_look_that_came_upon_a_damaged_unit_tells_no_weight(
    tmp_path: Path, field: str, value: int
) -> None:
    assert _damaged(tmp_path, 1, field, value).look(0).bytes is None


def test_a_last_unit_that_points_behind_everything_ends_there(tmp_path: Path) -> None:
    queue = _damaged(tmp_path, 2, "physical_offset", 2**63 - 1)
    assert queue.look(0).end == 2**63 - 1 + int(queue.read(2, 3)[0]["size"])


@given(
    filler=st.integers(0, 700),
    expired=st.integers(0, 900),
    live=st.integers(0, 1500),
    per_file=st.one_of(st.integers(1, 60), st.sampled_from([203, 204, 205, 408, 1000, 5000])),
    empty_files=st.integers(0, 2),
)
def test_the_bounds_of_a_long_queue_are_found_whatever_block_they_are_in(
    tmp_path_factory: pytest.TempPathFactory,
    filler: int,
    expired: int,
    live: int,
    per_file: int,
    empty_files: int,
) -> None:
    root = tmp_path_factory.mktemp("store")
    first, count, low = filler + expired, filler + expired + live, 100 * expired
    units = np.zeros((count // per_file + 1 + empty_files) * per_file, UNIT)
    units["size"][:count] = 100
    units["size"][:filler] = FILLER_SIZE
    units["physical_offset"][filler:count] = np.arange(expired + live) * 100
    folder = root / "consumequeue" / "T" / "0"
    folder.mkdir(parents=True)
    for start in range(0, len(units), per_file):
        name = mapped_file_name(start * UNIT.itemsize)
        (folder / name).write_bytes(units[start : start + per_file].tobytes())
    expected = (first, count) if live else (count, count)
    assert ConsumeQueue(StoreDir.at(root), "T", 0).bounds(low) == expected


@pytest.mark.parametrize("first", [1, 15, 16, 17, 150])
def test_a_queue_that_did_not_start_at_zero_starts_behind_its_filler(
    store: MakeStore, first: int
) -> None:
    layout = Layout(first_queue_offsets={("T", 0): first}, start=4096)
    laid = store([Message() for _ in range(20)], layout)
    assert ConsumeQueue(StoreDir.at(laid.root), "T", 0).bounds(4096) == (first, first + 20)


@pytest.mark.parametrize("first", [1, 15])
def test_filler_is_no_message_even_where_the_log_starts_at_zero(tmp_path: Path, first: int) -> None:
    """Differs from the broker, which counts filler as live there and loses real messages."""
    layout = Layout(first_queue_offsets={("T", 0): first})
    laid = lay_out(tmp_path / "store", [Message() for _ in range(20)], layout)
    assert ConsumeQueue(StoreDir.at(laid.root), "T", 0).bounds(0) == (first, first + 20)


def test_an_all_expired_queue_keeps_its_place(store: MakeStore) -> None:
    old = [Message(topic="Old") for _ in range(3)]
    new = [Message(topic="New", body=bytes(3000)) for _ in range(3)]
    laid = store([*old, *new], Layout(expired_files=2))
    assert ConsumeQueue(StoreDir.at(laid.root), "Old", 0).bounds(laid.low) == (3, 3)
    assert ConsumeQueue(StoreDir.at(laid.root), "New", 0).bounds(laid.low) == (2, 3)


def test_a_queue_that_is_not_there_is_empty(store: MakeStore) -> None:
    laid = store([Message()])
    assert ConsumeQueue(StoreDir.at(laid.root), "T", 7).bounds(0) == (0, 0)
    assert ConsumeQueue(StoreDir.at(laid.root), "Nobody", 0).bounds(0) == (0, 0)


def test_a_missing_file_is_corruption_not_silence(tmp_path: Path) -> None:
    laid = lay_out(tmp_path / "store", [Message() for _ in range(40)])
    path, _ = laid.unit_of(("T", 0), 16)
    path.unlink()
    queue = ConsumeQueue(StoreDir.at(laid.root), "T", 0)
    with pytest.raises(CorruptStoreError, match=r"at byte 320: .*missing"):
        queue.read(0, 40)


def test_a_file_that_shrank_is_corruption_not_silence(tmp_path: Path) -> None:
    laid = lay_out(tmp_path / "store", [Message() for _ in range(16)])
    path, _ = laid.unit_of(("T", 0), 0)
    with path.open("r+b") as file:
        file.truncate(105)
    with pytest.raises(CorruptStoreError, match=r"at byte 100: .*cut short"):
        ConsumeQueue(StoreDir.at(laid.root), "T", 0).read(0, 16)


def test_directories_that_are_no_topic_or_queue_are_the_brokers_to_ignore(
    store: MakeStore,
) -> None:
    laid = store([Message()])
    for name in ("T/x", "T/01", "T/-1", ".snapshot/x", "lost+found", "T/70000"):
        (laid.root / "consumequeue" / name).mkdir(parents=True)
    assert list_queues(StoreDir.at(laid.root)) == [("T", 0)]


def test_a_hole_at_the_end_of_a_full_file_does_not_make_its_messages_expired_ones(
    tmp_path: Path,
) -> None:
    layout = Layout(start=8192, queue_units=10)
    laid = lay_out(tmp_path / "store", [Message(topic="T", body=b"x")] * 25, layout)
    assert ConsumeQueue(StoreDir.at(laid.root), "T", 0).bounds(laid.low) == (0, 25)
    path = laid.root / "consumequeue" / "T" / "0" / mapped_file_name(0)
    path.write_bytes(path.read_bytes()[:-40] + bytes(40))
    assert ConsumeQueue(StoreDir.at(laid.root), "T", 0).bounds(laid.low) == (0, 25)
