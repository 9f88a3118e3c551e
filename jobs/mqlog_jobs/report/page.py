"""The whole page of a report: one file, without scripts and without anything from outside.

A Content-Security-Policy lets a browser load nothing and run nothing, whatever a name in the
store is; only the stylesheet in the page counts, by its hash.
"""

import hashlib
from base64 import b64encode
from collections.abc import Iterator
from datetime import UTC, datetime
from importlib.resources import files
from typing import Final

from mqlog_jobs.output.amounts import about_size, count, several, size
from mqlog_jobs.report.attention import attention
from mqlog_jobs.report.backlog_section import backlog_section
from mqlog_jobs.report.brokers_section import brokers_section, brokers_title
from mqlog_jobs.report.cells import note, waits
from mqlog_jobs.report.disk_section import files_section, verify_section
from mqlog_jobs.report.facts import Facts, Tags, Unread
from mqlog_jobs.report.history_section import history_section
from mqlog_jobs.report.latency_section import TITLE, latency_section
from mqlog_jobs.report.markup import Element, element, stylesheet
from mqlog_jobs.report.messages_section import rates_section, tags_section, topics_section
from mqlog_jobs.report.tag_bars import TagColours

_FOOT_NOTE: Final = "Times are UTC. Sizes are those of records; 1 KiB has 1024 bytes."
_LINKS: Final = {"backlog": "Backlog", "rates": "Over time", "topics": "Topics", "tags": "Tags"}
_STORE_LINKS: Final = {"files": "Files", "verify": "Verify"}


def page(facts: Facts) -> Iterator[str]:
    """Yield the text of the page, piece by piece."""
    css = files("mqlog_jobs.report").joinpath("page.css").read_text(encoding="utf-8")
    yield "<!doctype html>\n"
    yield from element("html", _head(facts, css), _body(facts), lang="en").parts()
    yield "\n"


def _head(facts: Facts, css: str) -> Element:
    digest = b64encode(hashlib.sha256(css.encode()).digest()).decode()
    policy = f"default-src 'none'; style-src 'sha256-{digest}'; base-uri 'none'; form-action 'none'"
    return element(
        "head",
        element("meta", charset="utf-8"),
        element("meta", http_equiv="Content-Security-Policy", content=policy),
        element("meta", name="viewport", content="width=device-width, initial-scale=1"),
        element("meta", name="color-scheme", content="light dark"),
        element("meta", name="referrer", content="no-referrer"),
        element("meta", name="generator", content=f"mqlog {facts.version}"),
        element("title", _title(facts)),
        stylesheet(css),
    )


def _title(facts: Facts) -> str:
    brokers = [place.broker for place in facts.places]
    return brokers[0] if len(brokers) == 1 else f"{len(brokers)} brokers"


def _body(facts: Facts) -> Element:
    colours = TagColours(_tags(facts))
    made = datetime.fromtimestamp(facts.made_ms / 1000, UTC)
    shown = made.strftime("%d %B %Y, %H:%M UTC").removeprefix("0")
    own = [files_section(facts.files), verify_section(facts.verified)] if facts.has_stores else []
    return element(
        "body",
        element("a", "To the report", href="#report", class_="skip"),
        element(
            "header",
            element("p", _kind(facts), class_="kicker"),
            element("h1", _title(facts)),
            note("Looked at on ", element("time", shown, datetime=made.isoformat())),
            _tiles(facts),
        ),
        element("nav", *_links(facts), aria_label="Sections"),
        element(
            "main",
            attention(facts),
            backlog_section(facts, colours),
            history_section(facts.history) if facts.history else None,
            latency_section(facts.latency) if facts.latency else None,
            rates_section(facts.rates),
            topics_section(facts.topics, facts.rates),
            tags_section(facts.tags, colours),
            brokers_section(facts),
            *own,
            id="report",
        ),
        element("footer", note(f"Made by mqlog {facts.version}. {_FOOT_NOTE}")),
    )


def _tags(facts: Facts) -> Iterator[Tags | None]:
    """Yield the tags of all rows of the page."""
    if not isinstance(facts.behind, Unread):
        yield from (behind.tags for behind in facts.behind)
    if not isinstance(facts.tags, Unread):
        yield from facts.tags.values()


def _kind(facts: Facts) -> str:
    stores = "message store" if len(facts.places) == 1 else "message stores"
    if not facts.has_cluster:
        return f"RocketMQ {stores}"
    return f"RocketMQ cluster and {stores}" if facts.has_stores else "RocketMQ cluster"


def _links(facts: Facts) -> list[Element]:
    """Return the links to the sections that the page has."""
    last = {"brokers": brokers_title(facts)} | (_STORE_LINKS if facts.has_stores else {})
    own = _LINKS if facts.places else {}
    sampled = {"history": "Lag over time"} if facts.history else {}
    sampled |= {"latency": TITLE} if facts.latency else {}
    names = {"backlog": own["backlog"], **sampled, **own, **last} if own else sampled | last
    return [element("a", text, href=f"#{name}") for name, text in names.items()]


def _tiles(facts: Facts) -> Element:
    tiles = [*_held(facts), *_behind(facts), *([_checked(facts)] if facts.has_stores else [])]
    return element(
        "dl",
        *(
            element("div", element("dt", name), element("dd", value),
                    element("dd", text, class_="under"), class_=f"tile {look}")
            for name, value, text, look in tiles
        ),
    )  # fmt: skip


def _held(facts: Facts) -> list[tuple[str, str, str, str]]:
    messages = sum(place.messages for place in facts.places)
    queues = sum(place.queues for place in facts.places)
    tiles = [("Messages held", count(messages), f"in {several(queues, 'queue')}", "")]
    if not isinstance(facts.topics, Unread):
        own = [topic for topic in facts.topics if not topic.is_system]
        records = sum(topic.bytes for topic in own)
        shape = about_size if any(topic.is_weighed for topic in own) else size
        under = f"in {several(len(own), 'topic')}"
        if not isinstance(facts.files, Unread) and facts.files.kinds:
            under = f"files of {size(sum(kind.size for kind in facts.files.kinds))}"
        tiles.append(("Records", shape(records), under, ""))
    return tiles


def _behind(facts: Facts) -> list[tuple[str, str, str, str]]:
    if isinstance(facts.behind, Unread):
        return [("Waiting", "not known", "the offsets of groups could not be read", "bad")]
    lag = sum(one.lag for one in facts.behind)
    groups = {one.group for one in facts.behind if one.lag}
    oldest = [one for one in facts.behind if one.lag and one.oldest_ms is not None]
    known = len({one.group for one in facts.behind})
    tiles = [("Waiting", count(lag), f"for {len(groups)} of {several(known, 'group')}", "")]
    if oldest:
        worst = min(oldest, key=lambda one: one.oldest_ms or 0)
        since = waits(facts.made_ms, worst.oldest_ms)
        tiles.append(("Oldest waits for", since, f"{worst.group} in {worst.topic}", ""))
    return tiles


def _checked(facts: Facts) -> tuple[str, str, str, str]:
    verified = facts.verified
    if not verified.checked:
        return "Verify", "not done", next(iter(verified.skipped.values()), "no directory"), ""
    warnings = several(verified.warnings, "warning")
    if verified.errors:
        return "Verify", several(verified.errors, "error"), warnings, "bad"
    if verified.warnings:
        return "Verify", warnings, "no errors", "mild"
    return "Verify", "whole", "every rule holds", "good"
