"""Every benchmark runs, at a small size, so that none rots; what it prints is JSON lines."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

BENCHES = sorted(Path(__file__).parent.glob("bench_*.py"))
NEEDS_SPARK = {"bench_spark.py"}


@pytest.mark.parametrize(
    "path", [p for p in BENCHES if p.name not in NEEDS_SPARK], ids=lambda p: p.stem
)
def test_the_benchmark_runs_and_says_on_what(path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-W", "error", str(path), "100"],
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
    )
    assert done.returncode == 0, done.stderr
    lines = [json.loads(line) for line in done.stdout.splitlines()]
    assert lines
    for line in lines:
        assert {"bench", "mqlog", "python", "numpy", "pyarrow", "machine"} <= set(line)
