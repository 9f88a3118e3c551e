"""Every line of Spark 4 does every step; `make matrix` tries them all.

Otherwise the oldest does: what lies between differs from the oldest or the newest in nothing that
compat.py has not from both. The newest runs with executors of its own, because all other tests run
it in one process, and takes the steps in which executors have a part of their own.
"""

import os
import subprocess
import sys
import tomllib
from pathlib import Path

import pyspark
import pytest

from matrix import environments
from matrix.environments import HERE, LINES, IndexUnreachableError
from matrix.steps import Steps
from support import soak

ROOT = HERE.parents[1]
PATHS = os.pathsep.join(str(ROOT / top) for top in ("store", "connector", "jobs"))
SECONDS = 1500
STEPS = [name for name in vars(Steps) if not name.startswith("_")]
MATRIX = soak.WHOLE
ON_EXECUTORS = ["write", "read_with_tags", "stream_to_store", "bad_row", "audit", "whole"]
OTHERS = pytest.mark.skipif(not MATRIX, reason="for `make matrix`")
every_line = pytest.mark.parametrize(
    "line", [LINES[0], *(pytest.param(line, marks=OTHERS) for line in LINES[1:-1]), LINES[-1]]
)


def interpreter(line: str) -> str:
    """The interpreter of a line: this one, if its Spark is of it."""
    if pyspark.__version__.startswith(f"{line}."):
        return sys.executable
    try:
        return str(environments.python(line))
    except IndexUnreachableError as error:
        pytest.skip(f"no package index to take Spark {line} from: {error}")


def done(
    python: str, master: str, folder: Path, *names: str, script: str = "steps.py"
) -> list[str]:
    """Run the steps in an environment; return those that are done."""
    environment = {name: value for name, value in os.environ.items() if "SPARK" not in name}
    environment |= {
        "PYTHONPATH": PATHS,
        "SPARK_SUBMIT_OPTS": os.environ.get("SPARK_SUBMIT_OPTS", ""),
    }
    ran = subprocess.run(
        [python, str(HERE / script), master, str(folder), *names],
        env=environment,
        cwd=folder,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=SECONDS,
        check=False,
    )
    sys.stdout.write(ran.stdout)
    assert ran.returncode == 0, ran.stderr[-6000:]
    return [step.split()[1] for step in ran.stdout.splitlines()]


@pytest.mark.spark
@every_line
def test_each_of_the_steps_works_on_the_line(line: str, tmp_path: Path) -> None:
    is_newest = line == LINES[-1]
    master = "local-cluster[2,1,1024]" if is_newest else "local[2]"
    steps = ON_EXECUTORS if is_newest and not MATRIX else STEPS
    assert done(interpreter(line), master, tmp_path, *steps) == steps


@pytest.mark.spark
def test_a_client_of_spark_connect_reads_and_writes(tmp_path: Path) -> None:
    steps = ["write", "read_with_tags", "schema_read", "sql_view"]
    assert done(interpreter(LINES[0]), "connect", tmp_path, *steps) == steps


def pinned(line: str) -> dict[str, str]:
    lines = (HERE / f"requirements-{line}.txt").read_text(encoding="utf-8").splitlines()
    wanted = (text.partition(";")[0].strip() for text in lines if not text.startswith("#"))
    pairs = (text.replace("[connect]", "").partition("==") for text in wanted)
    return {name: version for name, equal, version in reversed(list(pairs)) if equal}


def test_the_oldest_line_is_tried_with_the_oldest_of_everything() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    oldest = pinned(LINES[0])
    for wanted in [*project["dependencies"], *project["optional-dependencies"]["spark"]]:
        name, _, bounds = wanted.partition(">=")
        lowest = bounds.partition(",")[0]
        assert f"{oldest[name]}.".startswith(f"{lowest}."), wanted


@pytest.mark.parametrize("line", LINES)
def test_a_line_is_tried_with_one_spark_of_its_own(line: str) -> None:
    assert pinned(line)["pyspark"].startswith(f"{line}.")
