"""The section about traces: how long messages took until they were stored, delivered, consumed."""

from typing import Final

from mqlog_jobs.output.amounts import count, moment_of, several
from mqlog_jobs.output.render import Row, number_of
from mqlog_jobs.output.trace_views import by_group
from mqlog_jobs.report.cells import (
    Head,
    cell,
    group_row,
    looked_at,
    more,
    note,
    row,
    section,
    table,
    unread,
)
from mqlog_jobs.report.facts import Found, Latencies, Unread
from mqlog_jobs.report.markup import Element
from mqstore.errors import shown

TITLE: Final = "Latency"
LISTED: Final = 40  # topics and groups
_NAME_CHARS: Final = 250
STAGE_WORDS: Final = {
    "BORN_TO_STORED": "Born to stored",
    "STORED_TO_DELIVERED": "Stored to first delivery",
    "WORK": "Work of the consumer",
    "RETRIES": "First failure to last try",
    "END_TO_END": "Born to consumed",
}
_STAGE_HEADS: Final = (
    Head("Stage"),
    Head("Count", number=True),
    Head("Median", number=True),
    Head("95 % within", number=True),
    Head("99 % within", number=True),
    Head("Longest", number=True),
)
_WHAT: Final = (
    "How long messages took, by topic and then by consumer group, from what clients traced. Clocks "
    "of several hosts meet in these times, so one may be below zero."
)


def latency_section(found: Found[Latencies]) -> Element:
    """Return the table of stages, of each topic and of each of its groups."""
    if isinstance(found, Unread):
        return section("latency", TITLE, unread(found))
    if not found.rows:
        return section("latency", TITLE, note("No message was stored since the traces begin."))
    every = sorted(by_group(found.rows), key=lambda one: -one.messages)
    bodies = [
        [
            group_row(shown(one.title, _NAME_CHARS), one.note, len(_STAGE_HEADS)),
            *(_row(stage) for stage in one.rows if stage["count"]),
        ]
        for one in every[:LISTED]
    ]
    return section(
        "latency",
        TITLE,
        note(_WHAT),
        *_left_out(found),
        table("Times of messages by topic and group", _STAGE_HEADS, bodies),
        more(len(every) - len(bodies), "topics and groups", "mqlog latency lists all."),
    )


def _left_out(found: Latencies) -> list[Element]:
    told = []
    if found.traces.is_sample and found.since_ms is not None:
        told.append(
            f"Of messages stored from {moment_of(found.since_ms)} (UTC) on: the newest "
            f"{count(found.traces.messages)} of {several(found.traces.of, 'trace message')} "
            "were read."
        )
    if found.messages.is_sample:
        told.append(f"{looked_at(found.messages)}, the newest of each queue.")
    if found.topics_left_out:
        told.append(f"{several(found.topics_left_out, 'topic')} with fewer messages were not.")
    return [note(" ".join([*told, "mqlog latency reads all."]))] if told else []


def _row(stage: Row) -> Element:
    return row(
        STAGE_WORDS[str(stage["stage"])],
        cell(count(number_of(stage, "count")), number=True),
        *(cell(str(stage[name]), number=True) for name in ("p50", "p95", "p99", "max")),
    )
