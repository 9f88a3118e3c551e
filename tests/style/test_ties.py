"""No two rooms of a package import each other: whoever reads one need not read the other."""

import ast
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PACKAGES = {
    "mqstore": "store",
    "mqstore.files": "store",
    "mqstore.codec": "store",
    "mqstore.deliver": "store",
    "mqlog_jobs": "jobs",
}


def arrows(root: Path, package: str) -> set[tuple[str, str]]:
    """Return (importer, imported) of the modules and folders right below a package."""
    folder, found = root.joinpath(*package.split(".")), set()
    for path in folder.rglob("*.py"):
        here = path.relative_to(folder).parts[0].removesuffix(".py")
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.ImportFrom) and f"{node.module}.".startswith(f"{package}."):
                first = f"{node.module}"[len(package) + 1 :].partition(".")[0]
                names = [first] if first else [alias.name for alias in node.names]
                found |= {(here, name) for name in names if name != here}
    return found


def ties(found: set[tuple[str, str]]) -> list[tuple[str, str]]:
    """Return the pairs that import each other."""
    return sorted((a, b) for a, b in found if a < b and (b, a) in found)


@pytest.mark.parametrize("package", PACKAGES)
def test_no_two_rooms_import_each_other(package: str) -> None:
    found = arrows(ROOT / PACKAGES[package], package)
    assert found
    assert ties(found) == []


def test_two_rooms_that_import_each_other_are_found(tmp_path: Path) -> None:
    for room, other in (("a", "b"), ("b", "a"), ("c", "a")):
        (tmp_path / "p" / room).mkdir(parents=True)
        (tmp_path / "p" / room / "m.py").write_text(f"from p.{other}.m import x\n")
    assert ties(arrows(tmp_path, "p")) == [("a", "b")]
