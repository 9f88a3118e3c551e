"""What `import mqlog` imports, and what it lists."""

import json
import subprocess
import sys
from importlib import resources
from pathlib import Path

import pytest

import mqlog
from support import soak


def modules(program: str) -> set[str]:
    """Return the modules that a new process has imported after a program."""
    line = f"{program}; import json, sys; print(json.dumps(sorted(sys.modules)))"
    done = subprocess.run(
        [sys.executable, "-c", line], capture_output=True, text=True, check=True, timeout=300
    )
    return set(json.loads(done.stdout.splitlines()[-1]))


def test_the_import_loads_neither_arrays_nor_frames() -> None:
    found = modules("import mqlog; mqlog.__version__, dir(mqlog)")

    assert found.isdisjoint(("numpy", "pyarrow", "pandas", "polars", "duckdb", "pyspark"))


@soak.not_in_check
def test_a_read_loads_no_library_of_frames(golden_550: Path) -> None:
    read = (
        f"import mqlog; place = mqlog.open({str(golden_550)!r}); "
        "assert place.scan('GTopic').count() == 481; "
        "assert sum(b.num_rows for b in place.scan('GTopic').to_reader()) == 481"
    )

    assert modules(read).isdisjoint(("polars", "duckdb", "pyspark", "rich", "typer"))


def test_what_is_public_is_listed_and_there() -> None:
    assert [name for name in mqlog.__all__ if not hasattr(mqlog, name)] == []
    assert all(getattr(mqlog, name).__doc__ for name in mqlog.__all__ if name != "__version__")
    assert resources.files("mqlog").joinpath("py.typed").is_file()
    with pytest.raises(AttributeError, match="no attribute 'opn'"):
        _ = mqlog.opn


def test_the_module_is_the_command() -> None:
    done = subprocess.run(
        [sys.executable, "-m", "mqlog", "--version"],
        capture_output=True,
        text=True,
        check=True,
        timeout=300,
    )

    assert done.stdout.startswith(f"mqlog {mqlog.__version__}, kernels: ")


@pytest.mark.parametrize(("module", "call"), [("polars", "to_polars"), ("pandas", "to_pandas")])
def test_a_library_that_is_not_installed_is_named(
    monkeypatch: pytest.MonkeyPatch, golden_550: Path, module: str, call: str
) -> None:
    monkeypatch.setitem(sys.modules, module, None)

    with pytest.raises(mqlog.MqlogError, match=f"{call} needs {module}: pip install {module}"):
        getattr(mqlog.open(golden_550).scan("GTopic"), call)()
