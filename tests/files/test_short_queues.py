"""A look at many queues together finds what a look at each finds."""

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from mqstore.files.base.mapped_file_queue import MappedFileQueue
from mqstore.files.base.store_dir import StoreDir
from mqstore.files.queue.consume_queue import ConsumeQueue
from mqstore.files.queue.short_queues import look_at_each
from mqstore.files.queue.units import QueueExtent
from mqstore.format.consume_queue import FILLER_SIZE, GAP_SIZE, UNIT
from mqstore.format.names import mapped_file_name
from support.oracle import Message
from support.stores import Layout, lay_out

LOW = 1000
FILE_UNITS = 300_000
NAME = mapped_file_name(0)


def queues(root: Path) -> list[ConsumeQueue]:
    found = sorted((root / "consumequeue").glob("*/*"))
    return [ConsumeQueue(StoreDir.at(root), path.parent.name, int(path.name)) for path in found]


def together(root: Path) -> list[QueueExtent]:
    return look_at_each(StoreDir.at(root).folder, queues(root), LOW)


def one_by_one(root: Path) -> list[QueueExtent]:
    return [queue.look(LOW) for queue in queues(root)]


def outcome(look: Callable[[Path], list[QueueExtent]], root: Path) -> Any:
    try:
        return look(root)
    except OSError as error:
        return type(error), error.filename
    except Exception as error:  # noqa: BLE001 - whatever it is, both must say it
        return type(error), str(error)


def write_queue(root: Path, queue_id: int, units: Any, name: str = NAME, size: int = 0) -> Path:
    folder = root / "consumequeue" / "T" / str(queue_id)
    folder.mkdir(parents=True, exist_ok=True)
    (folder / name).write_bytes(units.tobytes() if isinstance(units, np.ndarray) else units)
    if size:
        os.truncate(folder / name, size)
    return folder


def units_of(count: int, start: int = LOW, size: int = 100) -> Any:
    units = np.zeros(count, UNIT)
    units["size"], units["physical_offset"] = size, start + size * np.arange(count)
    return units


@st.composite
def shapes(draw: st.DrawFn) -> tuple[int, bytes, int]:
    """A file: its number, what it begins with, and how long it is."""
    numbers = st.one_of(st.integers(0, 3), st.integers(200, 210))
    parts = []
    for many, size, place in draw(
        st.lists(
            st.tuples(
                numbers,
                st.sampled_from([0, 1, 100, GAP_SIZE, FILLER_SIZE, -1, -(2**31), 2**26, 2**26 + 1]),
                st.sampled_from([0, 1, LOW - 1, LOW, 2**62, 2**63 - 1, -1, -(2**63)]),
            ),
            max_size=4,
        )
    ):
        part = np.zeros(many, UNIT)
        part["size"], part["physical_offset"] = size, place
        parts.append(part.tobytes())
    data = b"".join(parts)[: draw(st.sampled_from([None, -1, -19]))]
    room = draw(st.sampled_from([0, 7, 20, 4080, 4100, 20 * 1000]))
    return draw(st.sampled_from([0, 20, 6_000_000, 2**62])), data, max(room, len(data))


@given(files=st.lists(shapes(), min_size=1, max_size=6))
@example(files=[(0, units_of(204).tobytes(), 4080), (0, units_of(204).tobytes(), 4100)])
@example(files=[(0, units_of(205).tobytes(), 4100), (20, b"", 4080)])
def test_queues_of_one_file_each_whatever_it_holds(
    tmp_path_factory: pytest.TempPathFactory, files: list[tuple[int, bytes, int]]
) -> None:
    root = tmp_path_factory.mktemp("store")
    for queue_id, (start, data, size) in enumerate(files):
        write_queue(root, queue_id, data, mapped_file_name(start), size)
    assert together(root) == one_by_one(root)


def test_a_short_queue_in_a_preallocated_file_is_told_by_its_units(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for queue_id in range(600):
        write_queue(tmp_path, queue_id, units_of(queue_id % 5), size=FILE_UNITS * UNIT.itemsize)
    expected = one_by_one(tmp_path)
    monkeypatch.setattr(ConsumeQueue, "look", None)
    assert together(tmp_path) == expected
    counts = [int(path.parent.name) % 5 for path in sorted(tmp_path.glob("*/*/*/*"))]
    assert [look.high for look in expected] == counts


def test_the_folder_of_a_topic_is_opened_once_for_its_queues(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    opened: list[str] = []
    act = os.open

    def note(path: str, *args: Any, **named: Any) -> int:
        opened.append(path)
        return act(path, *args, **named)

    for queue_id in range(50):
        write_queue(tmp_path, queue_id, units_of(3))
    monkeypatch.setattr(os, "open", note)
    together(tmp_path)
    assert opened[:3] == [str(tmp_path), "consumequeue", "T"]
    assert len(opened) == 3 + 2 * 50


def test_a_queue_knows_its_file_and_lists_it_never_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_queue(tmp_path, 0, units_of(3), mapped_file_name(200))
    (listed,) = queues(tmp_path)
    expected = listed.files.files
    (known,) = queues(tmp_path)
    monkeypatch.setattr(MappedFileQueue, "list", None)
    look_at_each(StoreDir.at(tmp_path).folder, [known], LOW)
    assert known.file_sizes == {60}
    assert known.files.files == expected
    assert known.read(10, 13).tobytes() == units_of(3).tobytes()


def _link(folder: Path) -> None:
    (folder / NAME).rename(folder.parent / "outside")
    (folder / NAME).symlink_to(folder.parent / "outside")


def _linked_folder(folder: Path) -> None:
    folder.rename(folder.with_name("outside"))
    folder.symlink_to(folder.with_name("outside"))


def _fifo(folder: Path) -> None:
    (folder / NAME).unlink()
    os.mkfifo(folder / NAME)


def _directory(folder: Path) -> None:
    (folder / NAME).unlink()
    (folder / NAME).mkdir()


def _plain(folder: Path) -> None:
    (folder / NAME).unlink()
    folder.rmdir()
    folder.write_bytes(b"")


ODD: dict[str, Callable[[Path], object]] = {
    "a link": _link,
    "a linked folder": _linked_folder,
    "a FIFO": _fifo,
    "a directory": _directory,
    "a file in place of the folder": _plain,
    "no file": lambda folder: (folder / NAME).unlink(),
    "no folder": lambda folder: folder.rename(folder.parent.parent.parent / "gone"),
    "a second file": lambda folder: (folder / mapped_file_name(60)).write_bytes(bytes(60)),
    "a note beside it": lambda folder: (folder / "note").write_bytes(b"x"),
    "a link beside it": lambda folder: (folder / "note").symlink_to("nowhere"),
    "another name": lambda folder: (folder / NAME).rename(folder / "note"),
    "an empty file": lambda folder: os.truncate(folder / NAME, 0),
    "a file too large": lambda folder: os.truncate(folder / NAME, 2**31),
    "a name too high": lambda folder: (folder / NAME).rename(folder / f"{2**63 - 1:020d}"),
    "a name behind all": lambda folder: (folder / NAME).rename(folder / ("9" * 20)),
}


@pytest.mark.parametrize("odd", ODD)
def test_a_queue_that_is_odd_is_told_as_by_itself_and_takes_no_other_along(
    tmp_path: Path, odd: str
) -> None:
    for queue_id in range(3):
        write_queue(tmp_path, queue_id, units_of(3))
    places = [queue.path for queue in queues(tmp_path)]
    ODD[odd](tmp_path / places[1])
    store = StoreDir.at(tmp_path)
    three = [ConsumeQueue(store, "T", queue_id) for queue_id in range(3)]
    heads = store.folder.only_files(places, 20)
    assert (heads[0] is not None, heads[2] is not None) == (True, True)

    def each(_: Path) -> list[QueueExtent]:
        return [ConsumeQueue(store, "T", queue_id).look(LOW) for queue_id in range(3)]

    def at_once(_: Path) -> list[QueueExtent]:
        return look_at_each(store.folder, three, LOW)

    assert outcome(at_once, tmp_path) == outcome(each, tmp_path)


@pytest.mark.parametrize("name", ["..", ".", "", "../T", "a\0b"])
def test_a_name_that_leads_elsewhere_is_not_followed(tmp_path: Path, name: str) -> None:
    write_queue(tmp_path / "store", 0, units_of(3))
    (tmp_path / "outside").mkdir()
    (tmp_path / "outside" / NAME).write_bytes(units_of(3).tobytes())
    folder = StoreDir.at(tmp_path / "store").folder
    paths = [f"consumequeue/T/{name}", f"consumequeue/{name}/0", f"{name}/outside"]
    assert folder.only_files(paths, 60) == [None, None, None]


@pytest.mark.parametrize(
    ("change", "expected"),
    [
        (lambda path: path.unlink(), QueueExtent(0, 0)),
        (lambda path: os.truncate(path, 0), QueueExtent(0, 0)),
        (lambda path: os.truncate(path, 45), QueueExtent(0, 2, LOW + 200, 200, LOW)),
        (
            lambda path: path.write_bytes(units_of(5).tobytes()),
            QueueExtent(0, 5, LOW + 500, 500, LOW),
        ),
    ],
    ids=["gone", "emptied", "cut short", "grown"],
)
def test_a_file_that_changes_behind_the_listing_is_told_as_it_is_when_it_is_opened(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    change: Callable[[Path], object],
    expected: QueueExtent,
) -> None:
    path = write_queue(tmp_path, 0, units_of(3)) / NAME
    act, pending = os.open, [change]

    def change_first(name: str, *args: Any, **named: Any) -> int:
        if name == NAME and pending:
            pending.pop()(path)
        return act(name, *args, **named)

    monkeypatch.setattr(os, "open", change_first)
    assert together(tmp_path) == [expected]


def test_a_store_of_short_and_long_queues_is_told_in_the_order_that_was_asked(
    tmp_path: Path,
) -> None:
    messages = [
        Message(topic=f"T{number % 7}") for number in range(1400) if number % 7 > 3 or number < 70
    ]
    lay_out(tmp_path, messages, Layout(queue_units=1000))
    asked = queues(tmp_path)[::-1]
    low = 0
    expected = [ConsumeQueue(queue.place, queue.topic, queue.queue_id).look(low) for queue in asked]
    assert look_at_each(StoreDir.at(tmp_path).folder, asked, low) == expected
    assert {look.high for look in expected} == {10, 200}
