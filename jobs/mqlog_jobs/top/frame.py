"""Draws what was measured as a frame of a terminal's size, or as rows for a program."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from rich.console import Console
from rich.text import Text

from mqlog_jobs.amounts import UNKNOWN, count, rate, several, span
from mqlog_jobs.aside_text import parts_of
from mqlog_jobs.render import FieldView, Row, table
from mqlog_jobs.top.meter import Flow, Measured
from mqlog_jobs.top.orders import TOP_ORDERS
from mqstore.errors import shown

NEVER: Final = "never"
_SPARKS: Final = "▁▂▃▄▅▆▇█"
_SPARK_CELLS: Final = 12
_FLOW_VIEW: Final = (
    FieldView("group", "GROUP", stretch=True, style="bold"),
    FieldView("topic", "TOPIC", stretch=True),
    FieldView("consumers", "CONSUMERS", "number", rank=1),
    FieldView("lag", "LAG", "number"),
    FieldView("trend", "LAG OVER TIME", rank=3, style="cyan"),
    FieldView("stored", "IN/S", "number"),
    FieldView("consumed", "CONSUMED/S", "number"),
    FieldView("caughtUp", "CAUGHT UP IN", "number"),
    FieldView("status", "STATUS", "status", rank=2),
)
SORT_KEYS: Final[Mapping[str, str]] = {name[0]: name for name in TOP_ORDERS}
"""The orders by their keys; those with most come first."""


@dataclass(frozen=True, slots=True)
class Sorting:
    """The order of the rows: a word of SORT_KEYS; ``back``: the other way round."""

    by: str = "lag"
    back: bool = False

    def of(self, flows: Sequence[Flow]) -> list[Flow]:
        """Return the flows in this order."""
        names = sorted(flows, key=lambda flow: (flow.group is None, flow.group or "", flow.topic))
        if self.by == "group":
            return names[::-1] if self.back else names
        return sorted(names, key=lambda flow: _value(flow, self.by), reverse=not self.back)


def row(flow: Flow) -> dict[str, object]:
    """Return a flow as a row for a program."""
    return {
        "group": flow.group,
        "topic": flow.topic,
        "consumers": flow.consumers,
        "lag": flow.lag,
        "storedPerSecond": flow.stored,
        "consumedPerSecond": flow.consumed,
        "secondsUntilCaughtUp": flow.caught_up_s,
        "status": ", ".join(flow.statuses) or "OK",
    }


def draw(
    console: Console, measured: Measured, sorting: Sorting, first: int = 0, rows: int | None = None
) -> None:
    """Print the summary, and ``rows`` rows of the table from the ``first`` on; None: all."""
    flows = sorting.of(measured.flows)
    some = flows[first:] if rows is None else flows[first : first + rows]
    _summary(console, measured)
    for told in measured.away:
        console.print(
            Text(f"away: {shown(told)}", style="bold red"), no_wrap=True, overflow="ellipsis"
        )
    known = any(flow.consumers is not None for flow in flows)
    columns = [one for one in _FLOW_VIEW if known or one.name != "consumers"]
    table(console, columns, [_cells(console, flow) for flow in some])
    if len(some) < len(flows):
        told = f"{first + 1} to {first + len(some)} of {len(flows)}; the arrows move"
        console.print(Text(told, style="dim"))
    if not flows:
        console.print(Text("no topic and no consumer group", style="dim"))


def _summary(console: Console, measured: Measured) -> None:
    lag = sum(flow.lag or 0 for flow in measured.flows)
    line = Text.assemble(
        (_brokers(measured.brokers), "bold"),
        f"  {several(measured.queues, 'queue')}  in ",
        (f"{rate(measured.stored)}/s", "bold"),
        "  waiting ",
        (count(lag), "bold yellow" if lag else "bold green"),
    )
    for told, _ in parts_of(measured.beside):
        line.append(f"  {told}", style="yellow")
    console.print(line, no_wrap=True, overflow="ellipsis")


def _brokers(names: Sequence[str]) -> str:
    first = shown(names[0]) if names else "no broker"
    return first if len(names) < 2 else f"{first} and {len(names) - 1} more"


def _cells(console: Console, flow: Flow) -> Row:
    return {
        "group": flow.group,
        "topic": flow.topic,
        "consumers": flow.consumers,
        "lag": None if flow.lag is None else count(flow.lag),
        "trend": _trend(flow.lags) if console.encoding.startswith("utf") else "",
        "stored": rate(flow.stored),
        "consumed": None if flow.group is None else rate(flow.consumed),
        "caughtUp": _caught_up(flow),
        "status": None if flow.group is None else flow.statuses[0] if flow.statuses else "OK",
    }


def _caught_up(flow: Flow) -> str | None:
    if flow.lag is None:
        return None
    left = flow.caught_up_s
    if left is None:
        return UNKNOWN if flow.consumed is None else NEVER
    return "now" if left == 0 else span(round(left) * 1000) if left >= 1 else "1 s"


def _trend(lags: Sequence[int]) -> str:
    """Return the last lags as small columns, from 0 to the largest of them."""
    some = lags[-_SPARK_CELLS:]
    most = max(some, default=0) or 1
    return "".join(
        _SPARKS[min(math.ceil(lag / most * len(_SPARKS)), len(_SPARKS)) - 1 if lag else 0]
        for lag in some
    )


def _value(flow: Flow, by: str) -> float:
    """Return what to sort by; what is not known is least, what never comes is most."""
    if by == "lag":
        return -1 if flow.lag is None else flow.lag
    if by == "time":
        if flow.lag is None:
            return -1
        return math.inf if flow.caught_up_s is None else flow.caught_up_s
    found = flow.stored if by == "in" else flow.consumed
    return -math.inf if found is None else found
