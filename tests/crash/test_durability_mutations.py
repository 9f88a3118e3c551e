"""T16: take one sync, rename or step away, and see that the power cuts of T2 notice.

What goes unnoticed there is listed here, with the reason; a guard that is neither noticed nor
listed is a guard without a test. MQLOG_MUTATION_STATES says how many states a scenario gets.
"""

from fnmatch import fnmatch
from pathlib import Path

import pytest

import soak
from crash import mutations

STATES = soak.size("MUTATION_STATES", test=150, full=400)
SHARPEST = ("the byte that hides the batch", "the decision", "the ledger")
JUSTIFIED: dict[str, str] = {}


@pytest.mark.soak
@pytest.mark.parametrize("name", SHARPEST)
def test_a_commit_without_this_step_is_noticed(tmp_path: Path, name: str) -> None:
    noticed = mutations.is_noticed(name, mutations.STEPS[name], tmp_path, states=STATES)
    assert noticed, name


@soak.only
def test_every_guard_that_is_taken_away_is_noticed_or_known_to_be_a_second_one(
    tmp_path: Path,
) -> None:
    noticed, survived = {}, []
    for number, (name, mutation) in enumerate(mutations.all_of(tmp_path / "all").items()):
        what = mutations.is_noticed(name, mutation, tmp_path / f"{number}", states=STATES)
        soak.tell(f"{'noticed ' if what else 'SURVIVED'} {name}\n    {what[:200]}")
        if what:
            noticed[name] = what
        else:
            survived.append(name)
    unknown = [name for name in survived if not any(fnmatch(name, p) for p in JUSTIFIED)]
    soak.tell(f"{len(noticed)} noticed, {len(survived)} not, {len(unknown)} of them unknown")
    assert not unknown
