"""The section about consumer groups: what waits for each, since when, and with which tags."""

from collections.abc import Sequence
from itertools import groupby
from typing import Final

from mqlog_jobs.output.amounts import ABOUT, about_size, count, several, size
from mqlog_jobs.output.aside_text import parts_of
from mqlog_jobs.report.cells import (
    Head,
    bytes_cell,
    cell,
    counted,
    group_row,
    more,
    name,
    note,
    row,
    section,
    table,
    unread,
    waits,
    when,
)
from mqlog_jobs.report.facts import Behind, Facts, Unread
from mqlog_jobs.report.markup import Element, element
from mqlog_jobs.report.tag_bars import TagColours, tag_bar
from mqstore.backlog.schema import (
    AHEAD,
    EXPIRED,
    LATE,
    NEVER_COMMITTED,
    NO_CONSUMERS,
    TIERED,
    TOPIC_GONE,
)
from mqstore.pop.state import KV_UNKNOWN, POP_BUFFERED, POP_UNKNOWN, UNKNOWN_POPS
from mqstore.tables.asides import Aside

MOST_ROWS: Final = 100
_TAGS_SHOWN: Final = 4
MEANINGS: Final = {
    NEVER_COMMITTED: "the group has no offset for some of its queues",
    AHEAD: "an offset lies beyond the end of a queue: the store was replaced or cut",
    EXPIRED: "messages were deleted before the group consumed them",
    TIERED: "what waits begins in tiered storage: the local log has no more of it",
    TOPIC_GONE: "the topic has neither a queue nor an entry in topics.json",
    NO_CONSUMERS: "messages wait, and no consumer of the group is connected to their broker",
    KV_UNKNOWN: "what it popped and did not acknowledge is not known, and may wait too",
    POP_UNKNOWN: "what it popped and did not acknowledge is not known, and may wait too",
    POP_BUFFERED: "acknowledgements of some seconds may be missing",
    LATE: "the first message that the group has to consume waits for an hour, or for --late-after",
}
_MILD: Final = {
    NEVER_COMMITTED,
    TIERED,
    TOPIC_GONE,
    NO_CONSUMERS,
    LATE,
    *UNKNOWN_POPS,
    POP_BUFFERED,
}
_ESTIMATED: Final = f"{ABOUT}is estimated from a sample; how many messages wait is exact."
_HEADS: Final = (
    Head("Topic"),
    Head("Waiting", number=True),
    Head("Size", number=True),
    Head("Oldest waits for", number=True),
    Head("Last consumed was stored (UTC)"),
    Head("Tags of what waits"),
    Head("Status"),
)


def backlog_section(facts: Facts, colours: TagColours) -> Element:
    """Return the section."""
    behind, now_ms = facts.behind, facts.made_ms
    if isinstance(behind, Unread):
        return section("backlog", "Backlog", unread(behind))
    if not behind:
        return section("backlog", "Backlog", note("No consumer group has committed an offset."))
    lags: dict[str, int] = {}
    for one in behind:
        lags[one.group] = lags.get(one.group, 0) + one.lag
    ordered = sorted(behind, key=lambda b: (-lags[b.group], b.group, -b.lag, b.topic))
    shown = ordered[:MOST_ROWS]
    most = max(one.lag for one in behind) or 1
    groups = [(group, list(rows)) for group, rows in groupby(shown, key=lambda one: one.group)]
    bodies = [
        [
            _group(
                group,
                [one for one in behind if one.group == group],
                facts.asides.get(group, Aside()),
                now_ms,
            ),
            *(_row(one, most, now_ms, colours) for one in rows),
        ]
        for group, rows in groups
    ]
    statuses = sorted({status for one in shown for status in one.statuses})
    estimated = any(b.is_weighed or (b.tags and b.tags.looked.is_sample) for b in shown)
    return section(
        "backlog",
        "Backlog",
        note("Messages that are stored and that a group has not consumed yet."),
        table("Backlog by group and topic", _HEADS, bodies),
        more(len(ordered) - len(shown), "topics of groups", "mqlog backlog lists all."),
        note(_ESTIMATED) if estimated else None,
        *(note(element("strong", status), f": {MEANINGS[status]}.") for status in statuses),
    )


def _group(group: str, rows: Sequence[Behind], aside: Aside, now_ms: int) -> Element:
    lag, behind = sum(one.lag for one in rows), sum(one.bytes for one in rows)
    oldest = [one.oldest_ms for one in rows if one.oldest_ms is not None]
    is_known = not {status for one in rows for status in one.statuses}.intersection(UNKNOWN_POPS)
    told = "has consumed everything" if is_known else "no messages are known to wait"
    if lag:
        shape = about_size if any(one.is_weighed for one in rows) else size
        told = f"{count(lag)} waiting, {shape(behind)}"
        told += f", the oldest for {waits(now_ms, min(oldest))}" if oldest else ""
    consumers = max((one.consumers for one in rows if one.consumers is not None), default=None)
    if consumers is not None:
        told += f"; {several(consumers, 'consumer')}" if consumers else "; no consumers"
    told = "; ".join([told, *(text for text, _ in parts_of(aside))])
    return group_row(group, told, len(_HEADS))


def _row(one: Behind, most: int, now_ms: int, colours: TagColours) -> Element:
    states = [
        element("span", status, class_="chip mild" if status in _MILD else "chip bad")
        for status in one.statuses
    ]
    if one.expired:
        states.append(element("span", f"{count(one.expired)} expired", class_="under"))
    return row(
        name(one.topic),
        counted(one.lag, most),
        bytes_cell(one.bytes, about=one.is_weighed),
        cell(waits(now_ms, one.oldest_ms if one.lag else None), number=True),
        when(one.consumed_ms),
        cell(*tag_bar(one.tags, colours, _TAGS_SHOWN)) if one.tags else cell("–"),
        cell(*(states or [element("span", "OK", class_="chip good")]), class_="states"),
    )
