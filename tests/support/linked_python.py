"""Environments of Python that have some distributions of this one, by links, and nothing else."""

import re
import venv
from contextlib import suppress
from importlib.metadata import PackageNotFoundError, distribution, files, requires
from pathlib import Path

SMALL = ("numpy", "pyarrow", "rich", "typer", "zlib-ng")
"""What an installation without extras brings."""
NAME = re.compile(r"[\w.-]+")


def linked(folder: Path, *names: str) -> Path:
    """Make one in a new folder; return its interpreter."""
    venv.create(folder, symlinks=True)
    python = folder / "bin" / "python"
    for name in _with_what_they_need(names):
        for top in {file.parts[0] for file in files(name) or ()} - {"..", "__pycache__"}:
            target = Path(str(distribution(name).locate_file(top)))
            (packages(python) / top).symlink_to(target)
    return python


def packages(python: Path) -> Path:
    """The folder of its packages."""
    (found,) = python.parents[1].glob("lib/python*/site-packages")
    return found


def _with_what_they_need(names: tuple[str, ...]) -> set[str]:
    """The distributions of these names, and those that they require without an extra."""
    found: set[str] = set()
    wanted = [*names]
    while wanted:
        name = wanted.pop()
        if name in found:
            continue
        with suppress(PackageNotFoundError):  # It is for another system or an older Python.
            lines = requires(name) or ()
            found.add(name)
            needed = (NAME.match(line) for line in lines if "extra ==" not in line)
            wanted += [one[0] for one in needed if one]
    return found
