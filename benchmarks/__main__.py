"""Run benchmarks one after the other, each in a process of its own: see README.md.

python -m benchmarks [--size PERCENT] [--keep DIRECTORY] [NAME …]
"""

import argparse
import os
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[1]
PATHS = os.pathsep.join([str(ROOT / "tests"), str(ROOT)])
"""What they import: each other, and what starts brokers in tests."""
SIZES = {
    "decode": 400_000,
    "kernels": 400_000,
    "trial": 100_000,
    "encode": 400_000,
    "backlog": 10_000_000,
    "pops": 10_000_000,
    "log": 800_000,
    "objects": 100_000,
    "face": 400_000,
    "bodies": 200_000,
    "changes": 4_000,
    "lake_changes": 60_000,
    "growth": 10_000_000,
    "memory": 400_000,
    "plan": 10_000_000,
    "stream": 100,
    "sink": 1_000,
    "spark_read": 400_000,
    "spark_write": 1_000_000,
    "settings": 400_000,
    "audit": 400_000,
    "points": 10_240,
    "live": 400_000,
    "proxy": 100_000,
    "send": 100_000,
    "fleet": 500,
    "stores": 100_000,
    "kinds": 100_000,
}
"""Each benchmark, and what it is given at 100 percent; in the order they run."""
LEAST = 100
SECONDS = 3_600


def main(arguments: list[str] | None = None) -> int:
    """Run them; return the exit code."""
    parser = argparse.ArgumentParser(description="Measure mqlog beside its peers.")
    parser.add_argument("names", nargs="*", metavar="NAME", help=f"of {', '.join(SIZES)}; else all")
    parser.add_argument("--size", type=float, default=100, help="percent of the full size")
    parser.add_argument("--keep", type=Path, help="also write NAME.jsonl into this directory")
    chosen = parser.parse_args(arguments)
    unknown = set(chosen.names) - set(SIZES)
    if unknown:
        parser.error(f"no benchmark is called {', '.join(sorted(unknown))}")
    failed = [
        name
        for name in chosen.names or SIZES
        if not _run(name, max(LEAST, round(SIZES[name] * chosen.size / 100)), chosen.keep)
    ]
    if failed:
        sys.stderr.write(f"failed: {', '.join(failed)}\n")
    return bool(failed)


def _run(name: str, size: int, keep: Path | None) -> bool:
    """Run one, pass its lines on, and keep them if it ran to its end."""
    sys.stderr.write(f"{name} {size} (load {os.getloadavg()[0]:.1f})\n")
    done = subprocess.run(
        [sys.executable, "-m", f"benchmarks.bench_{name}", str(size)],
        env=os.environ | {"PYTHONPATH": PATHS},
        stdout=subprocess.PIPE,
        encoding="utf-8",
        timeout=SECONDS,
        check=False,
    )
    sys.stdout.write(done.stdout)
    sys.stdout.flush()
    if keep and done.returncode == 0:
        keep.mkdir(parents=True, exist_ok=True)
        (keep / f"{name}.jsonl").write_text(done.stdout)
    return done.returncode == 0


if __name__ == "__main__":
    sys.exit(main())
