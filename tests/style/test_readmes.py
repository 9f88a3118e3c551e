"""The documents: every command and make target that is shown exists."""

import re

import pytest

from mqlog_jobs.maintenance import app
from style.documents import ROOT, documents

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
