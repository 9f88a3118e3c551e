"""The section about samples: what waited for each group over time, and until when it will."""

from datetime import datetime
from typing import Final

from mqlog_jobs.output.amounts import UNKNOWN, count, moment_of, rate, several, span
from mqlog_jobs.output.forecast_view import ahead
from mqlog_jobs.output.render import Row
from mqlog_jobs.report.cells import Head, cell, counted, more, name, note, row, section, table
from mqlog_jobs.report.charts import SERIES, Timeline, colour, columns, sparkline
from mqlog_jobs.report.facts import Foreseen, LagHistory, Unread
from mqlog_jobs.report.markup import Element, element

_TITLE: Final = "Lag over time"
_OTHER_GROUPS: Final = "all other groups"
_LISTED_GROUPS: Final = 100
_RATES: Final = (
    "Rates are those from the newest samples of the last day to the moment of this report. The "
    "times hold if the rates stay, in 95 % of cases within the range. A dash: not known, or never."
)
_AHEAD: Final = (
    "{} of later than now, and left out: the clock of mqlog record was ahead then, or this one is "
    "behind."
)
_GROUP_HEADS: Final = (
    Head("Group"),
    Head("Over time"),
    Head("Waiting at the last sample", number=True),
    Head("At most", number=True),
    Head("Stored a second", number=True),
    Head("Consumed a second", number=True),
    Head("Caught up in", number=True),
    Head("First message deleted in", number=True),
)


def history_section(history: LagHistory) -> Element:
    """Return the chart of all groups, and a line for each."""
    are = several(history.ahead, "sample is", "samples are")
    ahead = note(_AHEAD.format(are)) if history.ahead else None
    if not history.lags:
        return section("history", _TITLE, note("The samples have no group."), ahead)
    groups = list(history.lags)
    known = history.foreseen
    foreseen = {} if isinstance(known, Unread) else known
    rows = [_row(group, history, foreseen.get(group)) for group in groups[:_LISTED_GROUPS]]
    return section(
        "history",
        _TITLE,
        note(_what(history)),
        ahead,
        _figure(history),
        table("Groups, the longest lag first", _GROUP_HEADS, [rows]),
        more(len(groups) - len(rows), "groups", "the samples have all."),
        note(_RATES) if foreseen else None,
        note(f"Nothing is foreseen: {known.reason}") if isinstance(known, Unread) else None,
    )


def _what(history: LagHistory) -> str:
    first, last = history.taken_ms
    return (
        f"Messages that waited for each group, from {several(history.samples, 'sample')} of mqlog "
        f"record, taken from {moment_of(first)} to {moment_of(last)} (UTC). A column is the last "
        f"sample of {span(history.step_ms)}; where there is none, no sample was taken."
    )


def _figure(history: LagHistory) -> Element:
    series = _series(history)
    steps = len(next(iter(series.values())))
    time = Timeline(history.start_ms, history.step_ms, steps)
    most = max(map(sum, zip(*series.values(), strict=True)))
    text = f"Columns of messages that wait, by group, one each {span(history.step_ms)}: "
    keys = [
        element("li", element("i", class_=f"key {colour(n)}"), group, " ",
                element("b", count(values[-1])))
        for n, (group, values) in enumerate(series.items())
    ]  # fmt: skip
    return element(
        "figure",
        columns(series, time, f"{text}{count(most)} at most"),
        element("figcaption", element("ul", *keys, class_="keys wide")),
    )


def _series(history: LagHistory) -> dict[str, list[int]]:
    """Return the groups with the longest lags, and the sum of all others."""
    known = {group: [lag or 0 for lag in lags] for group, lags in history.lags.items()}
    shown = list(known)[:SERIES]
    rest = [known[group] for group in known if group not in shown]
    series = {group: known[group] for group in shown}
    if rest:
        series[_OTHER_GROUPS] = [sum(values) for values in zip(*rest, strict=True)]
    return series


def _row(group: str, history: LagHistory, foreseen: Foreseen | None) -> Element:
    lags = history.lags[group]
    told = [lag for lag in lags if lag is not None]
    most = max(max(values, default=0) for values in _known(history)) or 1
    line = sparkline([lag or 0 for lag in lags], f"from {count(told[0])} to {count(told[-1])}")
    ends = ("–",) * 4
    if foreseen is not None:
        ends = (
            rate(foreseen.stored),
            rate(foreseen.consumed),
            _ahead(foreseen.zero, "etaZero"),
            _ahead(foreseen.loss, "etaLoss"),
        )
    return row(
        name(group),
        cell(line),
        counted(told[-1], most),
        cell(count(max(told)), number=True),
        *(cell(text, number=True) for text in ends),
    )


def _known(history: LagHistory) -> list[list[int]]:
    return [[lag for lag in lags if lag is not None] for lags in history.lags.values()]


def _ahead(foreseen: Row | None, column: str) -> str:
    if foreseen is None:
        return UNKNOWN
    now = foreseen["asOf"]
    assert isinstance(now, datetime)
    return ahead(now, foreseen, column)
