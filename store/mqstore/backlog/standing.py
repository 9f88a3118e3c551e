"""The formulas of the backlog: lag, expired messages and status, for many groups at once."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from operator import attrgetter
from typing import Final, Protocol

import numpy as np
import pyarrow as pa

from mqstore.backlog.schema import (
    AHEAD,
    EXPIRED,
    NEVER_COMMITTED,
    NO_CONSUMERS,
    OK,
    TIERED,
    TOPIC_GONE,
)
from mqstore.format.arrays import Int64s, Mask
from mqstore.pop.state import KV_UNKNOWN, POP_BUFFERED, POP_UNKNOWN

_STATUS: Final = (
    *(TOPIC_GONE, NEVER_COMMITTED, AHEAD, EXPIRED, TIERED),
    *(KV_UNKNOWN, POP_UNKNOWN, POP_BUFFERED, NO_CONSUMERS, OK),
)  # fmt: skip
_DOUBTS: Final = (KV_UNKNOWN, POP_UNKNOWN, POP_BUFFERED)


class _Popped(Protocol):
    @property
    def begin(self) -> int: ...
    @property
    def expired(self) -> int: ...
    @property
    def open(self) -> Int64s: ...
    @property
    def status(self) -> str: ...


class _Item(Protocol):
    @property
    def low(self) -> int: ...
    @property
    def high(self) -> int: ...
    @property
    def consumer_offset(self) -> int | None: ...
    @property
    def topic_gone(self) -> bool: ...
    @property
    def consumers(self) -> int | None: ...
    @property
    def popped(self) -> _Popped | None: ...
    @property
    def local_low(self) -> int | None: ...


@dataclass(frozen=True, slots=True)
class Standing:
    """n groups, each in a queue: int64[n] each, and bool[n]. [low, high) is held.

    ``consumed`` is the committed offset as consumerProgress shows it: at least 0. ``unattended``
    groups have no consumer that is connected; of a store that is not known. Before ``local_low``
    tiered storage has the messages.

    A group that pulls has consumed all before its committed offset, a POP group all before
    ``begin`` but ``open`` messages. ``expired`` messages were deleted before they were consumed:
    of a group that pulls, diff = lag + expired.
    """

    low: Int64s
    high: Int64s
    consumed: Int64s
    begin: Int64s
    open: Int64s
    expired: Int64s
    never_committed: Mask
    topic_gone: Mask
    unattended: Mask
    local_low: Int64s
    doubts: Mapping[str, Mask]
    """By a status word of POP: which groups it is said of."""

    @classmethod
    def of(cls, items: Sequence[_Item]) -> "Standing":
        """Return where the groups of ``items`` stand."""
        count = len(items)
        low, high = (
            np.fromiter(map(attrgetter(name), items), np.int64, count) for name in ("low", "high")
        )
        committed = [item.consumer_offset for item in items]
        never = np.fromiter((one is None for one in committed), np.bool_, count)
        consumed = np.maximum(np.fromiter((one or 0 for one in committed), np.int64, count), 0)
        gone = np.fromiter(map(attrgetter("topic_gone"), items), np.bool_, count)
        consumers = [item.consumers for item in items]
        unattended = np.fromiter((one == 0 for one in consumers), np.bool_, count)
        begin, open_ = consumed.copy(), np.zeros(count, np.int64)
        expired = np.maximum(low - consumed, 0)
        doubts = {word: np.zeros(count, np.bool_) for word in _DOUBTS}
        for number, popped in enumerate([item.popped for item in items]):
            if popped is None:
                continue
            begin[number], expired[number] = popped.begin, popped.expired
            open_[number] = len(popped.open)
            if popped.status:
                doubts[popped.status][number] = True
        amounts = consumed, begin, open_, expired
        local = (item.low if item.local_low is None else item.local_low for item in items)
        local_low = np.fromiter(local, np.int64, count)
        return cls(low, high, *amounts, never, gone, unattended, local_low, doubts)

    @property
    def start(self) -> Int64s:
        """The first offset held from which on nothing was consumed; ``high`` if there is none."""
        return np.minimum(np.maximum(self.begin, self.low), self.high)

    @property
    def ahead(self) -> Int64s:
        """Messages held from ``start`` on."""
        return self.high - self.start

    @property
    def lag(self) -> Int64s:
        """Messages held and not consumed."""
        return self.ahead + self.open

    @property
    def diff(self) -> Int64s:
        """The number consumerProgress prints: never clamped, negative if the group is ahead."""
        return self.high - self.consumed

    @property
    def last_consumed(self) -> Int64s:
        """The queue offset before the committed one, if it is held; else -1."""
        held = (self.low < self.consumed) & (self.consumed <= self.high)
        return np.where(held, self.consumed - 1, -1)

    @property
    def status(self) -> pa.StringArray:
        """One word for each, the most telling that is true."""
        holds = [
            self.topic_gone,
            self.never_committed,
            self.consumed > self.high,
            self.expired > 0,
            (self.start < self.local_low) & (self.lag > 0),
            *(self.doubts[word] for word in _DOUBTS),
            self.unattended & (self.lag > 0),
        ]
        # Made here: the first array that Arrow makes of Python's values imports pandas.
        return pa.array(_STATUS).take(pa.array(np.select(holds, range(len(holds)), len(holds))))
