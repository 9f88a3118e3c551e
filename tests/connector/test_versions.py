"""A Spark that is too old is refused by name; what differs between the others has one place."""

import subprocess
import sys
from collections.abc import Iterator
from importlib import metadata
from pathlib import Path
from types import SimpleNamespace

import pytest

import pyspark_mqlog
from pyspark_mqlog import versions
from pyspark_mqlog.errors import SparkTooOldError

ROOT = Path(__file__).parents[2]


def test_a_session_of_an_older_spark_is_refused() -> None:
    old = SimpleNamespace(version="3.5.9")
    with pytest.raises(SparkTooOldError, match=r"^\[MQLOG_SPARK_TOO_OLD\] this is Spark 3.5.9"):
        pyspark_mqlog.register(old)  # type: ignore[arg-type]


def test_a_pyspark_without_sources_is_imported_and_has_no_source(tmp_path: Path) -> None:
    (tmp_path / "pyspark" / "sql").mkdir(parents=True)
    (tmp_path / "pyspark" / "__init__.py").write_text("__version__ = '3.5.9'")
    (tmp_path / "pyspark" / "sql" / "__init__.py").write_text("")
    program = (
        "import pyspark_mqlog, types; print(pyspark_mqlog.DefaultSource); "
        "pyspark_mqlog.register(types.SimpleNamespace(version='3.5.9'))"
    )
    done = subprocess.run(
        [sys.executable, "-c", program],
        env={"PYTHONPATH": str(tmp_path)},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.stdout == "None\n"
    last = done.stderr.splitlines()[-1]
    assert last.startswith(
        "pyspark_mqlog.errors.SparkTooOldError: [MQLOG_SPARK_TOO_OLD] this is Spark 3"
    )
    assert "pip install 'pyspark>=4.0,<5'" in last


@pytest.mark.parametrize(
    ("version", "numbers"),
    [("4.0.0", (4, 0)), ("4.1.4.dev0", (4, 1)), ("10.11", (10, 11)), ("none", (0, 0))],
)
def test_a_version_is_its_first_two_numbers(version: str, numbers: tuple[int, int]) -> None:
    assert versions.major_minor(version) == numbers


def sources() -> Iterator[Path]:
    for top in ("connector", "jobs"):
        yield from (ROOT / top).rglob("*.py")


def test_the_package_has_the_version_of_mqlog() -> None:
    assert pyspark_mqlog.__version__ == metadata.version("mqlog")


def test_no_other_module_asks_for_a_version_of_spark() -> None:
    rooms = {"compat.py", "versions.py"}
    asking = {path.name for path in sources() if "SPARK <" in path.read_text(encoding="utf-8")}
    assert asking - rooms == {"rows.py"}
