"""ConsumeQueues after a crash: whatever became of them, they are again what the broker wrote."""

import os
import shutil
import struct
from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from derive.rebuilds import derived, own_sizes, rebuilt, sizes_of
from mqstore.check import check
from mqstore.errors import CorruptStoreError
from support import oracle, soak, strategies
from support.deleted import NEW, make_again, twice
from support.dying import killed
from support.oracle import Message
from support.stores import UNIT_BYTES, Layout, MakeStore, lay_out
from support.writing import held

QUEUES = "consumequeue"


def write(path: Path, position: int, data: bytes) -> None:
    with path.open("r+b") as file:
        file.seek(position)
        file.write(data)


def test_what_a_broker_wrote_is_left_alone(golden: tuple[str, Path], tmp_path: Path) -> None:
    root = tmp_path / "store"
    shutil.copytree(golden[1], root)
    before = derived(root, ".")
    found = rebuilt(root, own_sizes(root), with_index=False)
    assert (found.units_written, found.units_zeroed, found.files_removed) == (0, 0, 0)
    assert found.records > 1000
    assert derived(root, ".") == before


def test_what_a_broker_wrote_is_made_again_to_the_byte(
    golden: tuple[str, Path], tmp_path: Path
) -> None:
    """Delayed, transactional, retried and light messages are all among them."""
    root = tmp_path / "store"
    shutil.copytree(golden[1], root)
    before, sizes = derived(root, QUEUES), own_sizes(root)
    shutil.rmtree(root / QUEUES)
    (root / QUEUES).mkdir()
    found = rebuilt(root, sizes, with_index=False)
    assert derived(root, QUEUES) == before
    assert found.units_written == found.records
    last = held(root)[-1]
    assert found.tail == last.physical_offset + last.size
    assert found.last_store_timestamp_ms == last.store_timestamp_ms


# Each takes a queue's directory, files in it that are not empty, and a number to choose with.
Damage = Callable[[Path, list[Path], int], None]


def remove_queue(folder: Path, _files: list[Path], _choice: int) -> None:
    shutil.rmtree(folder)


def remove_topic(folder: Path, _files: list[Path], _choice: int) -> None:
    shutil.rmtree(folder.parent)


def remove_file(_: Path, files: list[Path], choice: int) -> None:
    files[choice % len(files)].unlink()


def empty_file(_: Path, files: list[Path], choice: int) -> None:
    files[choice % len(files)].write_bytes(b"")


def short_file(_: Path, files: list[Path], choice: int) -> None:
    path = files[choice % len(files)]
    os.truncate(path, choice % path.stat().st_size)


def unit_in(files: list[Path], choice: int) -> tuple[Path, int]:
    path = files[choice % len(files)]
    return path, choice % max(1, path.stat().st_size // UNIT_BYTES) * UNIT_BYTES


def zero_units(_: Path, files: list[Path], choice: int) -> None:
    path, position = unit_in(files, choice)
    write(path, position, bytes(max(0, path.stat().st_size - position)))


def torn_unit(_: Path, files: list[Path], choice: int) -> None:
    path, position = unit_in(files, choice)
    write(path, position + 8, bytes(12))


def foreign_unit(_: Path, files: list[Path], choice: int) -> None:
    path, position = unit_in(files, choice)
    write(path, position, struct.pack(">qiq", 1 + choice, 200 + choice, choice))


def phantoms(_: Path, files: list[Path], choice: int) -> None:
    data = files[-1].read_bytes()
    used = len(data.rstrip(b"\0")) // UNIT_BYTES + 1
    for number in range(used, min(used + 1 + choice % 4, len(data) // UNIT_BYTES)):
        write(files[-1], number * UNIT_BYTES, struct.pack(">qiq", 2**45 + number, 200, 0))


def zero_file(_: Path, files: list[Path], _choice: int) -> None:
    size = files[-1].stat().st_size
    files[-1].with_name(f"{int(files[-1].name) + size:020d}").write_bytes(bytes(size))


def phantom_file(_: Path, files: list[Path], _choice: int) -> None:
    size = files[-1].stat().st_size
    units = struct.pack(">qiq", 2**45, 200, 0).ljust(size, b"\0")
    files[-1].with_name(f"{int(files[-1].name) + size:020d}").write_bytes(units)


DAMAGES = [remove_queue, remove_topic, remove_file, empty_file, short_file, zero_units, torn_unit,
           foreign_unit, phantoms, zero_file, phantom_file]  # fmt: skip


@st.composite
def damages(draw: st.DrawFn) -> list[tuple[Damage, int, int]]:
    one = st.tuples(st.sampled_from(DAMAGES), st.integers(0, 99), st.integers(0, 99))
    return draw(st.lists(one, min_size=1, max_size=6))


def ruin(root: Path, chosen: list[tuple[Damage, int, int]]) -> None:
    for damage, which, choice in chosen:
        folders = sorted({path.parent for path in (root / QUEUES).glob("*/*/*")})
        folder = folders[which % len(folders)] if folders else root
        files = [path for path in sorted(folder.iterdir()) if path.stat().st_size]
        if folders and files:
            damage(folder, files, choice)


def tells_its_size(root: Path, layout: Layout) -> bool:
    """Whether what is left does not look like a store whose files have another size."""
    sizes = Counter(path.stat().st_size for path in (root / QUEUES).glob("*/*/*"))
    del sizes[0]
    usual, count = max(sizes.items(), key=lambda item: item[1], default=(0, 0))
    return count < 2 or usual == layout.queue_units * UNIT_BYTES


@given(
    batch=st.lists(
        st.one_of(strategies.messages(topics=strategies.TOPICS), strategies.delayed()),
        min_size=1,
        max_size=40,
    ),
    layout=strategies.layouts(),
    chosen=damages(),
)
def test_queues_damaged_in_any_way_are_made_again(
    tmp_path_factory: pytest.TempPathFactory,
    batch: list[Message],
    layout: Layout,
    chosen: list[tuple[Damage, int, int]],
) -> None:
    root = tmp_path_factory.mktemp("store") / "store"
    laid = lay_out(root, batch, layout)
    before, log = derived(root, QUEUES), derived(root, "commitlog")
    ruin(root, chosen)
    assume(tells_its_size(root, layout))
    found = rebuilt(root, sizes_of(layout), with_index=False)
    assert derived(root, QUEUES) == before
    assert derived(root, "commitlog") == log
    assert found.records == len(laid.messages)
    assert found.tail == laid.high
    again = rebuilt(root, sizes_of(layout), with_index=False)
    assert (again.units_written, again.units_zeroed, again.files_removed) == (0, 0, 0)


@given(
    batch=st.lists(strategies.messages(topics=strategies.TOPICS), min_size=1, max_size=30),
    layout=strategies.layouts(),
    chosen=damages(),
    cut=st.integers(0, 29),
)
def test_from_a_record_on_all_queues_agree_with_the_log(
    tmp_path_factory: pytest.TempPathFactory,
    batch: list[Message],
    layout: Layout,
    chosen: list[tuple[Damage, int, int]],
    cut: int,
) -> None:
    """What was lost before that record is made again as well, where units before it are gone."""
    root = tmp_path_factory.mktemp("store") / "store"
    laid = lay_out(root, batch, layout)
    before = derived(root, QUEUES)
    start = laid.messages[min(cut, len(batch) - 1)].physical_offset
    units = {
        (m.topic, m.queue_id, m.queue_offset): oracle.unit(m)
        for m in laid.messages
        if m.physical_offset >= start and m.transaction not in (oracle.PREPARED, oracle.ROLLBACK)
    }
    assert rebuilt(root, sizes_of(layout), start, with_index=False).units_written == 0
    assert derived(root, QUEUES) == before
    ruin(root, chosen)
    assume(tells_its_size(root, layout))
    rebuilt(root, sizes_of(layout), start, with_index=False)
    for (topic, queue_id, number), unit in units.items():
        path, position = laid.unit_of((topic, queue_id), number)
        assert path.read_bytes()[position : position + UNIT_BYTES] == unit
    after = derived(root, QUEUES)
    last = {str(Path(name).parent): data for name, data in sorted(after.items())}
    assert all(any(data) for data in last.values())
    again = rebuilt(root, sizes_of(layout), start, with_index=False)
    assert (again.units_written, again.units_zeroed, again.files_removed) == (0, 0, 0)
    assert derived(root, QUEUES) == after


def some(count: int = 40) -> list[Message]:
    return [Message(queue_id=n % 3, body=bytes([n]) * 90) for n in range(count)]


def test_a_log_that_ends_earlier_takes_its_units_back(store: MakeStore) -> None:
    """A torn tail was cut off: what pointed there is gone, and so are files of nothing else."""
    laid = store(some(), Layout(queue_units=4, index=False))
    whole = lay_out(laid.root.parent / "whole", some(23), laid.layout)
    torn = laid.messages[23]
    path, position = laid.file_of(torn)
    write(path, position, bytes(path.stat().st_size - position))
    for later in sorted((laid.root / "commitlog").iterdir()):
        if int(later.name) > torn.physical_offset:
            later.unlink()
    found = rebuilt(laid.root, sizes_of(laid.layout), laid.messages[20].physical_offset)
    assert found.tail == torn.physical_offset
    assert found.units_zeroed == 17
    assert found.files_removed > 0
    assert derived(laid.root, QUEUES) == derived(whole.root, QUEUES)
    (laid.root / "checkpoint").unlink()


def test_the_log_ends_where_a_record_says_it_lies_elsewhere(store: MakeStore) -> None:
    """So do records that a broker once cut off, when another one ends just where they start."""
    laid = store(some(9), Layout(queue_units=16, index=False))
    stale = replace(laid.messages[5], queue_offset=7, physical_offset=7)
    path, position = laid.file_of(laid.messages[5])
    write(path, position, oracle.encode(stale))
    found = rebuilt(laid.root, sizes_of(laid.layout))
    assert (found.records, found.tail) == (5, laid.messages[5].physical_offset)
    assert found.units_zeroed == 4
    write(path, position, bytes(path.stat().st_size - position))
    (laid.root / "checkpoint").unlink()


def test_of_two_records_with_one_queue_offset_the_first_keeps_it(tmp_path: Path) -> None:
    """ConsumeQueue#putMessagePositionInfo: build consume queue repeatedly."""
    laid = lay_out(tmp_path / "store", some(12), Layout(index=False))
    before = derived(laid.root, QUEUES)
    path, position = laid.file_of(laid.messages[9])
    write(path, position + 20, struct.pack(">q", laid.messages[6].queue_offset))
    for start in (0, laid.messages[9].physical_offset, laid.messages[7].physical_offset):
        rebuilt(laid.root, sizes_of(laid.layout), start)
        unit, at = laid.unit_of(("T", 0), 2)
        assert unit.read_bytes()[at : at + UNIT_BYTES] == oracle.unit(laid.messages[6])
    assert rebuilt(laid.root, sizes_of(laid.layout)).units_zeroed == 0
    folder = f"{QUEUES}/T/1/"
    assert {k: v for k, v in derived(laid.root, QUEUES).items() if k.startswith(folder)} == {
        k: v for k, v in before.items() if k.startswith(folder)
    }


@pytest.mark.parametrize("queue_offset", [2**63 - 1, 2**63 // UNIT_BYTES])
def test_a_queue_offset_that_no_file_can_have_gets_no_unit(
    tmp_path: Path, queue_offset: int
) -> None:
    """No checksum covers it; a file of that name would keep every broker from starting."""
    laid = lay_out(tmp_path / "store", [Message(), Message()], Layout(index=False))
    path, position = laid.file_of(laid.messages[1])
    with path.open("r+b") as file:
        file.seek(position + 20)
        file.write(queue_offset.to_bytes(8, "big"))
    rebuilt(laid.root, sizes_of(laid.layout))
    assert [p.name for p in (laid.root / QUEUES / "T" / "0").iterdir()] == [f"{0:020d}"]


LIGHT = {
    "INNER_MULTI_DISPATCH": "%LMQ%a,%LMQ%b/c,%LMQ%d",
    "INNER_MULTI_QUEUE_OFFSET": "0,0,0",
    "TAGS": "TagA",
}


def test_light_queues_get_their_units_too(tmp_path: Path) -> None:
    """ConsumeQueue#multiDispatchLmqQueue: same place and tagsCode, queue 0, offsets as written."""
    texts = [
        LIGHT,
        {**LIGHT, "INNER_MULTI_QUEUE_OFFSET": "1,1"},  # another number of them: none
        {**LIGHT, "INNER_MULTI_QUEUE_OFFSET": "1,1,1"},
        {"INNER_MULTI_DISPATCH": "%LMQ%a"},
        {"INNER_MULTI_DISPATCH": "Plain,%LMQ%a", "INNER_MULTI_QUEUE_OFFSET": "0,2"},
    ]
    batch = [Message(queue_id=2, properties=oracle.join_properties(text)) for text in texts]
    retried = {**LIGHT, "INNER_MULTI_QUEUE_OFFSET": "5,5,5"}
    batch.append(Message(topic="%RETRY%g", properties=oracle.join_properties(retried)))
    laid = lay_out(tmp_path / "store", batch, Layout(index=False))
    rebuilt(laid.root, sizes_of(laid.layout))
    expected = {
        "%LMQ%a/0": [laid.messages[0], laid.messages[2], laid.messages[4]],
        "%LMQ%d/0": [laid.messages[0], laid.messages[2]],
        "Plain/2": [laid.messages[4]],
        "T/2": list(laid.messages[:5]),
        "%RETRY%g/0": [laid.messages[5]],
    }
    found = {
        str(path.parent.relative_to(laid.root / QUEUES)): path.read_bytes()
        for path in (laid.root / QUEUES).glob("*/*/*")
    }
    assert found == {
        queue: b"".join(map(oracle.unit, of_queue)).ljust(16 * UNIT_BYTES, b"\0")
        for queue, of_queue in expected.items()
    }
    start = laid.messages[3].physical_offset
    assert rebuilt(laid.root, sizes_of(laid.layout), start).units_written == 0
    shutil.rmtree(laid.root / QUEUES / "%LMQ%a")
    rebuilt(laid.root, sizes_of(laid.layout), start)
    assert derived(laid.root, QUEUES) == {
        f"{QUEUES}/{queue}/{0:020d}": data for queue, data in found.items()
    }


def test_delivery_times_of_a_brokers_own_delay_levels_stay(tmp_path: Path) -> None:
    properties = oracle.join_properties({"DELAY": "3", "REAL_TOPIC": "T"})
    message = Message(topic=oracle.SCHEDULE_TOPIC, queue_id=2, properties=properties)
    laid = lay_out(tmp_path / "store", [message], Layout(index=False))
    path, _ = laid.unit_of((oracle.SCHEDULE_TOPIC, 2), 0)
    other = laid.messages[0].store_timestamp_ms + 77_000
    write(path, 12, struct.pack(">q", other))
    assert rebuilt(laid.root, sizes_of(laid.layout)).units_written == 0
    path.unlink()
    assert rebuilt(laid.root, sizes_of(laid.layout)).units_written == 1
    assert path.read_bytes()[:UNIT_BYTES] == oracle.unit(laid.messages[0])


@pytest.mark.parametrize("topic", ["../up", "a/b", ".", "T\x00"])
def test_a_record_whose_topic_is_no_name_makes_no_directory(tmp_path: Path, topic: str) -> None:
    lawful = Message(topic="X" * len(topic))
    laid = lay_out(tmp_path / "s" / "store", [Message(), lawful])
    path, position = laid.file_of(laid.messages[1])
    write(path, position + lawful.size - 2 - len(topic), topic.encode())
    shutil.rmtree(laid.root / QUEUES)
    (laid.root / QUEUES).mkdir()
    rebuilt(laid.root, sizes_of(laid.layout), with_index=False)
    assert [p.name for p in (laid.root / QUEUES).iterdir()] == ["T"]
    assert sorted(p.name for p in tmp_path.rglob("*") if p.name in ("up", "b")) == []


def test_a_queue_that_did_not_start_at_0_is_filled_as_a_broker_fills_it(store: MakeStore) -> None:
    layout = Layout(
        start=4096, expired_files=1, first_queue_offsets={("T", 0): 5}, queue_units=8, index=False
    )
    laid = store(some(70), layout)
    before = derived(laid.root, QUEUES)
    assert rebuilt(laid.root, sizes_of(layout)).units_written == 0
    shutil.rmtree(laid.root / QUEUES)
    (laid.root / QUEUES).mkdir()
    rebuilt(laid.root, sizes_of(layout))
    after = derived(laid.root, QUEUES)
    assert set(after) == set(before)
    low = laid.low
    for name, data in after.items():
        for at in range(0, len(data), UNIT_BYTES):
            place, _, _ = struct.unpack_from(">qiq", before[name], at)
            filler = data[at : at + UNIT_BYTES] == struct.pack(">qiq", *oracle.FILLER)
            assert data[at : at + UNIT_BYTES] == before[name][at : at + UNIT_BYTES] or (
                filler and place < low
            )
    assert rebuilt(laid.root, sizes_of(layout)).units_written == 0


def test_units_between_two_records_of_a_queue_are_no_record_s(tmp_path: Path) -> None:
    """The second says a queue offset further on: what stands in between nobody asked for."""
    batch = [Message(body=bytes(50)) for _ in range(3)]
    laid = lay_out(tmp_path / "store", batch, Layout(index=False))
    path, position = laid.file_of(laid.messages[2])
    write(path, position + 20, struct.pack(">q", 6))
    unit, _ = laid.unit_of(("T", 0), 0)
    write(unit, 3 * UNIT_BYTES, struct.pack(">qiq", laid.messages[1].physical_offset, 200, 0) * 2)
    found = rebuilt(laid.root, sizes_of(laid.layout))
    assert (found.units_written, found.units_zeroed) == (1, 3)
    units = [oracle.unit(m) for m in laid.messages]
    wanted = units[0] + units[1] + bytes(4 * UNIT_BYTES) + units[2]
    assert unit.read_bytes() == wanted.ljust(16 * UNIT_BYTES, b"\0")
    assert rebuilt(laid.root, sizes_of(laid.layout)).units_zeroed == 0


def test_files_of_another_size_than_told_are_not_made_longer(tmp_path: Path) -> None:
    laid = lay_out(tmp_path / "store", some(), Layout(index=False, queue_units=4))
    before = derived(laid.root, QUEUES)
    for units in (3, 5, 300_000):
        with pytest.raises(CorruptStoreError, match="80 bytes long"):
            rebuilt(laid.root, sizes_of(Layout(queue_units=units)))
    assert derived(laid.root, QUEUES) == before


def test_filler_alone_is_no_queue(tmp_path: Path) -> None:
    """Its record was taken back: a broker would take filler in a log from 0 on for messages."""
    laid = lay_out(tmp_path / "store", some(6), Layout(index=False))
    before = derived(laid.root, QUEUES)
    folder = laid.root / QUEUES / "New" / "0"
    folder.mkdir(parents=True)
    units = struct.pack(">qiq", *oracle.FILLER) * 2 + struct.pack(">qiq", laid.high, 200, 0)
    (folder / f"{0:020d}").write_bytes(units.ljust(320, b"\0"))
    for start in (laid.messages[4].physical_offset, 0):
        rebuilt(laid.root, sizes_of(laid.layout), start)
        assert derived(laid.root, QUEUES) == before


@pytest.mark.soak
@pytest.mark.parametrize("after", [False, True], ids=["before", "after"])
def test_a_rebuild_that_is_killed_anywhere_is_run_again(tmp_path: Path, after: bool) -> None:
    layout = Layout(queue_units=4, index=False)
    whole = lay_out(tmp_path / "whole", some(), layout)
    expected = derived(whole.root, QUEUES)
    chosen = [(remove_queue, 0, 0), (phantom_file, 1, 0), (foreign_unit, 1, 5), (empty_file, 2, 1),
              (phantoms, 2, 3)]  # fmt: skip
    with killed(10**9) as calls:
        shutil.copytree(whole.root, tmp_path / "counted")
        ruin(tmp_path / "counted", chosen)
        rebuilt(tmp_path / "counted", sizes_of(layout))
    assert derived(tmp_path / "counted", QUEUES) == expected
    assert calls.count > 30
    for k in soak.sample(range(calls.count), check=3, test=15):
        root = tmp_path / f"{k}"
        shutil.copytree(whole.root, root)
        ruin(root, chosen)
        with killed(k, after=after):
            rebuilt(root, sizes_of(layout))
        # A file of zeros is a phantom message: no broker may ever see one.
        empty = [name for name, data in derived(root, QUEUES).items() if data and not any(data)]
        assert empty == [], f"killed at {k}"
        rebuilt(root, sizes_of(layout))
        assert derived(root, QUEUES) == expected, f"killed at {k}"
        assert [f for f in check(root) if f.severity == "error"] == []
        shutil.rmtree(root)


def test_a_store_without_a_log_is_left_as_it_is(tmp_path: Path) -> None:
    """A broker would delete all queues; a folder that is not mounted looks the same."""
    laid = lay_out(tmp_path / "store", some())
    shutil.rmtree(laid.root / "commitlog")
    (laid.root / "commitlog").mkdir()
    before = derived(laid.root, QUEUES)
    found = rebuilt(laid.root, sizes_of(laid.layout))
    assert found.records == 0
    assert derived(laid.root, QUEUES) == before


@pytest.mark.parametrize(("before", "after"), [(40, 6), (6, 40), (9, 1)])
@pytest.mark.parametrize("lost", ["", QUEUES, f"{QUEUES}/{NEW}/0"])
def test_of_a_topic_that_was_made_again_only_the_new_messages_get_units(
    tmp_path: Path, before: int, after: int, lost: str
) -> None:
    layout = Layout(index=False, queue_units=8)
    laid = make_again(lay_out(tmp_path / "store", twice(before, after), layout))
    expected = derived(laid.root, QUEUES)
    if lost:
        shutil.rmtree(laid.root / lost)
    found = rebuilt(laid.root, sizes_of(layout))
    assert derived(laid.root, QUEUES) == expected
    assert (found.units_written > 0, found.units_zeroed) == (bool(lost), 0)


def test_from_the_new_messages_on_the_deleted_ones_lose_their_units(tmp_path: Path) -> None:
    """As a power cut leaves it: it took back that the queues were removed."""
    layout = Layout(index=False, queue_units=8)
    laid = make_again(lay_out(tmp_path / "store", twice(40, 6, 1), layout))
    expected = derived(laid.root, QUEUES)
    path, _ = laid.unit_of((NEW, 0), 0)
    first = next(m for m in laid.messages if m.topic == NEW)
    path.write_bytes(bytes(160))
    rebuilt(laid.root, sizes_of(layout), first.physical_offset)
    assert derived(laid.root, QUEUES) == expected


def test_a_queue_that_has_an_older_first_message_is_the_witness(tmp_path: Path) -> None:
    """The last record of a queue says queue offset 0, by a changed bit."""
    layout = Layout(index=False, queue_units=8)
    laid = lay_out(tmp_path / "store", [Message(body=b"x") for _ in range(9)], layout)
    before = derived(laid.root, QUEUES)
    path, position = laid.file_of(laid.messages[8])
    write(path, position + 20, bytes(8))
    rebuilt(laid.root, sizes_of(layout))
    kept = derived(laid.root, QUEUES)
    assert kept[f"{QUEUES}/T/0/{0:020d}"] == before[f"{QUEUES}/T/0/{0:020d}"]
    shutil.rmtree(laid.root / QUEUES)
    rebuilt(laid.root, sizes_of(layout))
    unit, _ = laid.unit_of(("T", 0), 0)
    assert unit.read_bytes() == oracle.unit(laid.messages[8]).ljust(160, b"\0")
