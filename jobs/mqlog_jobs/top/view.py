"""What of the rows of ``mqlog top`` is shown: their order, a filter, the chosen one, its queues."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final

from mqlog_jobs.top.meter import Flow, GroupTopic
from mqlog_jobs.top.orders import TOP_ORDERS

SORT_KEYS: Final[Mapping[str, str]] = {name[0]: name for name in TOP_ORDERS}
"""The orders by their keys; those with most come first."""
ESCAPE: Final = "\x1b"
_MOVES: Final = {"\x1b[A": -1, "k": -1, "\x1b[B": 1, "j": 1, "\x1b[5~": -10, "\x1b[6~": 10}
_ENTER: Final = {"\r", "\n"}
_ERASE: Final = {"\x7f", "\b"}
_FILTER: Final = "/"
_MOST_CHARACTERS: Final = 64


@dataclass(frozen=True, slots=True)
class Sorting:
    """The order of the rows: a word of SORT_KEYS; ``back``: the other way round."""

    by: str = "lag"
    back: bool = False

    def of(self, flows: Sequence[Flow]) -> list[Flow]:
        """Return the flows in this order, topics behind them to which nothing is stored."""
        names = sorted(flows, key=lambda flow: (flow.group is None, flow.group or "", flow.topic))
        if self.by == "group":
            ordered = names[::-1] if self.back else names
        else:
            ordered = sorted(names, key=lambda flow: _value(flow, self.by), reverse=not self.back)
        return sorted(ordered, key=_is_idle)


@dataclass(frozen=True, slots=True)
class Shown:
    """What is shown: the rows whose group or topic has ``pattern``, in an order.

    ``typing``: keys are characters of the pattern. ``cursor`` is the number of the chosen row;
    with ``opened``, a group (or a topic without one), of the first of its queues that is shown.
    """

    sorting: Sorting
    cursor: int = 0
    pattern: str = ""
    typing: bool = False
    opened: GroupTopic | None = None

    def rows(self, flows: Sequence[Flow]) -> list[Flow]:
        """Return the flows that are shown, in their order."""
        text = self.pattern.lower()
        found = [
            flow
            for flow in flows
            if text in flow.topic.lower() or text in (flow.group or "").lower()
        ]
        return self.sorting.of(found)

    def after(self, key: str, flows: Sequence[Flow], queues: int = 0) -> "Shown | None":
        """Return it after a key; None if the key ends it.

        ``flows`` are all rows, ``queues`` how many queues are there of what is opened.
        """
        if self.typing:
            return self._typed(key)
        if key in {"q", "Q"}:
            return None
        if key == ESCAPE:
            return self._left()
        if self.opened is not None:
            return self._scrolled(key, queues)
        return self._chosen(key, self.rows(flows))

    def _typed(self, key: str) -> "Shown":
        if key in _ENTER:
            return replace(self, typing=False)
        if key == ESCAPE:
            return replace(self, typing=False, pattern="", cursor=0)
        if key in _ERASE:
            return replace(self, pattern=self.pattern[:-1], cursor=0)
        if len(key) == 1 and key.isprintable() and len(self.pattern) < _MOST_CHARACTERS:
            return replace(self, pattern=self.pattern + key, cursor=0)
        return self

    def _left(self) -> "Shown | None":
        """Return it without the queues, else without the filter; None if there is neither."""
        if self.opened is not None:
            return replace(self, opened=None, cursor=0)
        return replace(self, pattern="", cursor=0) if self.pattern else None

    def _scrolled(self, key: str, queues: int) -> "Shown":
        if key in _ENTER:
            return replace(self, opened=None, cursor=0)
        return self._moved(key, queues)

    def _chosen(self, key: str, rows: Sequence[Flow]) -> "Shown":
        if key in SORT_KEYS:
            by = SORT_KEYS[key]
            back = not self.sorting.back if by == self.sorting.by else False
            return replace(self, sorting=Sorting(by, back=back), cursor=0)
        if key == "r":
            return replace(self, sorting=replace(self.sorting, back=not self.sorting.back))
        if key == _FILTER:
            return replace(self, typing=True, pattern="", cursor=0)
        if key in _ENTER and rows:
            chosen = rows[min(self.cursor, len(rows) - 1)]
            return replace(self, opened=(chosen.group, chosen.topic), cursor=0)
        return self._moved(key, len(rows))

    def _moved(self, key: str, rows: int) -> "Shown":
        if key not in _MOVES:
            return self
        return replace(self, cursor=min(max(self.cursor + _MOVES[key], 0), max(rows - 1, 0)))


def _is_idle(flow: Flow) -> bool:
    return flow.group is None and not flow.stored


def _value(flow: Flow, by: str) -> float:
    """Return what to sort by; what is not known is least, what never comes is most."""
    if by == "lag":
        return -1 if flow.lag is None else flow.lag
    if by == "time":
        if flow.lag is None:
            return -1
        return math.inf if flow.caught_up_s is None else flow.caught_up_s
    found = flow.stored if by == "in" else flow.consumed
    return -math.inf if found is None else found
