"""T7: one call of a commit fails, whichever it is: a clean error, or a commit that is in doubt.

Before the decision nothing has changed and the job can be run again; after it the caller is told
so, and whoever opens the store next finishes it. That holds of the store as it stands, and of
what a power cut leaves of it, where what was never synced is lost.
"""

import errno
import shutil
from collections import Counter
from dataclasses import replace
from pathlib import Path

import pytest

from crash import play
from crash.disk import Disk, Passing, State, standing_in
from crash.faults import SHORT, Faulty
from crash.invariants import difference, everything, is_decided
from crash.play import STORE, Recording
from crash.scenarios import BY_NAME, work
from mqstore.errors import StoreError
from mqstore.write.errors import CommitInDoubtError
from support import soak
from support.writing import held

pytestmark = pytest.mark.soak
KINDS = {"EIO": errno.EIO, "ENOSPC": errno.ENOSPC}
MORE_KINDS = {"EDQUOT": errno.EDQUOT, "EINTR": errno.EINTR, "short-write": SHORT}
SCENARIOS = ["everything"]
MORE_SCENARIOS = sorted({*BY_NAME} - {*SCENARIOS})


DONE, CLEAN, IN_DOUBT = "done", "clean error", "in doubt"


def cases() -> list[object]:
    """Every scenario with every kind of error; `make test` has one scenario and two kinds."""
    every = [(s, k) for s in [*SCENARIOS, *MORE_SCENARIOS] for k in [*KINDS, *MORE_KINDS]]
    few = {(s, k) for s in SCENARIOS for k in KINDS}
    return [pytest.param(*c, id="-".join(c)) for c in every if soak.WHOLE or c in few]


@pytest.mark.parametrize(("scenario", "kind"), cases())
def test_a_call_that_fails_is_a_clean_error_or_a_commit_in_doubt(
    tmp_path: Path, scenario: str, kind: str
) -> None:
    error = {**KINDS, **MORE_KINDS}[kind]
    recording = replace(play.record(work(BY_NAME[scenario], 0), tmp_path / "run"), with_ids=False)
    unhurt, outcome = attempt(recording, tmp_path / "unhurt", -1, error)
    assert outcome == DONE
    assert unhurt.calls > 80
    tried = soak.sample(range(unhurt.calls), check=3, test=20)
    told = Counter[str]()
    for k in tried:
        base = tmp_path / f"{k}"
        faulty, outcome = attempt(recording, base, k, error)
        assert faulty.failed, f"call {k} was not made"
        told[outcome] += 1
        shutil.rmtree(base)
    soak.tell(f"{scenario}, {kind}: {len(tried)} of {unhurt.calls} calls failed; {dict(told)}")
    if error == SHORT:
        assert set(told) == {DONE}
    elif len(tried) == unhurt.calls:
        assert min(told[CLEAN], told[IN_DOUBT]) > 10


def attempt(recording: Recording, base: Path, k: int, error: int) -> tuple[Faulty, str]:
    """Commit while call ``k`` fails; judge what was raised, the store, and a power cut then."""
    root = base / STORE
    base.mkdir()
    with standing_in(Passing()):
        recording.work.lay_out(root)
    before = brokers_part(root)
    # What a commit of ours wrote there has the times of now, not of the recording.
    there = tuple(held(root)) if before else ()
    expected = replace(recording.expected, before=there)
    recording = replace(recording, expected=expected)
    faulty = Faulty(base, at=k, error=error)
    with standing_in(faulty):
        outcome = run(recording, root)
    assert is_decided(root, expected) == (outcome != CLEAN), f"call {k}: {outcome}"
    if outcome == CLEAN:
        changed = difference(before, brokers_part(root))
        assert not changed, f"call {k}, {faulty.failed}: {changed} are not as they were"
    assert not faulty.retried, f"call {k}: synced again after a failed sync: {faulty.retried}"
    acked = True if outcome == DONE else None
    for state in after_power_cut(faulty):
        play.assert_state(recording, state, base / "cut", acked, again=False)
    play.assert_store(recording, root, acked)
    return faulty, outcome


def run(recording: Recording, root: Path) -> str:
    """Commit, and return how it ended."""
    try:
        recording.work.run(root)
    except CommitInDoubtError:
        return IN_DOUBT
    except (StoreError, OSError):
        return CLEAN
    return DONE


def after_power_cut(faulty: Faulty) -> list[State]:
    """Return what it may leave of what was not synced: nothing, and all of it."""
    disk = Disk(faulty)
    nothing = disk.state(len(disk.ops), 0)
    return [nothing, disk.state(len(disk.ops), (1 << nothing.pending) - 1)]


def brokers_part(root: Path) -> dict[str, bytes | None]:
    """Return all that is in a store but for what is our own."""
    if not root.exists():
        return {}
    return {k: v for k, v in everything(root).items() if not k.startswith(".mqlog")}
