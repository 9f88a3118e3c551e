"""The sections about messages: rates over time, topics, and their tags."""

from typing import Final

from mqlog_jobs.output.amounts import ABOUT, count, moment_of, several, short, span
from mqlog_jobs.report.cells import (
    Head,
    about_count,
    bytes_cell,
    cell,
    counted,
    group_row,
    looked_at,
    more,
    name,
    note,
    row,
    section,
    table,
    unread,
    when,
)
from mqlog_jobs.report.charts import SERIES, Timeline, colour, columns, sparkline
from mqlog_jobs.report.facts import Found, Rates, Tags, TopicHeld, Unread
from mqlog_jobs.report.markup import Element, element
from mqlog_jobs.report.tag_bars import TagColours, percent, tag_bar, tag_name

LISTED_TOPICS: Final = 100
_OTHERS: Final = "all other topics"
_UNITS_MS: Final = {"second": 1_000, "minute": 60_000, "hour": 3_600_000}


def rates_section(rates: Found[Rates]) -> Element:
    """Return the chart of messages stored over time."""
    title = "Messages stored over time"
    if isinstance(rates, Unread):
        return section("rates", title, unread(rates))
    if not rates.counts:
        return section("rates", title, note("No message is held."))
    series = _series(rates)
    totals = [sum(values) for values in zip(*series.values(), strict=True)]
    peak = max(range(rates.steps), key=totals.__getitem__)
    unit, unit_ms = _unit(totals[peak] / rates.step_ms)
    per_step = rates.step_ms / unit_ms
    each = span(rates.step_ms)
    facts = (
        f"{short(sum(totals) / (rates.steps * per_step))} a {unit} on average, "
        f"{short(totals[peak] / per_step)} at most, at "
        f"{moment_of(rates.start_ms + peak * rates.step_ms)}, over {each}."
    )
    shares = {topic: [value / per_step for value in values] for topic, values in series.items()}
    time = Timeline(rates.start_ms, rates.step_ms, rates.steps)
    text = f"Columns of messages a {unit} by topic, one each {each}: {facts}"
    keys = [
        element(
            "li",
            element("i", class_=f"key {colour(n)}"),
            topic,
            " ",
            element("b", count(sum(values))),
        )
        for n, (topic, values) in enumerate(series.items())
    ]
    return section(
        "rates",
        title,
        note(f"Messages a {unit}, by the time the broker stored them (UTC). {facts}"),
        element(
            "figure",
            columns(shares, time, text),
            element("figcaption", element("ul", *keys, class_="keys wide")),
        ),
        *_estimates(rates),
        element(
            "details", element("summary", "The numbers of this chart"), _numbers(rates, series)
        ),
    )


def topics_section(topics: Found[tuple[TopicHeld, ...]], rates: Found[Rates]) -> Element:
    """Return the table of topics."""
    if isinstance(topics, Unread):
        return section("topics", "Topics", unread(topics))
    own = [topic for topic in topics if not topic.is_system]
    system = [topic for topic in topics if topic.is_system]
    most = max((topic.messages for topic in topics), default=0) or 1
    heads = (
        Head("Topic"), Head("Messages", number=True), Head("Size", number=True), Head("Over time"),
        Head("Queues", number=True), Head("First stored (UTC)"), Head("Last stored (UTC)"),
    )  # fmt: skip
    counts = {} if isinstance(rates, Unread) else rates.counts
    rows = [_topic(topic, most, counts.get(topic.name)) for topic in own[:LISTED_TOPICS]]
    caption = "Topics, those with the most messages first"
    return section(
        "topics",
        "Topics",
        table(caption, heads, [rows]) if rows else note("No topic holds a message."),
        more(len(own) - len(rows), "topics", "mqlog topics lists all."),
        element(
            "details",
            element("summary", f"RocketMQ’s own topics ({count(len(system))})"),
            table("RocketMQ’s own topics", heads,
                  [[_topic(topic, most, None) for topic in system[:LISTED_TOPICS]]]),
        )
        if system
        else None,
    )  # fmt: skip


def tags_section(tags: Found[dict[str, Tags]], colours: TagColours) -> Element:
    """Return what tags the messages of each topic have."""
    if isinstance(tags, Unread):
        return section("tags", "Tags", unread(tags))
    if not tags:
        return section("tags", "Tags", note("No message is held."))
    heads = Head("Topic"), Head("Tags")
    rows = [row(name(topic), cell(*tag_bar(found, colours))) for topic, found in tags.items()]
    samples = [found.looked for found in tags.values() if found.looked.is_sample]
    sampled = sum(one.messages for one in samples), sum(one.of for one in samples)
    remark = (
        f"{ABOUT}is estimated: {count(sampled[0])} of {count(sampled[1])} messages of these topics "
        "were looked at, evenly spread."
    )
    return section(
        "tags",
        "Tags",
        element("div", table("Shares of the tags in each topic", heads, [rows]), class_="fixed"),
        note(remark) if samples else None,
        element("details", element("summary", "The numbers of each tag"), _tag_table(tags)),
    )


def _unit(most: float) -> tuple[str, int]:
    """Return the unit in which ``most`` messages a millisecond are one or more, and its ms."""
    found = (unit for unit in _UNITS_MS.items() if most * unit[1] >= 1)
    return next(found, ("hour", _UNITS_MS["hour"]))


def _series(rates: Rates) -> dict[str, list[int]]:
    """Return the counts of the topics that have a colour of their own, and of all others."""
    topics = list(rates.counts.items())
    shown = topics if len(topics) <= SERIES + 1 else topics[:SERIES]
    series = dict(shown)
    if len(shown) < len(topics):
        others = (counts for _, counts in topics[SERIES:])
        series[_OTHERS] = [sum(values) for values in zip(*others, strict=True)]
    return series


def _estimates(rates: Rates) -> list[Element]:
    remarks = []
    if rates.queues_looked < rates.queues:
        looked = f"{count(rates.queues_looked)} of {several(rates.queues, 'queue')}"
        remarks.append(note(f"Estimated: {looked} were looked at, the longest of each topic."))
    if rates.left_out:
        messages = several(rates.messages_left_out, "message")
        remarks.append(
            note(f"Not in the chart: {several(rates.left_out, 'topic')} with {messages}.")
        )
    return remarks


def _numbers(rates: Rates, series: dict[str, list[int]]) -> Element:
    heads = [Head("From (UTC)"), *(Head(topic, number=True) for topic in series)]
    rows = [
        row(
            moment_of(rates.start_ms + step * rates.step_ms),
            *(cell(count(counts[step]), number=True) for counts in series.values()),
        )
        for step in range(rates.steps)
    ]
    return table(f"Messages stored in each {span(rates.step_ms)}", heads, [rows])


def _topic(topic: TopicHeld, most: int, counts: list[int] | None) -> Element:
    line = sparkline(counts, f"{count(max(counts))} at most in a step of time") if counts else "–"
    return row(
        name(topic.name),
        counted(topic.messages, most),
        bytes_cell(topic.bytes, about=topic.is_weighed),
        cell(line),
        cell(count(topic.queues), number=True),
        when(topic.first_ms),
        when(topic.last_ms),
    )


def _tag_table(tags: dict[str, Tags]) -> Element:
    heads = (
        Head("Tag"), Head("Messages", number=True), Head("Share", number=True),
        Head("Size", number=True),
    )  # fmt: skip
    bodies = []
    for topic, found in tags.items():
        about, total = found.looked.is_sample, max(found.looked.of, 1)
        remark = looked_at(found.looked) if about else several(total, "message")
        rows = [
            row(
                tag_name(tag),
                cell(about_count(tag.messages, about=about), number=True),
                cell(percent(tag.messages / total), number=True),
                bytes_cell(tag.bytes, about=about),
            )
            for tag in found.tags
        ]
        if found.others:
            rows.append(row(several(found.others, "other tag"), *(cell("–", number=True),) * 3))
        bodies.append([group_row(topic, remark, len(heads)), *rows])
    return table("Messages of each tag", heads, bodies)
