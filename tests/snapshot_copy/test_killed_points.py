"""Runs that are killed, and power cuts: no point is damaged, and nothing is left over."""

import random
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from crash.disk import Disk, Recorder, standing_in
from crash.forks import Forks
from crash.killing import Killed, can_trace
from mqstore.files.points.repository import Repository
from snapshot_copy.copied import rows
from snapshot_copy.point_runs import ACTS, check_after, prepared, states
from snapshot_copy.pointed import backing
from support import soak
from support.dying import killed

CUTS = soak.size("point_cuts", check=2, test=25, whole=3_000)


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


@pytest.fixture(scope="module")
def killer(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Killed]:
    if not can_trace():
        pytest.skip("needs strace, and to be allowed to attach to a process")
    with Forks() as forks:
        yield Killed(forks, tmp_path_factory.mktemp("killed") / "trace")


@pytest.mark.soak
@pytest.mark.parametrize("act", ACTS)
def test_a_process_killed_at_any_system_call_damages_no_point_and_leaves_nothing(
    killer: Killed, tmp_path: Path, act: str
) -> None:
    then = states(tmp_path / "then")
    prepared(tmp_path / "ready")

    def laid_out(name: str) -> Path:
        return Path(shutil.copytree(tmp_path / "ready", tmp_path / name))

    every = killer.calls("point", act, laid_out("once"))
    calls = soak.sample(every, check=1, test=5)
    for call in calls:
        root = laid_out("killed")
        killer.kill(call, "point", act, root)
        try:
            check_after(root, then)
        except BaseException as error:
            error.add_note(f"{act} killed at {call}")
            raise
        shutil.rmtree(root)
    soak.tell(f"{act}: killed at {len(calls)} of {len(every)} system calls")
