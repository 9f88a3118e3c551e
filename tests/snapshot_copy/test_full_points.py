"""Full disks: the points stay whole, and what frees room works with none left."""

import errno
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from crash.disk import standing_in
from crash.faults import Faulty
from crash.no_space import small_disk
from mqstore.copy.hold_points import Budget, guard_once, held_bytes
from mqstore.copy.keep_rules import KeepRule
from mqstore.copy.prune_points import prune_named, prune_points
from mqstore.copy.take_point import take_point
from mqstore.errors import NoSpaceError
from mqstore.files.points.repository import Repository
from snapshot_copy.copied import messages
from snapshot_copy.point_runs import ACTS, check_after, prepared, states
from snapshot_copy.pointed import at, backing, files, is_whole, needed, rows_of
from support import soak
from support.growing import grow
from support.stores import Laid, Layout, lay_out

BIG = Layout(commit_log_bytes=16384, queue_units=64)
ROOM = 4 << 20


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[Path]:
    """A small disk of its own."""
    try:
        mounted = small_disk(tmp_path / "disk", ROOM)
        mounted.__enter__()
    except (OSError, subprocess.SubprocessError):
        pytest.skip("needs the right to mount a tmpfs")
    try:
        yield tmp_path / "disk"
    finally:
        mounted.__exit__(None, None, None)


def laid_on(disk: Path) -> Laid:
    """A store with a repository of three points, which holds what expired since."""
    laid = lay_out(disk / "store", messages(600), BIG)
    take_point(laid.root, backing(disk / "repository"))
    for count in (800, 1000):
        for path in sorted((laid.root / "commitlog").iterdir())[:2]:
            path.unlink()
        grown = grow(laid, messages(count), BIG)
        for path in sorted((laid.root / "commitlog").iterdir())[: count // 200]:
            path.unlink()
        take_point(grown.root, backing(disk / "repository"))
    return laid


def fill(disk: Path) -> None:
    """Take all room that is left, to the last byte."""
    with (disk / "filler").open("ab", buffering=0) as file:
        for size in (1 << 16, 4096, 1):
            data = bytes(size)
            with pytest.raises(OSError, match="No space left"):
                file.writelines(data for _ in range(ROOM))


def test_points_are_pruned_on_a_disk_with_no_byte_left(disk: Path) -> None:
    laid_on(disk)
    place = backing(disk / "repository")
    then = {number: rows_of(at(place, number)) for number in (2, 3)}
    fill(disk)
    before = held_bytes(place)
    assert [head.number for head in prune_named(place, [1]).gone] == [1]
    assert held_bytes(place) < before
    assert {number: rows_of(at(place, number)) for number in (2, 3)} == then
    fill(disk)
    assert [head.number for head in prune_points(place, [KeepRule(1, 0)]).gone] == [2]
    assert rows_of(at(place, 3)) == then[3]
    assert files(disk / "repository") == needed(disk / "repository")
    assert is_whole(disk / "repository")


@pytest.mark.parametrize("budget", [Budget(makes_room=True), Budget(10**9, makes_room=True)])
def test_the_guard_makes_room_on_a_full_disk_and_goes_on(disk: Path, budget: Budget) -> None:
    laid = laid_on(disk)
    place, told = backing(disk / "repository"), list[str]()
    grow(laid, messages(1010), BIG)
    fill(disk)
    before = rows_of(at(place, 3))
    with pytest.raises(NoSpaceError, match=f"{disk}/repository: "):
        guard_once(laid.root, place, Budget(budget.most_bytes), told=told.append)
    assert Repository(place).numbers() == [1, 2, 3]
    assert told == []
    made = guard_once(laid.root, place, budget, told=told.append)
    assert made.dropped[:1] == (1,)
    assert "THE DISK IS FULL: removed point 1" in told[0]
    assert rows_of(at(place, 3)) == before
    assert files(disk / "repository") == needed(disk / "repository")
    assert is_whole(disk / "repository")
    fill(disk)
    for _ in range(3):  # It ends at the newest point, which stays.
        try:
            guard_once(laid.root, place, budget, told=told.append)
        except NoSpaceError:
            break
        fill(disk)
    assert is_whole(disk / "repository")
    assert Repository(place).numbers()


def test_on_a_full_disk_of_its_own_a_repository_without_a_budget_keeps_its_points(
    disk: Path, tmp_path: Path
) -> None:
    laid = lay_out(tmp_path / "store", messages(300), BIG)
    place = backing(disk / "repository")
    for count in (310, 320):
        take_point(laid.root, place)
        grow(laid, messages(count), BIG)
        min((laid.root / "commitlog").iterdir()).unlink()
    fill(disk)
    with pytest.raises(NoSpaceError):
        guard_once(laid.root, place, Budget(makes_room=True))
    assert Repository(place).numbers() == [1, 2]
    made = guard_once(laid.root, place, Budget(10**9, makes_room=True), told=lambda _: None)
    assert made.dropped
    assert is_whole(disk / "repository")


@pytest.mark.soak
@pytest.mark.parametrize("act", ACTS)
def test_a_full_disk_at_any_call_damages_no_point_and_leaves_nothing(
    tmp_path: Path, act: str
) -> None:
    then = states(tmp_path / "then")
    prepared(tmp_path / "ready")

    def run(root: Path, k: int) -> Faulty:
        shutil.copytree(tmp_path / "ready", root)
        faulty = Faulty(root, at=k, error=errno.ENOSPC)
        full = pytest.raises((NoSpaceError, OSError), match="No space left")
        with standing_in(faulty), suppress(pytest.fail.Exception), full:
            ACTS[act](root)  # A call that may fail, as a hint to the system, ends in no error.
        return faulty

    every = run(tmp_path / "once", -1).calls
    for k in soak.sample(range(every), check=1, test=8):
        root = tmp_path / f"full-{k}"
        run(root, k)
        check_after(root, then)
        shutil.rmtree(root)
    soak.tell(f"{act}: {every} calls")
