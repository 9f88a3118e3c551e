"""Selects the records of a queue that keep their queue offsets.

No checksum covers QUEUEOFFSET, and a broker may have given one twice. In a queue that a broker
wrote, queue offsets and places in the log ascend together, and between two of its records
there are no more queue offsets than records had room there. Records that break this are set aside:
of two with one queue offset, the one that fits between its neighbours stays, and the first in
the log if both do. A record of a batch ConsumeQueue has as many queue offsets as messages.
"""

from bisect import bisect_left
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Final

import numpy as np

from mqstore.codec.filler import MIN_FILLER_BYTES
from mqstore.codec.inner_batch import NOT_FILLED
from mqstore.derive.log_queues import LogQueues
from mqstore.derive.log_sections import LogUnits
from mqstore.format.arrays import Int64s, Mask, TopicQueue
from mqstore.format.client_message import LEAST_CLIENT_BYTES

TWICE: Final = "another record has its queue offset"
OUT_OF_ORDER: Final = "its queue offset does not fit its place in the log"

_CHOSEN_UNITS: Final = 1 << 20
_ALL: Final = 2**63


Counting = Callable[[LogUnits], Int64s]
"""Returns how many messages the record of each unit holds; 0 for a batch that breaks a rule."""


@dataclass(frozen=True, slots=True)
class Selected:
    """Units of a queue that stay, by ascending queue offset, and those that do not, and why."""

    kept: LogUnits
    ends: Int64s
    """The queue offset behind the last message of each kept one."""
    aside: LogUnits
    reasons: list[str]
    earlier: int
    """How many more lie before the records that count."""


def select(
    queues: LogQueues,
    queue: TopicQueue,
    begin: int,
    apart: Callable[[Int64s], Int64s],
    counting: Counting | None = None,
) -> Iterator[Selected]:
    """Yield a queue's units, about a million at a time: of records from a physical offset on.

    ``apart`` moves places apart by the bytes that were lost between them; ``counting`` is given for
    a batch ConsumeQueue. Raises CorruptStoreError, OSError.
    """
    last = (-1, -1)
    least = MIN_FILLER_BYTES if counting is None else LEAST_CLIENT_BYTES
    for found in _chunks(queues, queue):
        units = found.take(found.physical_offsets >= begin)
        counts = np.ones(len(units), np.int64) if counting is None else counting(units)
        whole = np.flatnonzero(counts > 0)
        numbers, places = units.queue_offsets[whole], apart(units.physical_offsets[whole])
        kept, reasons = _choose(numbers, places, *last, counts=counts[whole], least=least)
        chosen = whole[kept]
        ends = units.queue_offsets[chosen] + counts[chosen]
        if len(chosen):
            last = int(ends[-1]) - 1, int(places[kept][-1])
        told = {int(whole[row]): reason for row, reason in reasons.items()}
        aside = _others(np.arange(len(units)), chosen)
        why = [told.get(row, NOT_FILLED) for row in aside.tolist()]
        earlier = len(found) - len(units)
        yield Selected(units.take(chosen), ends, units.take(aside), why, earlier)


def _chunks(queues: LogQueues, queue: TopicQueue) -> Iterator[LogUnits]:
    parts: list[LogUnits] = []
    count = 0
    for units in queues.units(queue, 0, _ALL):
        parts.append(units)
        count += len(units)
        if count >= _CHOSEN_UNITS:
            yield LogUnits.joined(parts)
            parts, count = [], 0
    if parts:
        yield LogUnits.joined(parts)


def _choose(
    numbers: Int64s,
    places: Int64s,
    last_number: int,
    last_place: int,
    *,
    counts: Int64s | None = None,
    least: int = MIN_FILLER_BYTES,
) -> tuple[Mask, dict[int, str]]:
    """Tell which units stay behind the last one kept before, and why the others do not.

    ``counts`` are how many queue offsets each has, 1 if not given; a message has ``least`` bytes.
    """
    lasts = numbers if counts is None else numbers + counts - 1
    kept = numbers > last_number
    reasons = dict.fromkeys(np.flatnonzero(~kept).tolist(), TWICE)
    for row in _doubles(numbers, places):
        kept[row] = False
        reasons.setdefault(row, TWICE)
    rows = np.flatnonzero(kept)
    wrong = _others(rows, rows[_ascending(places[rows], last_place)])
    kept[wrong] = False
    rows = np.flatnonzero(kept)
    reach = np.maximum.accumulate(np.append(last_number, lasts[rows]))
    overlapping = rows[numbers[rows] <= reach[:-1]]
    kept[overlapping] = False
    wrong = np.append(wrong, overlapping)
    rows = np.flatnonzero(kept)
    fitting = _within_room((numbers, lasts, places), rows, (last_number, last_place), least)
    wrong = np.append(wrong, _others(rows, fitting))
    kept[wrong] = False
    return kept, reasons | dict.fromkeys(wrong.tolist(), OUT_OF_ORDER)


def _others(rows: Int64s, chosen: Int64s) -> Int64s:
    """Return the rows that are not chosen; none is there twice."""
    return np.setdiff1d(rows, chosen, assume_unique=True)


def _doubles(numbers: Int64s, places: Int64s) -> list[int]:
    """Return the units to drop where several have one queue offset.

    The unit whose place is between those of its neighbours stays.
    """
    starts = np.flatnonzero(np.diff(numbers, prepend=-1) != 0)
    ends = np.append(starts[1:], len(numbers))
    dropped: list[int] = []
    several = np.flatnonzero(ends - starts > 1)
    before = -1
    for group in several.tolist():
        first, end = int(starts[group]), int(ends[group])
        if first and (not dropped or dropped[-1] < first - 1):
            before = int(places[first - 1])
        after = int(places[end]) if end < len(places) else _ALL
        fits = [row for row in range(first, end) if before < int(places[row]) < after]
        kept = (fits or [first])[0]
        before = int(places[kept])
        dropped += [row for row in range(first, end) if row != kept]
    return dropped


def _ascending(places: Int64s, last_place: int) -> Int64s:
    """Return the rows of the longest ascending part of ``places`` behind ``last_place``."""
    if not len(places) or (places[0] > last_place and (np.diff(places) > 0).all()):
        return np.arange(len(places))
    tails: list[int] = []
    tail_rows: list[int] = []
    before = np.full(len(places), -1)
    for row, place in enumerate(places.tolist()):
        if place <= last_place:
            continue
        at = bisect_left(tails, place)
        before[row] = tail_rows[at - 1] if at else -1
        if at == len(tails):
            tails.append(place)
            tail_rows.append(row)
        else:
            tails[at], tail_rows[at] = place, row
    found = []
    row = tail_rows[-1] if tail_rows else -1
    while row >= 0:
        found.append(row)
        row = int(before[row])
    return np.array(found[::-1], np.int64)


def _within_room(
    columns: tuple[Int64s, Int64s, Int64s], rows: Int64s, last: tuple[int, int], least: int
) -> Int64s:
    """Return ``rows`` without those apart by more queue offsets than messages had room between.

    ``columns`` are first and last queue offsets, and places; ``last`` are last queue offset and
    place of the unit kept before; -1 if there is none.
    """
    last_number, last_place = last
    numbers, lasts, places = columns
    if last_number >= 0:
        numbers, lasts = np.append(numbers, last_number), np.append(lasts, last_number)
        places = np.append(places, last_place)
        rows = np.append(len(numbers) - 1, rows)
    steps, room = numbers[rows[1:]] - lasts[rows[:-1]], np.diff(places[rows]) // least
    begin = 0
    for end in (np.flatnonzero(steps > room) + 1).tolist():
        # The fewer are wrong; before this chunk more were right.
        if last_number >= 0 or end - begin >= len(rows) - end:
            rows = rows[:end]
            break
        begin = end
    return rows[1:] if last_number >= 0 else rows[begin:]
