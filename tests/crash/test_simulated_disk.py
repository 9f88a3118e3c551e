"""T2: a power cut at any moment of a commit, or of the recovery after one, costs nothing.

Nor does one of the recovery after a kill, which finds what was written and never synced.

The size crash_states says how many states are tested in all, over the scenarios. One that fails is
named; MQLOG_AGAIN=<its name> tests that one again, and its directory is kept.
"""

from pathlib import Path

import pytest

from crash import play
from crash.scenarios import SCENARIOS
from support import soak

pytestmark = pytest.mark.soak
STATES = soak.size("crash_states", check=15, test=500, whole=500_000)
CHOSEN = soak.sample((scenario.name for scenario in SCENARIOS), check=5, test=len(SCENARIOS))
SAMPLES = 40 if soak.WHOLE else 1


@pytest.mark.parametrize("scenario", CHOSEN)
def test_a_power_cut_loses_nothing_doubles_nothing_and_shows_no_part(
    tmp_path: Path, scenario: str
) -> None:
    tally = play.Explorer(scenario, tmp_path, most=-(-STATES // len(CHOSEN))).run(SAMPLES)
    soak.tell(
        f"{scenario}: {tally.states} states, {tally.while_recovering} while recovering,"
        f" {tally.after_kills} of them after a kill"
    )
    told = [f"MQLOG_AGAIN={one}" for one in tally.failures]
    assert not told, "\n".join([f"in {tmp_path}", *told])


@soak.again
def test_the_state_that_was_named(tmp_path: Path) -> None:
    play.again(soak.AGAIN, tmp_path)
