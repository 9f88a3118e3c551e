"""What a start of the command imports: help, version and completion need no numpy."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from support import soak

HEAVY = ("numpy", "pyarrow", "pandas", "pyspark")
LOOKS = ("rich.console", "typer.rich_utils")
PROGRAM = """
import json, sys
from mqlog_jobs.cli import main
sys.argv = ["mqlog", *json.loads(sys.argv[1])]
try:
    main()
except SystemExit as ended:
    assert not ended.code, ended.code
print(json.dumps(sorted(sys.modules)), file=sys.stderr)
"""


def modules(*words: str, **environment: str) -> tuple[str, set[str]]:
    """Return what the command prints, and the modules that it imported, in a new process."""
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM, json.dumps(words)],
        env={**os.environ, **environment},
        capture_output=True,
        text=True,
        check=True,
    )
    return done.stdout, set(json.loads(done.stderr.splitlines()[-1]))


@pytest.mark.parametrize("words", [("--help",), ("backlog", "--help"), ("--version",)])
def test_help_and_version_import_neither_numpy_nor_pyarrow(words: tuple[str, ...]) -> None:
    printed, imported = modules(*words)

    assert "mqlog" in printed
    assert imported.isdisjoint(HEAVY)


def test_the_version_imports_no_terminal_library_and_names_the_kernels() -> None:
    printed, imported = modules("--version", MQSTORE_KERNELS="numpy")

    assert printed == "mqlog 0.1.0, kernels: numpy (MQSTORE_KERNELS=numpy)\n"
    assert imported.isdisjoint((*LOOKS, "typer"))


@pytest.mark.parametrize(
    ("line", "completed"), [("mqlog sna", "snapshot"), ("mqlog cat --fo", "--format")]
)
def test_a_completion_imports_neither_numpy_nor_a_terminal_library(
    line: str, completed: str
) -> None:
    words = {"COMP_WORDS": line, "COMP_CWORD": str(line.count(" "))}
    printed, imported = modules(_MQLOG_COMPLETE="complete_bash", **words)

    assert completed in printed.split()
    assert imported.isdisjoint((*HEAVY, *LOOKS))


def completed(line: str) -> list[str]:
    """Return what a shell is told that may stand for the last word of a line."""
    words = {"_MQLOG_COMPLETE": "complete_bash", "COMP_WORDS": line}
    done = subprocess.run(
        [
            sys.executable,
            "-c",
            "import sys; from mqlog_jobs.cli import main; sys.argv[0] = 'mqlog'; main()",
        ],
        env={**os.environ, **words, "COMP_CWORD": str(line.count(" "))},
        text=True,
        check=True,
        capture_output=True,
        timeout=300,
    )
    return str(done.stdout).split()


@pytest.mark.parametrize("line", ["cat {} GTo", "tags {} --topic GTo"])
def test_a_topic_is_completed_from_the_stores_on_the_line(golden_550: Path, line: str) -> None:
    assert completed(f"mqlog {line.format(golden_550)}") == ["GTopic"]


def test_a_group_is_completed_from_the_stores_on_the_line(golden_550: Path) -> None:
    assert completed(f"mqlog backlog {golden_550} --group CG") == ["CG_G"]


def test_a_command_that_reads_a_store_imports_no_pandas(golden_550: Path) -> None:
    printed, imported = modules("topics", str(golden_550), "--json")

    assert '"topic":"GTopic"' in printed
    assert "pyarrow" in imported
    assert imported.isdisjoint(("pandas", "pyspark"))


def test_a_backlog_of_a_directory_imports_nothing_of_clusters_other_tables_or_pydantic(
    golden_550: Path,
) -> None:
    printed, imported = modules("backlog", str(golden_550), "--json")

    assert '"group":"CG_G"' in printed
    others = ("live.origin.cluster_origin", "tables.traces", "tables.verify", "copy.copy_store")
    databases = ("read.rocksdb_bounds", "read.log_directory", "files.points.folder")
    assert imported.isdisjoint(f"mqstore.{name}" for name in others + databases)
    assert imported.isdisjoint(("pydantic", "pyarrow.dataset", "pyarrow.fs", "ssl", "asyncio"))


@soak.not_in_check
def test_a_table_becomes_one_of_pandas_after_a_command_did_without() -> None:
    program = (
        "import sys; from mqlog_jobs.machine import arrow; arrow.import_without_pandas(); "
        "import pyarrow as pa; values = pa.array([1, 2]); assert 'pandas' not in sys.modules; "
        "assert values.to_pandas().sum() == 3; import pandas; "
        "assert pa.array(pandas.Series([1.5, None]), from_pandas=True).null_count == 1"
    )
    subprocess.run([sys.executable, "-c", program], check=True)


def test_the_package_imports_no_arrays() -> None:
    program = "import sys, mqstore.errors; assert not {'numpy', 'pyarrow'} & set(sys.modules)"
    subprocess.run([sys.executable, "-c", program], check=True)


@pytest.mark.parametrize(
    ("words", "named"),
    [
        (("latency", "--interval", "0"), "--interval='0'"),
        (("why", "--look-again", "x"), "--look-again='x'"),
        (("table", "latency", "-o", "interval=0"), "interval='0'"),
    ],
)
def test_an_error_names_the_flag_of_a_command_that_has_one(
    golden_550: Path, words: tuple[str, ...], named: str
) -> None:
    line = [sys.executable, "-m", "mqlog_jobs", *words, str(golden_550)]
    done = subprocess.run(line, capture_output=True, text=True, check=False, timeout=300)

    assert done.returncode == 2
    assert named in done.stderr
    assert ("--" in done.stderr) == ("table" not in words)
