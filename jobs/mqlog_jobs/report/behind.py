"""Sums the backlog by group and topic, over all brokers and queues.

Lag is exact, whatever its length. Bytes are those of at most ``_MEASURED_MESSAGES`` messages, the
first that each group has before it; where there are more, these stand for the others.
"""

from collections import defaultdict
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import Final

import numpy as np

from mqlog_jobs.output.form import rows_of
from mqlog_jobs.output.group_lines import consumers_of
from mqlog_jobs.report.facts import Behind
from mqstore.backlog import BacklogItem, BacklogRequest, measure
from mqstore.backlog.request import LATE_AFTER_MS
from mqstore.backlog.schema import OK
from mqstore.backlog.standing import Standing
from mqstore.read.source import Origin, QueueSlice
from mqstore.tables.asides import Aside

_MEASURED_MESSAGES: Final = 20_000_000
_MS_OF_A_SECOND: Final = 1000

Pair = tuple[str, str]
"""A group and a topic."""


@dataclass(frozen=True, slots=True)
class Waiting:
    """How far groups are behind, and the ranges of queues that are before each of them.

    ``asides`` are what waits beside, by group.
    """

    behind: tuple[Behind, ...]
    ranges: Mapping[Pair, Sequence[QueueSlice]]
    asides: Mapping[str, Aside] = field(default_factory=dict)


def waiting(
    items: Sequence[BacklogItem],
    as_of_ms: int,
    most_messages: int = _MEASURED_MESSAGES,
    estimating: Collection[Origin] = (),
    late_after_ms: int = LATE_AFTER_MS,
) -> Waiting:
    """Return the rows of those items by group and topic, the longest lag first.

    ``estimating`` are the origins that estimate the bytes of messages: clusters;
    ``late_after_ms`` as in BacklogRequest.
    Raises what reading ConsumeQueues raises.
    """
    if not items:
        return Waiting((), {})
    standing = Standing.of(items)
    starts, lags = standing.start, standing.lag
    most = max(most_messages // max(int(np.count_nonzero(lags)), 1), 1)
    looked = np.minimum(lags, most)
    ends = (starts + looked).tolist()
    short = [
        replace(item, high=end) if lag > part else item
        for item, end, lag, part in zip(items, ends, lags.tolist(), looked.tolist(), strict=True)
    ]
    rows = rows_of(measure(short, BacklogRequest(late_after_ms=late_after_ms), as_of_ms))
    pairs: defaultdict[Pair, list[_Row]] = defaultdict(list)
    for item, row, lag, part in zip(items, rows, lags.tolist(), looked.tolist(), strict=True):
        about = bool(lag) and (lag > part or item.origin in estimating)
        pairs[item.group, item.topic].append(_Row(row, lag, part, about))
    ranges: defaultdict[Pair, list[QueueSlice]] = defaultdict(list)
    for item, start, lag in zip(items, starts.tolist(), lags.tolist(), strict=True):
        if lag:
            place = item.origin, item.broker_name, item.topic, item.queue_id
            ranges[item.group, item.topic].append(QueueSlice(*place, start, start + lag))
    found = [_behind(pair, members) for pair, members in pairs.items()]
    return Waiting(tuple(sorted(found, key=lambda b: (-b.lag, b.group, b.topic))), ranges)


@dataclass(frozen=True, slots=True)
class _Row:
    """A queue of a group: its row of ``table=backlog``, measured over ``part`` of ``lag``.

    ``about``: its bytes are an estimate.
    """

    row: Mapping[str, object]
    lag: int
    part: int
    about: bool

    def number(self, name: str) -> int:
        value = self.row[name]
        assert isinstance(value, int)
        return value

    def ms(self, name: str) -> int | None:
        value = self.row[name]
        return round(value.timestamp() * _MS_OF_A_SECOND) if isinstance(value, datetime) else None

    @property
    def bytes(self) -> int:
        measured = self.number("bytesBehind")
        return round(measured * self.lag / self.part) if self.lag > self.part else measured


def _behind(pair: Pair, rows: Sequence[_Row]) -> Behind:
    oldest = [ms for row in rows if (ms := row.ms("firstUnconsumedStoreTimestamp")) is not None]
    consumed = [ms for row in rows if (ms := row.ms("lastConsumedStoreTimestamp")) is not None]
    return Behind(
        *pair,
        queues=len(rows),
        lag=sum(row.lag for row in rows),
        bytes=sum(row.bytes for row in rows),
        is_weighed=any(row.about for row in rows),
        expired=sum(row.number("expired") for row in rows),
        oldest_ms=min(oldest, default=None),
        consumed_ms=max(consumed, default=None),
        statuses=tuple(sorted({str(row.row["status"]) for row in rows} - {OK})),
        consumers=consumers_of(row.row for row in rows),
    )
