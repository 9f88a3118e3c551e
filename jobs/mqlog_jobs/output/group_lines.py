"""The backlog of each group in one line, and backlogs in the order of their size."""

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from typing import Final

from mqlog_jobs.output.render import Row, field_of, number_of
from mqstore.backlog.schema import OK
from mqstore.tables.asides import Aside

_SUMS: Final = ("lag", "lagMatching", "expired", "bytesBehind")
_SUMS_OF_POPS: Final = ("inflight", "due")


def group_lines(
    rows: Iterable[Row], beside: Mapping[str, Aside] | None = None, *, by_tag: bool = False
) -> list[Row]:
    """Return a line for each group of the backlog's rows, over all brokers, topics and queues.

    lag, lagMatching, expired and bytesBehind (or its estimate) are sums, lagMs the largest; so are
    inflight and due, null of a group that pops nothing, or of which that is not known;
    consumers are those of the broker with the most; status has the words that are not OK.
    ``by_tag``: the rows are of tags, and so are the lines, the largest lag first. ``beside`` has
    what waits beside the backlog: retryMessages, deadLetters and halfMessages of a line.
    """
    groups: defaultdict[str, list[Row]] = defaultdict(list)
    for row in rows:
        groups[str(row["group"])].append(row)
    if by_tag:
        return [line for group, members in groups.items() for line in _tag_lines(group, members)]
    return [
        {**_line({"group": group}, members), **_beside((beside or {}).get(group))}
        for group, members in groups.items()
    ]


def by_lag(rows: Sequence[Row]) -> list[Row]:
    """Return the rows, those of the group with the largest lag first; of it the largest first."""
    sums: defaultdict[object, int] = defaultdict(int)
    for row in rows:
        sums[row["group"]] += number_of(row, "lag")
    return sorted(
        rows, key=lambda row: (-sums[row["group"]], str(row["group"]), -number_of(row, "lag"))
    )


def consumers_of(rows: Iterable[Row]) -> int | None:
    """Return how many consumers a group has, of rows with ``consumers``; None: it is not known.

    A consumer is connected to all brokers of its topics, and each broker counts it.
    """
    known = [found for row in rows if isinstance(found := row["consumers"], int)]
    return max(known, default=None)


def _beside(aside: Aside | None) -> Row:
    return {
        "retryMessages": aside and aside.retries,
        "deadLetters": aside and aside.dead_letters,
        "halfMessages": aside and aside.half_messages,
    }


def _tag_lines(group: str, rows: Sequence[Row]) -> list[Row]:
    """Return a line for each tag of a group; a queue without waiting messages has no tag."""
    tags: defaultdict[object, list[Row]] = defaultdict(list)
    for row in [row for row in rows if row["lag"] or row["status"] != OK] or rows:
        tags[row["tag"]].append(row)
    lines = [_line({"group": group, "tag": tag}, members) for tag, members in tags.items()]
    return sorted(lines, key=lambda line: -number_of(line, "lag"))


def _line(of: Row, rows: Sequence[Row]) -> Row:
    ages = [age for row in rows if isinstance(age := row["lagMs"], int)]
    sums = [field_of(rows[0], name) for name in _SUMS]
    words = sorted({str(row["status"]) for row in rows} - {OK})
    return {
        **of,
        "topics": len({row["topic"] for row in rows}),
        "consumers": consumers_of(rows),
        "queues": len({(row["brokerName"], row["topic"], row["queueId"]) for row in rows}),
        **{name: sum(number_of(row, name) for row in rows) for name in sums},
        **{name: _known_sum(rows, name) for name in _SUMS_OF_POPS},
        "lagMs": max(ages, default=None),
        "status": ", ".join(words) or OK,
        "asOf": rows[0]["asOf"],
    }


def _known_sum(rows: Iterable[Row], name: str) -> int | None:
    known = [found for row in rows if isinstance(found := row[name], int)]
    return sum(known) if known else None
