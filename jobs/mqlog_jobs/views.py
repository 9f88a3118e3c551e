"""The tables of a store as people see them: which columns, under which heads, in which order.

Rows are those of mqstore.tables and mqstore.backlog, so a name here is a column of
``table=topics``, ``queues`` or ``backlog``. A row may carry one thing more, ``share``, for the
bar that compares the rows of one table.
"""

from collections.abc import Iterable, Sequence
from datetime import datetime
from itertools import groupby
from typing import Final

import pyarrow as pa
from rich.console import Console
from rich.text import Text

from mqlog_jobs.doctor import ERROR, OK, WARNING, Diagnosis
from mqlog_jobs.render import Column, Row, count, fact, heading, size, table
from mqstore.backlog.schema import AHEAD, EXPIRED, TOPIC_GONE
from mqstore.check import Finding
from mqstore.copy.copy_store import Copied
from mqstore.errors import shown

TOPICS: Final = (
    Column("topic", "TOPIC", stretch=True, style="bold"),
    Column("perm", "PERM", rank=3),
    Column("readQueueNums", "QUEUES", "number", rank=2),
    Column("messageCount", "MESSAGES", "count"),
    Column("share", "", "bar", rank=1),
    Column("bytes", "SIZE", "bytes"),
)
QUEUES: Final = (
    Column("topic", "TOPIC", stretch=True, once=True, style="bold"),
    Column("queueId", "QUEUE", "number"),
    Column("minOffset", "MIN", "count", rank=2),
    Column("maxOffset", "MAX", "count"),
    Column("messageCount", "MESSAGES", "count"),
    Column("share", "", "bar", rank=3),
    Column("bytes", "SIZE", "bytes", rank=1),
    Column("minStoreTimestamp", "FIRST STORED (UTC)", "time", rank=5),
    Column("maxStoreTimestamp", "LAST STORED (UTC)", "time", rank=4),
)
BACKLOG: Final = (
    Column("topic", "TOPIC", stretch=True, once=True, style="bold"),
    Column("queueId", "QUEUE", "number"),
    Column("tag", "TAG", rank=1, style="cyan"),
    Column("brokerOffset", "BROKER", "count", rank=4),
    Column("consumerOffset", "CONSUMER", "count", rank=3),
    Column("lag", "LAG", "count"),
    Column("lagMatching", "MATCHING", "count"),
    Column("share", "", "bar", rank=6),
    Column("bytesBehind", "BEHIND", "bytes", rank=5),
    Column("lagMs", "WAITS FOR", "span", rank=2),
    Column("status", "STATUS", "status"),
)
MESSAGES: Final = (
    Column("queueId", "QUEUE", "number"),
    Column("queueOffset", "OFFSET", "count"),
    Column("storeTimestamp", "STORED (UTC)", "time", rank=2),
    Column("tags", "TAG", style="cyan"),
    Column("keys", "KEYS", rank=1),
    Column("body", "BODY", stretch=True),
)
MESSAGE_COLUMNS: Final = tuple(column.name for column in MESSAGES)
FINDINGS: Final = (
    Column("severity", "SEVERITY", "status"),
    Column("place", "PLACE", rank=1),
    Column("file", "FILE", rank=2),
    Column("position", "AT BYTE", "count", rank=3),
    Column("problem", "PROBLEM", stretch=True),
)
TAGS: Final = (
    Column("topic", "TOPIC", stretch=True, once=True, style="bold"),
    Column("tag", "TAG", style="cyan"),
    Column("messageCount", "MESSAGES", "count"),
    Column("share", "", "bar", rank=3),
    Column("bytes", "SIZE", "bytes", rank=1),
    Column("firstStoreTimestamp", "FIRST STORED (UTC)", "time", rank=4),
    Column("lastStoreTimestamp", "LAST STORED (UTC)", "time", rank=2),
)
_ODD: Final = {AHEAD, EXPIRED, TOPIC_GONE}  # What is not waiting is not consumed either.
# Told above the others, or no use to a person beside them.
_NOT_ON_A_CARD: Final = {"topic", "queueId", "queueOffset", "properties", "body", "tagsCode"}
_MARKS: Final = {OK: ("✓", "green"), WARNING: ("!", "bold yellow"), ERROR: ("✗", "bold red")}
_PERMISSIONS: Final = ((4, "R"), (2, "W"), (1, "X"))  # PermName#PERM_READ, _WRITE, _INHERIT


def rows_of(batch: pa.RecordBatch | pa.Table) -> list[dict[str, object]]:
    """Return the rows of a batch as dictionaries, columns in the batch's order."""
    rows: list[dict[str, object]] = batch.to_pylist()
    return rows


def row_of(finding: Finding) -> dict[str, object]:
    """Return a finding of a check as a row of ``table=verify``."""
    return {
        "severity": finding.severity,
        "file": finding.file,
        "position": finding.position,
        "topic": finding.topic,
        "queueId": finding.queue_id,
        "queueOffset": finding.queue_offset,
        "problem": finding.problem,
    }


def topics(console: Console, rows: Sequence[Row]) -> None:
    """Print topics, the fullest first."""
    most_first = sorted(rows, key=lambda row: (-_number(row, "messageCount"), str(row["topic"])))
    shaped = [
        {**row, "perm": _perm(row["perm"]), "share": row["messageCount"]} for row in most_first
    ]
    table(console, _about(TOPICS, rows), shaped)


def queues(console: Console, rows: Sequence[Row]) -> None:
    """Print queues, topic by topic."""
    table(console, _about(QUEUES, rows), [{**row, "share": row["messageCount"]} for row in rows])


def backlog(console: Console, rows: Sequence[Row]) -> None:
    """Print one table a group, the sum of its waiting messages above it."""
    for number, (group, its) in enumerate(groupby(rows, key=lambda row: row["group"])):
        members = list(its)
        if number:
            console.print()
        heading(console, str(group), _standing(members))
        table(console, _waiting(members), [{**row, "share": row["lagMatching"]} for row in members])
    if not rows:
        console.print("no consumer group has committed an offset to this store", style="dim")


def messages(console: Console, rows: Sequence[Row]) -> None:
    """Print messages, one a line."""
    table(console, MESSAGES, rows)


def cards(console: Console, rows: Iterable[Row]) -> int:
    """Print each message as a list of what is known of it; return how many there were."""
    number = 0
    for number, row in enumerate(rows, 1):
        if number > 1:
            console.print()
        heading(console, str(_place(row)))
        for name, value in row.items():
            if name not in _NOT_ON_A_CARD and value is not None:
                _fact(console, name, value)
        properties = row["properties"]
        for name, value in properties if isinstance(properties, list) else ():
            _fact(console, f"· {name}", value)
        _fact(console, "body", row["body"])
    return number


def tags(console: Console, rows: Sequence[Row]) -> None:
    """Print the tags of each topic over all its queues, the most used first."""
    found: dict[tuple[object, object], dict[str, object]] = {}
    for row in rows:
        sums = found.setdefault((row["topic"], row["tag"]), {**row, "messageCount": 0, "bytes": 0})
        for name in ("messageCount", "bytes"):
            sums[name] = _number(sums, name) + _number(row, name)
        for name, choose in (("firstStoreTimestamp", min), ("lastStoreTimestamp", max)):
            times = [time for time in (sums[name], row[name]) if isinstance(time, datetime)]
            sums[name] = choose(times, default=None)
    most_first = sorted(
        found.values(), key=lambda row: (str(row["topic"]), -_number(row, "messageCount"))
    )
    table(console, TAGS, [{**row, "share": row["messageCount"]} for row in most_first])


def copied(console: Console, found: Copied, target: str) -> None:
    """Print what a copy of a store has."""
    queues = found.snapshot.queues
    told = f"{count(sum(q.high - q.low for q in queues))} messages in {count(len(queues))} queues"
    console.print(Text.assemble((told, "green"), f" copied to {shown(target)}"), soft_wrap=True)
    sizes = f"{size(found.linked_bytes)} by links, {size(found.copied_bytes)} as bytes"
    console.print(Text(sizes, style="dim"))
    for path in found.left_out:
        console.print(Text(f"left out, for it cannot be read: {shown(path)}", style="yellow"))


def findings(console: Console, store: str, rows: Sequence[Row]) -> None:
    """Print what a check found, or that it found nothing."""
    if rows:
        placed = [{**row, "place": _place(row)} for row in rows]
        told = any(row["place"] is not None for row in placed)
        columns = [column for column in FINDINGS if told or column.name != "place"]
        table(console, columns, placed)
    else:
        console.print(f"{shown(store)}: whole, every rule holds", markup=False)


def diagnoses(console: Console, found: Iterable[Diagnosis]) -> None:
    """Print diagnoses as they come: a mark, what was found, and below it what to do."""
    plain = not console.encoding.startswith("utf")
    for diagnosis in found:
        mark, style = _MARKS[diagnosis.severity]
        head = (diagnosis.severity if plain else mark, style)
        told = Text.assemble(head, "  ", (f"{diagnosis.subject:<17}", "bold"))
        told.append(shown(diagnosis.found))
        console.print(told, soft_wrap=True)
        if diagnosis.advice:
            console.print(Text(f"   {diagnosis.advice}", style="dim"), soft_wrap=True)


def _fact(console: Console, name: str, value: object) -> None:
    told = Text.assemble(("  ", ""), (f"{shown(name):<26}", "cyan"), (fact(value), ""))
    console.print(told, soft_wrap=True)


def _standing(rows: Sequence[Row]) -> str:
    lag = sum(_number(row, "lag") for row in rows)
    behind = sum(_number(row, "bytesBehind") for row in rows)
    odd = sorted({str(row["status"]) for row in rows} & _ODD)
    if not lag:
        return f"no messages waiting, but {', '.join(odd)}" if odd else "has consumed everything"
    said = f"{count(lag)} messages waiting, {size(behind)}"
    expressions = sorted({str(row["subscription"]) for row in rows if row["subscription"]} - {"*"})
    if expressions:
        matching = sum(_number(row, "lagMatching") for row in rows)
        said += f"; {count(matching)} match {', '.join(expressions)}"
    return said


def _waiting(rows: Sequence[Row]) -> list[Column]:
    """Return the backlog's columns without those that say nothing about these rows."""
    silent = set()
    if all(row["lagMatching"] == row["lag"] for row in rows):
        silent.add("lagMatching")
    if all(row["tag"] is None for row in rows):
        silent.add("tag")
    return [column for column in _about(BACKLOG, rows) if column.name not in silent]


def _about(columns: Iterable[Column], rows: Sequence[Row]) -> list[Column]:
    """Put the broker's name first when the rows are of several."""
    brokers = {row["brokerName"] for row in rows}
    several = [Column("brokerName", "BROKER NAME", once=True)] if len(brokers) > 1 else []
    return [*several, *columns]


def _place(row: Row) -> str | None:
    """Return TOPIC/QUEUE@OFFSET, as ``mqlog cat`` takes it, as far as the row tells it."""
    if row["topic"] is None:
        return None
    place = str(row["topic"])
    for mark, name in (("/", "queueId"), ("@", "queueOffset")):
        if row[name] is None:
            break
        place += f"{mark}{row[name]}"
    return place


def _number(row: Row, name: str) -> int:
    value = row[name]
    return value if isinstance(value, int) else 0


def _perm(value: object) -> str:
    bits = value if isinstance(value, int) else 0
    return "".join(letter if bits & bit else "-" for bit, letter in _PERMISSIONS)
