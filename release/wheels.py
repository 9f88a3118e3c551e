"""Build the wheels of all platforms and the sdist, and check each.

    python -m release.wheels [DIRECTORY]

The same sources and the same zig give the same bytes: hatchling writes one fixed time into its
archives, or SOURCE_DATE_EPOCH. Prints the SHA-256 of each file, in the form of ``sha256sum``.
"""

import argparse
import hashlib
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

from release.checks import problems, sdist_problems

ROOT = Path(__file__).parents[1]
VARIABLE = "MQLOG_WHEEL"


def platforms() -> list[str]:
    """Return the platforms of a release, as hatch_build.py names them, ``any`` first.

    Its text is read, because hatchling calls it in a process of its own.
    """
    text = (ROOT / "hatch_build.py").read_text(encoding="utf-8")
    table = text.split("TARGETS = {", 1)[1].split("}", 1)[0]
    return ["any", *re.findall(r'^ +"(\S+)":', table, re.MULTILINE)]


def build(folder: Path) -> list[Path]:
    """Build all into ``folder``, which is emptied; return the files. Raises CalledProcessError."""
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    for platform in platforms():
        _hatchling("wheel", folder, {VARIABLE: platform})
    _hatchling("sdist", folder, {})
    return sorted(folder.iterdir())


def _hatchling(target: str, folder: Path, more: dict[str, str]) -> None:
    command = [sys.executable, "-m", "hatchling", "build", "-t", target, "-d", str(folder)]
    hidden = {VARIABLE, "MQSTORE_KERNELS"}
    environment = {name: text for name, text in os.environ.items() if name not in hidden} | more
    subprocess.run(command, cwd=ROOT, env=environment, check=True, capture_output=True, timeout=600)


def main() -> int:
    """Run it; return the exit code: 1 if a file has a problem, or one is missing."""
    parser = argparse.ArgumentParser(description="Build and check the files of a release.")
    parser.add_argument("folder", nargs="?", type=Path, default=ROOT / "dist")
    made = build(parser.parse_args().folder.resolve())
    found = [
        f"{path.name}: {problem}"
        for path in made
        for problem in (problems(path) if path.suffix == ".whl" else sdist_problems(path))
    ]
    if len(made) != len(platforms()) + 1:
        found.append(f"{len(made)} files of {len(platforms()) + 1}")
    for path in made:
        sys.stdout.write(f"{hashlib.sha256(path.read_bytes()).hexdigest()}  {path.name}\n")
    sys.stderr.writelines(f"{line}\n" for line in found)
    return bool(found)


if __name__ == "__main__":
    sys.exit(main())
