"""The snippets of all pages are of the shop that `mqlog demo` makes."""

import re
from pathlib import Path

import pytest

from mqlog_jobs.command.maintenance import app
from mqlog_jobs.work import demo_data

ROOT = Path(__file__).parents[2]
PAGES = sorted(
    path
    for folder in (".", "connector", "jobs", "store", "examples")
    for path in (ROOT / folder).glob("*.md")
    if path.name not in {"CHANGELOG.md", "COMPATIBILITY.md"}
)
TOPICS = {demo_data.ORDERS, demo_data.PAYMENTS, demo_data.PARCELS}
MADE = {"SHOP_RETURNS", "SHOP_EVENTS", "SHOP_DAYS"}  # Topics that a snippet writes to.
NAMED = re.compile(r"\b(?:SHOP_[A-Z]+|[A-Z]*ORDERS|PAYMENTS|LOGS|GTopic)\b")


@pytest.mark.parametrize("path", PAGES, ids=lambda path: str(path.relative_to(ROOT)))
def test_a_snippet_names_topics_of_the_demo(path: Path) -> None:
    text = path.read_text(encoding="utf-8")
    snippets = re.findall(r"^```(?:console|python|sql|shell).*?^```", text, re.M | re.S)
    named = {name for snippet in snippets for name in NAMED.findall(snippet)}
    assert named <= TOPICS | MADE


def test_examples_in_the_help_of_commands_do_too() -> None:
    epilogs = [command.epilog or "" for command in app.registered_commands]
    assert {name for text in epilogs for name in NAMED.findall(text)} <= TOPICS
