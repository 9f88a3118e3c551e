"""The documents of the project."""

import os
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).parents[2]


def documents() -> list[Path]:
    """Return every Markdown file outside of hidden folders and of what was built."""
    found: list[Path] = []
    for folder, names, files in os.walk(ROOT):
        built = {"build", "dist"}
        names[:] = [name for name in names if not name.startswith(".") and name not in built]
        found += [Path(folder, file) for file in files if file.endswith(".md")]
    return sorted(found)
