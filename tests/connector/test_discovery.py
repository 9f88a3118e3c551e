"""The source is found in a program whose environment is not activated: PATH has another python3."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from mqlog_jobs.machine import java
from pyspark_mqlog.interpreter import NAMES
from support import soak

SECONDS = 600
# A session of mqlog_jobs imports the package before it starts one, as `import` does.
HOWS = ["import", "late", *(["session"] if soak.WHOLE else [])]


def bare_environment(folder: Path) -> dict[str, str]:
    """An environment that names no interpreter; its python3 has neither pyspark nor mqlog."""
    other = folder / "bin" / "python3"
    other.parent.mkdir()
    other.write_text(f'#!/bin/sh\nexec "{sys.executable}" -S -E "$@"\n')
    other.chmod(0o755)
    java.prepare()
    kept = {n: v for n, v in os.environ.items() if n not in NAMES and n != "PYTHONPATH"}
    return kept | {"PATH": f"{other.parent}{os.pathsep}{os.environ['PATH']}"}


@pytest.mark.soak
@pytest.mark.spark
@pytest.mark.parametrize("how", HOWS)
def test_a_program_reads_without_an_activated_environment(
    how: str, golden_550: Path, tmp_path: Path
) -> None:
    done = subprocess.run(
        [sys.executable, str(Path(__file__).with_name("discovered.py")), str(golden_550), how],
        env=bare_environment(tmp_path) | {"SPARK_LOCAL_IP": "127.0.0.1"},
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=SECONDS,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-4000:]
    assert done.stdout.splitlines()[-1].endswith(" messages")
    assert "statically registered" not in done.stderr
