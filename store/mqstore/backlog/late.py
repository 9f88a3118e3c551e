"""The status of groups as the rows of a backlog have it, LATE too, without counting what waits.

Of each queue one time is needed: when the first message that the group has to consume was stored.
It is remembered between looks, and read again only where the group may be late.
"""

import logging
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Final, TypeAlias

import pyarrow as pa

from mqstore.backlog.items import BacklogItem
from mqstore.backlog.measure import measure
from mqstore.backlog.request import EXACT, BacklogRequest
from mqstore.backlog.schema import LATE, OK
from mqstore.backlog.standing import Standing
from mqstore.codec import compute as pc
from mqstore.errors import StoreError, is_of_absence
from mqstore.read.source import Origin

_LOG: Final = logging.getLogger(__name__)
_GroupOfQueue: TypeAlias = tuple[Origin, str, str, int]
_US: Final = 1000


@dataclass(frozen=True, slots=True)
class _First:
    """The first message of [start, end) that passes an expression: when it was stored (ms).

    None: no message of them passes.
    """

    expression: tuple[str | None, str | None]
    start: int
    end: int
    stored_ms: int | None

    def is_of(self, item: BacklogItem, start: int) -> bool:
        return self.expression == item.expression and self.start <= start


class Statuses:
    """Tells the statuses of groups, look after look. A message is stored later than one before it.

    ``most``: in one look so many queues are read, the others in the next ones; None: all.
    """

    def __init__(self, request: BacklogRequest, most: int | None = None) -> None:
        self._request = replace(request, by_tag=False, lag_mode=EXACT)
        self._most = most
        self._firsts: dict[_GroupOfQueue, _First] = {}

    def of(self, items: Sequence[BacklogItem], as_of_ms: int) -> list[str]:
        """Return the status of each item at ``as_of_ms`` (epoch).

        Of a message that cannot be read it is not known how long it waits. Raises what reading a
        broker raises that is away.
        """
        if not items:
            return []
        standing = Standing.of(items)
        words: list[str] = standing.status.to_pylist()
        starts = [_start(*pair) for pair in zip(items, standing.start.tolist(), strict=True)]
        lags = standing.lag.tolist()
        chosen = [n for n, word in enumerate(words) if word == OK and lags[n]]
        self._read([(items[n], starts[n]) for n in chosen], as_of_ms)
        for number in chosen:
            first = self._known(items[number], starts[number])
            if first is not None and self._is_late(first, as_of_ms):
                words[number] = LATE
        places = {_place(item) for item in items}
        self._firsts = {place: one for place, one in self._firsts.items() if place in places}
        return words

    def _known(self, item: BacklogItem, start: int) -> int | None:
        first = self._firsts.get(_place(item))
        return first.stored_ms if first is not None and first.is_of(item, start) else None

    def _is_late(self, stored_ms: int, as_of_ms: int) -> bool:
        return as_of_ms - stored_ms >= self._request.late_after_ms

    def _read(self, behind: Iterable[tuple[BacklogItem, int]], as_of_ms: int) -> None:
        wanted: list[tuple[BacklogItem, int, BacklogItem]] = []
        for item, start in behind:
            ahead = self._ahead(item, start, as_of_ms)
            if ahead is not None:
                wanted.append((item, start, ahead))
        wanted = wanted[: self._most]
        times = self._first_times([ahead for _, _, ahead in wanted], as_of_ms)
        for (item, start, _), (is_read, stored_ms) in zip(wanted, times, strict=True):
            if is_read:
                first = _First(item.expression, start, item.high, stored_ms)
                self._firsts[_place(item)] = first

    def _ahead(self, item: BacklogItem, start: int, as_of_ms: int) -> BacklogItem | None:
        """Return what is to be read of an item; None where what is known tells enough."""
        first = self._firsts.get(_place(item))
        takes_all = item.tag_filter(EXACT) is None and item.sql_filter(EXACT) is None
        if item.popped is not None:
            is_same = first is not None and first.is_of(item, start) and first.start == start
            return None if is_same else item
        if first is not None and first.is_of(item, start):
            if first.stored_ms is None:
                start = max(start, first.end)
            elif first.start == start or not self._is_late(first.stored_ms, as_of_ms):
                return None
        if start >= item.high:
            return None
        return replace(item, consumer_offset=start, high=start + 1 if takes_all else item.high)

    def _first_times(
        self, items: Sequence[BacklogItem], as_of_ms: int
    ) -> list[tuple[bool, int | None]]:
        """Return whether each could be read, and when its first message was stored (ms)."""
        try:
            rows = measure(items, self._request, as_of_ms) if items else None
        except StoreError as error:
            if is_of_absence(error):
                raise
            if len(items) == 1:
                _LOG.info("how long a message waits is not known: %s", error)
                return [(False, None)]
            return [one for item in items for one in self._first_times([item], as_of_ms)]
        if rows is None:
            return []
        times = pc.cast(rows["firstUnconsumedStoreTimestamp"], pa.int64()).to_pylist()
        return [(True, None if time is None else time // _US) for time in times]


def _place(item: BacklogItem) -> _GroupOfQueue:
    return item.origin, item.group, item.topic, item.queue_id


def _start(item: BacklogItem, start: int) -> int:
    """Return the first offset that a group has to consume or to acknowledge."""
    popped = item.popped
    return min(start, int(popped.open[0])) if popped is not None and len(popped.open) else start
