"""Lists the facts of a report that an operator should look at first."""

from collections.abc import Iterator
from typing import Final

from mqlog_jobs.output.amounts import count, several
from mqlog_jobs.report.backlog_section import MEANINGS
from mqlog_jobs.report.facts import Facts, Unread
from mqlog_jobs.report.markup import Element, element
from mqstore.backlog.schema import EXPIRED, NEVER_COMMITTED, TIERED

_MOST: Final = 8  # that are listed
_DEAD_LETTERS: Final = "%DLQ%"


def attention(facts: Facts) -> Element | None:
    """Return the list, the gravest first; None if there is nothing."""
    items = [*_broken(facts), *_groups(facts), *_dead_letters(facts), *_files(facts)]
    if not items:
        return None
    rest = len(items) - _MOST
    if rest > 1:
        items = [*items[:_MOST], element("li", f"and {count(rest)} more below")]
    return element(
        "section",
        element("h2", "Needs a look", id="look-title"),
        element("ul", *items),
        class_="look",
        aria_labelledby="look-title",
    )


def _item(link: str, subject: str, text: str) -> Element:
    return element("li", element("a", subject, href=f"#{link}"), f" {text}")


def _broken(facts: Facts) -> Iterator[Element]:
    parts = {
        "backlog": facts.behind,
        "rates": facts.rates,
        "topics": facts.topics,
        "tags": facts.tags,
        "files": facts.files,
        "latency": facts.latency,
    }
    for name, part in parts.items():
        if isinstance(part, Unread):
            yield _item(name, name.capitalize(), "could not be read")
    verified = facts.verified
    if verified.errors:
        told = f"found {several(verified.errors, 'error')}, {several(verified.warnings, 'warning')}"
        yield _item("verify", "Verify", told)


def _groups(facts: Facts) -> Iterator[Element]:
    if isinstance(facts.behind, Unread):
        return
    for one in facts.behind:
        for status in one.statuses:
            if status not in (NEVER_COMMITTED, TIERED):
                lost = f"{count(one.expired)} " if status == EXPIRED else ""
                yield _item("backlog", one.group, f"in {one.topic}: {lost}{MEANINGS[status]}")


def _dead_letters(facts: Facts) -> Iterator[Element]:
    for topic in () if isinstance(facts.topics, Unread) else facts.topics:
        if topic.name.startswith(_DEAD_LETTERS) and topic.messages:
            group = topic.name.removeprefix(_DEAD_LETTERS)
            yield _item("topics", group, f"has {several(topic.messages, 'dead letter')}")


def _files(facts: Facts) -> Iterator[Element]:
    if not isinstance(facts.files, Unread) and facts.files.wrong_files:
        number = facts.files.wrong_files
        text = f"{count(number)} files have a problem" if number > 1 else "a file has a problem"
        yield _item("files", "Files", text)
