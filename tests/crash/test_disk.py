"""The simulated disk forgets what was not synced, and nothing else."""

import os
import random
from collections.abc import Callable
from pathlib import Path

import pytest

from crash.disk import Disk, Recorder, standing_in
from mqstore.files.base import durable

Found = frozenset[tuple[str, bytes | None]]


def left(base: Path, *steps: Callable[[], object]) -> set[Found]:
    """Return all that a power cut after the last step may leave."""
    recorder = Recorder(base)
    with standing_in(recorder):
        for step in steps:
            step()
    disk = Disk(recorder)
    states = disk.cut(len(disk.ops), random.Random(0), samples=200)
    return {frozenset(state.tree.items()) for state in states}


def write(path: Path, data: bytes, *, sync: bool) -> Callable[[], None]:
    def step() -> None:
        fd = durable.create(str(path))
        durable.write_at(fd, data, 0)
        if sync:
            durable.fsync(fd)
        durable.close(fd)

    return step


def found(**files: bytes | None) -> Found:
    return frozenset(files.items())


def test_a_new_file_may_be_there_or_not_and_each_piece_of_it(tmp_path: Path) -> None:
    data = b"a" * 512 + b"b" * 100
    states = left(tmp_path, write(tmp_path / "f", data, sync=False))
    whole, first, second = data, b"a" * 512 + bytes(100), bytes(512) + b"b" * 100
    contents = (b"", bytes(612), b"a" * 512, whole, first, second)
    assert states == {found(), *(found(f=content) for content in contents)}


def test_a_synced_file_is_whole_or_has_no_name(tmp_path: Path) -> None:
    states = left(tmp_path, write(tmp_path / "f", b"data", sync=True))
    assert states == {found(), found(f=b"data")}


def test_a_synced_file_in_a_synced_directory_is_there(tmp_path: Path) -> None:
    states = left(
        tmp_path,
        write(tmp_path / "f", b"data", sync=True),
        lambda: durable.fsync_directory(str(tmp_path)),
    )
    assert states == {found(f=b"data")}


@pytest.mark.parametrize(("sync", "contents"), [(True, {b"new"}), (False, {b"", b"new", bytes(3)})])
def test_a_rename_is_whole_and_what_it_brings_need_not_be(
    tmp_path: Path, sync: bool, contents: set[bytes]
) -> None:
    (tmp_path / "f").write_bytes(b"old")
    states = left(
        tmp_path,
        write(tmp_path / "g", b"new", sync=sync),
        lambda: durable.replace(str(tmp_path / "g"), str(tmp_path / "f")),
    )
    assert {dict(state).get("f") for state in states} == {b"old", *contents}
    assert all("g" not in dict(state) or dict(state)["f"] == b"old" for state in states)


def test_what_was_written_over_may_be_either(tmp_path: Path) -> None:
    (tmp_path / "f").write_bytes(b"x" * 1024)

    def step() -> None:
        fd = durable.open_for_write(str(tmp_path / "f"))
        durable.write_at(fd, b"y" * 10, 507)
        durable.close(fd)

    states = {dict(state)["f"] for state in left(tmp_path, step)}
    marks = {data[507:517] for data in states if data}
    assert marks == {b"x" * 10, b"y" * 10, b"y" * 5 + b"x" * 5, b"x" * 5 + b"y" * 5}


def test_a_directory_without_a_name_takes_its_files_along(tmp_path: Path) -> None:
    states = left(
        tmp_path,
        lambda: durable.make_directory(str(tmp_path / "d")),
        write(tmp_path / "d" / "f", b"data", sync=True),
        lambda: durable.fsync_directory(str(tmp_path / "d")),
    )
    assert states == {found(), frozenset({("d", None), ("d/f", b"data")})}


@pytest.mark.parametrize("sync", [False, True])
def test_what_a_killed_process_wrote_is_seen_and_lost_unless_the_next_one_syncs_it(
    tmp_path: Path, sync: bool
) -> None:
    (tmp_path / "one").mkdir()
    (tmp_path / "one" / "d").mkdir()
    recorder = Recorder(tmp_path / "one")
    with standing_in(recorder):
        write(tmp_path / "one" / "d" / "f", b"first", sync=False)()
        durable.make_directory(str(tmp_path / "one" / "e"))
    base = tmp_path / "two"
    base.mkdir()
    recorder = Disk(recorder).kill(len(recorder.ops) - 1, base)  # Before "e" was made.
    assert (base / "d" / "f").read_bytes() == b"first"
    assert not (base / "e").exists()
    with standing_in(recorder):
        fd = durable.open_for_write(str(base / "d" / "f"))
        durable.write_at(fd, b"SECOND", 5)
        if sync:
            durable.fsync(fd)
            durable.fsync_directory(str(base / "d"))
        durable.close(fd)
        write(base / "g", b"new", sync=True)()
    disk = Disk(recorder)
    states = list(disk.cut(len(disk.ops), random.Random(0), samples=200))
    contents = {state.tree.get("d/f") for state in states}
    assert b"firstSECOND" in contents
    assert contents == {b"firstSECOND"} if sync else {None, b""} < contents
    assert {state.tree.get("g") for state in states} == {None, b"new"}
    assert all(disk.draw(random.Random(n)).prefix >= disk.since for n in range(20))


def test_a_state_is_made_again_by_its_name_and_written_as_it_is(tmp_path: Path) -> None:
    (tmp_path / "one").mkdir()
    recorder = Recorder(tmp_path / "one")
    with standing_in(recorder):
        write(tmp_path / "one" / "f", os.urandom(2000), sync=False)()
    disk = Disk(recorder)
    for state in disk.states(random.Random(0), samples=5):
        assert disk.state(state.prefix, state.subset) == state
    (tmp_path / "two").mkdir()
    state.write(tmp_path / "two")
    assert (tmp_path / "two" / "f").read_bytes() == state.tree["f"]
