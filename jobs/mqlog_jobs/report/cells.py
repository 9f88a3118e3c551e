"""Parts that the sections of a report share: tables, numbers, times, and what is left out."""

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import Final

from mqlog_jobs.output.amounts import ABOUT, UNKNOWN, about_size, count, moment, size, span
from mqlog_jobs.report.charts import bar
from mqlog_jobs.report.facts import Looked, Unread
from mqlog_jobs.report.markup import Element, Node, element

_PARTS_OF_A_NAME: Final = re.compile(r"[^_.%-]*[_.%-]+|[^_.%-]+")
_PARTS_OF_A_PATH: Final = re.compile(r"[^/,]*[/,]+|[^/,]+")


@dataclass(frozen=True, slots=True)
class Head:
    """A column's head; ``number``: its cells stand at the right."""

    text: str
    number: bool = False


def section(name: str, title: str, *parts: Node) -> Element:
    """Return a section with a heading, to which the navigation leads."""
    head = element("h2", title, id=f"{name}-title")
    return element("section", head, *parts, id=name, aria_labelledby=f"{name}-title")


def table(caption: str, heads: Sequence[Head], bodies: Iterable[Iterable[Element]]) -> Element:
    """Return a table of bodies of rows.

    Where the page is narrow each row is a list of its cells. What is too wide even then scrolls in
    its own frame.
    """
    row = [
        element("th", head.text, scope="col", class_="n" if head.number else None) for head in heads
    ]
    whole = element(
        "table",
        element("caption", caption),
        element("thead", element("tr", *row)),
        *(element("tbody", *(_labelled(row, heads) for row in rows)) for rows in bodies),
    )
    return element("div", whole, class_="scroll", tabindex="0", role="region", aria_label=caption)


def _labelled(row: Element, heads: Sequence[Head]) -> Element:
    """Return a row whose cells know their heads: on a narrow page each stands beside its own."""
    if len(row.children) != len(heads):
        return row
    cells = (
        replace(one, attributes=(*one.attributes, ("data-head", head.text)))
        if isinstance(one, Element) and one.tag == "td"
        else one
        for one, head in zip(row.children, heads, strict=True)
    )
    return replace(row, children=tuple(cells))


def row(head: Node | tuple[Node, ...], *cells: Element) -> Element:
    """Return a row that begins with its head."""
    heads = head if isinstance(head, tuple) else (head,)
    return element("tr", element("th", *heads, scope="row"), *cells)


def group_row(head: str, text: str, columns: int) -> Element:
    """Return a row that is the head of those below it, with a text beside it."""
    both = element("div", *name(head), element("span", text))
    return element("tr", element("th", both, scope="rowgroup", colspan=columns), class_="group")


def name(text: str) -> tuple[Node, ...]:
    """Return a name that may be broken where its words end: ``_``, ``-``, ``.`` and ``%``."""
    parts: list[Node] = []
    for part in _PARTS_OF_A_NAME.findall(text):
        parts += [part, element("wbr")]
    return tuple(parts[:-1])


def address(text: str) -> Element:
    """Return a path or an address that may be broken behind ``/`` and ``,`` only."""
    parts: list[Node] = []
    for part in _PARTS_OF_A_PATH.findall(text):
        parts += [part, element("wbr")]
    return element("code", *parts[:-1])


def cell(*parts: Node, number: bool = False, class_: str | None = None) -> Element:
    """Return a cell."""
    return element("td", *parts, class_="n" if number else class_)


def counted(value: int, most: int) -> Element:
    """Return a cell with a number, and a bar that compares it with the largest of its column."""
    line = bar([(value / most, "s0")], f"{value / most:.0%} of the largest") if value else None
    return element("td", element("span", count(value)), line, class_="n")


def bytes_cell(value: int, *, about: bool = False) -> Element:
    """Return a cell with a number of bytes; one that is estimated says so."""
    return cell(about_size(value) if about else size(value), number=True)


def when(ms: int | None) -> Element:
    """Return a cell with a time in UTC."""
    if ms is None:
        return cell(UNKNOWN)
    at = datetime.fromtimestamp(ms / 1000, UTC)
    return cell(element("time", moment(at), datetime=at.isoformat()), class_="when")


def waits(now_ms: int, since_ms: int | None) -> str:
    """Return how long ago a time was."""
    return UNKNOWN if since_ms is None else span(max(now_ms - since_ms, 0))


def about_count(value: int, *, about: bool) -> str:
    """Return a number; one that is estimated says so."""
    return (ABOUT if about else "") + count(value)


def note(*parts: Node) -> Element:
    """Return a remark below a heading or a table."""
    return element("p", *parts, class_="note")


def unread(part: Unread) -> Element:
    """Return the reason why a part is not there."""
    return element("p", element("strong", "This part could not be read: "), part.reason,
                   class_="unread")  # fmt: skip


def looked_at(looked: Looked) -> str:
    """Return what a sample is of."""
    return f"{count(looked.messages)} of {count(looked.of)} messages were looked at"


def more(number: int, what: str, where: str) -> Element | None:
    """Return the line that says how many are not listed, if any."""
    if number <= 0:
        return None
    return note(f"{count(number)} more {what} {'is' if number == 1 else 'are'} not listed; {where}")
