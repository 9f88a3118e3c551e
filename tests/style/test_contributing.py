"""CONTRIBUTING says which files a change touches; an example of each change is looked for there."""

import re

import pytest

from style.documents import ROOT

SOURCES = [
    path
    for top in ("store", "connector", "jobs")
    for path in sorted((ROOT / top).rglob("*"))
    if path.suffix in {".py", ".c", ".h"}
]


def changes() -> dict[str, tuple[list[str], set[str]]]:
    """Each change: how its example is seen in the code, and the files that are told of."""
    text = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8")
    rows = text.split("| change |", 1)[1].split("\n\n", 1)[0].splitlines()[2:]
    cells = ([cell.strip() for cell in row.strip("|").split("|")] for row in rows)
    return {
        name: (re.findall("`([^`]*)`", seen), set(re.findall("`([^`]*)`", files)))
        for name, seen, files, *_ in cells
    }


def test_there_are_five_changes() -> None:
    assert len(changes()) == 5


@pytest.mark.parametrize("change", changes())
def test_a_change_touches_the_files_that_it_is_said_to(change: str) -> None:
    seen, told = changes()[change]
    found = {
        str(path.relative_to(ROOT))
        for path in SOURCES
        if any(word in path.read_text(encoding="utf-8") for word in seen)
    }
    assert found == told
