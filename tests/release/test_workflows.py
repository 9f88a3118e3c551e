"""The files for a forge are valid, and name only what exists."""

import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml

from matrix.environments import LINES

ROOT = Path(__file__).parents[2]
FORGE = ROOT / ".github"
WORKFLOWS = sorted((FORGE / "workflows").glob("*.yml"))
SCHEMAS = {
    "vendor.github-workflows": WORKFLOWS,
    "vendor.github-issue-forms": [FORGE / f"ISSUE_TEMPLATE/{n}.yml" for n in ("fault", "wish")],
    "vendor.dependabot": [FORGE / "dependabot.yml"],
    "vendor.github-issue-config": [FORGE / "ISSUE_TEMPLATE" / "config.yml"],
}
every_workflow = pytest.mark.parametrize("path", WORKFLOWS, ids=lambda path: path.stem)


def loaded(path: Path) -> dict[Any, Any]:
    return yaml.safe_load(path.read_text(encoding="utf-8"))


@pytest.mark.parametrize("schema", SCHEMAS)
def test_the_files_are_of_the_forges_schema(schema: str) -> None:
    command = [sys.executable, "-m", "check_jsonschema", "--builtin-schema", schema]
    done = subprocess.run(
        [*command, *map(str, SCHEMAS[schema])],
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )
    assert done.returncode == 0, done.stdout + done.stderr


@every_workflow
def test_every_action_is_named_by_its_commit_and_every_job_ends(path: Path) -> None:
    for job in loaded(path)["jobs"].values():
        assert "uses" in job or job["timeout-minutes"] <= 90
        for step in job.get("steps", []):
            if "uses" in step:
                assert re.fullmatch(r"[\w.-]+/[\w.-]+@[0-9a-f]{40}", step["uses"])


@every_workflow
def test_a_workflow_may_write_nothing_unless_a_job_says_so(path: Path) -> None:
    assert loaded(path)["permissions"] == {"contents": "read"}


@every_workflow
def test_what_a_workflow_runs_exists(path: Path) -> None:
    text = path.read_text(encoding="utf-8")
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
    for target in re.findall(r"run: make (\w+)", text):
        assert re.search(rf"^{target}:", makefile, re.MULTILINE)
    for script in re.findall(r"(?:run: )((?:release|\.ci)/\S+)", text):
        assert (ROOT / script).stat().st_mode & 0o100
    for module in re.findall(r"-m (release\.\w+)", text):
        assert (ROOT / f"{module.replace('.', '/')}.py").is_file()


def test_every_week_the_newest_dependencies_are_tried() -> None:
    workflow = loaded(FORGE / "workflows" / "newest.yml")
    (job,) = workflow["jobs"].values()
    steps = [step.get("run", "") for step in job["steps"]]
    assert [one["cron"].split()[2:] for one in workflow[True]["schedule"]] == [["*", "*", "1"]]
    assert any("--upgrade-strategy eager" in step for step in steps)
    assert steps[-1] == "make check"


def test_the_lines_of_spark_are_those_of_the_matrix() -> None:
    jobs = loaded(FORGE / "workflows" / "checks.yml")["jobs"]
    assert jobs["sparks"]["strategy"]["matrix"]["spark"] == list(LINES)
