"""IndexFiles after a crash: whatever became of them, every key is found again, and no other."""

import os
import shutil
import struct
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from derive.rebuilds import derived, own_sizes, rebuilt, sizes_of
from mqstore.check import check
from mqstore.errors import CorruptStoreError
from support import oracle, soak, strategies
from support.dying import killed
from support.oracle import Message
from support.stores import Layout, lay_out

INDEX = "index"
Units = list[tuple[int, int]]


def files_of(root: Path) -> list[bytes]:
    """Return the IndexFiles, oldest first; their names tell when they were made."""
    return [path.read_bytes() for path in sorted((root / INDEX).iterdir())]


def made_of(messages: list[Message], layout: Layout, *, tags: bool = True) -> list[bytes]:
    """Return the IndexFiles that a broker makes of these messages."""
    found = oracle.index_files(
        messages, slots=layout.index_slots, units=layout.index_units, tags=tags
    )
    return [file.bytes() for file in found]


def units_in(files: list[bytes], layout: Layout) -> Units:
    """Return (hash, physical offset) of all units in use, in their order."""
    found: Units = []
    for data in files:
        count = struct.unpack_from(">i", data, 36)[0]
        first = 40 + 4 * layout.index_slots
        found += [
            struct.unpack_from(">iq", data, first + 20 * number) for number in range(1, count)
        ]
    return found


def sound_index(root: Path, messages: list[Message], layout: Layout) -> None:
    """Check that all keys are there in order; a tag's key may be missing, as in older brokers."""
    tags = {
        (oracle.key_hash(f"{m.topic}#T#{m.tags}"), m.physical_offset)
        for m in messages
        if m.tags and m.transaction != oracle.ROLLBACK
    }
    files = files_of(root)
    plain = units_in(made_of(messages, layout, tags=False), layout)
    assert [u for u in units_in(files, layout) if u not in tags or u in plain] == plain
    assert [f for f in check(root) if f.file.startswith(INDEX)] == []


def test_what_a_broker_indexed_is_left_alone(golden: tuple[str, Path], tmp_path: Path) -> None:
    root = tmp_path / "store"
    shutil.copytree(golden[1], root)
    before = derived(root, INDEX)
    assert rebuilt(root, own_sizes(root)).keys_put == 0
    assert derived(root, INDEX) == before


def test_what_a_broker_indexed_is_made_again_to_the_byte(golden_550: Path, tmp_path: Path) -> None:
    root = tmp_path / "store"
    shutil.copytree(golden_550, root)
    before, sizes = files_of(root), own_sizes(root)
    shutil.rmtree(root / INDEX)
    assert rebuilt(root, sizes).keys_put > 3000
    assert files_of(root) == before


def test_keys_of_tags_are_put_where_they_were_put_before(golden_497: Path, tmp_path: Path) -> None:
    """Brokers before 5.5.0 have none: their index goes on without them."""
    root = tmp_path / "store"
    shutil.copytree(golden_497, root)
    before, sizes = files_of(root), own_sizes(root)
    for path in sorted((root / INDEX).iterdir())[-3:]:
        path.unlink()
    assert rebuilt(root, sizes).keys_put > 1000
    assert files_of(root) == before


# Each takes the files that there are, and a number to choose with.
Damage = Callable[[list[Path], int], None]


def write(path: Path, position: int, data: bytes) -> None:
    size = path.stat().st_size
    with path.open("r+b") as file:
        file.seek(min(position, size))
        file.write(data[: max(0, size - position)])


def remove_all(files: list[Path], _: int) -> None:
    for path in files:
        path.unlink()


def remove_one(files: list[Path], choice: int) -> None:
    files[choice % len(files)].unlink()


def zeros(files: list[Path], choice: int) -> None:
    """Pages that were never written back."""
    path = files[choice % len(files)]
    position = choice * 37 % path.stat().st_size
    write(path, position, bytes(1 + choice * 11 % 200))


def any_byte(files: list[Path], choice: int) -> None:
    path = files[choice % len(files)]
    position = choice * 101 % path.stat().st_size
    write(path, position, bytes([path.read_bytes()[position] ^ (1 + choice % 255)]))


def old_header(files: list[Path], choice: int) -> None:
    path = files[choice % len(files)]
    count = int.from_bytes(path.read_bytes()[36:40])
    write(path, 36, struct.pack(">I", max(1, count - 1 - choice % 5)))


def far_header(files: list[Path], choice: int) -> None:
    path = files[choice % len(files)]
    count = int.from_bytes(path.read_bytes()[36:40])
    write(path, 36, struct.pack(">i", min(2**31 - 1, count + 2**choice)))


def short(files: list[Path], choice: int) -> None:
    if len(files) > 1:
        path = files[choice % len(files)]
        os.truncate(path, choice * 17 % path.stat().st_size)


def new_file(files: list[Path], _: int) -> None:
    size = files[-1].stat().st_size
    files[-1].with_name(f"{int(files[-1].name) + 1:017d}").write_bytes(bytes(size))


DAMAGES = [remove_all, remove_one, zeros, zeros, any_byte, old_header, far_header, short, new_file]


def ruin(root: Path, chosen: list[tuple[Damage, int]]) -> None:
    for damage, choice in chosen:
        files = [path for path in sorted((root / INDEX).iterdir()) if path.stat().st_size]
        if files:
            damage(files, choice)


def test_a_file_that_lost_its_count_of_units_alone_is_made_again(tmp_path: Path) -> None:
    """Its count of slots in use is left: that of a file without units is 0."""
    layout = Layout(queue_units=1, index_slots=1, index_units=4, index=True)
    laid = lay_out(tmp_path / "s", [Message(properties=b"KEYS\x01k\x02")], layout)
    (file,) = (laid.root / INDEX).iterdir()
    write(file, 36, bytes(len(file.read_bytes()) - 36))
    rebuilt(laid.root, sizes_of(layout))
    sound_index(laid.root, list(laid.messages), layout)


def indexed(layout: Layout) -> Layout:
    return replace(layout, index=True)


@given(
    batch=st.lists(strategies.messages(topics=strategies.TOPICS), min_size=1, max_size=40),
    layout=strategies.layouts().map(indexed),
    chosen=st.lists(
        st.tuples(st.sampled_from(DAMAGES), st.integers(0, 30)), min_size=1, max_size=5
    ),
)
def test_an_index_damaged_in_any_way_is_made_again(
    tmp_path_factory: pytest.TempPathFactory,
    batch: list[Message],
    layout: Layout,
    chosen: list[tuple[Damage, int]],
) -> None:
    root = tmp_path_factory.mktemp("store") / "store"
    laid = lay_out(root, batch, layout)
    messages = list(laid.messages)
    before = derived(root, INDEX)
    assert rebuilt(root, sizes_of(layout)).keys_put == 0
    assert derived(root, INDEX) == before
    ruin(root, chosen)
    sizes = {path.stat().st_size for path in (root / INDEX).iterdir()} - {0}
    size = 40 + 4 * layout.index_slots + 20 * layout.index_units
    if sizes and size not in sizes:
        return  # Another layout, as far as anybody can tell.
    rebuilt(root, sizes_of(layout))
    sound_index(root, messages, layout)
    after = derived(root, INDEX)
    assert rebuilt(root, sizes_of(layout)).keys_put == 0
    assert derived(root, INDEX) == after


@given(
    batch=st.lists(strategies.messages(topics=strategies.TOPICS), min_size=1, max_size=40),
    layout=strategies.layouts().map(indexed),
    cut=st.integers(0, 39),
    kept=st.integers(0, 60),
)
def test_from_a_record_on_all_keys_are_there(
    tmp_path_factory: pytest.TempPathFactory,
    batch: list[Message],
    layout: Layout,
    cut: int,
    kept: int,
) -> None:
    """An index that ends anywhere before, as after a crash: all from that record on is put."""
    root = tmp_path_factory.mktemp("store") / "store"
    laid = lay_out(root, batch, layout)
    messages = list(laid.messages)
    start = messages[min(cut, len(messages) - 1)].physical_offset
    shutil.rmtree(root / INDEX)
    (root / INDEX).mkdir()
    had = made_of(messages[:kept], layout, tags=layout.index_tags)
    for number, data in enumerate(had):
        (root / INDEX / f"{number:017d}").write_bytes(data)
    rebuilt(root, sizes_of(layout), start)
    wanted = made_of(messages, layout, tags=False)
    found = units_in(files_of(root), layout)
    late = [u for u in units_in(wanted, layout) if u[1] >= start]
    tags = {
        (oracle.key_hash(f"{m.topic}#T#{m.tags}"), m.physical_offset) for m in messages if m.tags
    }
    assert [u for u in found if u[1] >= start and (u not in tags or u in late)] == late
    old = [u for u in units_in(had, layout) if u[1] < start]
    assert [u for u in found if u[1] < start] == old
    again = derived(root, INDEX)
    assert rebuilt(root, sizes_of(layout), start).keys_put == 0
    assert derived(root, INDEX) == again


KEYED = b"KEYS\x01a b\x02UNIQ_KEY\x01u\x02TAGS\x01t\x02"
LAYOUT = Layout(index_slots=7, index_units=30, queue_units=64)


def keyed(count: int = 40) -> list[Message]:
    return [
        Message(body=bytes([n]) * 60, properties=KEYED, store_timestamp_ms=1_700_000_000_000 + n)
        for n in range(count)
    ]


def test_keys_of_records_that_are_gone_are_cut_off(tmp_path: Path) -> None:
    laid = lay_out(tmp_path / "store", keyed(), LAYOUT)
    torn = laid.messages[25]
    path, position = laid.file_of(torn)
    write(path, position, bytes(path.stat().st_size - position))
    for later in sorted((laid.root / "commitlog").iterdir()):
        if int(later.name) > torn.physical_offset:
            later.unlink()
    assert rebuilt(laid.root, sizes_of(LAYOUT), laid.messages[20].physical_offset).keys_put == 0
    assert files_of(laid.root) == made_of(list(laid.messages[:25]), LAYOUT)


def test_records_that_were_never_indexed_are_no_gap_inside_a_file(tmp_path: Path) -> None:
    """A file is taken to have all keys between its first record and its last."""
    laid = lay_out(tmp_path / "store", keyed(12), LAYOUT)
    shutil.rmtree(laid.root / INDEX)
    (laid.root / INDEX).mkdir()
    messages = list(laid.messages)
    (laid.root / INDEX / "20200101000000000").write_bytes(made_of(messages[:3], LAYOUT)[0])
    rebuilt(laid.root, sizes_of(LAYOUT), messages[5].physical_offset)
    before, after = files_of(laid.root)
    assert before == made_of(messages[:3], LAYOUT)[0]
    assert {place for _, place in units_in([after], LAYOUT)} == {
        m.physical_offset for m in messages[5:]
    }


def test_without_index_nothing_of_it_is_touched(tmp_path: Path) -> None:
    laid = lay_out(tmp_path / "store", keyed(), LAYOUT)
    ruin(laid.root, [(any_byte, 3), (zeros, 9)])
    before = derived(laid.root, INDEX)
    rebuilt(laid.root, sizes_of(LAYOUT), with_index=False)
    assert derived(laid.root, INDEX) == before


def test_an_index_of_another_layout_is_refused(tmp_path: Path) -> None:
    laid = lay_out(tmp_path / "store", keyed(), LAYOUT)
    before = derived(laid.root, INDEX)
    with pytest.raises(CorruptStoreError, match="maxHashSlotNum"):
        rebuilt(laid.root, sizes_of(Layout(index_slots=8, index_units=30)))
    assert derived(laid.root, INDEX) == before


@pytest.mark.soak
@pytest.mark.parametrize("after", [False, True], ids=["before", "after"])
@pytest.mark.parametrize(
    "chosen",
    [[(remove_all, 0)], [(any_byte, 30)], [(zeros, 25), (remove_one, 3)], [(old_header, 3)]],
    ids=["gone", "byte", "zeros", "header"],
)
def test_a_rebuild_that_is_killed_anywhere_is_run_again(
    tmp_path: Path, chosen: list[tuple[Damage, int]], after: bool
) -> None:
    whole = lay_out(tmp_path / "whole", keyed(), LAYOUT)
    expected = made_of(list(whole.messages), LAYOUT)
    shutil.copytree(whole.root, tmp_path / "counted")
    ruin(tmp_path / "counted", chosen)
    with killed(10**9) as calls:
        rebuilt(tmp_path / "counted", sizes_of(LAYOUT))
    assert files_of(tmp_path / "counted") == expected
    assert calls.count > 3
    for k in soak.sample(range(calls.count), check=3, test=15):
        root = tmp_path / f"{k}"
        shutil.copytree(whole.root, root)
        ruin(root, chosen)
        with killed(k, after=after):
            rebuilt(root, sizes_of(LAYOUT))
        rebuilt(root, sizes_of(LAYOUT))
        assert files_of(root) == expected, f"killed at {k}"
        shutil.rmtree(root)
