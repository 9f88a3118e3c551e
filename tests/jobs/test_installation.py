"""The command and the source in an environment that has nothing but what a cluster provides."""

import json
import os
import re
import subprocess
import sys
import tomllib
from collections.abc import Callable, Mapping
from pathlib import Path

import pytest

from mqlog_jobs.machine import installation
from mqstore.diagnosis import ERROR, GOOD, REMARK, WARNING
from support import linked_python

ROOT = Path(__file__).parents[2]
CLUSTER = ("pyspark", "numpy", "pandas", "pyarrow")
SMALL = linked_python.SMALL
SPARK = "pip install 'pyspark>=4.0,<5' 'pandas>=2.2,<3'"
COMMAND = "from mqlog_jobs.cli import main; main()"
READ = """
import sys
import pyspark_mqlog
from pyspark.sql import SparkSession
spark = SparkSession.builder.master("local[1]").getOrCreate()
print(spark.read.format("mqlog").load(sys.argv[1]).count())
"""

Environment = Callable[..., Path]


@pytest.fixture
def environment(tmp_path: Path) -> Environment:
    """Make one with these distributions only, linked from this one, and this mqlog."""

    def made(*names: str) -> Path:
        python = linked_python.linked(tmp_path / "environment", *names)
        rooms = [f"{ROOT / top}\n" for top in ("store", "connector", "jobs")]
        (linked_python.packages(python) / "mqlog.pth").write_text("".join(rooms))
        return python

    return made


def ended(
    python: Path, *words: str | Path, more: Mapping[str, str] | None = None
) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [python, "-c", *words],
        env={name: text for name, text in os.environ.items() if "PYTHON" not in name}
        | (more or {}),
        capture_output=True,
        text=True,
        check=False,
        timeout=300,
    )


def found(output: str) -> dict[str, str]:
    """Severity by subject, of JSON lines."""
    rows = [json.loads(line) for line in output.splitlines()]
    return {row["subject"]: row["severity"] for row in rows}


@pytest.mark.parametrize("words", [("--help",), ("topics", "STORE"), ("doctor", "--help")])
def test_a_command_without_its_packages_names_them_in_one_line(
    environment: Environment, words: tuple[str, ...]
) -> None:
    python = environment(*CLUSTER)
    done = ended(python, COMMAND, *words)

    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr == (
        f"mqlog: not installed for {python}: rich, typer; "
        "pip install 'rich>=13.7' 'typer>=0.15.4'\n"
    )


def test_doctor_without_the_commands_packages_names_them(environment: Environment) -> None:
    python = environment(*CLUSTER)
    done = ended(python, COMMAND, "doctor", "--json", more={"PYSPARK_PYTHON": str(python)})
    told = found(done.stdout)

    assert (done.returncode, done.stderr) == (1, "")
    assert {name: told[name] for name in (*CLUSTER, "PYSPARK_PYTHON")} == {
        **dict.fromkeys(CLUSTER, GOOD),
        "PYSPARK_PYTHON": GOOD,
    }
    assert {name for name, severity in told.items() if severity == ERROR} == {"rich", "typer"}
    assert told["zlib-ng"] == WARNING


def test_doctor_runs_with_the_standard_library_alone(environment: Environment) -> None:
    python = environment()
    done = ended(python, COMMAND, "doctor", "/no/such/store", more={"PATH": str(python.parent)})
    lines = done.stdout.splitlines()

    assert (done.returncode, done.stderr) == (1, "")
    assert lines[0].startswith("OK       Python  ")
    for name in ("numpy", "pyarrow", "rich", "typer"):
        assert any(re.fullmatch(rf"error +{name} +not installed", line) for line in lines)
    assert "   pip install 'numpy>=2'" in lines
    assert re.fullmatch(r"error +Places +not examined", lines[-2])


def test_a_package_that_lacks_its_own_is_no_traceback(environment: Environment) -> None:
    python = environment(*CLUSTER, "typer")
    (linked_python.packages(python) / "markdown_it").unlink()
    done = ended(python, COMMAND, "topics", "--help")

    assert done.returncode == 2
    assert done.stderr == (
        "mqlog: No module named 'markdown_it': a package lacks what it needs; pip check names it\n"
    )


def test_a_small_install_shows_the_backlog_of_a_store(
    environment: Environment, golden_550: Path
) -> None:
    done = ended(environment(*SMALL), COMMAND, "backlog", "--summary", "--json", golden_550)

    assert (done.returncode, done.stderr) == (0, "")
    assert {json.loads(line)["group"] for line in done.stdout.splitlines()} >= {"CG_G", "LP_G"}


def test_the_import_of_the_source_without_spark_says_what_to_install(
    environment: Environment,
) -> None:
    done = ended(environment(*SMALL), "import pyspark_mqlog")

    assert done.stderr.splitlines()[-1] == (
        f"ModuleNotFoundError: mqlog reads and writes with Spark where pyspark is: {SPARK}"
    )


def test_the_demo_without_spark_names_it_in_one_line(environment: Environment) -> None:
    python = environment(*SMALL)
    done = ended(python, COMMAND, "demo")

    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr == f"mqlog: not installed for {python}: pyspark, pandas; {SPARK}\n"


@pytest.mark.parametrize(("words", "code"), [((), 0), (("--spark",), 1)])
def test_doctor_of_a_small_install_finds_an_error_only_where_spark_is_asked_for(
    environment: Environment, words: tuple[str, ...], code: int
) -> None:
    done = ended(environment(*SMALL), COMMAND, "doctor", "--json", *words)
    told = found(done.stdout)

    assert (done.returncode, done.stderr) == (code, "")
    assert {told["pyspark"], told["pandas"]} == {ERROR if words else REMARK}
    assert ("Java" in told) == bool(words)


@pytest.mark.parametrize("job", ["backlog", "check", "export", "publish", "replay", "tail"])
def test_a_job_starts_without_the_commands_packages(environment: Environment, job: str) -> None:
    program = f"import runpy; runpy.run_module('mqlog_jobs.spark.{job}', run_name='__main__')"
    done = ended(environment(*CLUSTER), program, "--help")

    assert (done.returncode, done.stderr) == (0, "")


@pytest.mark.spark
def test_the_source_reads_where_only_spark_numpy_pandas_and_pyarrow_are(
    environment: Environment, golden_550: Path
) -> None:
    done = ended(environment(*CLUSTER), READ, golden_550, more={"SPARK_LOCAL_IP": "127.0.0.1"})

    assert (done.returncode, done.stdout) == (0, "1122\n"), done.stderr


def test_the_requirements_are_those_of_the_project() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]

    named = [*project["dependencies"], *project["optional-dependencies"]["spark"]]

    assert sorted(map(str, installation.REQUIREMENTS)) == sorted(named)
    assert all(installation._package(one).severity == GOOD for one in installation.REQUIREMENTS), (
        sys.executable
    )
