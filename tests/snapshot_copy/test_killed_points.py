"""Runs that are killed, and power cuts: no point is damaged, and nothing is left over."""

import random
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from crash.disk import Disk, Recorder, standing_in
from mqstore.copy.keep_rules import KeepRule
from mqstore.copy.prune_points import prune_points
from mqstore.copy.take_point import take_point
from mqstore.files.points.repository import Repository
from snapshot_copy.copied import SMALL, messages, rows
from snapshot_copy.pointed import at, backing, files, is_whole, kept_at, needed, restored, rows_of
from support import soak
from support.dying import killed
from support.growing import grow
from support.stores import lay_out

CUTS = soak.size("point_cuts", check=2, test=25, whole=3_000)
COUNTS = [5, 12, 18]
ALL = [KeepRule(10**12, 0)]
NONE = [KeepRule(1, 0)]

Act = Callable[[Path], object]
ACTS: dict[str, Act] = {
    "snapshot": lambda root: take_point(root / "store", backing(root / "repository")),
    "the first snapshot": lambda root: take_point(root / "store", backing(root / "new")),
    "prune": lambda root: prune_points(backing(root / "repository"), NONE),
    "restore": lambda root: restored(root / "repository", 2, root / "restored"),
}


def prepared(root: Path) -> None:
    laid, _ = kept_at(root, COUNTS, SMALL)
    grow(laid, messages(25), SMALL)


def check_after(root: Path, then: dict[int, object]) -> None:
    """All points that there are read as they did; the next runs go on and leave nothing over."""
    for name in ("repository", "new"):
        repository = root / name
        if not repository.exists():
            continue
        if (repository / "mqlog-repository").exists():
            assert is_whole(repository)
            for number in Repository(backing(repository)).numbers():
                found = rows_of(at(backing(repository), number))
                assert found == (then[number] if name == "repository" else then[4])
        head = take_point(root / "store", backing(repository))
        assert rows_of(at(backing(repository), head.number)) == then[4]
        assert files(repository) == needed(repository)
        prune_points(backing(repository), ALL)
        assert files(repository) == needed(repository)
        assert is_whole(repository)
    if (root / "restored").exists():
        assert rows(root / "restored") == then[2]
        shutil.rmtree(root / "restored")
    if 2 in Repository(backing(root / "repository")).numbers():
        assert rows(restored(root / "repository", 2, root / "restored")) == then[2]
        assert not (root / "restored.partial").exists()


def states(root: Path) -> dict[int, object]:
    found = {
        n: rows(lay_out(root / f"s{n}", messages(c), SMALL).root) for n, c in enumerate(COUNTS, 1)
    }
    return found | {4: rows(lay_out(root / "s4", messages(25), SMALL).root)}


@pytest.mark.soak
@pytest.mark.parametrize("act", ACTS)
def test_a_run_killed_anywhere_damages_no_point_and_leaves_nothing(
    tmp_path: Path, act: str
) -> None:
    then = states(tmp_path / "then")
    prepared(tmp_path / "ready")
    shutil.copytree(tmp_path / "ready", tmp_path / "once")
    with killed(10**9) as calls:
        ACTS[act](tmp_path / "once")
    for at_call in soak.sample(range(calls.count * 2), check=2, test=12):
        root = tmp_path / f"killed-{at_call}"
        shutil.copytree(tmp_path / "ready", root)
        with killed(at_call // 2, after=bool(at_call % 2)):
            ACTS[act](root)
        check_after(root, then)
        shutil.rmtree(root)


@pytest.mark.soak
@pytest.mark.parametrize("act", ACTS)
def test_a_power_cut_leaves_the_points_that_were_made(tmp_path: Path, act: str) -> None:
    then = states(tmp_path / "then")
    disk_root, cut = tmp_path / "disk", tmp_path / "cut"
    disk_root.mkdir()
    prepared(disk_root)
    recorder = Recorder(disk_root)
    with standing_in(recorder):
        ACTS[act](disk_root)
    disk, rng = Disk(recorder), random.Random(1)
    ends = [disk.state(len(disk.ops), 0)]
    for state in [*ends, *(disk.draw(rng) for _ in range(CUTS))]:
        cut.mkdir()
        state.write(cut)
        if state in ends and act == "snapshot":
            assert Repository(backing(cut / "repository")).numbers() == [1, 2, 3, 4]
        if state in ends and act == "restore":
            assert rows(cut / "restored") == then[2]
        check_after(cut, then)
        shutil.rmtree(cut)
