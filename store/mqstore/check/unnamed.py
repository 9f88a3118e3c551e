"""Messages that the log has and no ConsumeQueue names, and queues whose index is not queueOffset.

A broker of 4.9.7 that was started again after kill -9 left 29,480 messages out of its queues. From
there on a unit's index in the queue was lower than the queueOffset in its record: consumers never
get the messages between.
"""

from dataclasses import dataclass
from typing import Final

import numpy as np

from mqstore.check.finding import FindingPlace, Findings
from mqstore.derive.queue_units import ExpectedUnits, is_possible
from mqstore.errors import CorruptStoreError
from mqstore.files.base.store_dir import BY_LOG
from mqstore.files.queue.units import Units
from mqstore.format import names
from mqstore.format.arrays import Mask, TopicQueue

_COMPARED_UNITS: Final = 50_000
_MOST_LISTED: Final = 10_000  # queues: names in a log may be anything
_NO_NUMBER: Final = -1


@dataclass
class _Unnamed:
    count: int = 0
    first: int = _NO_NUMBER
    """The queueOffset of the first message that no unit names."""
    parted: int = 0
    index: int = _NO_NUMBER
    """The first unit whose record has another queueOffset, which is ``said``."""
    said: int = _NO_NUMBER


class UnnamedMessages:
    """Counts them queue by queue: ``add`` records that their own units do not name."""

    def __init__(self, findings: Findings) -> None:
        self._findings = findings
        self._found: dict[TopicQueue, _Unnamed] = {}
        self._others = 0

    def add(self, name: TopicQueue, queue: Units, high: int, wrong: ExpectedUnits) -> None:
        """Look for units of these records, in log order, anywhere in ``queue``, which ends at high.

        Light queues are passed over, because brokers drop them and make them anew, and so are names
        that no queue can have.
        """
        found = self._counted(name, len(wrong))
        if found is None:
            return
        is_named = _named(queue, high, wrong, found)
        left = wrong.queue_offsets[~is_named]
        if len(left) and not found.count:
            found.first = int(left[0])
        found.count += len(left)
        found.parted += int(is_named.sum())

    def add_all(self, name: TopicQueue, first: int, count: int) -> None:
        """Add so many messages of a queue without a ConsumeQueue, from a queue offset on."""
        found = self._counted(name, count)
        if found is not None:
            found.first, found.count = first, count

    def _counted(self, name: TopicQueue, count: int) -> _Unnamed | None:
        if not count or name[0].startswith(names.LMQ_PREFIX) or not is_possible(name):
            return None
        if name not in self._found and len(self._found) >= _MOST_LISTED:
            self._others += count
            return None
        return self._found.setdefault(name, _Unnamed())

    def report(self) -> None:
        """Report one finding for each queue with messages that no unit names, and where it parts.

        Warnings: each broken rule is an error already.
        """
        if self._others:
            problem = f"{self._others} records of more queues are not where their units should be"
            self._findings.warning(FindingPlace(names.CONSUME_QUEUE, None), problem)
        for queue, found in self._found.items():
            path = f"{names.CONSUME_QUEUE}/{queue[0]}/{queue[1]}"
            if found.count:
                problem = (
                    f"{found.count} messages of the log that no unit names, the first has "
                    f"queueOffset {found.first}. {BY_LOG}"
                )
                self._findings.warning(FindingPlace(path, None, *queue, found.first), problem)
            if found.parted:
                problem = (
                    f"index and queueOffset part: unit {found.index} has the record of queueOffset "
                    f"{found.said}, and {found.parted} units have records of another one"
                )
                self._findings.warning(FindingPlace(path, None, *queue, found.index), problem)


def _named(queue: Units, high: int, wrong: ExpectedUnits, found: _Unnamed) -> Mask:
    """Tell which records some unit names; note the first such unit."""
    places = wrong.units["physical_offset"].astype(np.int64)
    is_named = np.zeros(len(wrong), np.bool_)
    low = queue.room_low
    try:
        first = queue.first_behind(low, high, int(places[0]))
        last = queue.first_behind(first, high, int(places[-1]) + 1)
        for start in range(first, last, _COMPARED_UNITS):
            units = queue.read(start, min(last, start + _COMPARED_UNITS))
            there = units["physical_offset"].astype(np.int64)
            is_named |= np.isin(places, there)
            if found.index == _NO_NUMBER:
                rows = np.flatnonzero(np.isin(there, places))
                if len(rows):
                    found.index = start + int(rows[0])
                    row = int(np.flatnonzero(places == there[rows[0]])[0])
                    found.said = int(wrong.queue_offsets[row])
    except CorruptStoreError:
        return is_named  # A file is missing or short, which is reported by itself.
    return is_named
