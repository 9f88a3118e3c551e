"""The tables of a store on a terminal: their columns, heads and order.

Rows are those of mqstore.tables and mqstore.backlog, so a name here is a column of
``table=topics``, ``queues`` or ``backlog``. A row may have one more field, ``share``, for the bar
that compares the rows of one table.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import astuple
from datetime import datetime
from itertools import groupby
from typing import TYPE_CHECKING, Final

from rich.console import Console
from rich.text import Text

from mqlog_jobs.output.amounts import about_size, count, several, size
from mqlog_jobs.output.aside_text import aside_text
from mqlog_jobs.output.change_view import CHANGE_VIEW
from mqlog_jobs.output.group_lines import consumers_of
from mqlog_jobs.output.render import (
    ESTIMATED,
    FieldView,
    Row,
    fact,
    field_of,
    heading,
    number_of,
    table,
)
from mqstore.backlog.schema import AHEAD, EXPIRED, TOPIC_GONE
from mqstore.diagnosis import ERROR, GOOD, REMARK, WARNING, Diagnosis, folded, labels
from mqstore.errors import printable, shown
from mqstore.pop.state import UNKNOWN_POPS
from mqstore.tables.asides import Aside

if TYPE_CHECKING:
    from mqstore.check import Finding
    from mqstore.copy.copy_store import Copied

TOPIC_VIEW: Final = (
    FieldView("topic", "TOPIC", stretch=True, style="bold"),
    FieldView("perm", "PERM", rank=3),
    FieldView("readQueueNums", "QUEUES", "number", rank=2),
    FieldView("messageCount", "MESSAGES", "count"),
    FieldView("share", "", "bar", rank=1),
    FieldView("bytes", "SIZE", "bytes"),
)
QUEUE_VIEW: Final = (
    FieldView("topic", "TOPIC", stretch=True, once=True, style="bold"),
    FieldView("queueId", "QUEUE", "number"),
    FieldView("minOffset", "MIN", "count", rank=2),
    FieldView("maxOffset", "MAX", "count"),
    FieldView("messageCount", "MESSAGES", "count"),
    FieldView("share", "", "bar", rank=3),
    FieldView("bytes", "SIZE", "bytes", rank=1),
    FieldView("minStoreTimestamp", "FIRST STORED (UTC)", "time", rank=5),
    FieldView("maxStoreTimestamp", "LAST STORED (UTC)", "time", rank=4),
)
REPLAY_VIEW: Final = (
    FieldView("brokerName", "BROKER", once=True, rank=2),
    FieldView("topic", "TOPIC", stretch=True, once=True, style="bold"),
    FieldView("queueId", "QUEUE", "number"),
    FieldView("messages", "MESSAGES", "count"),
    FieldView("bodyBytes", "BODIES", "bytes", rank=3),
    FieldView("newTopic", "TO TOPIC", style="bold"),
    FieldView("newBrokerName", "TO BROKER", rank=1),
    FieldView("newQueueId", "TO QUEUE", "number"),
)
CARRIED_VIEW: Final = (
    FieldView("group", "GROUP", stretch=True, once=True, style="bold"),
    FieldView("brokerName", "BROKER", rank=2),
    FieldView("topic", "TOPIC", stretch=True),
    FieldView("queueId", "QUEUE", "number"),
    FieldView("consumerOffset", "COMMITTED", "count"),
    FieldView("waiting", "WAITING", "count"),
    FieldView("replayed", "OF THEM THERE", "count", rank=1),
    FieldView("newTopic", "IN TOPIC", rank=4),
    FieldView("newBrokerName", "ON BROKER", rank=3),
    FieldView("newQueueId", "IN QUEUE", "number"),
    FieldView("newOffset", "GOES ON AT", "count"),
    FieldView("again", "AT MOST AGAIN", "count", rank=5),
)
BACKLOG_VIEW: Final = (
    FieldView("topic", "TOPIC", stretch=True, once=True, style="bold"),
    FieldView("queueId", "QUEUE", "number"),
    FieldView("tag", "TAG", rank=1, style="cyan"),
    FieldView("brokerOffset", "BROKER", "count", rank=4),
    FieldView("consumerOffset", "CONSUMER", "count", rank=3),
    FieldView("lag", "LAG", "count"),
    FieldView("lagMatching", "MATCHING", "count"),
    FieldView("ready", "READY", "count", rank=7),
    FieldView("inflight", "IN FLIGHT", "count"),
    FieldView("due", "DUE", "count"),
    FieldView("mode", "MODE", rank=1, style="cyan"),
    FieldView("share", "", "bar", rank=6),
    FieldView("bytesBehind", "BEHIND", "bytes", rank=5),
    FieldView("lagMs", "WAITS FOR", "span", rank=2),
    FieldView("status", "STATUS", "status"),
)
POP_FIELDS: Final = frozenset({"mode", "ready", "inflight", "due"})
"""Of groups that acknowledge single messages; null, or PULL, of others."""
MESSAGE_VIEW: Final = (
    FieldView("queueId", "QUEUE", "number"),
    FieldView("queueOffset", "OFFSET", "count"),
    FieldView("storeTimestamp", "STORED (UTC)", "time", rank=2),
    FieldView("tags", "TAG", style="cyan"),
    FieldView("keys", "KEYS", rank=1),
    FieldView("body", "BODY", stretch=True),
)
MESSAGE_COLUMNS: Final = ("brokerName", *(column.name for column in MESSAGE_VIEW))
_NO_OFFSET: Final = (
    "no committed offsets: no consumer group has any, or --group and --topic choose none"
)
_REPAIR: Final = (
    "Repair: a broker recovers its store when it starts; see also mqlog recover -h (a commit that "
    "was interrupted) and mqlog salvage -h (a damaged disk)"
)
FINDINGS: Final = (
    FieldView("severity", "SEVERITY", "status"),
    FieldView("place", "PLACE", rank=1),
    FieldView("file", "FILE", rank=2),
    FieldView("position", "AT BYTE", "count", rank=3),
    FieldView("problem", "PROBLEM", stretch=True, wrap=True),
)
TAG_VIEW: Final = (
    FieldView("topic", "TOPIC", stretch=True, once=True, style="bold"),
    FieldView("tag", "TAG", style="cyan"),
    FieldView("messageCount", "MESSAGES", "count"),
    FieldView("share", "", "bar", rank=3),
    FieldView("bytes", "SIZE", "bytes", rank=1),
    FieldView("firstStoreTimestamp", "FIRST STORED (UTC)", "time", rank=4),
    FieldView("lastStoreTimestamp", "LAST STORED (UTC)", "time", rank=2),
)
_ONE_LOOK: Final = "whether consumers work, two looks tell: mqlog why PLACE --look-again 15s"
# Without messages waiting, and yet not consumed.
_ODD: Final = {AHEAD, EXPIRED, TOPIC_GONE, *UNKNOWN_POPS}
# Fields that the heading has, or that repeat another one.
_NOT_ON_A_CARD: Final = {"topic", "queueId", "queueOffset", "properties", "body", "tagsCode"}
_MARKS: Final = {
    GOOD: ("✓", "green"),
    REMARK: ("·", "dim"),
    WARNING: ("!", "bold yellow"),
    ERROR: ("✗", "bold red"),
}
_PERMISSIONS: Final = ((4, "R"), (2, "W"), (1, "X"))  # PermName#PERM_READ, _WRITE, _INHERIT


def row_of(finding: "Finding") -> dict[str, object]:
    """Return a finding of a check as a row of ``table=verify``, without the broker's name."""
    from mqstore.tables import verify  # noqa: PLC0415 - few views show findings

    return dict(zip(verify.SCHEMA.names, astuple(finding), strict=False))


def topics(console: Console, rows: Sequence[Row], _total: int) -> None:
    """Print topics, those with the most messages first."""
    most_first = sorted(rows, key=lambda row: (-number_of(row, "messageCount"), str(row["topic"])))
    shaped = [
        {**row, "perm": _perm(row["perm"]), "share": row["messageCount"]} for row in most_first
    ]
    table(console, with_broker(TOPIC_VIEW, rows), shaped)


def queues(console: Console, rows: Sequence[Row], _total: int) -> None:
    """Print queues, topic by topic."""
    table(
        console,
        with_broker(QUEUE_VIEW, rows),
        [{**row, "share": row["messageCount"]} for row in rows],
    )


def replay_plan(console: Console, rows: Sequence[Row]) -> None:
    """Print what a replay would send where, and the sums above it."""
    messages = sum(number_of(row, "messages") for row in rows)
    total = sum(number_of(row, "bodyBytes") for row in rows)
    heading(console, "replay", f"{several(messages, 'message')}, {size(total)} would be sent")
    table(console, REPLAY_VIEW, rows)


def carried_groups(console: Console, rows: Sequence[Row]) -> None:
    """Print where groups go on in the target of a replay, or would."""
    heading(console, "groups", several(len(rows), "queue"))
    table(console, CARRIED_VIEW, rows)


def backlog(
    console: Console, rows: Sequence[Row], beside: Mapping[str, Aside] | None = None
) -> None:
    """Print one table for each group, with the sum of its waiting messages above it.

    Below a table stands what waits ``beside`` the backlog of the group.
    """
    for group, members in each_group(console, rows):
        heading(console, group, _summary(members))
        table(
            console,
            _of_backlog(members, rows),
            [{**row, "share": row["lagMatching"]} for row in members],
        )
        note_aside(console, (beside or {}).get(group))
    note_no_group(console, rows)
    if any(row["lagMatching"] for row in rows):
        console.print(Text(_ONE_LOOK, style="dim"), soft_wrap=True)


def each_group(console: Console, rows: Sequence[Row]) -> Iterator[tuple[str, list[Row]]]:
    """Yield each consumer group with its rows, which stand together; print a line between two."""
    for number, (group, members) in enumerate(groupby(rows, key=lambda row: row["group"])):
        if number:
            console.print()
        yield str(group), list(members)


def note_aside(console: Console, aside: Aside | None, of: str = "") -> None:
    """Print what waits beside a backlog, behind whose it is, if anything does."""
    told = aside_text(aside) if aside else ""
    if told:
        console.print(Text(printable(f"{of}{told}"), style="yellow"), soft_wrap=True)


def note_no_group(console: Console, rows: Sequence[Row]) -> None:
    """Print that no committed offset was found, if there are no rows."""
    if not rows:
        console.print(_NO_OFFSET, style="dim")


def messages(console: Console, rows: Sequence[Row]) -> None:
    """Print messages, or their changes, one on each line."""
    view = MESSAGE_VIEW if "op" not in rows[0] else CHANGE_VIEW
    table(console, with_broker(view, rows), rows)


def cards(console: Console, rows: Iterable[Row]) -> int:
    """Print each message as a list of its fields; return how many there were."""
    number = 0
    for number, row in enumerate(rows, 1):
        if number > 1:
            console.print()
        heading(console, str(place_of(row)))
        for name, value in row.items():
            if name not in _NOT_ON_A_CARD and value is not None:
                _fact(console, name, value)
        properties = row.get("properties")
        for name, value in properties if isinstance(properties, list) else ():
            _fact(console, f"· {name}", value)
        if "body" in row:
            _fact(console, "body", row["body"])
    return number


def tags(console: Console, rows: Sequence[Row], _total: int) -> None:
    """Print the tags of each topic over all its queues, the most used first."""
    by_tag: dict[tuple[object, object], dict[str, object]] = {}
    for row in rows:
        sums = by_tag.setdefault((row["topic"], row["tag"]), {**row, "messageCount": 0, "bytes": 0})
        for name in ("messageCount", "bytes"):
            sums[name] = number_of(sums, name) + number_of(row, name)
        for name, choose in (("firstStoreTimestamp", min), ("lastStoreTimestamp", max)):
            times = [time for time in (sums[name], row[name]) if isinstance(time, datetime)]
            sums[name] = choose(times, default=None)
    most_first = sorted(
        by_tag.values(), key=lambda row: (str(row["topic"]), -number_of(row, "messageCount"))
    )
    table(console, TAG_VIEW, [{**row, "share": row["messageCount"]} for row in most_first])


def copied(console: Console, copy: "Copied", target: str) -> None:
    """Print the contents of a copy of a store."""
    queues = copy.snapshot.queues
    messages = several(sum(q.high - q.low for q in queues), "message")
    total = f"{messages} in {several(len(queues), 'queue')}"
    console.print(Text.assemble((total, "green"), f" copied to {shown(target)}"), soft_wrap=True)
    sizes = f"{size(copy.linked_bytes)} by links, {size(copy.copied_bytes)} as bytes"
    console.print(Text(sizes, style="dim"))
    for path in copy.left_out:
        console.print(Text(f"left out, it cannot be read: {shown(path)}", style="yellow"))


def row_of_copy(copy: "Copied", target: str) -> Row:
    """Return the contents of a copy of a store as a row."""
    queues = copy.snapshot.queues
    return {
        "brokerName": copy.snapshot.broker_name,
        "target": target,
        "queues": len(queues),
        "messageCount": sum(queue.high - queue.low for queue in queues),
        "linkedBytes": copy.linked_bytes,
        "copiedBytes": copy.copied_bytes,
        "leftOut": list(copy.left_out),
    }


def findings(console: Console, store: str, rows: Sequence[Row], *, named: bool = False) -> None:
    """Print the findings of a check, or that there are none; ``named``: under the store's path."""
    if rows:
        if named:
            heading(console, store)
        placed = [{**row, "place": place_of(row), "problem": _problem(row)} for row in rows]
        has_place = any(row["place"] is not None for row in placed)
        columns = [column for column in FINDINGS if has_place or column.name != "place"]
        table(console, columns, placed)
        if console.is_terminal and any(row["severity"] == "error" for row in rows):
            console.print(_REPAIR, style="dim", soft_wrap=True)
    else:
        console.print(f"{shown(store)}: whole, every rule holds", markup=False)


def _problem(row: Row) -> str:
    """Return the broken rule of a finding, and how many others are broken only because of it."""
    number = number_of(row, "consequences")
    behind = f", and {several(number, 'consequence')}" if number else ""
    return f"{row['problem']}{behind}"


def diagnoses(console: Console, found: Sequence[Diagnosis]) -> None:
    """Print each diagnosis, once if it is that of several names: a mark, and advice below it."""
    plain = not console.encoding.startswith("utf")
    lines = folded(found)
    for diagnosis, label in zip(lines, labels(lines), strict=True):
        mark, style = _MARKS[diagnosis.severity]
        head = (f"{diagnosis.severity:<7}" if plain else mark, style)
        line = Text.assemble(head, "  ", (label, "bold"), "  ", shown(diagnosis.found))
        console.print(line, soft_wrap=True)
        if diagnosis.advice:
            console.print(Text(f"   {printable(diagnosis.advice)}", style="dim"), soft_wrap=True)


def _fact(console: Console, name: str, value: object) -> None:
    line = Text.assemble("  ", (f"{shown(name):<26}", "cyan"), fact(value))
    console.print(line, soft_wrap=True)


def _summary(rows: Sequence[Row]) -> str:
    lag = sum(number_of(row, "lag") for row in rows)
    odd = sorted({str(row["status"]) for row in rows} & _ODD)
    if not lag:
        told = f"no messages waiting, but {', '.join(odd)}" if odd else "has consumed everything"
        return f"{told}{_consumers(rows)}"
    summary = f"{several(lag, 'message')} waiting, {_behind(rows)}"
    expressions = sorted({str(row["subscription"]) for row in rows if row["subscription"]} - {"*"})
    if expressions:
        matching = sum(number_of(row, "lagMatching") for row in rows)
        summary += f"; {count(matching)} match {', '.join(expressions)}"
    return f"{summary}{_consumers(rows)}"


def _consumers(rows: Sequence[Row]) -> str:
    number = consumers_of(rows)
    if number is None:
        return ""
    return f"; {several(number, 'consumer')}" if number else "; no consumers"


def _behind(rows: Sequence[Row]) -> str:
    name = field_of(rows[0], "bytesBehind")
    behind = sum(number_of(row, name) for row in rows)
    return about_size(behind) if name.endswith(ESTIMATED) else size(behind)


def _of_backlog(rows: Sequence[Row], all_rows: Sequence[Row]) -> list[FieldView]:
    """Return the backlog's columns without those that would be the same in all of these rows.

    The broker's name stays if ``all_rows``, those of all groups, have several.
    """
    redundant = set()
    if all(row["lagMatching"] == row["lag"] for row in rows):
        redundant.add("lagMatching")
    if all(row["tag"] is None for row in rows):
        redundant.add("tag")
    if all(row["ready"] is None for row in rows):
        redundant |= POP_FIELDS
    return [
        column for column in with_broker(BACKLOG_VIEW, all_rows) if column.name not in redundant
    ]


def with_broker(columns: Iterable[FieldView], rows: Sequence[Row]) -> list[FieldView]:
    """Return the columns, with the broker's name first if the rows are of several brokers."""
    brokers = {row["brokerName"] for row in rows}
    broker = [FieldView("brokerName", "BROKER NAME", once=True)] if len(brokers) > 1 else []
    return [*broker, *columns]


def place_of(row: Row) -> str | None:
    """Return TOPIC/QUEUE@OFFSET, as ``mqlog cat`` takes it, without the parts that are null."""
    if row["topic"] is None:
        return None
    place = str(row["topic"])
    for mark, name in (("/", "queueId"), ("@", "queueOffset")):
        if row[name] is None:
            break
        place += f"{mark}{row[name]}"
    return place


def _perm(value: object) -> str:
    bits = value if isinstance(value, int) else 0
    return "".join(letter if bits & bit else "-" for bit, letter in _PERMISSIONS)
