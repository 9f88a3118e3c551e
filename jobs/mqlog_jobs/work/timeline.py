"""The life of messages, step by step: born, sent, stored, delivered; of ``mqlog find --trace``.

What a step is known from is a record of a store, or an event that a client traced. Times are those
of the host that took them.
"""

import sys
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from itertools import islice
from typing import Final

import typer
from rich.console import Console
from rich.text import Text

from mqlog_jobs.machine.codes import FOUND
from mqlog_jobs.output import render
from mqlog_jobs.output.render import FieldView, Row, heading, table
from mqlog_jobs.places import Named
from mqlog_jobs.work import queries
from mqlog_jobs.work.queries import KeyQuery
from mqstore.errors import UnknownTopicError, printable, shown
from mqstore.read.known_names import unknown
from mqstore.read.selection import OpenStores
from mqstore.tables.choice import Window
from mqstore.tables.deliveries import Delivery, of_one
from mqstore.tables.traces import (
    END_TRANSACTION,
    PUB,
    TRACE_TOPIC,
    TraceEntry,
    entries,
    plan,
)

MOST_RECORDS: Final = 1_000
_MOST_SENDS: Final = 20_000
"""Trace messages around a send that are read where the index does not lead to it."""
_FLUSHED_MS: Final = 30_000
STEP_VIEW: Final = (
    FieldView("clock", "TIME (UTC)"),
    FieldView("after", "AFTER", "number"),
    FieldView("step", "STEP", style="bold"),
    FieldView("group", "GROUP", style="cyan"),
    FieldView("took", "TOOK", "number"),
    FieldView("detail", "DETAIL", stretch=True),
)
_OK: Final = {True: "ok", False: "failed", None: "outcome not traced"}


@dataclass(frozen=True, slots=True)
class Step:
    """One step of a message; ``time`` None: it is not traced."""

    time: datetime | None
    step: str
    detail: str
    group: str | None = None
    took_ms: int | None = None


def show(named: Named, query: KeyQuery, trace_topic: str | None, *, as_json: bool) -> None:
    """Print the life of each message with a key or an id; exit code 1 if there is none.

    ``trace_topic`` None: RMQ_SYS_TRACE_TOPIC. Raises UnknownTopicError for one that is not there,
    and what a scan raises.
    """
    traced = trace_topic or TRACE_TOPIC
    with named.opened(query.topic) as stores:
        if trace_topic is not None and trace_topic not in stores.topics:
            known = set(stores.topics)
            raise UnknownTopicError(unknown("--trace-topic", "topic", trace_topic, known))
        found = (row for row in queries.find(named, query) if row["topic"] != traced)
        records = list(islice(found, MOST_RECORDS + 1))
        lives = list(_lives(stores, records[:MOST_RECORDS], traced))
    if as_json:
        render.json_lines(_plain(msg_id, step) for msg_id, steps in lives for step in steps)
    else:
        _print(render.terminal(), lives)
    if len(records) > MOST_RECORDS:
        sys.stderr.write(f"only the first {MOST_RECORDS:,} records: name a topic or --since\n")
    if not lives:
        sought = " or ".join(map(shown, (*query.keys, *query.ids)))
        sys.stderr.write(f"no message has the {'key' if query.keys else 'id'} {sought}\n")
        raise typer.Exit(FOUND)


def _lives(
    stores: OpenStores, records: Sequence[Row], traced: str
) -> Iterator[tuple[str, list[Step]]]:
    of_ids: dict[str, list[Row]] = {}
    for row in records:
        of_ids.setdefault(str(row["msgId"]), []).append(row)
    events = _events(stores, of_ids, traced)
    for msg_id, rows in of_ids.items():
        yield msg_id, life(rows, events[msg_id])


def _events(
    stores: OpenStores, of_ids: dict[str, list[Row]], traced: str
) -> dict[str, list[tuple[TraceEntry, str | None]]]:
    """Return the traced events of each message, each with the client's host."""
    found: dict[str, list[tuple[TraceEntry, str | None]]] = {msg_id: [] for msg_id in of_ids}
    if not of_ids:
        return found
    sources = list(zip(stores.sources, stores.snapshots_of(traced.__eq__), strict=True))
    for part in plan(sources, traced, Window(), tuple(of_ids), "skip"):
        for piece in part.slices:
            for place, entry in entries(piece, part.keys, "skip"):
                found.get(entry.msg_id or "", []).append((entry, place[3]))
    # A batch's ids are one word in KEYS, which the index does not find by one of them.
    unsent = {m for m, events in found.items() if all(e.event != PUB for e, _ in events)}
    stored = [row["storeTimestamp"] for msg_id in unsent for row in of_ids[msg_id]]
    times = [_ms(at) for at in stored if isinstance(at, datetime)]
    if times:
        window = Window(max(0, min(times) - _FLUSHED_MS), max(times) + _FLUSHED_MS)
        pieces = [p for part in plan(sources, traced, window, (), "skip") for p in part.slices]
        if sum(piece.end - piece.start for piece in pieces) <= _MOST_SENDS:
            for piece in pieces:
                for place, entry in entries(piece, (), "skip"):
                    if entry.event == PUB and entry.msg_id in unsent:
                        found[entry.msg_id].append((entry, place[3]))
    return found


def life(rows: Iterable[Row], events: Sequence[tuple[TraceEntry, str | None]]) -> list[Step]:
    """Return the steps of one message in the order of their times, those without one last."""
    steps = list(_of_records(rows))
    steps += [_send(entry, host) for entry, host in events if entry.event == PUB]
    steps += [_end(entry) for entry, _ in events if entry.event == END_TRANSACTION]
    for group, delivered in of_one(entry for entry, _ in events).items():
        steps += [_delivery(group, one) for one in delivered.in_order()]
    latest = datetime.max.replace(tzinfo=UTC)
    return sorted(steps, key=lambda step: step.time or latest)


def _of_records(rows: Iterable[Row]) -> Iterator[Step]:
    for number, row in enumerate(rows):
        born, stored = row["bornTimestamp"], row["storeTimestamp"]
        if number == 0 and isinstance(born, datetime):
            yield Step(born, "born", f"at {row['bornHost']}")
        if isinstance(stored, datetime):
            place = f"{row['topic']}/{row['queueId']}@{row['queueOffset']} of {row['brokerName']}"
            times = row["reconsumeTimes"]
            yield Step(stored, "stored", f"{place}, after {times} failures" if times else place)


def _send(entry: TraceEntry, host: str | None) -> Step:
    detail = f"{_OK[entry.success]}, from {entry.client_host or host}, {entry.message_type}"
    return Step(_time(entry.timestamp_ms), "send", detail, entry.group, entry.cost_ms)


def _end(entry: TraceEntry) -> Step:
    asked = ", the broker had asked" if entry.from_check else ""
    return Step(
        _time(entry.timestamp_ms), "end of transaction", f"{entry.result}{asked}", entry.group
    )


def _delivery(group: str, delivery: Delivery) -> Step:
    result = delivery.result or _OK[delivery.success]
    if delivery.end_ms is None and delivery.success is None:
        result = "no end is traced"
    elif delivery.start_ms is None:
        result += ", its start is not traced"
    again = f", after {delivery.reconsume_times} failures" if delivery.reconsume_times else ""
    start_ms = delivery.end_ms if delivery.start_ms is None else delivery.start_ms
    return Step(_time(start_ms), "delivery", f"{result}{again}", group, delivery.work_ms)


def _print(console: Console, lives: Sequence[tuple[str, list[Step]]]) -> None:
    for number, (msg_id, steps) in enumerate(lives):
        if number:
            console.print()
        heading(console, msg_id)
        first = next((step.time for step in steps if step.time is not None), None)
        table(console, STEP_VIEW, [_shaped(step, first) for step in steps])
        if not any(step.step in {"send", "delivery"} for step in steps):
            console.print(Text("no event of it is traced", style="dim"))


def _shaped(step: Step, first: datetime | None) -> Row:
    after = None if step.time is None or first is None else step.time - first
    return {
        "clock": None if step.time is None else step.time.strftime("%Y-%m-%d %H:%M:%S.%f")[:-3],
        "after": None if after is None else f"{after // timedelta(milliseconds=1):,} ms",
        "step": step.step,
        "group": step.group,
        "took": None if step.took_ms is None else f"{step.took_ms:,} ms",
        "detail": printable(step.detail),
    }


def _plain(msg_id: str, step: Step) -> Row:
    return {
        "msgId": msg_id,
        "time": step.time,
        "step": step.step,
        "group": step.group,
        "tookMs": step.took_ms,
        "detail": step.detail,
    }


def _time(ms: int | None) -> datetime | None:
    return None if ms is None else datetime.fromtimestamp(ms / 1000, UTC)


def _ms(time: datetime) -> int:
    return int(time.timestamp() * 1000)
