"""The documents: every command and make target that is shown exists."""

import re

import pytest

from mqlog_jobs.command.maintenance import app
from style.documents import ROOT, documents

TESTS = sorted((ROOT / "tests").rglob("*.py"))
ASKING = {"soak.py", "browser.py"}
"""The modules that read variables of tests: sizes and samples, and where the browser is."""
BOOKS = [str(path.relative_to(ROOT)) for path in documents()]
every_book = pytest.mark.parametrize("book", BOOKS)


@every_book
def test_every_command_that_is_shown_exists(book: str) -> None:
    known = {command.name or command.callback.__name__ for command in app.registered_commands}
    text = (ROOT / book).read_text(encoding="utf-8")
    shown = set(re.findall(r"^mqlog (\w+)", text, re.MULTILINE))

    assert shown <= known


@every_book
def test_every_make_target_that_is_shown_exists(book: str) -> None:
    targets = set(re.findall(r"^(\w+):", (ROOT / "Makefile").read_text(), re.MULTILINE))
    text = (ROOT / book).read_text(encoding="utf-8")

    assert set(re.findall(r"^make (\w+)", text, re.MULTILINE)) <= targets


@every_book
def test_every_size_of_a_test_that_is_shown_exists(book: str) -> None:
    sizes = {
        name
        for path in TESTS
        for name in re.findall(r'soak\.size\(\s*"(\w+)"', path.read_text(encoding="utf-8"))
    }
    text = (ROOT / book).read_text(encoding="utf-8")
    shown = ",".join(re.findall(r"MQLOG_SIZE=([\w=,]+)", text))

    assert set(re.findall(r"(\w+)=", shown)) <= sizes


def test_how_much_a_test_does_is_said_by_three_variables_alone() -> None:
    asked = re.compile(r'environ\.get\("MQLOG_')
    others = [path for path in TESTS if path.name not in ASKING]

    assert [path for path in others if asked.search(path.read_text(encoding="utf-8"))] == []
