"""The READMEs: every link leads somewhere, every command and make target that is shown exists."""

import re
from pathlib import Path

import pytest

from mqlog_jobs.maintenance import app

ROOT = Path(__file__).parents[2]
BOOKS = sorted(
    str(path.relative_to(ROOT))
    for path in ROOT.rglob("*.md")
    if not any(part.startswith(".") for part in path.relative_to(ROOT).parts)
)
LINK = re.compile(r"\]\(([^)\s]+)\)")
HEADING = re.compile(r"^#+ (.+)$", re.MULTILINE)
every_book = pytest.mark.parametrize("book", BOOKS)


def anchor(heading: str) -> str:
    return re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-")


@every_book
def test_every_link_leads_somewhere(book: str) -> None:
    text = (ROOT / book).read_text(encoding="utf-8")
    for link in LINK.findall(text):
        if "://" in link:
            continue
        path, _, place = link.partition("#")
        target = (ROOT / book).parent / path if path else ROOT / book
        assert target.exists(), link
        if place:
            headings = HEADING.findall(target.read_text(encoding="utf-8"))
            assert place in {anchor(heading) for heading in headings}, link


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
