"""Draws what was measured as a frame of a terminal's size, or as rows for a program."""

import math
from collections.abc import Sequence
from typing import Final

from rich.console import Console
from rich.text import Text

from mqlog_jobs.output.amounts import UNKNOWN, count, rate, several, span
from mqlog_jobs.output.aside_text import parts_of
from mqlog_jobs.output.render import FieldView, Row, heading, table
from mqlog_jobs.top.meter import Flow, Measured
from mqlog_jobs.top.queues import QueueFlow
from mqlog_jobs.top.view import Shown
from mqstore.errors import shown

NEVER: Final = "never"
_SPARKS: Final = "▁▂▃▄▅▆▇█"
_SPARK_CELLS: Final = 12
_FLOW_VIEW: Final = (
    FieldView("group", "GROUP", stretch=True, style="bold"),
    FieldView("topic", "TOPIC", stretch=True),
    FieldView("consumers", "CONSUMERS", "number", rank=2),
    FieldView("lag", "LAG", "number"),
    FieldView("inflight", "IN FLIGHT", "count", rank=4),
    FieldView("due", "DUE", "count", rank=5),
    FieldView("trend", "LAG OVER TIME", rank=3, style="cyan"),
    FieldView("stored", "IN/S", "number"),
    FieldView("consumed", "CONSUMED/S", "number"),
    FieldView("caughtUp", "CAUGHT UP", "number"),
    FieldView("status", "STATUS", "status", rank=1),
)

_QUEUE_FLOW_VIEW: Final = (
    FieldView("topic", "TOPIC", stretch=True, style="bold"),
    FieldView("broker", "BROKER NAME"),
    FieldView("queueId", "QUEUE", "number"),
    FieldView("high", "BROKER", "count", rank=3),
    FieldView("consumerOffset", "CONSUMER", "count", rank=2),
    FieldView("lag", "LAG", "count"),
    FieldView("stored", "IN/S", "number"),
    FieldView("consumed", "CONSUMED/S", "number"),
    FieldView("status", "STATUS", "status", rank=1),
)


def row(flow: Flow) -> dict[str, object]:
    """Return a flow as a row for a program."""
    return {
        "group": flow.group,
        "topic": flow.topic,
        "consumers": flow.consumers,
        "lag": flow.lag,
        "inflight": flow.inflight,
        "due": flow.due,
        "storedPerSecond": flow.stored,
        "consumedPerSecond": flow.consumed,
        "secondsUntilCaughtUp": flow.caught_up_s,
        "status": ", ".join(flow.statuses) or "OK",
    }


def draw(console: Console, measured: Measured, view: Shown, room: int | None = None) -> None:
    """Print the summary and the rows of the table; ``room``: so many, and the chosen one marked."""
    flows = view.rows(measured.flows)
    first = 0 if room is None else _first(view.cursor, len(flows), room)
    some = flows[first:] if room is None else flows[first : first + room]
    _summary(console, measured)
    known = any(flow.consumers is not None for flow in flows)
    absent = set() if known else {"consumers"}
    if all(flow.inflight is None for flow in flows):
        absent |= {"inflight", "due"}
    columns = [one for one in _FLOW_VIEW if one.name not in absent]
    rows = [_cells(console, flow) for flow in some]
    if room is not None:
        columns = [FieldView("mark", ""), *columns]
        mark = "▸" if console.encoding.startswith("utf") else ">"
        at = min(view.cursor, len(flows) - 1) - first
        rows = [{**one, "mark": mark if n == at else ""} for n, one in enumerate(rows)]
    table(console, columns, rows)
    _more(console, first, len(some), len(flows))
    if not flows:
        told = "no topic and no consumer group"
        told += f" has {shown(view.pattern)!r} in its name" if view.pattern else ""
        console.print(Text(told, style="dim"))


def draw_queues(
    console: Console, measured: Measured, view: Shown, queues: Sequence[QueueFlow], room: int
) -> None:
    """Print the queues of what is opened, ``room`` of them from the cursor on."""
    assert view.opened is not None
    group, topic = view.opened
    first = min(view.cursor, max(len(queues) - room, 0))
    some = queues[first : first + room]
    _summary(console, measured)
    lag = sum(flow.lag or 0 for flow in queues)
    note = "" if group is None else f"{several(lag, 'message')} waiting in "
    heading(console, topic if group is None else group, f"{note}{several(len(queues), 'queue')}")
    brokers = {flow.place[0] for flow in queues}
    absent = set() if len(brokers) > 1 else {"broker"}
    absent |= {"lag", "consumerOffset", "consumed", "status"} if group is None else set()
    columns = [one for one in _QUEUE_FLOW_VIEW if one.name not in absent]
    table(console, columns, [_queue_cells(flow) for flow in some])
    _more(console, first, len(some), len(queues))


def _first(cursor: int, rows: int, room: int) -> int:
    """Return the first of the rows that are shown, so that the chosen one is among them."""
    return max(min(cursor, rows - 1) - room + 1, 0)


def _more(console: Console, first: int, some: int, every: int) -> None:
    if some < every:
        told = f"{first + 1} to {first + some} of {every}; the arrows move"
        console.print(Text(told, style="dim"))


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
    for told in measured.away:
        console.print(
            Text(f"away: {shown(told)}", style="bold red"), no_wrap=True, overflow="ellipsis"
        )


def _brokers(names: Sequence[str]) -> str:
    first = shown(names[0]) if names else "no broker"
    return first if len(names) < 2 else f"{first} and {len(names) - 1} more"


def _cells(console: Console, flow: Flow) -> Row:
    return {
        "group": flow.group,
        "topic": flow.topic,
        "consumers": flow.consumers,
        "lag": None if flow.lag is None else count(flow.lag),
        "inflight": flow.inflight,
        "due": flow.due,
        "trend": _trend(flow.lags) if console.encoding.startswith("utf") else "",
        "stored": rate(flow.stored),
        "consumed": None if flow.group is None else rate(flow.consumed),
        "caughtUp": _caught_up(flow),
        "status": None if flow.group is None else flow.statuses[0] if flow.statuses else "OK",
    }


def _queue_cells(flow: QueueFlow) -> Row:
    broker, topic, queue_id = flow.place
    return {
        "broker": broker,
        "topic": topic,
        "queueId": queue_id,
        "high": flow.high,
        "consumerOffset": flow.consumer_offset,
        "lag": flow.lag,
        "stored": rate(flow.stored),
        "consumed": rate(flow.consumed),
        "status": flow.status,
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
