"""T8: a disk that is too small by any number of pages: an exception, never a signal or a loss.

Files of the store are sparse, so that room must be found for what looks as if it were there.
When there is room again the commit can be made, or is finished, once.
"""

import json
import os
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest

from crash import no_space
from support import soak

pytestmark = pytest.mark.soak
TESTS = Path(__file__).parents[1]
PAGE = 4096
# The commit wants 1 MiB left over, for the small files that come after the decision.
NEED, MARGIN = 100 * PAGE, 1 << 20
PAGES = -(-(NEED + MARGIN) // PAGE)
DISKS = soak.size("full_disks", check=5, test=23, whole=PAGES)


@pytest.fixture(scope="module")
def mountable(tmp_path_factory: pytest.TempPathFactory) -> None:
    try:
        with no_space.small_disk(tmp_path_factory.mktemp("probe"), 1 << 20):
            pass
    except (OSError, subprocess.SubprocessError):
        pytest.skip("needs the right to mount a tmpfs")


@pytest.mark.usefixtures("mountable")
@pytest.mark.parametrize(
    ("scenario", "coarser"), soak.sample([("everything", 1), ("mapped", 4)], check=1, test=2)
)
def test_a_disk_that_is_too_small_is_an_exception_and_costs_nothing(
    tmp_path: Path, scenario: str, coarser: int
) -> None:
    count = max(DISKS if soak.WHOLE else DISKS // coarser, 5)
    step = -(-PAGES // count) * PAGE
    sizes = range(0, NEED + MARGIN, step)
    command = [sys.executable, "-m", "crash.no_space", str(tmp_path), scenario]
    done = subprocess.run(
        [*command, "0", str(sizes.stop), str(sizes.step)],
        cwd=TESTS,
        env={**os.environ, "PYTHONPATH": f"{TESTS}:{os.environ.get('PYTHONPATH', '')}"},
        text=True,
        timeout=60 + 10 * len(sizes),
        capture_output=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-4000:]
    told = [json.loads(line) for line in done.stdout.splitlines()]
    assert [one["bytes"] for one in told] == list(sizes)
    outcomes = Counter(one["outcome"] for one in told)
    soak.tell(f"{len(told)} sizes of disk: {dict(outcomes)}")
    assert set(outcomes) == {"no space", "done"}, "the margin is there so that none is in doubt"
    assert outcomes["no space"] > (50 if scenario == "everything" else 10) * PAGE // step
