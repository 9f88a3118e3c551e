"""The table ``latency`` on a terminal."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import Final

from rich.console import Console

from mqlog_jobs.output.amounts import count, several, span
from mqlog_jobs.output.render import FieldView, Row, heading, number_of, table

LATENCY_VIEW: Final = (
    FieldView("intervalStart", "STORED FROM (UTC)", "time", once=True),
    FieldView("brokerName", "BROKER NAME", once=True, rank=2),
    FieldView("queueId", "QUEUE", "number", once=True),
    FieldView("stage", "STAGE", style="bold"),
    FieldView("count", "COUNT", "count", rank=1),
    FieldView("p50", "P50", "number"),
    FieldView("p95", "P95", "number"),
    FieldView("p99", "P99", "number"),
    FieldView("max", "MAX", "number"),
)
_LATENCY_TIMES: Final = ("p50", "p95", "p99", "max")
_LONG_MS: Final = 10_000
_OPTIONAL: Final = ("intervalStart", "brokerName", "queueId")


@dataclass(frozen=True, slots=True)
class Timed:
    """The stages of a topic's messages, or of its messages in a group.

    ``note`` is what the rows have in common. Their times are texts, None where there is none:
    ``p50``, ``p95``, ``p99`` and ``max``.
    """

    title: str
    note: str
    messages: int
    rows: tuple[Row, ...]


def by_group(rows: Sequence[Row]) -> Iterator[Timed]:
    """Yield the stages of each topic, then of each of its groups."""
    ordered = sorted(rows, key=lambda row: (str(row["topic"]), row["group"] is not None))
    for (topic, group), found in groupby(ordered, lambda row: (row["topic"], row["group"])):
        members = list(found)
        title = str(topic) if group is None else f"{topic} → {group}"
        sums = _sums(members)
        yield Timed(title, _note(members, sums), sums["messages"], tuple(map(_shaped, members)))


def latency(console: Console, rows: Sequence[Row], _total: int) -> None:
    """Print the stages of each topic, then of each of its groups."""
    absent = {name for name in _OPTIONAL if all(row[name] is None for row in rows)}
    columns = [one for one in LATENCY_VIEW if one.name not in absent]
    for one in by_group(rows):
        heading(console, one.title, one.note)
        table(console, columns, one.rows)
    if not rows:
        console.print("no messages", style="dim")
    elif all(row["group"] is None for row in rows):
        console.print("no delivery of these messages is traced", style="dim")


def _sums(rows: Sequence[Row]) -> dict[str, int]:
    """Return the messages of one topic and group, and what is counted of them."""
    places = {tuple(row[name] for name in _OPTIONAL): row for row in rows}.values()
    names = ("messages", "untraced", "unfinished", "failed")
    return {name: sum(number_of(row, name) for row in places) for name in names}


def _note(rows: Sequence[Row], sums: Mapping[str, int]) -> str:
    told = [several(sums["messages"], "message")]
    told += [f"{count(sums[name])} {name}" for name in list(sums)[1:] if sums[name]]
    if not all(row["exact"] for row in rows):
        told.append("percentiles are estimates")
    return ", ".join(told)


def _shaped(row: Row) -> Row:
    return {**row, **{name: _time(row[f"{name}Ms"]) for name in _LATENCY_TIMES}}


def _time(ms: object) -> str | None:
    """Return a duration to the millisecond, a long one in its two largest units."""
    if not isinstance(ms, float):
        return None
    return f"{count(round(ms))} ms" if abs(ms) < _LONG_MS else span(round(ms))
