"""The items of a backlog, one for each queue of each group, and how many of them travel."""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Final, TypeAlias

import numpy as np

from mqstore.backlog.request import EXACT, OFFSET
from mqstore.backlog.schema import SQL92
from mqstore.errors import InvalidOptionError
from mqstore.format.arrays import Int32s, Int64s, Mask
from mqstore.pop.state import PULL, PopStanding
from mqstore.read.source import Origin
from mqstore.read.sql.filter import SqlFilter, parse_sql
from mqstore.read.tags import TagFilter, parse_tags


@lru_cache(maxsize=1_024)
def broker_filter(expression: str | None) -> SqlFilter | None:
    """Return the filter of an expression that a broker took; None if it is not valid."""
    try:
        return parse_sql(expression, as_broker=True)
    except InvalidOptionError:
        return None


@dataclass(frozen=True, slots=True)
class BacklogItem:
    """One queue of one group: what a task needs to measure it. [low, high) is held.

    ``consumers`` are those of the group that are connected to the broker now, None of a store.
    ``popped`` is what a POP group has popped and not acknowledged; None for one that pulls.
    ``retry_of`` is the topic whose messages a POP group's retry topic has; it does not travel.
    """

    origin: Origin
    broker_name: str
    group: str
    topic: str
    queue_id: int
    low: int
    high: int
    consumer_offset: int | None = None
    subscription: str | None = None
    topic_gone: bool = False
    expression_type: str | None = None
    consumers: int | None = None
    mode: str = PULL
    popped: PopStanding | None = None
    retry_of: str | None = None
    local_low: int | None = None
    """Where the local log begins; before it tiered storage has messages. None: not tiered."""

    def is_of(self, passes: Callable[[str, int | None], bool]) -> bool:
        """Tell whether its topic and queue pass, or the topic that its retry topic belongs to."""
        own = passes(self.topic, self.queue_id)
        return own or (self.retry_of is not None and passes(self.retry_of, None))

    @property
    def lag(self) -> int:
        """Messages held and not consumed, or not acknowledged."""
        start = self.consumed if self.popped is None else self.popped.begin
        open_ = 0 if self.popped is None else len(self.popped.open)
        return self.high - min(max(start, self.low), self.high) + open_

    @property
    def consumed(self) -> int:
        """The committed offset as consumerProgress shows it: at least 0."""
        return max(self.consumer_offset or 0, 0)

    @property
    def expression(self) -> tuple[str | None, str | None]:
        """What the group subscribes to: the kind and the text."""
        return self.expression_type, self.subscription

    @property
    def tag_expression(self) -> str | None:
        """The subscription if it is by tag."""
        return None if self.expression_type == SQL92 else self.subscription

    def tag_filter(self, lag_mode: str) -> TagFilter | None:
        """Return which tags the subscription lets pass; None for every message."""
        return None if lag_mode == OFFSET else parse_tags(self.tag_expression)

    def sql_filter(self, lag_mode: str) -> SqlFilter | None:
        """Return what a subscription by SQL92 lets pass; None for every message."""
        is_sql = lag_mode == EXACT and self.expression_type == SQL92
        return broker_filter(self.subscription) if is_sql else None


_Queue: TypeAlias = tuple[Origin, str, str, int, int, int, bool, int | None]
_GroupOfItems: TypeAlias = tuple[str, str | None, str | None, int | None, str, str]
_POP_FIELDS: Final = 6


@dataclass(frozen=True, slots=True, eq=False)
class PackedItems:
    """Items as they travel: what many of them have in common is there once.

    Item i is ``queues[queue[i]]`` for the group ``groups[group[i]]``, which stands at
    ``committed[i]`` unless ``never[i]``. Of those of POP groups, ``popped`` has the fields
    of PopStanding up to ``expired``, -1 for None, and how many messages are open; ``open`` has
    these offsets.
    """

    queues: tuple[_Queue, ...]
    groups: tuple[_GroupOfItems, ...]
    queue: Int32s
    group: Int32s
    committed: Int64s
    never: Mask
    popped: Int64s
    open: Int64s

    @classmethod
    def of(cls, items: Iterable[BacklogItem]) -> "PackedItems":
        """Pack items."""
        queues: dict[_Queue, int] = {}
        groups: dict[_GroupOfItems, int] = {}
        rows = []
        pops: list[PopStanding] = []
        for i in items:
            name = i.origin, i.broker_name, i.topic, i.queue_id
            queue = *name, i.low, i.high, i.topic_gone, i.local_low
            status = "" if i.popped is None else i.popped.status
            group = i.group, i.subscription, i.expression_type, i.consumers, i.mode, status
            if i.popped is not None:
                pops.append(i.popped)
            number = queues.setdefault(queue, len(queues))
            committed = i.consumer_offset
            rows.append(
                (number, groups.setdefault(group, len(groups)), committed or 0, committed is None)
            )
        numbers = np.array(rows, np.int64).reshape(-1, 4).T
        return cls(
            tuple(queues),
            tuple(groups),
            numbers[0].astype(np.int32),
            numbers[1].astype(np.int32),
            numbers[2].copy(),
            numbers[3].astype(np.bool_),
            np.array([_numbers_of(one) for one in pops], np.int64).reshape(-1, _POP_FIELDS + 1),
            np.concatenate([np.empty(0, np.int64), *(one.open for one in pops)]),
        )

    def items(self) -> list[BacklogItem]:
        """Return the items, in their order."""
        columns = (self.queue, self.group, self.committed, self.never)
        pops = self._pops()
        found = []
        for queue, group, committed, never in zip(*(c.tolist() for c in columns), strict=True):
            origin, broker, topic, queue_id, low, high, gone, local_low = self.queues[queue]
            name, subscription, kind, consumers, mode, status = self.groups[group]
            popped = None if mode == PULL else replace(next(pops), status=status)
            found.append(
                BacklogItem(
                    origin, broker, name, topic, queue_id, low, high,
                    None if never else committed, subscription, gone, kind, consumers, mode,
                    popped, None, local_low,
                )
            )  # fmt: skip
        return found

    def _pops(self) -> Iterator[PopStanding]:
        start = 0
        for begin, ready, inflight, due, again, expired, count in self.popped.tolist():
            open_ = self.open[start : start + count]
            known = _known(inflight), _known(due), _known(again)
            yield PopStanding(begin, ready, *known, expired, open_)
            start += count


def _known(number: int) -> int | None:
    return None if number < 0 else number


def _numbers_of(one: PopStanding) -> tuple[int, ...]:
    numbers = one.begin, one.ready, one.inflight, one.due, one.redelivered, one.expired
    return *(-1 if number is None else number for number in numbers), len(one.open)
