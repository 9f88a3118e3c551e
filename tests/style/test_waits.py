"""How tests wait: for something that happens, and never for a time to pass."""

import ast
from pathlib import Path

import pytest

TESTS = Path(__file__).parents[1]
SLEEPING = [
    path for path in sorted(TESTS.rglob("*.py")) if "sleep" in path.read_text(encoding="utf-8")
]


def is_sleep(node: ast.AST) -> bool:
    return isinstance(node, ast.Call) and ast.unparse(node.func).endswith(".sleep")


def has_bound(loop: ast.While) -> bool:
    """Tell whether a loop ends when something is so, and fails at last if it never is."""
    ends = not (isinstance(loop.test, ast.Constant) and loop.test.value)
    return ends and any(isinstance(node, ast.Assert | ast.Raise) for node in ast.walk(loop))


@pytest.mark.parametrize("path", SLEEPING, ids=lambda path: str(path.relative_to(TESTS)))
def test_a_test_sleeps_only_while_something_has_not_happened(path: Path) -> None:
    tree = ast.parse(path.read_text(encoding="utf-8"))
    loops = [n for n in ast.walk(tree) if isinstance(n, ast.While) and has_bound(n)]
    inside = {id(node) for loop in loops for node in ast.walk(loop)}
    for node in ast.walk(tree):
        if is_sleep(node):
            assert id(node) in inside, f"line {node.lineno}"
