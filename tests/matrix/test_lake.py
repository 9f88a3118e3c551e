"""Archives in Delta and Iceberg, on each line of Spark that the job says it was tried on.

`make test` takes the oldest line, `make matrix` all.
"""

import sys
from pathlib import Path

import pytest

from matrix import lakes
from matrix.lake_steps import Lake
from matrix.test_lines import OTHERS, SECONDS
from mqlog_jobs.spark.lake.packages import PACKAGES

STEPS = [name for name in vars(Lake) if not name.startswith("_")]
TRIED = [
    pytest.param(kind, line, marks=() if line == min(package.tried) else OTHERS)
    for kind, package in PACKAGES.items()
    for line in package.tried
]

pytestmark = pytest.mark.spark


@pytest.mark.parametrize(("kind", "line"), TRIED)
def test_each_of_the_steps_of_an_archive_works_on_the_line(
    kind: str, line: str, tmp_path: Path
) -> None:
    told = lakes.run_steps(kind, line, tmp_path, seconds=SECONDS)
    sys.stdout.write(told)
    assert [step.split()[1] for step in told.splitlines()] == STEPS
