"""The tables of scheduled, failed and half messages, offsets and commits on a terminal."""

import re
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from typing import Final, TypeAlias

import pyarrow as pa
from rich.console import Console

from mqlog_jobs.output.amounts import count, several
from mqlog_jobs.output.forecast_view import forecasts
from mqlog_jobs.output.render import FieldView, Kind, Row, heading, number_of, table
from mqlog_jobs.output.trace_views import latency
from mqlog_jobs.output.views import (
    POP_FIELDS,
    each_group,
    note_aside,
    note_no_group,
    queues,
    tags,
    topics,
    with_broker,
)
from mqstore.tables.asides import Aside
from mqstore.tables.table import Table

View: TypeAlias = Callable[[Console, Sequence[Row], int], None]
"""Prints rows of a table, of which there are so many in all."""

SCHEDULED_VIEW: Final = (
    FieldView("deliverTimestamp", "DUE (UTC)", "time"),
    FieldView("state", "STATE", "status"),
    FieldView("realTopic", "TOPIC", stretch=True, style="bold"),
    FieldView("realQueueId", "QUEUE", "number", rank=3),
    FieldView("level", "LEVEL", "number", rank=4),
    FieldView("tags", "TAG", rank=2, style="cyan"),
    FieldView("keys", "KEYS", rank=1),
    FieldView("msgId", "ID", rank=6),
    FieldView("storeTimestamp", "STORED (UTC)", "time", rank=5),
)
RETRY_VIEW: Final = (
    FieldView("kind", "KIND", "status"),
    FieldView("storeTimestamp", "STORED (UTC)", "time", rank=6),
    FieldView("consumed", "CONSUMED", rank=7),
    FieldView("state", "STATE", "status", rank=4),
    FieldView("reconsumeTimes", "TRIES", "number"),
    FieldView("originTopic", "TOPIC", stretch=True, style="bold"),
    FieldView("originQueueId", "QUEUE", "number", rank=1),
    FieldView("originQueueOffset", "OFFSET", "count", rank=2),
    FieldView("tags", "TAG", rank=8, style="cyan"),
    FieldView("keys", "KEYS", rank=5),
    FieldView("msgId", "ID", rank=3),
)
HALF_VIEW: Final = (
    FieldView("bornTimestamp", "BORN (UTC)", "time"),
    FieldView("state", "STATE", "status"),
    FieldView("checkTimes", "CHECKS", "number"),
    FieldView("realTopic", "TOPIC", stretch=True, style="bold"),
    FieldView("realQueueId", "QUEUE", "number", rank=4),
    FieldView("producerGroup", "PRODUCER GROUP", rank=2),
    FieldView("tags", "TAG", rank=5, style="cyan"),
    FieldView("keys", "KEYS", rank=1),
    FieldView("transactionId", "TRANSACTION", rank=6),
)
OFFSET_VIEW: Final = (
    FieldView("topic", "TOPIC", stretch=True, once=True, style="bold"),
    FieldView("queueId", "QUEUE", "number"),
    FieldView("consumerOffset", "CONSUMER", "count"),
    FieldView("source", "FILE", rank=1),
)
COMPARE_VIEW: Final = (
    FieldView("topic", "TOPIC", stretch=True, once=True, style="bold"),
    FieldView("queueId", "QUEUE", "number"),
    FieldView("lag", "LAG", "count"),
    FieldView("lagMatching", "MATCHING", "count", rank=1),
    FieldView("progressDiff", "PROGRESS", "count", rank=2),
    FieldView("metricLag", "METRIC", "count", rank=3),
    FieldView("metricLatencyMs", "LATENCY", "span", rank=4),
    FieldView("difference", "WHY", "status"),
)
SUMMARY_VIEW: Final = (
    FieldView("group", "GROUP", stretch=True, style="bold"),
    FieldView("tag", "TAG", style="cyan"),
    FieldView("topics", "TOPICS", "number", rank=4),
    FieldView("queues", "QUEUES", "number", rank=5),
    FieldView("consumers", "CONSUMERS", "number"),
    FieldView("lag", "LAG", "count"),
    FieldView("lagMatching", "MATCHING", "count"),
    FieldView("inflight", "IN FLIGHT", "count"),
    FieldView("due", "DUE", "count"),
    FieldView("share", "", "bar", rank=6),
    FieldView("bytesBehind", "BEHIND", "bytes", rank=3),
    FieldView("lagMs", "WAITS FOR", "span", rank=2),
    FieldView("status", "STATUS", "status", rank=1),
)
COMMIT_VIEW: Final = (
    FieldView("committedAt", "COMMITTED (UTC)", "time"),
    FieldView("appId", "APPLICATION", stretch=True, style="bold"),
    FieldView("version", "VERSION", "number"),
    FieldView("rows", "MESSAGES", "count"),
    FieldView("bytes", "SIZE", "bytes", rank=1),
    FieldView("firstPhysicalOffset", "AT BYTE", "count", rank=2),
    FieldView("state", "STATE", "status"),
)

GROUP_VIEW: Final = (
    FieldView("group", "GROUP", stretch=True, style="bold"),
    FieldView("brokerName", "BROKER NAME", rank=1),
    FieldView("consumers", "CONSUMERS", "number"),
    FieldView("messageModel", "MODEL", rank=3),
    FieldView("topics", "TOPICS WITH OFFSETS", "number", rank=2),
    FieldView("configured", "CONFIGURED", rank=4),
)
SUBSCRIPTION_VIEW: Final = (
    FieldView("group", "GROUP", once=True, style="bold"),
    FieldView("brokerName", "BROKER NAME", rank=2),
    FieldView("topic", "TOPIC", stretch=True),
    FieldView("expressionType", "TYPE", rank=1),
    FieldView("expression", "EXPRESSION", stretch=True, wrap=True, style="cyan"),
)
BROKER_VIEW: Final = (
    FieldView("brokerName", "BROKER NAME", style="bold"),
    FieldView("place", "PLACE", stretch=True),
    FieldView("version", "VERSION"),
    FieldView("topics", "TOPICS", "number", rank=2),
    FieldView("groups", "GROUPS", "number", rank=3),
    FieldView("logBytes", "COMMITLOG", "bytes"),
    FieldView("minPhysicalOffset", "FROM BYTE", "count", rank=5),
    FieldView("maxPhysicalOffset", "TO BYTE", "count", rank=4),
)
_NO_GROUP: Final = "no consumer group: RocketMQ's own are shown with --system"
_NO_SUBSCRIPTION: Final = (
    "no subscription is known: a cluster knows those of groups with consumers, a store SQL92 only"
)


def scheduled(console: Console, rows: Sequence[Row], total: int) -> None:
    """Print scheduled messages, ``rows`` of ``total``, under the number of each state."""
    if not rows:
        console.print("no message waits for its delivery", style="dim")
        return
    heading(console, _of("scheduled message", rows, total), _by(rows, "state"))
    table(console, with_broker(SCHEDULED_VIEW, rows), rows)


def retries(console: Console, rows: Sequence[Row], total: int) -> None:
    """Print messages that a consumer failed on, ``rows`` of ``total``, a table a group."""
    for group, members in each_group(console, rows):
        heading(console, group, _by(members, "kind"))
        shown = [{**row, "consumed": _YES[row["consumed"]]} for row in members]
        # A POP group acknowledges single messages: its states say more than yes and no.
        pops = any(row["state"] is not None for row in members)
        columns = [one for one in RETRY_VIEW if one.name != ("consumed" if pops else "state")]
        table(console, with_broker(columns, rows), shown)
    if not rows:
        console.print("no message is in a retry or dead-letter queue", style="dim")
    elif len(rows) < total:
        console.print(f"{_of('message', rows, total)} shown", style="dim")


def half_messages(console: Console, rows: Sequence[Row], total: int) -> None:
    """Print half messages, ``rows`` of ``total``, under the number of each state."""
    if not rows:
        console.print("every transaction was committed or rolled back", style="dim")
        return
    heading(console, _of("half message", rows, total), _by(rows, "state"))
    table(console, with_broker(HALF_VIEW, rows), rows)


def committed(console: Console, rows: Sequence[Row], _total: int) -> None:
    """Print the offsets of each group."""
    for group, members in each_group(console, rows):
        topics = several(len({row["topic"] for row in members}), "topic")
        heading(console, group, f"{several(len(members), 'queue')} of {topics}")
        table(console, with_broker(OFFSET_VIEW, rows), members)
    note_no_group(console, rows)


def summary(console: Console, rows: Sequence[Row], beside: Mapping[str, Aside]) -> None:
    """Print a line for each group, or for each tag of a group if the lines have a tag.

    Below stands what waits ``beside`` the backlog of groups.
    """
    same = all(row["lagMatching"] == row["lag"] for row in rows)
    absent = {"lagMatching"} if same else set()
    if all(row["consumers"] is None for row in rows):
        absent.add("consumers")
    absent |= {"tag"} if not any("tag" in row for row in rows) else set()
    if all(row["inflight"] is None and row["due"] is None for row in rows):
        absent |= POP_FIELDS
    columns = [one for one in SUMMARY_VIEW if one.name not in absent]
    table(console, columns, [{**row, "share": row["lagMatching"]} for row in rows])
    for group in dict.fromkeys(str(row["group"]) for row in rows):
        note_aside(console, beside.get(group), f"{group}: ")
    note_no_group(console, rows)


def compared(console: Console, rows: Sequence[Row], _total: int) -> None:
    """Print the backlog of each group beside the numbers of RocketMQ's tools."""
    for group, members in each_group(console, rows):
        reasons = Counter(str(row["difference"]) for row in members)
        note = ", ".join(f"{count(n)} {reason}" for reason, n in sorted(reasons.items()))
        heading(console, group, note)
        table(console, with_broker(COMPARE_VIEW, rows), members)
    note_no_group(console, rows)


def commits(console: Console, rows: Sequence[Row], _total: int) -> None:
    """Print the commits of stores."""
    if not rows:
        console.print("no commits of mqlog in this store", style="dim")
        return
    table(console, with_broker(COMMIT_VIEW, rows), rows)


_YES: Final[dict[object, str | None]] = {True: "yes", False: "no", None: None}


def _of(what: str, rows: Sequence[Row], total: int) -> str:
    """Return how many of ``what``, a noun in the singular, are shown of all there are."""
    of_all = f"{count(len(rows))} of " if len(rows) < total else ""
    return f"{of_all}{several(total, what)}"


def _by(rows: Sequence[Row], name: str) -> str:
    """Return how many rows have each word of a column."""
    numbers = Counter(str(row[name]) for row in rows)
    return ", ".join(f"{count(number)} {word}" for word, number in sorted(numbers.items()))


def groups(console: Console, rows: Sequence[Row], _total: int) -> None:
    """Print consumer groups, each with its consumers; of a store these are not known."""
    known = any(row["consumers"] is not None for row in rows)
    absent = set() if known else {"consumers", "messageModel"}
    shaped = [{**row, "configured": _YES[row["isConfigured"]]} for row in rows]
    _known_table(console, GROUP_VIEW, shaped, absent)
    if not rows:
        console.print(_NO_GROUP, style="dim")


def subscriptions(console: Console, rows: Sequence[Row], _total: int) -> None:
    """Print what groups take of topics."""
    _known_table(console, SUBSCRIPTION_VIEW, rows, set())
    if not rows:
        console.print(_NO_SUBSCRIPTION, style="dim")


def brokers(console: Console, rows: Sequence[Row], _total: int) -> None:
    """Print brokers and the sizes of their CommitLogs."""
    shaped = [
        {
            **row,
            "logBytes": number_of(row, "maxPhysicalOffset") - number_of(row, "minPhysicalOffset"),
        }
        for row in rows
    ]
    table(console, BROKER_VIEW, shaped)


def _known_table(
    console: Console, columns: Sequence[FieldView], rows: Sequence[Row], absent: set[str]
) -> None:
    """Print rows, if there are any; brokers' names if there are several."""
    if len({row["brokerName"] for row in rows}) < 2:
        absent = absent | {"brokerName"}
    if rows:
        table(console, [one for one in columns if one.name not in absent], rows)


def any_table(shown: Table) -> View:
    """Return the view of a table that has none of its own: all columns, each by its type."""

    def view(console: Console, rows: Sequence[Row], total: int) -> None:
        columns = [
            FieldView(field.name, _head(field.name), _kind(field), rank=number)
            for number, field in enumerate(shown.schema)
            if field.name != "brokerName"
        ]
        if rows:
            table(console, with_broker(columns, rows), rows)
        note = f"{_of('row', rows, total)} shown" if len(rows) < total else "no rows"
        if len(rows) < total or not rows:
            console.print(note, style="dim")

    return view


def view_of(shown: Table) -> View:
    """Return the function that prints rows of a table on a terminal."""
    return _VIEWS.get(shown.name) or any_table(shown)


def _head(name: str) -> str:
    """Return a column's name in words, upper case: queueId → QUEUE ID."""
    return re.sub(r"(?<=[a-z0-9])(?=[A-Z])", " ", name).upper()


def _kind(field: pa.Field) -> Kind:
    if pa.types.is_timestamp(field.type):
        return "time"
    if pa.types.is_integer(field.type):
        return "bytes" if "bytes" in field.name.lower() else "number"
    return "text"


_VIEWS: Final[dict[str, View]] = {
    "topics": topics,
    "queues": queues,
    "tags": tags,
    "scheduled": scheduled,
    "retries": retries,
    "halfmessages": half_messages,
    "offsets": committed,
    "lagcompare": compared,
    "commits": commits,
    "groups": groups,
    "subscriptions": subscriptions,
    "brokers": brokers,
    "latency": latency,
    "forecast": forecasts,
}
